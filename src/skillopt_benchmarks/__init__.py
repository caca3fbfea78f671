"""The benchmarks of the paper, and others. Like the envs of other packages, they are registered by entry points."""
