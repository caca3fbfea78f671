"""Tasks from what people already have: sessions with coding agents, traces, evals.

    harvest   sources → redaction → corrections → tasks        collect.py, mine.py, mine_llm.py
    review    keep, edit, drop, merge; the tasks file           review.py, task_files.py
    propose   a run's skill next to the installed one           propose.py
    adopt     put it in place, and undo                         adopt.py

Text of a transcript is data: it is never a path and never executed. A mined command runs only after review, in the
sandbox, as every command check does.
"""
