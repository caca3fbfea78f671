"""SkillOpt as an MCP server: an agent plans, starts, watches and stops runs, answers the letters of runs and reads the
results."""
