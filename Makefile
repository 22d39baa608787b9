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

# Three at once on two processors: tests wait for other processes and for locks a third of the time.
JOBS ?= 3
XDIST = -n $(JOBS) --dist worksteal
# Directories of tests are in memory where the machine has a place for that, large enough and open to programs: hundreds
# of databases wait for no disk.
IN_MEMORY := import os; s = os.statvfs("/dev/shm"); print("/dev/shm" * (s.f_bavail * s.f_frsize >= 2**31 and not s.f_flag & os.ST_NOEXEC))
ifndef PYTEST_DEBUG_TEMPROOT
export PYTEST_DEBUG_TEMPROOT := $(shell $(PYTHON) -c '$(IN_MEMORY)' 2>/dev/null)
endif
PYTEST_ARGS ?=
MEASURE ?=
# Another interpreter for `make test-deep`, which looks for one on the PATH where none is given.
SECOND_PYTHON ?=
NONE_SELECTED = echo "no test was selected: PYTEST_ARGS matches none, or only tests that make check or make test-deep runs"
KERNELS := cmbs/core.py,cmbs/messages.py,cmbs/errors.py,cmbs/refusals.py,cmbs/ledger/*,cmbs/documents/*,cmbs/kit/*,cmbs/analysis/*,cmbs/*/kernel/*
# The markers of tests that `make test` leaves out and `make check` runs: those of tests/support/effort.py.
MARKED := postgres or neo4j or browser or slow
SOURCES = $(wildcard cmbs tests bench examples scripts)
TYPED = $(foreach directory,$(SOURCES),$(if $(shell find $(directory) -name '*.py' -print -quit),$(directory)))

# Node 20 or newer, from the PATH or else out of a wheel.
BUILD_CONSOLE = { node --version 2>/dev/null | grep -Eq '^v(2[0-9]|[3-9][0-9])\.' || $(UV_INSTALL) --quiet --require-hashes --only-binary :all: -r requirements/console.txt; } \
	&& $(BIN)/python scripts/build_console.py

UV_INSTALL := $(BIN)/uv pip install --python $(BIN)/python
PIN := --quiet --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header
COMPILE := $(BIN)/uv pip compile pyproject.toml $(PIN)

.DEFAULT_GOAL := help
.PHONY: help serve console console-check test test-ci test-deep check golden bench bench-short walks generate tee-neo4j lock fmt fmt-check lint imports types docs clean

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

test: $(VENV)/.dev ## run what needs no other server, in under two minutes (PYTEST_ARGS, JOBS, CMBS_EFFORT)
	$(BIN)/python $(if $(MEASURE),-m coverage run )-m pytest $(XDIST) $(PYTEST_ARGS) || { code=$$?; [ $$code -eq 5 ] || exit $$code; $(NONE_SELECTED); }

# What `make test` leaves out, for `make check`.
test-ci: export CMBS_EFFORT = ci
test-ci: $(VENV)/.dev $(VENV)/.mcp-servers ## run what `make test` leaves out: PostgreSQL, Neo4j, Chromium, processes
	$(BUILD_CONSOLE) build
	$(BIN)/python scripts/install_chromium.py
	$(BIN)/python -m pytest $(XDIST) -m '$(MARKED)' --durations=25 $(PYTEST_ARGS)

test-deep: $(VENV)/.dev $(VENV)/.mcp-servers ## run what a release needs: all tests, long kill loops, all seeds, total coverage, each file alone, a second Python
	$(BUILD_CONSOLE) build
	$(BIN)/python scripts/install_chromium.py
	$(BIN)/python scripts/test_deep.py --jobs $(JOBS) --kernels '$(KERNELS)' $(if $(SECOND_PYTHON),--second-python $(SECOND_PYTHON))

# What runs no tests of ours takes one core each, so it runs side by side; the tests have the machine to themselves.
# Beside `make test` it measures what the tests of the kernels cover: tests/conftest.py says which these are.
check: $(VENV)/.dev ## everything CI runs
	rm -f .coverage .coverage.*
	$(MAKE) test CMBS_EFFORT=fast CMBS_REPEATABLE=1 MEASURE=1
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --include='$(KERNELS)' --fail-under=100
	$(MAKE) -j $(JOBS) $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) fmt-check lint imports types console-check docs
	$(MAKE) test-ci

golden: $(VENV)/.dev ## write the fingerprint of the format, the golden logs and the vectors of proofs anew
	PYTHONHASHSEED=0 $(BIN)/python -m scripts.generate_golden
	$(BIN)/python -m scripts.check_contracts --record

bench: $(VENV)/.dev ## run the benchmarks (ARGS)
	$(BIN)/python -m bench $(ARGS)

bench-short: $(VENV)/.dev ## the six ratios of bench/ratios.json in a minute, beside what is on record (ARGS)
	$(BIN)/python -m bench.ratios $(ARGS)

walks: $(VENV)/.dev ## how many functions seven operations enter (ARGS="--list WALK")
	$(BIN)/python -m bench.walks $(ARGS)

generate: $(VENV)/.dev ## write every generated file again: api/, schemas and stubs
	$(BIN)/python -m scripts.generate_openapi
	$(BIN)/python -m scripts.generate_client
	$(BIN)/python -m scripts.generate_reference
	$(BIN)/python -m scripts.generate_mcp_tools
	$(BIN)/python -m scripts.generate_cli
	$(BIN)/python -m scripts.generate_kit_schema
	$(BIN)/cmbs policy schema > api/policy.schema.json
	$(BIN)/python -m scripts.generate_stubs

lock: $(VENV)/.dev ## resolve the newest allowed versions into requirements/
	$(COMPILE) --upgrade --all-extras --group dev --output-file requirements/dev.txt
	$(BIN)/uv pip compile --group console $(PIN) --upgrade --output-file requirements/console.txt
	$(BIN)/uv pip compile --group install $(PIN) --upgrade --output-file requirements/install.txt
	$(COMPILE) --extra server --extra tools --extra postgres --extra tee --extra neo4j --group build --constraints requirements/dev.txt --output-file requirements/serve.txt

fmt: $(VENV)/.dev ## format the code and apply safe fixes
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

fmt-check: $(VENV)/.dev ## fail where `make fmt` would change something
	$(BIN)/ruff format --check .

lint: $(VENV)/.dev ## ruff, house style, requirements, generated files, changes of contracts that the changelog does not name
	$(BIN)/ruff check .
	$(BIN)/python -m scripts.check_house_style
	$(BIN)/python -m scripts.check_requirements
	$(BIN)/python -m scripts.check_reference
	$(BIN)/python -m scripts.generate_openapi --check
	$(BIN)/python -m scripts.generate_client --check
	$(BIN)/python -m scripts.generate_reference --check
	$(BIN)/python -m scripts.check_contracts

imports: $(VENV)/.dev ## import-linter: layers, pure kernels, independent stores
	$(BIN)/lint-imports --no-cache

types: $(VENV)/.dev ## mypy, strict
	$(BIN)/mypy $(TYPED)

docs: $(VENV)/.dev ## links, anchors, code blocks and the changelog
	$(BIN)/python scripts/check_docs.py

clean: ## remove everything that make created
	rm -rf $(VENV) $(VENV)-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* build dist console/node_modules cmbs/console/static console/src/api/schema.d.ts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The last thing that it installs is the target, so that an installation that broke off begins again.
$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "cmbs needs CPython 3.11 or newer: set PYTHON to one"; exit 1; }
	@echo "--- making $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --require-hashes --only-binary :all: -r requirements/install.txt

# Installs a lock file and then cmbs itself, from this checkout. uv shows each package and how far it is.
# --only-binary: no package in the lock may run a build script on the machine that installs it.
define install
	@echo "--- installing the packages of $(1) into $(VENV): the first time only"
	$(UV_INSTALL) --require-hashes --only-binary :all: -r $(1)
	$(UV_INSTALL) --quiet --no-build-isolation --no-deps --editable .
	@echo "--- installed"
endef

$(VENV)/.serve: requirements/serve.txt pyproject.toml | $(BIN)/uv
	$(call install,requirements/serve.txt)
	touch $@

# MCP servers of other projects, for tests of the gateway. Without npm their tests are skipped, and say so.
$(VENV)/.mcp-servers: tests/support/mcp_servers/package-lock.json | $(BIN)/uv
	mkdir -p $(VENV)/mcp-servers
	cp tests/support/mcp_servers/package.json tests/support/mcp_servers/package-lock.json $(VENV)/mcp-servers
	if command -v npm >/dev/null; then cd $(VENV)/mcp-servers && npm ci --no-audit --no-fund --ignore-scripts; fi
	touch $@

# The whole set contains the server's, in the same versions, so both stamps become current.
$(VENV)/.dev: requirements/dev.txt requirements/serve.txt pyproject.toml | $(BIN)/uv
	$(call install,requirements/dev.txt)
	touch $(VENV)/.serve $@
