"""The protos: linted, compatible with what was released, and generated from as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUF = Path(sys.executable).with_name("buf")
PROTOS = "schemas/rpc"


def run(arguments: list[str], tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """At the root, without the network."""
    environment = os.environ | {"HOME": str(tmp_path), "HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": ""}
    return subprocess.run(arguments, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments",
    [
        ["lint", PROTOS],
        ["format", "--diff", "--exit-code", PROTOS],
        ["breaking", PROTOS, "--against", f"{PROTOS}/released.binpb"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_buf_finds_nothing(arguments: list[str], tmp_path: Path) -> None:
    """Names, format, and nothing that breaks who calls."""
    done = run([str(BUF), *arguments], tmp_path)

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


def test_buf_would_find_a_change_that_breaks_callers(tmp_path: Path) -> None:
    """A field that gets another number."""
    for proto in (ROOT / PROTOS).rglob("*.proto"):
        copy = tmp_path / proto.relative_to(ROOT / PROTOS)
        copy.parent.mkdir(parents=True)
        copy.write_text(proto.read_text().replace("double score = 8;", "double score = 17;"))
    (tmp_path / "buf.yaml").write_text((ROOT / PROTOS / "buf.yaml").read_text())

    done = run([str(BUF), "breaking", str(tmp_path), "--against", f"{PROTOS}/released.binpb"], tmp_path)

    assert 'field "8"' in done.stdout
    assert done.returncode


def test_the_generated_modules_are_what_the_protos_make(tmp_path: Path) -> None:
    """Byte for byte: `make schemas` changes nothing."""
    protos = sorted(str(path.relative_to(ROOT)) for path in (ROOT / PROTOS).rglob("*.proto"))
    out = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    done = run([sys.executable, "-m", "grpc_tools.protoc", "-I.", *out, *protos], tmp_path)
    made = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*_pb2*")}

    assert (0, "") == (done.returncode, done.stderr)
    assert 12 == len(made)
    assert made == {path: (ROOT / path).read_text() for path in made}
