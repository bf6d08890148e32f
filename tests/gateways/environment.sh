#!/usr/bin/env bash
# Makes the environment that holds Ray Serve where it is missing, and prints the path of its Python. It holds Ray, as
# locked in requirements-ray.lock, and nothing of ours. It lies outside the repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

environment=${KVINDEXER_RAY_ENV:-$HOME/.cache/kvindexer/ray-env}
python=.venv/bin/python
uv=.venv/bin/uv

cannot() {
  echo "Ray cannot run here: $1" >&2
  exit 1
}

# The same lock and the same Python: nothing to install.
recipe() { { cat requirements-ray.lock; "$python" --version; } | sha256sum; }

install_ray() {
  if [ -e "$environment" ] && [ ! -e "$environment/pyvenv.cfg" ]; then
    cannot "$environment exists and is no virtual environment; set KVINDEXER_RAY_ENV to another place"
  fi
  mkdir -p "$environment"
  local free
  free=$(df -Pm "$environment" | awk 'NR == 2 { print int($4) }')
  [ "$free" -ge 2048 ] || cannot "$environment needs 2 GiB of disk, $free MiB are free"
  echo "making Ray's environment in $environment (about 130 MB of downloads)" >&2
  "$uv" venv --quiet --clear --python "$python" "$environment" >&2
  "$uv" pip install --quiet --python "$environment/bin/python" --require-hashes -r requirements-ray.lock >&2
  "$environment/bin/python" -c 'import ray.serve'
  recipe >"$environment/installed"
}

case $(uname -s)-$(uname -m) in
  Linux-x86_64 | Linux-aarch64) ;;
  *) cannot "these tests are for Linux, this is $(uname -s) on $(uname -m)" ;;
esac
if [ "$(recipe)" != "$(cat "$environment/installed" 2>/dev/null)" ]; then
  # In a subshell with -e, not behind ||: there the first failing step would not end it.
  set +e
  (set -e; install_ray)
  code=$?
  set -e
  [ "$code" = 0 ] || cannot "its environment could not be made; the reason is above (a package index is needed)"
fi
echo "$environment/bin/python"
