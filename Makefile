# Everything a contributor runs. Needs Python >= 3.11, git and make; no CUDA toolkit and no GPU.
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PYTHON ?= $(shell for each in python3 python3.13 python3.12 python3.11; do \
	$$each -c '$(SUPPORTED)' 2>/dev/null && echo $$each && break; done)
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test slow mutants check bench tables generated format clean env

env: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c '$(SUPPORTED)' 2>/dev/null || { echo "needs Python 3.11 to 3.13: make PYTHON=/path/to/python" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	# Without its dependencies: its PyTorch pins another Triton, and the tests use its emitter alone. Tests skip without it.
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps "opengemm; sys_platform == 'linux'"
	touch $(STAMP)

demo: env  ## a problem file to a bundle and its report
	$(BIN)/advisor run examples/gemm.yaml

test: env  ## the quick tier
	$(BIN)/python -m pytest -m "not slow and not gpu" -n 2 -q

slow: env  ## the rest that needs no GPU
	$(BIN)/python -m pytest -m "slow and not gpu" -n 2 -q

mutants: env  ## every mutant of the kernels that the emulator watches; writes docs/emulator_mutants.md
	$(BIN)/python -m tests.emulator.mutants --processes 2 --write

check: env  ## lint, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

SUITES := shapes20 shapes20_fp16 random decode fp8 epilogues row_reduce
bench: env  ## on a GPU: every suite, results under benchmarks/results/; then `make tables`
	for each in $(SUITES); do \
		$(BIN)/advisor bench benchmarks/suites/$$each.yaml --output benchmarks/results/$$each.json || exit 1; done

tables: env  ## the tables that documents quote, from benchmarks/results/
	$(BIN)/advisor tables README.md docs/benchmarks.md

generated: env  ## the committed bundles again, from examples/; exit status 1 is a refusal, which is an answer
	for each in examples/*.yaml; do $(BIN)/advisor generate $$each --quiet > /dev/null || [ $$? = 1 ] || exit 1; done

format: env
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .triton_cache
