# Every task of the project. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Folders with Cython modules.
COMPILED_IN := $(addprefix src/tidelog/,records storage ports broker/connections broker/handlers)
BUILD_INPUTS := pyproject.toml setup.py $(foreach folder,$(COMPILED_IN),$(wildcard $(folder)/*.pyx $(folder)/*.pxd))

# pip keeps to itself what a build says.
SAY_ABSENT = $(BIN)/python -c 'from tidelog.records import column_implementation as c, implementation as i; c.ABSENT and print(f"The compiled kernels were not built; \
they need a C compiler and the headers of Python (Debian, Ubuntu: apt install gcc python3-dev; then make clean venv). \
It works without them: {i.PURE_COST}.")'

# Four on two cores: for a good part of their time tests wait for processes, clients and sessions.
WORKERS ?= 4

# Bytecode is written even where the environment says no: else each worker compiles all tests at each run, 12 s of CPU time.
PYTEST := PYTHONDONTWRITEBYTECODE= PYTHONHASHSEED=0 python -m pytest -n $(WORKERS) --dist loadfile -q

.PHONY: help venv demo test lint tests unit interop spark vectors thorough fuzz soak soak-clients nightly mutants chaos descriptors conformance ecosystem bench endure reference dist dist-check clean

help: ## List the tasks.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "tidelog needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip

# One stamp for what the demo needs, one for what development needs: a second run finds them and needs no network.
# pip does not compile what it installs editable; where PYTHONDONTWRITEBYTECODE is set, every start would compile it all.
$(VENV)/.demo: $(BIN)/python $(BUILD_INPUTS)
	@echo "Installing tidelog and what the demo needs into $(VENV) (once; PySpark is the largest part)..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo]'
	@$(BIN)/python -m compileall -q src
	@$(SAY_ABSENT)
	@touch $@

$(VENV)/.dev: $(BIN)/python $(BUILD_INPUTS)
	@echo "Installing tidelog and what development needs into $(VENV) (once)..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]' --group dev
	@$(BIN)/python -m compileall -q src
	@$(SAY_ABSENT)
	@touch $@ $(VENV)/.demo

venv: $(VENV)/.dev ## Install everything that development needs into .venv.

demo: $(VENV)/.demo ## Run the main job on real data: clients -> tidelog -> Spark -> Delta -> a picture.
	@exec $(BIN)/python -m tidelog.pipeline.demo

# Lint, then the vectors beside the tests: one process alone keeps one core busy. Lint is silent until it ends.
test: venv ## Lint, types, import contracts, the tests, the golden vectors.
	@rm -f $(LINT_FAILED)
	@$(MAKE) --no-print-directory --jobs=2 tests lint vectors || { cat $(LINT_FAILED) 2>/dev/null; exit 1; }

CODE := src sim tests bench setup.py
LINT_FAILED := $(VENV)/.lint-failed
lint: venv ## ruff, mypy --strict and the import contracts: what each that fails says, then their names.
	@failed=(); \
	for check in 'ruff check $(CODE)' 'ruff format --check $(CODE)' mypy 'lint-imports --no-logo'; do \
	  said=$$($$check 2>&1) || { failed+=("$$check"); printf '%s\n' "$$said"; }; \
	done; \
	if (( $${#failed[@]} )); then printf 'lint failed: %s\n' "$${failed[@]}" | tee $(LINT_FAILED) >&2; exit 1; fi; \
	echo 'lint: ruff, mypy and the import contracts have nothing to say'

tests: venv ## The tests of `make test`, in parallel; T='-k name' selects, also in the three parts below.
	@$(PYTEST) -m 'not thorough' $(T)

unit: venv ## A part of them: units and properties, without Spark; judges most changes in a minute.
	@$(PYTEST) -m 'not thorough and not spark' tests/unit tests/property $(T)

interop: venv ## A part of them: real clients, and the mission's rows from outside.
	@$(PYTEST) -m 'not thorough and not spark' tests/interop tests/scenarios $(T)

spark: venv ## A part of them: what starts a Spark session.
	@$(PYTEST) -m 'not thorough and spark' $(T)

thorough: venv ## The tests that `make test` leaves out, and ten times the examples of each property.
	@$(PYTEST) -m 'thorough or hypothesis' --hypothesis-profile=thorough $(T)

vectors: venv ## Kafka's golden vectors; TIDELOG_VECTORS=DIR judges those in DIR.
	@python -m tests.vectors.run

fuzz: venv ## Mutated bytes into every parser; SECONDS=n for each parser family, ARGS='--seed 7'.
	@python -m tests.property.fuzz $(or $(SECONDS),60) $(ARGS)

soak: venv ## Every operation of a log's disk fails; simulated clusters under faults; SEEDS=n runs of 30 simulated seconds, ARGS='--seed 1000 --brokers 5'.
	@python -m tests.unit.storage.life
	@python -m sim --seeds $(or $(SEEDS),200) --jobs 2 --keep-going $(ARGS)

soak-clients: venv ## Simulated clusters with users of our own client; SEEDS=n runs of 30 simulated seconds, ARGS='--seed 1000'.
	@python -m sim --clients --seeds $(or $(SEEDS),100) --jobs 2 --keep-going $(ARGS)

nightly: venv ## `make test` ten times, then chance for some hours: all tests, soak, fuzz, chaos; SEED=n repeats a night.
	@.ci/nightly $(SEED)

mutants: venv ## Bugs put into the protocol on purpose, each until the simulator finds it; prints a table.
	@python -m sim.mutants $(ARGS)

chaos: venv ## Brokers killed, paused and starved under a verifying load; CYCLES=n, ARGS='--fault mix --seed 7'.
	@python -m tests.chaos --cycles $(or $(CYCLES),20) $(ARGS)

descriptors: venv ## Three brokers that may open 1,024 files each, 5,000 idle connections for MINUTES=n (10), under the same load.
	@python -m tests.chaos --fault descriptors --cycles 1 --open-files 1024 --crowd 5000 --hold $$(( $(or $(MINUTES),10) * 60 )) $(ARGS)

conformance: venv ## Kafka's own tools and clients, Go's, Node's, kcat, and Apache Kafka as peers (fetches them).
	@tests/conformance/run

ecosystem: venv ## Software that others have written for Kafka, pinned, each in an environment of its own; NAMES='faust celery' chooses.
	@python -m tests.ecosystem $(NAMES)

bench: venv ## Speed and memory beside the C sink, Apache Kafka and the official Spark connector; PART=NAME: one part, such as small (bench/run lists them).
	@bench/run $(PART)

endure: venv ## Three brokers under plain load; memory, descriptors, latency must stay flat; MINUTES=n (60), ARGS='--plot FILE'.
	@python -m bench.endure --minutes $(or $(MINUTES),60) $(ARGS)

reference: venv ## Regenerate docs/configuration.md, the message stubs and the board for Grafana.
	@python -m tidelog.config.reference > docs/configuration.md
	@python -m tidelog.protocol.stubs
	@python -m tidelog.metrics.board > docs/monitoring/grafana.json

dist: venv ## Build a wheel, for each Linux that its kernel runs on, and an sdist into dist/.
	@rm -rf build/lib* build/temp* build/bdist* dist
	@python -m build --no-isolation --outdir dist .
	@for wheel in dist/*-linux_*.whl; do [ ! -e "$$wheel" ] || { python -m auditwheel repair --wheel-dir dist "$$wheel" && rm "$$wheel"; }; done

dist-check: dist ## Install both in fresh environments, with and without a C compiler, and send a record through each.
	@python -m tests.installation

clean: ## Remove what was built; keeps .venv.
	@rm -rf build dist src/*.egg-info $(foreach folder,$(COMPILED_IN),$(folder)/*.c $(folder)/*.so) $(VENV)/.demo $(VENV)/.dev
