# Every command sets up its own virtual environment; nothing else has to be installed first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BROWSER_READY := $(VENV)/.browser-ready
# Processes that share the tests, file by file; 0 runs them all in one.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

.PHONY: demo test test-browser check lint commands clean

demo: $(READY)
	$(BIN)/drivetrain train --output-dir runs/demo --overwrite

test: $(READY) lint
	$(PYTEST)

# Without the tests that take long or start several processes.
check: $(READY) lint
	$(PYTEST) -m "not slow and not ranks and not browser"

# Opens pages in chromium: the one of the system, or one that playwright fetches.
test-browser: $(BROWSER_READY)
	$(BIN)/python -m pytest -m browser tests/report

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

commands: $(READY)
	$(BIN)/python -m drivetrain.cli.reference > docs/commands.md

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "torch>=2.11,<2.14"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $(READY)

$(BROWSER_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[browser]"
	command -v chromium || command -v chromium-browser || command -v google-chrome || \
		$(BIN)/python -m playwright install chromium
	touch $(BROWSER_READY)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
