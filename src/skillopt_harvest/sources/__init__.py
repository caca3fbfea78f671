"""Readers of sessions, traces and evals from each kind of source."""
