"""Readers of sessions, traces and evals: one for each kind of source."""
