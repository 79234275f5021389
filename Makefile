# The same names for people and for CI. `make` alone prints them.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test quick coverage check check-lowest check-pythons check-packages release-dry-run sbom check-slow check-long check-spark check-spark-cluster check-spark-versions check-engines check-cdc bench bench-small docs lint types format lock clean

help:            ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## Make .venv from requirements.lock, with this tree installed in it

$(READY): requirements.lock pyproject.toml
	@echo "making $(VENV): pip installs what requirements.lock names, which takes two minutes the first time"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

demo: setup      ## Three processes, one table, no lock: the example of the README on real flights
	$(BIN)/crdt-mor demo

test: setup      ## The fast tier of the tests: three to eight minutes on two cores
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

quick: setup     ## The fast tests nearest to the changed files, under a minute (ARGS=crdt_mor/log/tail.py for a file)
	$(BIN)/python -m tests.quick $(ARGS)

coverage: setup  ## The fast tier with the branches that it takes, by room: twice the time of make test
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=json:build/coverage/report.json $(ARGS)
	$(BIN)/python -m tests.covered build/coverage/report.json --files 20

check: lint types test  ## What must hold before a commit: lint, types, tests

check-slow: setup  ## The slow tier: half an hour
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "slow and not long and not spark" $(ARGS)

check-long: setup  ## The long tier, which CI leaves out: what takes minutes by itself, and more seeds
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "long and not spark" -o faulthandler_timeout=7200 $(ARGS)

check-spark: setup  ## The tests on Spark in threads and on a cluster of processes, slow ones too: a quarter of an hour; needs Java 17
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "spark and not long" tests/spark $(ARGS)

check-spark-cluster: setup  ## A master, two workers and drivers as processes that are killed, five million rows: half an hour (ARGS="-k kills" for a part)
	$(BIN)/python -m tests.spark.cluster $(ARGS)

check-spark-versions: setup  ## Batches on older releases of Spark 4, each in an environment of its own (ARGS=4.0 for one)
	$(BIN)/python -m tests.spark.versions $(ARGS)

check-engines: setup  ## Other engines read mirrors and try to delete files; needs Maven, Java 17 and Java 24 (ARGS=--long for more slices)
	$(BIN)/python -m tests.engines all $(ARGS)

check-cdc: setup  ## Four consumers that are killed replicate a PostgreSQL that pgbench changes (ARGS="--minutes 0.5")
	$(BIN)/python -m tests.cdc.check_postgres $(ARGS)

check-lowest: setup  ## The fast tier on the lowest versions that pyproject.toml promises: requirements-lowest.txt
	$(BIN)/python -m tests.environments lowest $(ARGS)

check-pythons: setup  ## The fast tier on Python 3.12 and 3.13, where this machine has them (ARGS=--part for a part of it)
	$(BIN)/python -m tests.environments $(ARGS) 3.12 3.13

check-packages: setup  ## Build what a release uploads, check it, install it elsewhere and use it there
	$(BIN)/python -m tests.packages

release-dry-run: setup  ## A release of HEAD without signature, tag and upload, in build/release: what docs/releases.md lists
	$(BIN)/python -m tests.release $(ARGS)

sbom: setup      ## The bill of materials of the wheel, in build/: each package that it needs, with version and licence
	$(BIN)/python -m tests.sbom $(ARGS)

lint: setup      ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup     ## mypy, strict
	$(BIN)/mypy

bench: setup     ## Every script in benches and the suite, full size
	@set -e; for script in $$(grep -l __main__ benches/[a-z]*.py); do echo "== $$script"; $(BIN)/python "$$script" $(ARGS); done
	@echo "== benches.suite"; $(BIN)/python -m benches.suite $(ARGS)

bench-small: setup  ## The same with --small: that they run, not how fast
	@$(MAKE) --no-print-directory bench ARGS=--small

docs: setup      ## The site of the documentation, into build/site; it is read from there, without a server
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "built: build/site/index.html"

format: setup    ## Let ruff format, and fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock:            ## Resolve requirements.lock again (needs uv)
	uv pip compile pyproject.toml --extra dev --python-version 3.11 --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" --quiet --upgrade -o requirements.lock

clean:           ## Remove .venv and caches
	rm -rf $(VENV) .venvs .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
