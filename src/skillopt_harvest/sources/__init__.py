"""Readers of sessions, traces and evals, by the name of their source."""
