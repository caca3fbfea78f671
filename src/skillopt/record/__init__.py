"""What a run leaves: its folder, its journal of paid calls, its state."""
