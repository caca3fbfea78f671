#!/bin/sh
# dspy for a test of `make test-all`, in a folder of its own: it needs another version of openai than our other extras.
# Never fails: without it that test is skipped and says so.
[ -d .venv/dspy/dspy ] && exit 0
.venv/bin/python -m pip install --quiet --disable-pip-version-check --target .venv/dspy 'dspy>=3,<4' >/dev/null 2>&1 && exit 0
echo "No dspy here: the test of its metrics will be skipped."
echo "To run it: .venv/bin/pip install --target .venv/dspy 'dspy>=3,<4'"
