"""What `skillopt init` writes: the files of this folder, filled in."""
