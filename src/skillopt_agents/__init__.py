"""Command-line programs of coding agents: how to call each program, read its output and understand its errors.

These programs do tasks (tasks/command.py) or answer requests (models/command.py).
"""
