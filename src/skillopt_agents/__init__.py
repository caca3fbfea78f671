"""Command-line programs of coding agents: how to call each program, parse its output and classify its errors.

These programs do tasks (tasks/command.py) or answer requests (models/command.py).
"""
