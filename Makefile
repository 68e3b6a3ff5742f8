.DEFAULT_GOAL := help
.PHONY: help setup fit test lint types contract check processes bench clean

BASE_PYTHON ?= $(shell command -v python3.11 || command -v python3)
PYTHON := .venv/bin/python
READY := .venv/.ready

help:  ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

setup: $(READY)  ## create .venv and install what is pinned in .ci/constraints.txt (nothing to do when up to date)

$(READY): pyproject.toml .ci/constraints.txt
	@test -n "$(BASE_PYTHON)" || { echo "setup needs Python 3.11 on the PATH"; exit 1; }
	$(BASE_PYTHON) -m venv .venv
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --constraint .ci/constraints.txt --editable '.[dev,deploy,examples]'
	@touch $@

fit: $(READY)  ## run the main job on embedded data
	$(PYTHON) -m gfl_lightning fit --config configs/paper/dnc_synthetic.yaml

test: $(READY)  ## run the whole test suite, a module at a time on every core
	$(PYTHON) -m pytest --numprocesses auto --dist loadscope

lint: $(READY)  ## ruff: style and formatting
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types: $(READY)  ## mypy, strict
	.venv/bin/mypy

contract: $(READY)  ## import-linter: dependencies point one way
	.venv/bin/lint-imports

check: lint types contract test  ## everything that must hold before a change lands

processes: $(READY)  ## run deployments of real processes, with faults, three at a time (minutes)
	$(PYTHON) -m pytest -m processes --numprocesses 3 --dist worksteal tests/deploy

bench: $(READY)  ## measure speed as ratios within one process
	$(PYTHON) -m benchmarks

clean:  ## remove the virtual environment and every cache
	rm -rf .venv .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build *.egg-info
