# Everything a contributor runs. Needs Python >= 3.11, git and make; no CUDA toolkit and no GPU.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test slow check format clean env

env: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

demo: env  ## a problem file to a bundle and its report
	$(BIN)/advisor run examples/gemm.yaml

test: env  ## the quick tier
	$(BIN)/python -m pytest -m "not slow and not gpu" -n 2 -q

slow: env  ## the rest that needs no GPU
	$(BIN)/python -m pytest -m "slow and not gpu" -n 2 -q

check: env  ## lint, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: env
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
