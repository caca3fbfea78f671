"""The benchmarks of the paper, and others. They are registered as envs through entry points, as the envs of any package
are."""
