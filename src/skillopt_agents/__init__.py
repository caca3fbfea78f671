"""Command lines that people have: how each is called, how its output is read, and what its complaints mean.

Used where a command line does tasks (tasks/command.py) and where one answers requests (models/command.py).
"""
