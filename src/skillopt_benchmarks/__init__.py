"""The benchmarks of the paper and others, registered like any package of envs."""
