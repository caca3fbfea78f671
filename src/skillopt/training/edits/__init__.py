"""The proposed edits on their way to a candidate: merged, reviewed, selected, applied."""
