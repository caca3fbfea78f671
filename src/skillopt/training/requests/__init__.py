"""Requests to the optimizer, and the reading of its replies.

context.py has the values, compose.py turns them into a request for each stage, replies.py says what form the reply must
have and reads it. The instructions are in prompts/, one Markdown file per stage.
"""
