# `make demo` and `make test` do all their own set-up: a virtual environment, then the install.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The CPU build. For an NVIDIA GPU set TORCH to what pytorch.org names for your driver.
TORCH ?= torch==2.13.0

.PHONY: help setup demo test lint bench clean

help:
	@echo "make demo   train a small policy by self-play on TextArena's TicTacToe"
	@echo "make test   check style and types, then run the tests"
	@echo "make lint   check style and types only"
	@echo "make bench  run the benchmarks, one JSON line each (about 45 minutes)"
	@echo "make clean  remove the virtual environment (runs/ stays)"

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("marl_gem needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + "; try: make PYTHON=python3.11 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[textarena,train,graph,pettingzoo,llm,eval,dev]"
	@touch $@

demo: setup
	$(BIN)/marl-gem train tictactoe $(ARGS)

test: lint
	$(BIN)/python -m pytest $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	@for file in benchmarks/*.py; do $(BIN)/python $$file; done

clean:
	rm -rf $(VENV)
