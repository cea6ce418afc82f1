# Development commands; `make` lists them. They run in .venv, which `make install` fills with the
# packages pinned in requirements-dev.txt.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
# Settings of another environment must not affect this one.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PYTHONDONTWRITEBYTECODE

python := .venv/bin/python
# Workers of the tests: two per core, because many tests wait for other processes, but at most four,
# which takes less time than six: each worker starts servers and sessions of its own.
TEST_WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 2 ? 2 : 4)))
# Fast tests do not wait for processes, and each worker takes seconds to collect them.
UNIT_WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 5 ? n + 1 : 6)))
# More arguments for pytest, such as `make unit ARGS='-k regions'`.
ARGS ?=
# tests/durations.py distributes the tests.
pytest = $(python) -m pytest -n $(TEST_WORKERS) $(ARGS)

# Runs a command, and prints its output only if it fails.
quietly = if ! said=$$($(1) 2>&1); then printf '%s\n' "$$said"; exit 1; fi

.PHONY: help install demo demo-snapshots prepare test spark-matrix unit soak simulate planted-bugs check types lint bench synth images preflight deploy assets deploy-assets adopt destroy wheel release requirements clean

help: ## List all targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | while IFS='|' read -r name what; do \
		printf '  %-20s %s\n' "$$name" "$$what"; done

install: .venv/.installed .venv/.java node_modules/.installed ## Create .venv with the sleeper command (needs Python 3.11 or newer)

demo: install ## Ingest a year of real flights, run background work, and query the tables
	@$(python) -m demo

demo-snapshots: install .venv/.databases ## Copy tables of a PostgreSQL server that lose rows into snapshot tables
	@$(python) -m demo.snapshots

prepare: install .venv/.chromium .venv/.databases .venv/spark.jsa ## Install what the tests need

test: prepare ## Run all tests, including system tests
	@echo "==> all tests"
	@$(pytest)

# ARGS names releases, and sets --python and --folder.
spark-matrix: install .venv/.databases ## Run the features on Spark on PySpark 3.5 to 4.3, and write their matrix
	@echo "==> the matrix of PySpark"
	@$(python) -m tests.spark.matrix $(ARGS)

unit: install ## Run the fast tests of tests/unit and tests/contracts: about a minute
	@echo "==> fast tests"
	@$(python) -m pytest -n $(UNIT_WORKERS) $(ARGS) -m "not slow" tests/unit tests/contracts

# The soak of servers: SEED=n repeats the choices of another one.
SERVERS ?= local,aws,spark
soak: prepare ## Run random tests ten times as long, or with MINUTES=n processes on SERVERS under faults
	@if [ -n "$(MINUTES)" ]; then \
		echo "==> processes on $(SERVERS) under faults (without MINUTES: random tests)"; \
		$(python) -m simulation.soak --minutes $(MINUTES) --servers $(SERVERS) $(SEED:%=--seed %) $(ARGS); \
	else \
		echo "==> random tests (with MINUTES=n: processes on real servers under faults)"; \
		SLEEPER_TEST_EXAMPLES=$${SLEEPER_TEST_EXAMPLES:-10} SLEEPER_TEST_SEED=$${SLEEPER_TEST_SEED:-random} \
			$(pytest) -o timeout=3600 $$(grep -rlE 'examples\(|choose_seed\(' tests --include='test_*.py'); \
	fi

# FROM=n begins with another seed, WORLD=local or aws has one kind of instance, and ARGS='--coverage'
# adds options.
SEEDS ?= 100
FROM ?= 1
WORLD ?= all
simulate: install ## Simulate SEEDS=n histories of local and AWS instances with faults
	@$(python) -m simulation --world $(WORLD) --seeds $(SEEDS) --from $(FROM) $(ARGS)

# ARGS names some of them, or sets --seeds.
planted-bugs: install ## Plant each bug of simulation/bugs and search for a seed that finds it
	@$(python) -m simulation.bugs $(ARGS)

check: types lint ## Lint, types, layers, dead code, stale generated files

types: install
	@echo "==> mypy"
	@$(call quietly,$(python) -m mypy)

lint: install
	@echo "==> ruff"
	@$(call quietly,$(python) -m ruff check .)
	@$(call quietly,$(python) -m ruff format --check .)
	@echo "==> import-linter"
	@$(call quietly,.venv/bin/lint-imports --no-cache)
	@echo "==> dead code"
	@$(call quietly,$(python) tools/dead_code.py)
	@echo "==> generated files"
	@$(call quietly,$(python) -m pytest -q -m generated)

bench: install ## Run all benchmarks beside peers, and write docs/benchmarks.md
	@$(python) -m benchmarks --publish $(ARGS)

wheel: install ## Build dist/sleeper_store-*.whl, which pip installs elsewhere
	@rm -rf dist
	@.venv/bin/uv build --quiet --no-build-isolation --out-dir dist
	@echo "==> $$(ls dist/*.whl)"

release: install ## Check, build and verify a release (VERSION=x.y.z); docs/releasing.md
	@$(python) tools/release.py $(or $(VERSION),$(error give VERSION=x.y.z))

# An instance on AWS: docs/deployment.md. ARGS are additional arguments for cdk, such as '-c id=mine'.
INSTANCE ?= docs/examples/deploy/instance.properties
cdk = PATH="$(CURDIR)/.venv/bin:$$PATH" JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=20 \
	node_modules/.bin/cdk
