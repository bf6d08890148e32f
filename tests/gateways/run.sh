#!/usr/bin/env bash
# Real routers that install into an environment of their own, so far Ray Serve. Arguments go to pytest.
# README.md beside this file says what is tried and what it needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

make --no-print-directory setup
KVINDEXER_RAY_PYTHON=$(bash tests/gateways/environment.sh)
export KVINDEXER_RAY_PYTHON

# The project's pytest settings leave this folder out of every other run, and bound a test to less than this one takes.
exec .venv/bin/python -m pytest -o addopts= --import-mode=importlib -p no:xdist -p no:cacheprovider \
  --timeout=300 --timeout-method=signal tests/gateways "$@"
