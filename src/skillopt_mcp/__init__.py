"""SkillOpt as an MCP server: an agent plans, starts, watches and stops runs, answers their letters and reads the
results."""
