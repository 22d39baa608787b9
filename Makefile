# Works on a fresh machine with CPython 3.11 or newer and make; everything else is installed into .venv.
# `make serve` installs only what a server needs; the other targets install the whole locked set.

# Where the environment forbids it, every server and command that a test starts would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

# Options of `make serve`; an empty one leaves the default of `cmbs serve` in place.
HOST ?=
PORT ?=
STORE ?=
WORKERS ?=
DEMO ?=
DATA ?=
SERVE_FLAGS = $(if $(HOST),--host $(HOST)) $(if $(PORT),--port $(PORT)) $(if $(STORE),--store '$(STORE)') \
	$(if $(WORKERS),--workers $(WORKERS)) $(if $(filter-out 0,$(DEMO)),--demo)

# pytest-xdist with two processes: enough to halve the wait on a small machine, few enough to leave it usable.
JOBS ?= 2
XDIST = -n $(JOBS) --dist worksteal
PYTEST_ARGS ?=
NONE_SELECTED = echo "no test was selected: PYTEST_ARGS matches none, or only tests that make test-all runs"
KERNELS := cmbs/core.py,cmbs/messages.py,cmbs/errors.py,cmbs/refusals.py,cmbs/ledger/*,cmbs/documents/*,cmbs/kit/*,cmbs/analysis/*,cmbs/*/kernel/*
SOURCES = $(wildcard cmbs tests bench examples scripts)
TYPED = $(foreach directory,$(SOURCES),$(if $(shell find $(directory) -name '*.py' -print -quit),$(directory)))

# Node 20 or newer, from the PATH or else out of a wheel.
BUILD_CONSOLE = { node --version 2>/dev/null | grep -Eq '^v(2[0-9]|[3-9][0-9])\.' || $(PIP_INSTALL) --quiet --require-hashes --only-binary :all: -r requirements/console.txt; } \
	&& $(BIN)/python scripts/build_console.py

PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check
PIN := --quiet --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header
COMPILE := $(BIN)/uv pip compile pyproject.toml $(PIN)

.DEFAULT_GOAL := help
.PHONY: help serve console console-check test test-all check bench tee-neo4j lock fmt fmt-check lint imports types docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# Without a console the server serves a plain page, so a build that fails stops nothing.
serve: $(VENV)/.serve ## run the server and its console (HOST, PORT, STORE, WORKERS, DEMO=1, ARGS)
	-@$(BUILD_CONSOLE) build
	$(BIN)/cmbs serve $(SERVE_FLAGS) $(ARGS)

console: $(VENV)/.serve ## build the web console, with the Node on the PATH or one of its own
	$(BUILD_CONSOLE) build

console-check: $(VENV)/.dev ## types and unit tests of the web console
	$(BUILD_CONSOLE) check

tee-neo4j: $(VENV)/.dev ## run a Neo4j to play with, on loopback (PORT, DATA); needs Java 17 and Maven
	$(BIN)/python scripts/neo4j_server.py $(if $(PORT),--port $(PORT)) $(if $(DATA),--data $(DATA))

test: $(VENV)/.dev ## run what needs no other server, in minutes (PYTEST_ARGS, JOBS, CMBS_EFFORT)
	$(BIN)/python -m pytest $(XDIST) $(PYTEST_ARGS) || { code=$$?; [ $$code -eq 5 ] || exit $$code; $(NONE_SELECTED); }

# What CI runs. Coverage is measured always, and judged where nothing narrowed the run.
test-all: export CMBS_EFFORT ?= ci
test-all: $(VENV)/.dev $(VENV)/.mcp-servers ## run all tests: PostgreSQL, Neo4j, browser, kill loops, all seeds, coverage (PYTEST_ARGS, JOBS)
	$(BUILD_CONSOLE) build
	$(BIN)/python scripts/install_chromium.py
	rm -f .coverage .coverage.*
	$(BIN)/python -m coverage run -m pytest $(XDIST) $(PYTEST_ARGS) \
		|| { code=$$?; [ $$code -eq 5 ] || exit $$code; $(NONE_SELECTED); }
ifeq ($(strip $(PYTEST_ARGS)),)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --include='$(KERNELS)' --fail-under=100
	@echo "coverage of all modules, in percent ($(BIN)/coverage report lists the lines that are missing):"
	$(BIN)/python -m coverage report --format=total --fail-under=95
endif

# What runs no tests of ours takes one core each, so it runs side by side; the tests have the machine to themselves.
check: $(VENV)/.dev ## everything CI runs
	$(MAKE) -j $(JOBS) fmt-check lint imports types console-check docs
	$(MAKE) test-all

bench: $(VENV)/.dev ## run the benchmarks (ARGS)
	$(BIN)/python -m bench $(ARGS)

lock: $(VENV)/.dev ## resolve the newest allowed versions into requirements/
	$(COMPILE) --upgrade --all-extras --group dev --output-file requirements/dev.txt
	$(BIN)/uv pip compile --group console $(PIN) --upgrade --output-file requirements/console.txt
	$(COMPILE) --extra server --extra tools --extra postgres --extra tee --extra neo4j --group build --constraints requirements/dev.txt --output-file requirements/serve.txt

fmt: $(VENV)/.dev ## format the code and apply safe fixes
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

fmt-check: $(VENV)/.dev ## fail where `make fmt` would change something
	$(BIN)/ruff format --check .

lint: $(VENV)/.dev ## ruff
	$(BIN)/ruff check .

imports: $(VENV)/.dev ## import-linter: layers, pure kernels, independent stores
	$(BIN)/lint-imports --no-cache

types: $(VENV)/.dev ## mypy, strict
	$(BIN)/mypy $(TYPED)

docs: $(VENV)/.dev ## links, anchors, code blocks and the changelog
	$(BIN)/python scripts/check_docs.py

clean: ## remove everything that make created
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* build dist console/node_modules cmbs/console/static console/src/api/schema.d.ts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "cmbs needs CPython 3.11 or newer: set PYTHON to one"; exit 1; }
	@echo "--- making $(VENV)"
	$(PYTHON) -m venv $(VENV)

# Installs a lock file and then cmbs itself, from this checkout. pip shows each package and how far it is.
# --only-binary: no package in the lock may run a build script on the machine that installs it.
define install
	@echo "--- installing the packages of $(1) into $(VENV): a minute or so, the first time only"
	$(PIP_INSTALL) --require-hashes --only-binary :all: -r $(1)
	$(PIP_INSTALL) --quiet --no-build-isolation --no-deps --editable .
	@echo "--- installed"
endef

$(VENV)/.serve: requirements/serve.txt pyproject.toml | $(VENV)/bin/python
	$(call install,requirements/serve.txt)
	touch $@

# MCP servers of other projects, for tests of the gateway. Without npm their tests are skipped, and say so.
$(VENV)/.mcp-servers: tests/support/mcp_servers/package-lock.json | $(VENV)/bin/python
	mkdir -p $(VENV)/mcp-servers
	cp tests/support/mcp_servers/package.json tests/support/mcp_servers/package-lock.json $(VENV)/mcp-servers
	if command -v npm >/dev/null; then cd $(VENV)/mcp-servers && npm ci --no-audit --no-fund --ignore-scripts; fi
	touch $@

# The whole set contains the server's, in the same versions, so both stamps become current.
$(VENV)/.dev: requirements/dev.txt requirements/serve.txt pyproject.toml | $(VENV)/bin/python
	$(call install,requirements/dev.txt)
	touch $(VENV)/.serve $@
