"""SkillOpt as an MCP server: an agent plans, starts, watches and stops runs, answers their letters, reads results."""
