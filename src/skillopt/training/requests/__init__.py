"""What the optimizer is shown, and how its replies are read.

context.py has the values, compose.py turns them into a request for each stage, replies.py says what form the reply must
have and reads it. The instructions are in prompts/, one Markdown file a stage.
"""
