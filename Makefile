# Every target sets up what it needs, also on a fresh Debian machine with nothing but python3.
# The environment is in .venv; a change of the dependencies brings it up to date.

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
# Named by what it depends on: the folder (an editable install points to it) and the dependencies.
INSTALLED := $(VENV)/installed-$(shell \
	(pwd && cat pyproject.toml requirements.lock) | cksum | cut -d ' ' -f 1)
# Of compose: the file to run.
FILE ?= docker/docker-compose.yml
# The newest RocketMQ that Maven Central has whole, and the last of two older lines: see
# `make rocketmq-versions`. Each has jars and classes of its own.
ROCKETMQS := 5.5.0 5.3.3 4.9.7
# Coverage does not count in forked and new processes; test_f10 traces lines itself.
COVERED := */rocketpy_broker/store/*,*/rocketpy_proto/record/*
COVERING_TESTS := tests/unit/record tests/store tests/broker tests/faults/damage/test_f06* \
	tests/faults/test_f11* tests/faults/test_m01* tests/faults/batches/test_s08*
COVERING := not torture and not interop and not spark
# Spark's tests share a session in one process, all others run in four more: many of them wait, and
# two cores are busy. A process that dies is not replaced: the run would never end.
SIDE_BY_SIDE := --numprocesses 5 --dist loadgroup --max-worker-restart 0

# Spark's Python workers are the environment's own, whatever the shell says of another Spark.
export PYSPARK_PYTHON := $(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(BIN)/python
unexport SPARK_HOME SPARK_CONF_DIR PYTHONPATH PYTHONHOME
unexport PYSPARK_SUBMIT_ARGS PYSPARK_DRIVER_PYTHON_OPTS
# Tests start hundreds of Pythons: each would compile our packages, and pytest each test, again.
unexport PYTHONDONTWRITEBYTECODE
export PYTHON

SHELL := /bin/sh
.SHELLFLAGS := -eu -c
.ONESHELL:
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help setup lock java programs demo test coverage torture interop lint bench bench-peers
.PHONY: proto wheel clean test-matrix site docs notebooks docker compose rocketmq-versions

USE_JAVA := JAVA_HOME=$$(tools/setup.sh java-home); export JAVA_HOME

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-17s  %s\n", $$1, $$2 }' Makefile
	echo
	echo "PYTHON=python3.12 chooses the interpreter. ARGS='...' goes to tests, notebooks, bench."
	echo "ROCKETPY_CACHE=folder keeps what interop fetches outside the clone."
	echo "CELLS=3.10-4.2-lowest lets test-matrix run that cell alone; docs/compatibility.md has all."
	echo "FILE=docker/docker-compose.rocketmq.yml lets compose run Apache RocketMQ beside JupyterLab."
	echo "PYTHONS='/opt/python3.12 ...' names interpreters for test-matrix to look at first."

setup: $(INSTALLED) java ## Make .venv with every dependency, and see that Java 17 or newer is there

$(INSTALLED):
	@tools/setup.sh python $(VENV) $@

java programs:
	@tools/setup.sh $@

demo: $(INSTALLED) java ## Run the flights demo: a broker, a stream stopped and resumed, a chart
	@$(USE_JAVA)
	$(BIN)/python notebooks/flights.py

test: $(INSTALLED) java programs ## Run the tests of broker and connector
	@$(USE_JAVA)
	$(BIN)/python -m pytest -m "not torture and not interop and not docs" --ignore tests/interop \
		$(SIDE_BY_SIDE) $(ARGS)

test-matrix: $(INSTALLED) java programs ## Run tests with other Pythons, PySparks and libraries
	@$(USE_JAVA)
	CELLS="$(CELLS)" PYTHONS="$(PYTHONS)" $(BIN)/python -m nox -- $(ARGS)

coverage: $(INSTALLED) ## Fail where quick tests miss a branch of the store or the record codec
	@$(BIN)/python -m coverage run -m pytest -m "$(COVERING)" $(COVERING_TESTS) $(ARGS)
	$(BIN)/python -m coverage report --include='$(COVERED)' --show-missing --skip-covered \
		--fail-under=100

interop: ## Compare with RocketMQ's own code, run its cluster, and run our images
interop: $(INSTALLED) programs images $(ROCKETMQS:%=.interop/%/compiled) .interop/go/client \
		.interop/python-sdk .interop/java-sdk/compiled .interop/proxy .interop/axe
	@$(USE_JAVA)
	$(BIN)/python -m pytest -m interop --numprocesses 2 --dist loadgroup tests/interop $(ARGS)

include tests/interop/fetched.mk

rocketmq-versions: $(INSTALLED) ## Report, with Maven, newer RocketMQs than interop runs
	@$(BIN)/python -m tests.interop.versions

torture: $(INSTALLED) java programs ## Kill, cut power and let calls fail: for hours
	@$(USE_JAVA)
	$(BIN)/python -m pytest -m torture $(ARGS)

lint: $(INSTALLED) ## Check style, types, imports between packages, language and limits
	@set -x
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -q tests/project/test_tidy.py tests/project/test_language.py

site: $(INSTALLED) ## Build the site of the documents into build/site; a dead link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet -f docs/site/mkdocs.yml
	echo "make: to read it: python3 -m http.server --bind 127.0.0.1 -d build/site"

# `make lint` runs the tests of style and language.
docs: site java programs ## Build the site; run what documents, notebooks and packages promise
	@$(USE_JAVA)
	$(BIN)/python -m pytest -m docs --ignore tests/interop \
		--ignore tests/project/test_tidy.py --ignore tests/project/test_language.py \
		$(SIDE_BY_SIDE) $(ARGS)

notebooks: $(INSTALLED) java ## Run the notebooks, and write their pages into docs/notebooks
	@$(USE_JAVA)
	PATH="$(BIN):$$PATH" $(BIN)/python docs/site/render_notebooks.py $(ARGS)

screenshots: $(INSTALLED) .interop/axe ## Write pictures of the console into docs/console
	@$(BIN)/python -m tests.interop.console.screenshots

bench: $(INSTALLED) java ## Measure every figure of docs/performance.md
	@$(USE_JAVA)
	$(BIN)/python -m benchmarks $(ARGS)

bench-peers: ## Compare with Kafka and with RocketMQ, into benchmarks/peers.json
bench-peers: $(INSTALLED) programs .interop/$(firstword $(ROCKETMQS))/compiled \
		.interop/peers/fetched
	@$(USE_JAVA)
	PYTHONPATH=$(CURDIR)/.interop/peers/pyspark $(BIN)/python -m benchmarks.peers $(ARGS)

lock: $(INSTALLED) ## Resolve the dependencies again, into requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --extra dev --upgrade \
		--no-header --no-annotate --output-file requirements.lock pyproject.toml

proto: $(INSTALLED) ## Generate the stubs from the files in proto/
	@tools/stubs.sh $(BIN)/python

wheel: $(INSTALLED) ## Build the wheel and the source distribution into dist/
	@$(BIN)/python -m build --no-isolation

docker: ## Build the images of broker and notebooks, with docker or podman
	@tools/container.sh build

compose: docker ## Run a broker, and JupyterLab with the notebooks, until Ctrl-C
	@tools/container.sh up $(FILE)

clean: ## Remove what tools and runs left behind; .venv stays
	@rm -rf .nox .venv-proto .interop build dist delays.png lag.png artifacts .hypothesis .coverage
	rm -rf spark-warehouse metastore_db derby.log
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find connector broker_emulator proto tests notebooks benchmarks docs -name __pycache__ \
		-exec rm -rf {} +