folder = -c instance=$(INSTANCE) $(ARGS)
chosen = $(INSTANCE) $(patsubst id=%,--id=%,$(filter id=%,$(ARGS)))
preflight = .venv/bin/sleeper preflight $(chosen)
# CloudFormation fails to change an application of EMR Serverless that still runs after its last job.
stop = $(python) -m tools.stop_application $(chosen)
# Two instances of one id in two regions have buckets of different names.
names = names=$$($(python) -m tools.bucket_names $(chosen))

synth: install ## Write the templates of INSTANCE=path/to/instance.properties to cdk.out
	@$(cdk) synth --quiet $(folder)
	@echo "==> the templates of $(INSTANCE) are in cdk.out"

# REGISTRY is the registry of ECR and a prefix, such as ACCOUNT.dkr.ecr.REGION.amazonaws.com/sleeper.
images: install ## Build the container images, and push them to REGISTRY=... (TAG=..., CDK_DOCKER=podman)
	@$(python) -m tools.images $(REGISTRY:%=--registry %) $(TAG:%=--tag %) $(ARGS)

preflight: install ## Check that instance, the account and this machine before a deployment
	@$(preflight)

deploy: preflight ## Deploy that instance to AWS (needs credentials, and Docker or published images)
	@$(stop)
	@$(names) && $(cdk) deploy --all $(folder) $$names

assets: preflight ## Build and publish its images, code and templates, for a later deployment
	@$(names) && $(cdk) synth --quiet $(folder) $$names
	@$(cdk) publish-assets --all --unstable=publish-assets --app cdk.out

deploy-assets: install ## Deploy what `make assets` has left in cdk.out, without Docker
	@$(preflight) --published
	@$(stop)
	@$(cdk) deploy --all --app cdk.out

adopt: install ## Deploy it with the buckets and tables that a destroyed instance or a removed part left
	@$(preflight) --adopt
	@context=$$($(python) -m tools.adopt --context) && $(names) && $(cdk) synth --quiet $(folder) $$context $$names
	@$(python) -m tools.adopt cdk.out
	@$(cdk) deploy --all --app cdk.out --import-existing-resources

destroy: install ## Destroy that instance, except for data that its properties retain
	@$(cdk) destroy --all $(folder)

# Keeps compatible pins; `make requirements ARGS=--upgrade` upgrades all of them.
requirements: install ## Pin the dependencies of pyproject.toml, with their hashes
	@echo "==> requirements*.txt, and those of lambdas and containers"
	@$(call quietly,$(compile) --group deploy -o requirements.txt)
	@$(call quietly,$(compile) --group dev -c requirements.txt -o requirements-dev.txt)
	@$(call quietly,$(pins) --group servers -o requirements-servers.txt)
	@$(call quietly,$(pins) --group engines -o requirements-engines.txt)
	@$(call quietly,$(pins) --group lambdas -c requirements-dev.txt -o lambdas/requirements.txt)
	@$(call quietly,$(compile) --extra adjunct --extra aws --extra iceberg --extra kafka --extra postgresql --extra redis --group lambdas --group http -c requirements-dev.txt -o containers/requirements.txt)
	@$(call quietly,$(compile) --extra adjunct --extra aws --extra spark --group lambdas --no-emit-package pyspark \
		-c requirements-dev.txt -o containers/bulk_import/requirements.txt)
	@$(python) -m tools.wheels --write

pins = .venv/bin/uv pip compile --quiet --universal --python-version 3.11 \
	--no-annotate --generate-hashes --custom-compile-command 'make requirements' $(ARGS)
compile = $(pins) pyproject.toml

clean: ## Delete .venv, caches, and the folders of the demo and the benchmarks
	@rm -rf .venv node_modules cdk.out .demo .bench build dist core/*.egg-info
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.created: tools/make-venv
	@tools/make-venv .venv
	@touch $@

.venv/.installed: .venv/.created tools/fill-venv requirements-dev.txt requirements-servers.txt \
		requirements-engines.txt pyproject.toml
	@tools/fill-venv .venv
	@touch $@

# Spark runs on Java 17. Everything else works without Java.
.venv/.java: .venv/.created tools/find-java tools/add-package
	@tools/find-java
	@touch $@

# With an archive of its classes, Spark starts in a third of the CPU time.
.venv/spark.jsa: .venv/.installed .venv/.java
	@echo "==> archiving the classes of Spark for the tests"
	@rm -f $@
	@$(python) -m tests.spark.java
	@touch $@

# For the test of the page of `sleeper serve`.
.venv/.chromium: .venv/.created tools/add-package
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
		|| tools/add-package chromium 'the test of the page'
	@touch $@

# For the tests of adapters and exporters: databases, and their drivers for Spark.
.venv/.databases: .venv/.created tools/add-package
	@ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null \
		|| tools/add-package postgresql 'tests with PostgreSQL'
	@command -v mariadbd >/dev/null || tools/add-package mariadb-server 'tests with MariaDB'
	@command -v redis-server >/dev/null || tools/add-package redis-server 'tests with Redis'
	@test -e /usr/share/java/postgresql.jar \
		|| tools/add-package libpostgresql-jdbc-java 'tests of Spark with PostgreSQL'
	@test -e /usr/share/java/mariadb-java-client.jar \
		|| tools/add-package libmariadb-java 'tests of Spark with MariaDB'
	@touch $@

# The cdk command and test servers. Without Node, the local product works, and those tests report
# what is missing.
node_modules/.installed: package.json package-lock.json
	@if command -v npm >/dev/null; then \
		echo "==> installing the programs that package-lock.json pins"; \
		npm ci --no-audit --no-fund --loglevel=error; \
	else \
		echo "==> npm is not here: neither cdk nor tests against a DynamoDB server can run"; \
		mkdir -p node_modules; \
	fi
	@touch $@
