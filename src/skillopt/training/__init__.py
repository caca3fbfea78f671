"""The training loop, one file a stage."""
