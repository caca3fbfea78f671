"""Who decides whether a candidate is kept."""
