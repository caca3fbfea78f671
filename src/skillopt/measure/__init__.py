"""What a skill is worth."""
