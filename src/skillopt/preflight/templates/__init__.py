"""The templates of `skillopt init`."""
