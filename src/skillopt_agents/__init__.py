"""Command lines that people have: how each is called, how its output is read, and what its complaints mean.

Command lines do tasks (tasks/command.py) or answer requests (models/command.py).
"""
