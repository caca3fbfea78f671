"""Checks before anything is paid for."""
