# Two commands do all the set-up: `make quickstart` and `make test`.
.DEFAULT_GOAL := help
.PHONY: help install quickstart test test-ray lint format chaos fuzz docs bench clean

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

help:            ## show this list
	@grep -hE '^[a-z-]+: *.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("SkillOpt needs Python 3.11 or newer: make PYTHON=python3.12 …" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,local]'
	@touch $(STAMP)

install: $(STAMP)    ## create .venv and install everything that quickstart and the tests need

quickstart: $(STAMP) ## train a skill on this machine, without a key, and show what it gained
	@$(BIN)/skillopt train --config configs/quickstart/default.yaml

test: $(STAMP) lint  ## lint, types, import directions and all tests
	@scripts/install_chromium.sh
	$(BIN)/pytest -n auto

test-ray: $(STAMP)   ## the tests that start a Ray cluster (installs the extra: large)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[ray]'
	$(BIN)/pytest -m ray tests/test_executor.py

lint: $(STAMP)       ## ruff, strict types, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP)     ## rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

chaos: $(STAMP)      ## kill real trainings 200 times, cut their power and their server; all must end alike
	$(BIN)/python tests/chaos.py

fuzz: $(STAMP)       ## a million cases of input that nobody should send (SECONDS=600 or CASES=50000 for fewer, ONLY=web)
	$(BIN)/python tests/fuzz/run.py --cases $(or $(CASES),1000000) --seconds $(or $(SECONDS),0) --only "$(ONLY)"

docs: $(STAMP)       ## write the references from the code and build the site into site/, offline
	$(BIN)/python scripts/make_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(STAMP)      ## measure speed; results are ratios of one run
	$(BIN)/python bench/run.py

clean:           ## remove .venv and caches (runs in outputs/ stay)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
