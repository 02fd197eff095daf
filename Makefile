# make demo, make test: each works as the first command on a fresh clone.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
WORKERS := -n auto --maxprocesses 4 --dist worksteal # processes that share the tests; `make test WORKERS=` takes one

.PHONY: demo test test-all fuzz lint docs package pictures bench clean

demo: $(READY)
	$(BIN)/manyview demo

test: $(READY)
	$(BIN)/pytest $(WORKERS)

test-all: $(READY)
	$(BIN)/pytest $(WORKERS) -m "" --hypothesis-profile thorough

fuzz: $(READY)
	$(BIN)/python -m tests.fuzz.run --cases 50000

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY) # a site in build/site; needs no network once its extra is installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

package: $(READY) # dist/: what `pip install manyview` takes
	$(BIN)/python -m build

pictures: $(READY)
	$(BIN)/python docs/pictures.py

bench: $(READY)
	$(BIN)/pip install --quiet -c constraints.txt -e ".[dev,bench]"
	$(BIN)/python benchmarks/losses.py
	$(BIN)/python benchmarks/bank_step.py
	$(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/colour.py
	$(BIN)/python benchmarks/encoders.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/memory.py

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "manyview needs Python 3.10 or newer, $(PYTHON) is older: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv .venv
	@echo "Installing manyview and what it needs into .venv (PyTorch is large: a few minutes)"
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $(READY)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
