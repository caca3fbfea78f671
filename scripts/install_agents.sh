#!/usr/bin/env bash
# Installs the coding agents that `make test-agents` runs, from the npm registry into .venv/agents (1.4 GB).
# The agents need no account: in the tests they call a model on this machine.
set -eu
cd "$(dirname "$0")/.."
folder=.venv/agents
command -v npm >/dev/null || { echo "npm is missing: install Node.js 20 or newer" >&2; exit 2; }
mkdir -p "$folder"
npm install --no-audit --no-fund --silent --prefix "$folder" \
  @anthropic-ai/claude-code@2.1.197 @github/copilot@1 @google/gemini-cli@0.61.0 \
  @openai/codex@0.166.0 @qwen-code/qwen-code@0.15.10 opencode-ai@1.18.33
ls "$folder/node_modules/.bin" | grep -E '^(claude|codex|copilot|gemini|opencode|qwen)$'
