"""Makes a candidate of the proposed edits: merges, reviews, selects and applies them."""
