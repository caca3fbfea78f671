"""The files of a run: its folder, its journal of paid calls, its state."""
