#!/usr/bin/env bash
# Replicas, a store and engines in network namespaces (tests/support/netns.py). Where there can be none this says SKIPPED,
# and why. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

make --no-print-directory setup
reason=$(.venv/bin/python -m tests.support.netns)
if [ -n "$reason" ]; then
  echo "SKIPPED tests/e2e/netns: $reason"
  exit 0
fi
exec .venv/bin/python -m pytest -n 0 tests/e2e/netns -m "slow or not slow" "$@"
