#!/usr/bin/env bash
# Makes the environment that holds NVIDIA Dynamo's own indexer where it is missing, and prints the path of its Python.
# It lies outside the repository: nothing of it is ever imported by the project.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

dynamo_release=1.6.1
environment=${KVINDEXER_DYNAMO_ENV:-$HOME/.cache/kvindexer/dynamo-env}
python=.venv/bin/python

cannot() {
  echo "Dynamo's indexer cannot run here: $1" >&2
  exit 1
}

# The same release and the same Python: nothing to install.
recipe() { { echo "$dynamo_release"; "$python" --version; } | sha256sum; }

install_dynamo() {
  if [ -e "$environment" ] && [ ! -e "$environment/pyvenv.cfg" ]; then
    cannot "$environment exists and is no virtual environment; set KVINDEXER_DYNAMO_ENV to another place"
  fi
  mkdir -p "$environment"
  local free
  free=$(df -Pm "$environment" | awk 'NR == 2 { print int($4) }')
  [ "$free" -ge 1024 ] || cannot "$environment needs 1 GiB of disk, $free MiB are free"
  echo "making the environment of Dynamo's indexer in $environment (about 100 MB of downloads)" >&2
  "$python" -m venv --clear "$environment"
  "$environment/bin/python" -m pip install -qq "ai-dynamo-runtime==$dynamo_release" >&2
  "$environment/bin/python" -m dynamo.indexer --help >/dev/null
  recipe >"$environment/installed"
}

case $(uname -s)-$(uname -m) in
  Linux-x86_64 | Linux-aarch64) ;;
  *) cannot "there is no build for $(uname -s) on $(uname -m)" ;;
esac
if [ "$(recipe)" != "$(cat "$environment/installed" 2>/dev/null)" ]; then
  # In a subshell with -e, not behind ||: there the first failing step would not end it.
  set +e
  (set -e; install_dynamo)
  code=$?
  set -e
  [ "$code" = 0 ] || cannot "its environment could not be made; the reason is above (a package index is needed)"
fi
echo "$environment/bin/python"
