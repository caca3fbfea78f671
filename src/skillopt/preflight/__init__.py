"""Checks and plans that are made before anything is paid for, and `skillopt init`."""
