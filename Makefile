# Everything runs from .venv, which the first target makes; the second time that takes no time.
# Needed on the machine: git, make, and a Python of 3.11 or newer (uv is used where it is there).

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
MODEL := smollm2-135m-instruct
CODE := app worker shared migrations tests
ARGS ?=
TESTS := not benchmark and not torture and not reliability
# Tests mostly wait for processes, so more of them than cores run at a time.
TESTS_AT_ONCE ?= 4

# Some images have it set. Each of the hundreds of processes of a test run would compile all that it
# imports, which takes as long as everything else that a start does.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install model serve test test-fast reliability check format bench bench-queue bench-readers torture lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

$(INSTALLED): requirements.lock pyproject.toml .ci/install
	@sh .ci/install

install: $(INSTALLED)  ## make .venv from requirements.lock, with mlxq itself editable

model: $(INSTALLED)  ## fetch the default model, unless it is there
	@$(BIN)/mlxq models pull $(MODEL)

serve: model  ## start the server (ARGS="--port 9000" and the like)
	@exec $(BIN)/mlxq serve $(ARGS)

# Without the model its tests are skipped, unless MLXQ_REQUIRE_MODEL=1 makes that a failure.
test: $(INSTALLED)  ## all tests
	@$(BIN)/mlxq models pull $(MODEL) || [ "$$MLXQ_REQUIRE_MODEL" != 1 ]
	@$(BIN)/python -m pytest -m "quiet and $(TESTS)" $(ARGS) || [ $$? = 5 ]  # 5: ARGS names none
	@exec $(BIN)/python -m pytest -n $(TESTS_AT_ONCE) --dist loadgroup -m "not quiet and $(TESTS)" $(ARGS)

reliability: $(INSTALLED)  ## the fault suites at small counts (docs/reliability.md; ARGS=--tenth for hours)
	@exec $(BIN)/python -m pytest tests/reliability -m "not torture" -n 2 --dist worksteal $(ARGS)

test-fast: $(INSTALLED)  ## unit, property and conformance tests, half a minute
	@exec $(BIN)/python -m pytest -n $(TESTS_AT_ONCE) -m "not model and $(TESTS)" \
		tests/unit tests/property tests/conformance $(ARGS)

check: $(INSTALLED)  ## lint, format, types, imports, dead code, dependencies
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports --no-cache
	@if $(BIN)/vulture | grep -v ': unused variable '; then exit 1; fi  # fields of structs are data
	@$(BIN)/deptry .

format: $(INSTALLED)  ## apply formatting and safe fixes
	@$(BIN)/ruff check --fix $(CODE)
	@$(BIN)/ruff format $(CODE)

bench: model  ## measure serving (benchmarks/README.md), about ten minutes (ARGS="--rounds 1" and the like)
	@exec $(BIN)/python -m benchmarks.serving $(ARGS)

bench-readers: $(INSTALLED)  ## streams beside readers of reports and webhooks, five minutes (ARGS="--rounds 2")
	@exec $(BIN)/python -m benchmarks.readers $(ARGS)

bench-queue: $(INSTALLED)  ## measure the queue, about ten minutes (ARGS="--only draining" and the like)
	@exec $(BIN)/python -m benchmarks.queue $(ARGS)

torture: model  ## long fault campaigns: days, all in all
	@$(BIN)/python -m pytest -m torture --timeout=7200 $(ARGS)
	@exec $(BIN)/python -m pytest tests/reliability -n 2 --dist worksteal --large --timeout=0 $(ARGS)

lock: $(INSTALLED)  ## resolve pyproject.toml into requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --no-emit-find-links \
		--group bench --group dev --group test --output-file requirements.lock pyproject.toml
	@echo "requirements.lock: $$(grep -c '==' requirements.lock) packages"

clean:  ## remove .venv and caches
	@rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
