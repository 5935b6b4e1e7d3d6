# `make demo` and `make test` set everything up by themselves.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
DOCS ?= .venv-docs
BIN := $(VENV)/bin
# Tests start many processes; without bytecode each compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE
FAST := tests/test_floors.py tests/test_glossary.py tests/test_surface.py tests/data tests/numeric \
	tests/spectral tests/pairs tests/metrics/test_itml.py tests/metrics/test_fenn.py \
	tests/geometry/test_kernel.py tests/geometry/test_kernel_matrix.py \
	tests/manifold/test_barycentric.py tests/methods/test_registry.py tests/engine/test_saved.py \
	tests/engine/test_engine.py tests/estimators/test_pair_generator.py \
	tests/logs/test_from_a_row.py tests/cli

.PHONY: demo test check lint lowest newest docs notebook scenarios drift picture bench soak chromium clean

demo: $(VENV)/.ready
	$(BIN)/streamembed demo
	$(BIN)/python -m scenarios.pictures.shuttle demo/demo.png

test: $(VENV)/.ready
	@$(MAKE) --no-print-directory --jobs=2 lint chromium
	$(BIN)/python -m pytest -q -n 2

# The inner loop: something of every package, in less than a minute once mypy's cache is warm.
check: lint
	$(BIN)/python -m pytest -q -n 2 -m "not slow and not long" $(FAST)

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

# The tests with the lowest versions that pyproject.toml allows.
lowest: $(VENV)-lowest/.ready
	$(VENV)-lowest/bin/python -m pytest -q -n 2

# The tests with the newest versions that there are, as `pip install` takes them.
newest: $(VENV)-newest/.ready
	$(VENV)-newest/bin/python -m pytest -q -n 2

# The pages and the docstrings as a site; a warning or a broken link fails.
docs: $(DOCS)/.ready
	$(DOCS)/bin/sphinx-build --fresh-env --fail-on-warning --keep-going --quiet \
		--doctree-dir $(DOCS)/doctrees docs site
	@echo "site/index.html"

# docs/tutorial.ipynb and the pictures of the tutorial, from docs/tutorial.md.
notebook: $(DOCS)/.ready
	$(DOCS)/bin/python -m scenarios.pictures.tutorial

# What the browser tests need; without it they are skipped, and say so.
chromium:
	@for name in chromium chromium-browser google-chrome; do \
		command -v $$name >/dev/null && exit 0; done; \
	{ apt-get update && apt-get install --yes --no-install-recommends chromium; } >/dev/null 2>&1 || \
		echo "no Chromium, and it could not be installed: tests of pages in a browser are skipped"

# Run lengths and delays of the monitor, beside other detectors: hours.
drift: $(VENV)/.ready
	$(BIN)/python -m scenarios.benchmarks.drift

scenarios: $(VENV)/.ready
	$(BIN)/python -m scenarios.run --full --write

picture: $(VENV)/.ready
	$(BIN)/python -m scenarios.pictures.at_work
	$(BIN)/python -m scenarios.pictures.gallery
	$(BIN)/python -m scenarios.pictures.fenn_display
	$(BIN)/python -m scenarios.pictures.animation

bench: $(VENV)/.ready
	$(BIN)/python -m scenarios.benchmarks.bench --write

soak: $(VENV)/.ready $(DOCS)/.ready chromium
	$(BIN)/python -m pytest -q -n 2 -m long
	$(BIN)/python -m scenarios.fuzz.soak
	$(BIN)/python -m scenarios.fuzz.interrupts --only engine --places 5000
	$(BIN)/python -m scenarios.fuzz.interrupts --only estimators --places 5000
	$(BIN)/python -m scenarios.fuzz.inputs
	$(BIN)/python -m scenarios.fuzz.columns
	$(BIN)/python -m scenarios.fuzz.files
	$(BIN)/python -m scenarios.fuzz.states
	$(BIN)/python -m scenarios.fuzz.kills --kills 200
	$(BIN)/python -m scenarios.fuzz.faults
	$(BIN)/python -m scenarios.fuzz.runs
	$(BIN)/python -m scenarios.fuzz.hosts
	$(BIN)/python -m scenarios.fuzz.served_kills
	$(BIN)/python -m scenarios.fuzz.certificate
	$(BIN)/python -m scenarios.fuzz.labels

clean:
	rm -rf $(VENV) $(VENV)-lowest $(VENV)-newest $(DOCS) demo site

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --no-compile --editable '.[pictures,test]'
	touch $@

$(VENV)-lowest/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet uv
	VIRTUAL_ENV=$(VENV)-lowest $(VENV)-lowest/bin/uv pip install --quiet --resolution lowest-direct --editable '.[pictures,test]'
	touch $@

$(VENV)-newest/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)-newest
	$(VENV)-newest/bin/python -m pip install --quiet --no-compile --editable '.[pictures,test]'
	touch $@

$(DOCS)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DOCS)
	PIP_CONSTRAINT=constraints.txt $(DOCS)/bin/python -m pip install --quiet --no-compile --editable '.[docs]'
	touch $@
