"""What the optimizer is shown, and how its replies are read. Each request to the optimizer is a letter.

case.py has the values, compose.py turns them into a letter for each stage, schemas.py says what form the reply must
have, replies.py reads it. The instructions are in prompts/, one Markdown file a stage.
"""
