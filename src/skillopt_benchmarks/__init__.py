"""The paper's benchmarks and others. They are registered as envs through entry points, like those of any package."""
