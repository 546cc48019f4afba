# `make demo` and `make test` are all a newcomer needs; each creates .venv if it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test test-slow test-minimum audit lint bench docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "demur needs Python 3.11 or newer; this is %s. Try: make PYTHON=python3.12 setup" % sys.version.split()[0])'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable ".[boost,dask,excel,onnx,paper,plot,report,serve,text]" --group dev --group docs
	$(BIN)/python -m compileall -q -j 0 -x '/tests?/' $(VENV)/lib src >$(VENV)/compile.log 2>&1 || true # some packages ship templates that are not Python
	$(BIN)/mypy >$(VENV)/mypy.log 2>&1 || true # reads the types of the packages, which takes longer than checking those of src
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/demur demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# One thread for each of two processes: they share two cores. Most tests of a file run in one of them, which makes their fixtures once.
# Compiled modules are kept even where the shell asks not to: every process needs them.
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

# Imports and types are checked in parallel with the tests, so that no core is idle.
test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	{ $(BIN)/lint-imports && $(BIN)/mypy; } & checks=$$!; $(PYTEST) -m "not slow"; tests=$$?; wait $$checks && exit $$tests

test-slow: $(STAMP)
	$(PYTEST) -m slow

# Tests of the library, the commands and the service with the oldest versions that pyproject.toml allows.
MINIMUM := .venv-minimum
test-minimum:
	test -x $(MINIMUM)/bin/python || $(PYTHON) -m venv $(MINIMUM)
	$(MINIMUM)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-minimum.txt --editable ".[dask,onnx,paper,plot,report,serve]" httpx hypothesis pandas polars pytest
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(MINIMUM)/bin/python -m pytest -q -m "not slow" -W default tests/deploy/test_request_types.py tests/deploy/test_web_service.py tests/deploy/model_folders tests/tabular tests/columns tests/losses tests/metrics tests/estimators/test_splitting.py tests/cli/test_predict.py tests/test_rules.py

# Known vulnerabilities of the pinned dependencies, from PyPI. Fails if there are any, or if a package cannot be audited.
audit: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/pip-audit --strict --requirement constraints.txt --no-deps --disable-pip

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(STAMP)
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

clean:
	rm -rf $(VENV) $(MINIMUM) dist docs/_build .ruff_cache .pytest_cache .hypothesis .import_linter_cache
