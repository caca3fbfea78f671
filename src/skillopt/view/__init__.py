"""Reports, charts, console output and trackers."""
