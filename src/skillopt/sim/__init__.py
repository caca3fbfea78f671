"""The simulated world: tasks, target, optimizer and server without a language model."""
