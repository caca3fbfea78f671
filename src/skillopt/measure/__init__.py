"""Measuring skills."""
