"""What becomes of proposals."""
