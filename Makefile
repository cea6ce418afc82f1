# What a newcomer types. `make` alone lists it. Everything runs in .venv, which
# `make install` fills from the pins in requirements-dev.txt and keeps up to date.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
# Another environment's settings must not leak into this one.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PYTHONDONTWRITEBYTECODE

python := .venv/bin/python
# Workers of the tests: one per core, at most four.
TEST_WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 4 ? n : 4)))
# More arguments for pytest, such as `make unit ARGS='-k regions'`.
ARGS ?=
# Some tests take minutes, so idle workers steal queued tests.
pytest = $(python) -m pytest -n $(TEST_WORKERS) --dist worksteal $(ARGS)

# Runs a command and shows what it said only when it failed.
quietly = if ! said=$$($(1) 2>&1); then printf '%s\n' "$$said"; exit 1; fi

.PHONY: help install demo test unit check bench synth deploy destroy release requirements clean

help: ## List what there is
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1|\2/p' Makefile | while IFS='|' read -r name what; do \
		printf '  %-18s %s\n' "$$name" "$$what"; done

install: .venv/.installed .venv/.java node_modules/.installed ## Make .venv with the sleeper command in it (Python 3.11 or newer)

demo: install ## Take a year of real flights in, watch tables shape themselves, query them
	@$(python) -m demo

test: install .venv/.chromium ## Run every test, system tests included
	@echo "==> all tests"
	@$(pytest)

unit: install ## Run the fast tests of tests/unit and tests/contracts: less than a minute
	@echo "==> fast tests"
	@$(pytest) -m "not slow" tests/unit tests/contracts

check: install ## Lint, types, layers, dead code, stale generated files
	@echo "==> ruff"
	@$(call quietly,$(python) -m ruff check .)
	@$(call quietly,$(python) -m ruff format --check .)
	@echo "==> mypy"
	@$(call quietly,$(python) -m mypy)
	@echo "==> import-linter"
	@$(call quietly,.venv/bin/lint-imports --no-cache)
	@echo "==> dead code"
	@$(call quietly,$(python) tools/dead_code.py)
	@echo "==> generated files"
	@$(call quietly,$(python) -m pytest -q -m generated)

bench: install ## Run all benchmarks, beside peers, and write their table
	@$(python) -m benchmarks $(ARGS)

release: install ## Check, build and verify a release (VERSION=x.y.z); docs/releasing.md
	@$(python) tools/release.py $(or $(VERSION),$(error give VERSION=x.y.z))

# The instance on AWS: docs/deployment.md. ARGS are more arguments for cdk, such as '-c id=mine'.
INSTANCE ?= docs/examples/deploy/instance.properties
cdk = PATH="$(CURDIR)/.venv/bin:$$PATH" JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=20 \
	node_modules/.bin/cdk
folder = -c instance=$(INSTANCE) $(ARGS)

synth: install ## Write cdk.out, the templates of the instance INSTANCE=path/to/instance.properties
	@$(cdk) synth --quiet $(folder)
	@echo "==> the templates of $(INSTANCE) are in cdk.out"

deploy: install ## Deploy that instance to AWS (needs credentials and Docker)
	@$(cdk) deploy --all $(folder)

destroy: install ## Take that instance away again, but what it is told to keep
	@$(cdk) destroy --all $(folder)

# Keeps the pins that still fit; `make requirements ARGS=--upgrade` moves them all.
requirements: install ## Pin again what pyproject.toml asks for
	@echo "==> requirements*.txt, and those of lambdas and containers"
	@$(call quietly,$(compile) --group deploy -o requirements.txt)
	@$(call quietly,$(compile) --group dev -c requirements.txt -o requirements-dev.txt)
	@$(call quietly,$(pins) --group servers -o requirements-servers.txt)
	@$(call quietly,$(pins) --group lambdas -c requirements-dev.txt -o lambdas/requirements.txt)
	@$(call quietly,$(compile) --extra aws --group lambdas --group http -c requirements-dev.txt -o containers/requirements.txt)
	@$(call quietly,$(compile) --extra aws --extra spark --group lambdas --no-emit-package pyspark \
		-c requirements-dev.txt -o containers/bulk_import/requirements.txt)

pins = .venv/bin/uv pip compile --quiet --universal --python-version 3.11 \
	--no-annotate --custom-compile-command 'make requirements' $(ARGS)
compile = $(pins) pyproject.toml

clean: ## Take away .venv, caches, the demo's and the benchmarks' folders
	@rm -rf .venv node_modules cdk.out .demo .bench build dist core/*.egg-info
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.created: tools/make-venv
	@tools/make-venv .venv
	@touch $@

.venv/.installed: .venv/.created tools/fill-venv requirements-dev.txt requirements-servers.txt \
		pyproject.toml
	@tools/fill-venv .venv
	@touch $@

# Spark runs on Java 17. Without it everything else works.
.venv/.java: .venv/.created tools/find-java tools/add-package
	@tools/find-java
	@touch $@

# For the test of the page that `sleeper serve` shows.
.venv/.chromium: .venv/.created tools/add-package
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
		|| tools/add-package chromium 'the test of the page'
	@touch $@

# The cdk command, and servers that tests run against. Without Node the local product works;
# those tests say what is missing.
node_modules/.installed: package.json package-lock.json
	@if command -v npm >/dev/null; then \
		echo "==> installing the programs that package-lock.json pins"; \
		npm ci --no-audit --no-fund --loglevel=error; \
	else \
		echo "==> npm is not here: neither cdk nor tests against a DynamoDB server can run"; \
		mkdir -p node_modules; \
	fi
	@touch $@
