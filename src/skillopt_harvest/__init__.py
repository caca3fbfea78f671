"""Turns what people already have into tasks: sessions with coding agents, traces and evals.

    harvest   sources → redaction → corrections → tasks        collect.py, mine.py, mine_llm.py
    review    decide on each task; write the tasks file         review.py, task_files.py
    propose   compare a run's skill with the installed one      propose.py
    adopt     install the proposed skill, or undo that          adopt.py

The text of a transcript is only data: it is never used as a path and never executed. A mined command runs only after
review and in the sandbox, as every command check does.
"""
