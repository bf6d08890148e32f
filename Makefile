# Every target has one line of help after ##; bare `make` prints them.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
VENV := .venv
PY := $(VENV)/bin/python
PYTEST := $(PY) -m pytest -n 3 --dist worksteal
TYPED := indexer api schemas kvindexer_client.py kvindexer_ray.py $(wildcard loadtest)
PROTOS := schemas/rpc
BUF := HOME=$(VENV) $(VENV)/bin/buf

FUZZ_SECONDS := 60
FUZZ_SEED := 0

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

# --- environment -----------------------------------------------------------------------------------------------------

.PHONY: setup
setup: $(VENV)/.project ## make .venv with everything locked; instant when nothing changed

$(VENV)/.python:
	@test -n "$(PYTHON)" || { echo "kvindexer needs Python 3.11 or newer, and none was found. On Debian: apt-get install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) has no ensurepip, so it cannot make a virtual environment. On Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.deps: requirements-dev.lock requirements-files.lock $(VENV)/.python
	$(PY) -m pip install --quiet --require-hashes -r requirements-dev.lock
	$(PY) -m pip install --quiet --require-hashes --no-deps -r requirements-files.lock
	@touch $@

$(VENV)/.project: pyproject.toml $(VENV)/.deps
	$(PY) -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# --- use -------------------------------------------------------------------------------------------------------------

.PHONY: run
run: setup ## the service with a demo fleet of three engines, as a live table; Ctrl-C ends it
	$(VENV)/bin/kvindexer demo

.PHONY: run-redis
run-redis: setup ## the same with a store, a Valkey from a wheel; the service is killed and started again on the way
	$(VENV)/bin/kvindexer demo --redis

.PHONY: run-cluster
run-cluster: setup ## three replicas beside such a store: one is killed, one paused and resumed, the table goes on
	$(VENV)/bin/kvindexer demo --cluster

# --- what every change passes ------------------------------------------------------------------------------------------

.PHONY: check
check: setup ## format, lint, types, import contracts, spelling, protos; no network
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy $(TYPED)
	$(VENV)/bin/lint-imports --no-logo
	$(VENV)/bin/codespell
	$(BUF) lint $(PROTOS)
	$(BUF) format --diff --exit-code $(PROTOS)
	$(BUF) breaking $(PROTOS) --against $(PROTOS)/released.binpb

.PHONY: format
format: setup ## rewrite in the project's format and apply safe lint fixes
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

.PHONY: test
test: setup ## unit, golden, property (short) and real-socket tests, in random order
	$(PYTEST)

.PHONY: coverage
coverage: setup ## the same tests with branch coverage of the packages
	$(PYTEST) --cov --cov-report=term-missing

# --- longer --------------------------------------------------------------------------------------------------------------

.PHONY: test-matrix
test-matrix: setup ## the store's tests against every kind of server that is there, and the long faults of one and of many replicas
	$(PYTEST) tests/contract --store-kinds all -m "slow or not slow"
	$(PYTEST) tests/e2e/store tests/e2e/store_faults tests/e2e/cluster tests/e2e/test_demo_cluster.py -m "slow or not slow"

.PHONY: test-engine
test-engine: ## against a real vLLM on CPU with a tiny random model; own environment, downloads a lot
	bash tests/engine/run.sh

.PHONY: test-dynamo
test-dynamo: ## beside Dynamo's own indexer: the same events and questions; own environment, downloads 100 MB
	bash tests/dynamo/run.sh

.PHONY: test-gateways
test-gateways: setup ## beside a real Ray Serve, own environment, downloads 130 MB; and all tests of other gateways, the slow ones, too
	bash tests/gateways/run.sh
	$(PYTEST) tests/e2e/gateways -m "slow or not slow"

.PHONY: test-k8s
test-k8s: ## every overlay of k8s/ held against schemas of several Kubernetes versions, rules and dashboard against a Prometheus; own environment
	bash tests/k8s/run.sh

.PHONY: test-netns
test-netns: ## replicas, a store and engines in network namespaces, cut from each other in every way; needs root, says SKIPPED otherwise
	bash tests/e2e/netns/run.sh

.PHONY: kube-apiserver
kube-apiserver: ## a real kube-apiserver with etcd, compiled from Debian's source outside the repository; ten minutes, once
	bash tests/k8s/apiserver/build.sh

.PHONY: test-discovery
test-discovery: setup ## engines found in Kubernetes and by names: beside fake servers, and a real API server where make kube-apiserver made one
	$(PYTEST) tests/e2e/discovery -m "slow or not slow"
	bash tests/e2e/apiserver/run.sh

.PHONY: test-image
test-image: setup ## the steps of the image in a plain folder: installed without a network, started, ended by SIGTERM
	$(PYTEST) -n 0 tests/e2e/test_image_steps.py -m "slow or not slow"

.PHONY: soak
soak: setup ## long property suites with a printed seed, then millions of blocks through a bounded live set
	$(PYTEST) tests/property -m "slow or not slow" --hypothesis-profile long --timeout 3600
	$(PY) -m loadtest soak
	$(PY) -m loadtest soak-store

.PHONY: fuzz
fuzz: setup ## any bytes into what reads engines' and callers' bytes, led by coverage; FUZZ_SECONDS=60 a target, FUZZ_SEED=0
	for target in batches events lookups packed_lookups names tellings; do \
		$(PY) -m tests.fuzz.run $$target --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED) || exit 1; \
	done

