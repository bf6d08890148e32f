#!/bin/sh
# The steps of which the image is made, each a word. The Dockerfile runs them in a container, `make test-image` in a
# plain folder, so that what is tested is what is built. They run from the root of the tree.
#   download WHEELS         what the locks name, by hash, as wheels; the only step with a network
#   wheel WHEELS            the project's own wheel, by the locked build backend, beside those
#   install WHEELS PREFIX   an environment at PREFIX out of these alone, compiled, without pip
#   compile FOLDER          bytecode for the modules below it, which is believed without looking at dates
#   image                   the image itself, by docker or podman, whichever is there
# PYTHON names the interpreter (python3); for `image`, PYTHON_IMAGE the image to start from, IMAGE the name of the result.
set -eu
cd "$(dirname "$0")/../.."

python=${PYTHON:-python3}
project() { "$python" -c "import tomllib; print(tomllib.load(open('pyproject.toml', 'rb'))['project']['$1'])"; }
pip() { "$python" -m pip --disable-pip-version-check --quiet "$@"; }

# The build backend stands in the lock of development, with all that is none of an image's business.
backend_of() {
  awk '/^[^ ]/ { kept = $1 ~ /^(hatchling|packaging|pathspec|pluggy|tomlkit|trove-classifiers)==/ } kept' requirements-dev.lock \
    >"$1/backend.lock"
}

bytecode() {
  "$python" k8s/image/bytecode.py "$1"
}

case ${1:-} in
  download)
    mkdir -p "$2"
    backend_of "$2"
    pip download --require-hashes --only-binary :all: --dest "$2" -r requirements.lock
    pip download --require-hashes --only-binary :all: --dest "$2" -r "$2/backend.lock"
    ;;
  wheel)
    "$python" -m venv --without-pip "$2/backend"
    pip --python "$2/backend/bin/python" install --no-index --find-links "$2" --require-hashes -r "$2/backend.lock"
    "$2/backend/bin/python" -m hatchling build -t wheel -d "$2"
    rm -rf "$2/backend"
    ;;
  install)
    "$python" -m venv --without-pip "$3"
    # Compiled below, once and otherwise than pip does.
    pip --python "$3/bin/python" install --no-index --find-links "$2" --no-compile --require-hashes -r requirements.lock
    pip --python "$3/bin/python" install --no-index --no-compile --no-deps "$2/kvindexer-$(project version)-py3-none-any.whl"
    bytecode "$3/lib"
    ;;
  compile)
    bytecode "$2"
    ;;
  image)
    for program in docker podman; do
      if command -v "$program" >/dev/null && "$program" info >/dev/null 2>&1; then
        exec "$program" build ${PYTHON_IMAGE:+--build-arg "PYTHON_IMAGE=$PYTHON_IMAGE"} \
          --build-arg "VERSION=$(project version)" \
          --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
          --tag "${IMAGE:-kvindexer:$(project version)}" .
      fi
    done
    echo "no docker and no podman answers here, so there is no image; make test-image runs the same steps in a folder" >&2
    exit 1
    ;;
  *)
    sed -n '2,10s/^# //p' "$0" >&2
    exit 2
    ;;
esac
