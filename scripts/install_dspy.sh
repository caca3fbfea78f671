#!/bin/sh
# Installs dspy for a test of `make test-all`, in a separate folder: dspy needs another version of openai than the
# extras of SkillOpt. Never fails: without dspy, the test is skipped.
[ -d .venv/dspy/dspy ] && exit 0
.venv/bin/python -m pip install --quiet --disable-pip-version-check --target .venv/dspy 'dspy>=3,<4' >/dev/null 2>&1 && exit 0
echo "No dspy here: the test of its metrics will be skipped."
echo "To run it: .venv/bin/pip install --target .venv/dspy 'dspy>=3,<4'"
