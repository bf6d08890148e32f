#!/usr/bin/env bash
# Our service beside Dynamo's own indexer: the same events, the same questions. Arguments go to pytest.
# README.md beside this file says what is compared and what it needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

make --no-print-directory setup
KVINDEXER_DYNAMO_PYTHON=$(bash tests/dynamo/environment.sh)
export KVINDEXER_DYNAMO_PYTHON

# The project's pytest settings leave this folder out of every other run, and bound a test to less than this one takes.
exec .venv/bin/python -m pytest -o addopts= --import-mode=importlib -p no:xdist -p no:cacheprovider \
  --timeout=600 --timeout-method=signal tests/dynamo "$@"
