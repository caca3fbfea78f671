"""Makes a candidate from the proposed edits: merges, reviews, selects and applies them."""
