# make demo and make test do all their own set-up; nothing needs root.
#
# PYTHON may name an interpreter (3.11 or newer); without it the newest that is installed is taken.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$p; break; fi; done)
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
KEEP ?=
ARGS ?=

.DEFAULT_GOAL := help

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements/dev.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "needle-router needs Python 3.11 or newer: set PYTHON=/path/to/python"; exit 1; }
	@echo "setting up $(VENV) with $(PYTHON) (once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(READY)  ## make the virtual environment from the lock file

demo: $(READY)  ## the main job with a tiny model and a demo upstream: no key, no download (KEEP=1 goes on serving)
	@$(BIN)/needle-router demo $(if $(KEEP),--keep)

test: $(READY)  ## the tests (ARGS="-k word" passes options on)
	@$(BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)

CLIENTS := .clients
CLIENT_ENVS := $(patsubst tests/clients/requirements/%.txt,$(CLIENTS)/%/.ready,$(wildcard tests/clients/requirements/*.txt))

$(CLIENTS)/%/.ready: tests/clients/requirements/%.txt | $(READY)
	@echo "setting up $(@D) (once)"
	@$(BIN)/python -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(CLIENTS)/node/.ready: tests/clients/node/package.json tests/clients/node/package-lock.json
	@echo "setting up $(@D) (once)"
	@mkdir -p $(@D)
	@cp $^ $(@D)
	@cd $(@D) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

test-clients: $(READY) $(CLIENT_ENVS) $(CLIENTS)/node/.ready  ## real client libraries through a real router (needs npm; ARGS="--write-docs" records the results)
	@$(BIN)/python -m tests.clients.run $(ARGS)

lint: $(READY)  ## format, lint, types, import contracts, generated docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m docs.generate --check

docs: $(READY)  ## write the generated parts of the documentation anew
	$(BIN)/python -m docs.generate

prices: $(READY)  ## take the price list that ships anew from genai-prices
	$(BIN)/python -m docs.prices

format: $(READY)  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

BENCH := .bench

$(BENCH)/litellm/.ready: benchmarks/extras/litellm.txt | $(READY)
	@echo "setting up $(@D) (once)"
	@$(BIN)/python -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(BENCH)/portkey/.ready: benchmarks/extras/portkey/package.json benchmarks/extras/portkey/package-lock.json
	@echo "setting up $(@D) (once)"
	@mkdir -p $(@D)
	@cp $^ $(@D)
	@cd $(@D) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

bench-extras: $(BENCH)/litellm/.ready $(BENCH)/portkey/.ready  ## set up LiteLLM and Portkey for make bench (needs npm)

bench: $(READY)  ## speed and memory beside nginx and what bench-extras has set up (ARGS="--write-docs" records the figures)
	@$(BIN)/python benchmarks/run.py $(ARGS)

bench-check: $(READY)  ## fail where a request costs much more CPU, beside nginx, than the recorded figures say
	@$(BIN)/python benchmarks/gate.py $(ARGS)

lock:  ## write the lock files anew
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--no-emit-index-url pyproject.toml --extra demo --extra encodings --extra postgres -o requirements/runtime.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--no-emit-index-url pyproject.toml --extra demo --extra encodings --extra postgres --group dev -o requirements/dev.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--no-emit-index-url --group build -o requirements/build.txt
	@for wanted in tests/clients/requirements/*.in; do \
		$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
			--no-emit-index-url $$wanted -o $${wanted%.in}.txt || exit 1; done
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--no-emit-index-url benchmarks/extras/litellm.in -o benchmarks/extras/litellm.txt
	cd tests/clients/node && npm install --package-lock-only --ignore-scripts --no-audit --no-fund
	cd benchmarks/extras/portkey && npm install --package-lock-only --ignore-scripts --no-audit --no-fund

clean:  ## remove what the other targets made
	rm -rf $(VENV) $(CLIENTS) $(BENCH) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

.PHONY: help setup demo test test-clients lint docs prices format bench bench-check bench-extras lock clean
