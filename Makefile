# `make quickstart`, `make test` and `make test-all` install what they need into .venv.
.DEFAULT_GOAL := help
.PHONY: help install quickstart test quick test-all test-ray test-agents lint format lock audit chaos fuzz docs bench soak clean

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
LOCAL := .venv/.installed-local
TOOLS := .venv/.installed-tools
ALL := .venv/.installed-all

help:            ## show this list
	@grep -hE '^[a-z-]+: *.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

# If $CI is set, exactly the versions of requirements.lock are installed; otherwise any that pyproject.toml allows.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit("SkillOpt needs Python 3.11 or newer: make PYTHON=python3.12 …" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
ifdef CI
	$(PIP) --require-hashes --requirement requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
endif
	@touch $(STAMP)

$(LOCAL): EXTRAS := local
$(TOOLS): EXTRAS := dev
$(ALL): EXTRAS := dev-all
$(LOCAL) $(TOOLS) $(ALL): $(STAMP)
	$(if $(CI),,$(PIP) --editable '.[$(EXTRAS)]')
	@touch $@

install: $(ALL)      ## create .venv and install everything that quickstart and all tests need

quickstart: $(LOCAL) ## train a skill on this machine, without a key, and show its gain
	@$(BIN)/skillopt train --config configs/quickstart/default.yaml

# The tests start many processes. Each would compile all modules again if Python could not store the compiled files.
test test-all: export PYTHONDONTWRITEBYTECODE :=

test: $(TOOLS)       ## lint, types, import directions; unit and end-to-end tests in the simulated world (3 minutes)
	@$(MAKE) --no-print-directory -j2 lint quick

quick: $(TOOLS)      ## only the tests of `make test`, without lint and types
	$(BIN)/pytest -n auto --dist worksteal -m quick

test-all: $(ALL)     ## the tests that `make test` leaves out: browser, real model, games, trackers, docs, wheel, chaos, fuzz, sandbox
	@scripts/install_chromium.sh
	@scripts/install_axe.sh
	@scripts/install_dspy.sh
	$(BIN)/pytest -n auto --dist worksteal -m "not quick"

test-ray: $(ALL)     ## the tests that start a Ray cluster (installs the extra: large)
	$(PIP) --editable '.[ray]'
	$(BIN)/pytest -m ray tests/tasks/test_executor.py

test-agents: $(TOOLS) ## tests of real coding agents as optimizer and target, with a model on this machine (installs 1.4 GB)
	scripts/install_agents.sh
	$(BIN)/pytest -m agents tests/coding_agents/test_real_agents.py

lint: $(TOOLS)       ## check with ruff and mypy (strict), and check the directions of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(TOOLS)     ## rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(TOOLS)       ## update requirements.lock: the newest versions for all platforms, with hashes
	$(PIP) uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command 'make lock' --upgrade --extra dev-all pyproject.toml -o requirements.lock

audit:           ## list known vulnerabilities of the packages in requirements.lock (asks osv.dev; exit code 3 if it cannot be reached)
	@$(PYTHON) scripts/audit.py requirements.lock

chaos: $(TOOLS)      ## kill real trainings 200 times, cut their power and their server; all must end with the same result
	$(BIN)/python tests/chaos.py

fuzz: $(ALL)         ## try a million wrong inputs (fewer with SECONDS=600 or CASES=50000; only one part with ONLY=web)
	$(BIN)/python tests/fuzz/run.py --cases $(or $(CASES),1000000) --seconds $(or $(SECONDS),0) --only "$(ONLY)"

docs: $(ALL)         ## write docs/reference/ from the code, and build the site into site/, offline
	$(BIN)/python scripts/make_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(ALL)        ## run the benchmarks of speed, faults and gates; times are ratios within one run
	$(BIN)/python bench/run.py

soak: $(TOOLS)       ## 20,000 rollouts with 1 % of each fault; check memory, open files and scores (some minutes)
	$(BIN)/python bench/run.py soak

clean:           ## remove .venv and caches (runs in outputs/ stay)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
