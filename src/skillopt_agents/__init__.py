"""Coding agents' command lines: how to call each, how to read its output, and what its errors mean.

Command lines do tasks (tasks/command.py) or answer requests (models/command.py).
"""