.PHONY: bench
bench: setup ## what each stage costs, alone
	$(PY) -m loadtest bench

.PHONY: load
load: setup ## all load tests over loopback, as in the README's numbers; 25 minutes on two quiet cores
	$(PY) -m loadtest all

# --- made files ------------------------------------------------------------------------------------------------------------

LOCK := $(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url

.PHONY: lock
lock: setup ## resolve the dependencies anew into the lock files (add UPGRADE=--upgrade)
	$(LOCK) $(UPGRADE) pyproject.toml --output-file requirements.lock
	$(LOCK) $(UPGRADE) pyproject.toml --extra dev --constraint requirements.lock --output-file requirements-dev.lock
	$(LOCK) $(UPGRADE) tests/gateways/requirements.in --output-file requirements-ray.lock
	$(LOCK) $(UPGRADE) tests/k8s/requirements.in --output-file requirements-k8s.lock

.PHONY: schemas
schemas: setup ## generate the modules of the protos anew
	$(PY) -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. $(shell find $(PROTOS) -name "*.proto" | sort)

.PHONY: settings
settings: setup ## write SETTINGS.md anew, out of the sections of settings and their docstrings
	$(PY) -m tests.repo.settings_reference

.PHONY: metrics
metrics: setup ## write METRICS.md anew, out of the lists of metrics and of events of the log
	$(PY) -m tests.repo.metrics_reference

.PHONY: released-protos
released-protos: setup ## take the protos as they are for released: from then on no change may break who calls
	$(BUF) build $(PROTOS) --exclude-source-info -o $(PROTOS)/released.binpb

.PHONY: golden
golden: setup ## rewrite made golden files; the diff is the review
	$(PY) -m tests.golden.demo_trace

.PHONY: wheel
wheel: setup ## build the wheel, list it, install it into a fresh environment and try it there
	rm -rf dist
	$(PY) -m hatchling build -t wheel
	$(PY) -m zipfile --list dist/*.whl
	$(PYTHON) -m venv --clear dist/venv
	dist/venv/bin/python -m pip install --quiet --require-hashes -r requirements.lock
	dist/venv/bin/python -m pip install --quiet --no-deps dist/*.whl
	cd dist && venv/bin/kvindexer --version
	cd dist && venv/bin/kvindexer demo --port 0 --seconds 12
	cd dist && venv/bin/python ../tests/repo/installed_wheel.py

.PHONY: image
image: ## the service in a container image, by docker or podman; PYTHON_IMAGE=python:3.11-slim-bookworm@sha256:… for a digest
	PYTHON=$(PYTHON) sh k8s/image/build.sh image

.PHONY: clean
clean: ## remove the environment, built files and caches
	rm -rf $(VENV) .venv-k8s dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
