"""Child processes: starting, talking to and ending them."""
