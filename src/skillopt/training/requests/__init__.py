"""Writes requests to the optimizer, and reads its replies.

context.py has the facts, compose.py writes a request for each stage, and replies.py defines the form of the replies and
reads them. The instructions are in prompts/, one Markdown file per stage.
"""
