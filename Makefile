# Every target sets up what it needs, also on a fresh Debian machine with nothing but python3.
# The environment lies in .venv; a change of pyproject.toml brings it up to date.

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
# Named by what it depends on: the folder (an editable install points to it) and the dependencies.
INSTALLED := $(VENV)/installed-$(shell (pwd && cat pyproject.toml) | cksum | cut -d ' ' -f 1)
# Classes that Spark loads, archived for the JVMs of tests.
CLASSES := $(VENV)/spark-classes.jsa
PROTO_VENV := .venv-proto
# Of test-matrix: which cells, and interpreters that are not on the PATH.
CELLS ?=
PYTHONS ?=
# Of compose: what it runs.
FILE ?= docker/docker-compose.yml
INTEROP := .interop
INTEROP_SOURCES := tests/interop/java
# The newest RocketMQ that Maven Central has whole, and the last of two older lines: see
# `make rocketmq-versions`. Each has jars and classes of its own.
ROCKETMQS := 5.5.0 5.3.3 4.9.7
PROTO_FILES := proto/rocketpy/v1/*.proto
STUB_FILES := proto/rocketpy_proto/rocketpy/v1/*_pb2*
# What runs in a forked process or a new one does not count; test_f10 traces lines itself.
COVERED := */rocketpy_broker/store/*,*/rocketpy_proto/record/*
COVERING_TESTS := tests/unit/record tests/store tests/broker tests/faults/test_f06* \
	tests/faults/test_f11* tests/faults/test_m01* tests/faults/test_s08*
COVERING := not torture and not interop and not spark
# Spark's tests that share a session in one process, all others in two more: most of them wait for
# processes of their own, so three keep two cores busy.
SIDE_BY_SIDE := --numprocesses 3 --dist loadgroup

# Spark's Python workers must be the environment's own, whatever the shell says of another Spark.
export PYSPARK_PYTHON := $(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(BIN)/python
unexport SPARK_HOME SPARK_CONF_DIR PYTHONPATH PYTHONHOME
unexport PYSPARK_SUBMIT_ARGS PYSPARK_DRIVER_PYTHON_OPTS
# Tests start hundreds of Pythons: each would compile our packages, and pytest each test, anew.
unexport PYTHONDONTWRITEBYTECODE

SHELL := /bin/sh
.SHELLFLAGS := -eu -c
.ONESHELL:
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help setup java tools demo test coverage torture interop lint bench proto wheel clean
.PHONY: test-matrix docs notebooks docker compose rocketmq-versions

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-17s  %s\n", $$1, $$2 }' Makefile
	echo
	echo "PYTHON=python3.12 chooses the interpreter."
	echo "ARGS='...' goes to test, test-matrix, coverage, torture, notebooks and bench."
	echo "ROCKETPY_CACHE=folder keeps what interop fetches outside the clone."
	echo "CELLS=3.10-4.2-lowest lets test-matrix run that cell alone; docs/compatibility.md has all."
	echo "FILE=docker/docker-compose.rocketmq.yml lets compose run Apache RocketMQ beside JupyterLab."
	echo "PYTHONS='/opt/python3.12 ...' names interpreters for test-matrix to look at first."

setup: $(INSTALLED) java ## Make .venv with every dependency, and see that Java 17 or newer is there

demo: $(INSTALLED) java ## Run the flights demo: a broker, a stream stopped and resumed, a chart
	@$(USE_JAVA)
	$(BIN)/python notebooks/flights.py

test: $(INSTALLED) java tools $(CLASSES) ## Run the tests
	@$(USE_JAVA)
	$(BIN)/python -m pytest -m "not torture and not interop" $(SIDE_BY_SIDE) $(ARGS)

$(CLASSES): tests/spark/classes.py $(INSTALLED) | java
	@$(USE_JAVA)
	echo "make: archiving the classes of Spark that tests load"
	rm -f $@.part
	$(BIN)/python -m tests.spark.classes $(CURDIR)/$@.part > $(VENV)/spark-classes.log 2>&1 \
		&& mv $@.part $@ \
		|| echo "make: going on without; see $(VENV)/spark-classes.log" >&2

test-matrix: $(INSTALLED) java tools ## Run tests with other Pythons, PySparks and libraries
	@$(USE_JAVA)
	$(BIN)/python -m tests.matrix --cells "$(CELLS)" --pythons "$(PYTHONS)" -- $(ARGS)

coverage: $(INSTALLED) ## Fail where quick tests miss a branch of the store or the record codec
	@$(BIN)/python -m coverage run -m pytest -m "$(COVERING)" $(COVERING_TESTS) $(ARGS)
	$(BIN)/python -m coverage report --include='$(COVERED)' --show-missing --skip-covered \
		--fail-under=100

interop: ## Compare our stores and codecs with RocketMQ's own code, and run its cluster
interop: $(INSTALLED) tools $(ROCKETMQS:%=$(INTEROP)/%/compiled)
	@$(USE_JAVA)
	$(BIN)/python -m pytest -m interop --numprocesses 2 --dist loadgroup tests/interop $(ARGS)

rocketmq-versions: $(INSTALLED) ## Tell, with Maven, of newer RocketMQs than interop runs
	@$(BIN)/python -m tests.interop.versions

torture: $(INSTALLED) java tools $(CLASSES) ## Kill, cut power and let calls fail: for hours
	@$(USE_JAVA)
	$(BIN)/python -m pytest -m torture $(ARGS)

lint: $(INSTALLED) ## Check style, types, the arrows between rooms, and limits
	@set -x
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -q tests/test_tidy.py

# Its theme tells of its successor at every build; docs/decisions.md knows.
docs: $(INSTALLED) ## Build the site of the documents into build/site; a dead link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet -f docs/site/mkdocs.yml
	echo "make: to read it: python3 -m http.server --bind 127.0.0.1 -d build/site"

notebooks: $(INSTALLED) java ## Run the notebooks, and write their pages into docs/notebooks
	@$(USE_JAVA)
	PATH="$(BIN):$$PATH" $(BIN)/python docs/site/render_notebooks.py $(ARGS)

bench: $(INSTALLED) java ## Measure every figure of docs/performance.md
	@$(USE_JAVA)
	$(BIN)/python -m benchmarks $(ARGS)

# The oldest protoc whose stubs are allowed by every protobuf runtime that we allow, 6.31 and on.
$(PROTO_VENV)/installed: Makefile | $(INSTALLED)
	@$(BIN)/python -m venv --clear $(PROTO_VENV)
	$(PROTO_VENV)/bin/python -m pip install -q grpcio-tools==1.75.1
	touch $@

proto: $(PROTO_VENV)/installed ## Generate the stubs from proto/rocketpy/v1
	@cd proto
	../$(PROTO_VENV)/bin/python -m grpc_tools.protoc -I . --python_out=rocketpy_proto \
		--pyi_out=rocketpy_proto --grpc_python_out=rocketpy_proto rocketpy/v1/*.proto
	cd ..
	rm proto/rocketpy_proto/rocketpy/v1/common_pb2_grpc.py # Of a file without services: empty.
	sed -E -i 's/^from rocketpy\.v1 import/from rocketpy_proto.rocketpy.v1 import/' $(STUB_FILES)
	sha256sum $(PROTO_FILES) $(STUB_FILES) > proto/stubs.sha256

# RocketMQ's jars are fetched once; from then on compiling and testing need no network. They are
# kept in the folder that ROCKETPY_CACHE names, or else in the clone, by what names them: a pom that
# changed has others.
.PRECIOUS: $(INTEROP)/%/fetched
$(INTEROP)/%/fetched: $(INTEROP_SOURCES)/%/pom.xml | java
	@need="Maven"
	command="apt-get update -q && apt-get install -qy maven"
	$(USE_JAVA)
	jars=$${ROCKETPY_CACHE:-$(CURDIR)/$(@D)}/rocketmq-$$(cksum < $< | cut -d ' ' -f 1)
	if [ ! -e "$$jars/complete" ]; then
		echo "make: fetching RocketMQ $*'s servers into $$jars"
		if ! command -v mvn > /dev/null; then
			(
				$(RUN_AS_ROOT)
			)
		fi
		rm -rf "$$jars"
		mvn -q -B -f $< dependency:copy-dependencies \
			-DincludeScope=runtime -DoutputDirectory="$$jars"
		touch "$$jars/complete"
	fi
	mkdir -p $(@D)
	rm -rf $(@D)/lib
	ln -s "$$jars" $(@D)/lib
	touch $@

$(INTEROP)/%/compiled: $(INTEROP)/%/fetched $(INTEROP_SOURCES)/%/Version.java \
		$(wildcard $(INTEROP_SOURCES)/*.java)
	@need="a Java compiler"
	command="apt-get update -q && (apt-get install -qy openjdk-17-jdk-headless"
	command="$$command || apt-get install -qy default-jdk-headless)"
	$(USE_JAVA)
	if [ ! -x "$$JAVA_HOME/bin/javac" ]; then $(RUN_AS_ROOT); fi
	$(USE_JAVA)
	rm -rf $(@D)/classes
	"$$JAVA_HOME/bin/javac" -cp '$(@D)/lib/*' -d $(@D)/classes $(filter %.java,$^)
	touch $@

wheel: $(INSTALLED) ## Build the wheel and the source distribution into dist/
	@$(BIN)/python -m build --no-isolation

docker: ## Build the images of broker and notebooks, with docker or podman
	@$(FIND_ENGINE)
	for image in broker notebooks; do
		$$engine build $$format -f docker/Dockerfile --target $$image -t rocketpy-$$image .
	done

compose: docker ## Run a broker, and JupyterLab with the notebooks, until Ctrl-C
	@$(FIND_ENGINE)
	$(FIND_COMPOSE)
	$$compose -f $(FILE) up

clean: ## Remove what tools and runs left behind; .venv stays
	@rm -rf .venv-matrix-* $(PROTO_VENV) $(INTEROP) build dist delays.png lag.png
	rm -rf artifacts spark-warehouse metastore_db derby.log
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	find connector broker_emulator proto tests notebooks benchmarks docs -name __pycache__ \
		-exec rm -rf {} +

# --- Setting up a machine ---

IS_SUPPORTED := -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))'

$(INSTALLED):
	@if ! $(BIN)/python -c '' 2> /dev/null; then
		if ! $(PYTHON) $(IS_SUPPORTED); then
			echo "make: '$(PYTHON)' is not Python 3.10 to 3.13;" \
				"name one that is: make PYTHON=python3.12" >&2
			exit 1
		fi
		if ! $(PYTHON) -c 'import ensurepip, venv' 2> /dev/null; then
			need="the module venv of $(PYTHON)"
			version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
			command="apt-get update -q && apt-get install -qy python$$version-venv"
			$(RUN_AS_ROOT)
		fi
		echo "make: creating $(VENV)"
		$(PYTHON) -m venv --clear $(VENV)
	fi
	if ! $(BIN)/python $(IS_SUPPORTED); then
		echo "make: $(VENV) holds another Python than 3.10 to 3.13; remove it: rm -r $(VENV)" >&2
		exit 1
	fi
	echo "make: installing dependencies into $(VENV)"
	$(BIN)/python -m pip --version > /dev/null 2>&1 || $(BIN)/python -m ensurepip
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	rm -f $(VENV)/installed-*
	touch $@

java:
	@if [ -z "$$($(FIND_JAVA_HOME))" ]; then
		need="Java 17 or newer"
		command="apt-get update -q && (apt-get install -qy openjdk-17-jre-headless"
		command="$$command || apt-get install -qy default-jre-headless)"
		$(RUN_AS_ROOT)
	fi
	if [ -z "$$($(FIND_JAVA_HOME))" ]; then
		echo "make: still no Java 17 or newer; install one and set JAVA_HOME to it" >&2
		exit 1
	fi

# What tests of faults, and those against RocketMQ, need: without it they are skipped or fail.
tools:
	@PATH="$$PATH:/usr/sbin:/sbin"
	if ! { command -v strace && command -v mkfs.ext4 && command -v openssl && command -v setpriv; } \
		> /dev/null; then
		need="strace, mkfs.ext4, openssl or setpriv"
		command="apt-get update -q && apt-get install -qy strace e2fsprogs openssl util-linux"
		(
			$(RUN_AS_ROOT)
		) || echo "make: going on without; tests that need them do not pass" >&2
	fi

# Sets $$engine to the first program whose engine answers: a program may be there without one.
# Podman's own format of images knows no health check.
define FIND_ENGINE
engine=
format=
for program in docker podman; do
	if "$$program" info > /dev/null 2>&1; then engine=$$program; break; fi
done
if [ -z "$$engine" ]; then
	found=
	for program in docker podman; do
		if command -v "$$program" > /dev/null; then found="$$found $$program"; fi
	done
	if [ -n "$$found" ]; then
		echo "make: no container engine answers:$$found is installed, but '$${found##* } info'" \
			"fails; start the engine, or see what that command says" >&2
	else
		echo "make: no container engine: neither docker nor podman is installed;" \
			"install one, see docker/README.md" >&2
	fi
	exit 1
fi
if [ "$$engine" = podman ]; then format="--format docker"; fi
endef

# Sets $$compose to what reads compose files for $$engine.
define FIND_COMPOSE
compose=
if $$engine compose version > /dev/null 2>&1; then
	compose="$$engine compose"
elif command -v "$$engine-compose" > /dev/null; then
	compose=$$engine-compose
else
	echo "make: $$engine has no compose; install its plugin or $$engine-compose" >&2
	exit 1
fi
endef

# Runs the shell's $$command where that can work; else says how to get what its $$need names.
define RUN_AS_ROOT
if ! command -v apt-get > /dev/null; then
	echo "make: $$need is missing; install it with your system's package manager" >&2
	exit 1
elif [ "$$(id -u)" -ne 0 ]; then
	echo "make: $$need is missing; install it: sudo sh -c '$$command'" >&2
	exit 1
fi
echo "make: $$need is missing; installing it: $$command"
DEBIAN_FRONTEND=noninteractive sh -c "$$command"
endef

# Prints the home of the first Java 17 or newer: JAVA_HOME's, the path's, or any on the machine.
define FIND_JAVA_HOME
for java in "$${JAVA_HOME:-}/bin/java" "$$(command -v java || true)" /usr/lib/jvm/*/bin/java; do
	[ -x "$$java" ] || continue
	version=$$("$$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
	if [ "$${version:-0}" -ge 17 ]; then dirname "$$(dirname "$$(readlink -f "$$java")")"; break; fi
done
endef

define USE_JAVA
JAVA_HOME=$$($(FIND_JAVA_HOME)); export JAVA_HOME
endef
