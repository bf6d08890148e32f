#!/usr/bin/env bash
# Discovery beside a real kube-apiserver with etcd: what only these can show, and the tests that run beside the fake one,
# too. Where none was built this says SKIPPED. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

if ! bash tests/k8s/apiserver/build.sh --where >/dev/null 2>&1; then
  echo "SKIPPED discovery beside a real kube-apiserver: none was built here (make kube-apiserver)"
  exit 0
fi
exec .venv/bin/python -m pytest -n 0 tests/e2e/apiserver tests/e2e/discovery -m "slow or not slow" -k "real" --api-servers real "$@"
