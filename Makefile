# `make demo` and `make test` set everything up by themselves.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint scenarios picture bench soak clean

demo: $(VENV)/.ready
	$(BIN)/streamembed demo

test: lint
	$(BIN)/python -m pytest -q -n 2

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

scenarios: $(VENV)/.ready
	$(BIN)/python -m scenarios.run --full --write

picture: $(VENV)/.ready
	$(BIN)/python -m scenarios.picture

bench: $(VENV)/.ready
	$(BIN)/python -m scenarios.bench --write

soak: $(VENV)/.ready
	$(BIN)/python -m scenarios.soak
	$(BIN)/python -m scenarios.fuzz_interrupts --places 5000
	$(BIN)/python -m scenarios.fuzz_inputs
	$(BIN)/python -m scenarios.fuzz_files
	$(BIN)/python -m scenarios.fuzz_certificate

clean:
	rm -rf $(VENV) demo

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --editable '.[pictures,test]'
	touch $@
