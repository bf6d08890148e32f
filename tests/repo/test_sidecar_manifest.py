"""The pod of a gateway with a sidecar, as it is shipped: its arguments are understood, both mean the same socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from api.cli.parser import build_parser
from indexer.__main__ import _settings
from indexer.settings import Settings

MANIFEST = Path(__file__).parents[2] / "k8s" / "sidecar" / "gateway.yaml"


def _pod() -> Any:  # noqa: ANN401  YAML
    return yaml.safe_load(MANIFEST.read_text())["spec"]["template"]["spec"]


def _container(name: str) -> Any:  # noqa: ANN401  YAML
    return next(each for each in _pod()["containers"] if each["name"] == name)


def _started(monkeypatch: Any) -> Settings:  # noqa: ANN401  pytest's
    """What the container comes to, with the address of a store in its environment."""
    container = _container("kvindexer")
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], "redis://store" if variable["name"].endswith("URL") else "gateway-1")
    return _settings(build_parser("1").parse_args(container["args"]))


def test_its_arguments_make_a_sidecar(monkeypatch: Any) -> None:  # noqa: ANN401  pytest's
    """On its socket alone, owning nothing, following what is chosen."""
    settings = _started(monkeypatch)

    assert (("lookup",), None, None) == (settings.server.roles, settings.server.port, settings.server.grpc_port)
    assert ("gateway-1", ("llama",)) == (settings.redis.replica, settings.models.follow)


def test_gateway_and_sidecar_share_the_folder_of_the_socket(monkeypatch: Any) -> None:  # noqa: ANN401  pytest's
    """On one volume, with one group, since the socket's file is for owner and group."""
    path = _started(monkeypatch).server.uds
    assert path is not None
    mounts = [each["volumeMounts"] for each in _pod()["containers"]]

    assert [{"name": "kvindexer", "mountPath": str(Path(path).parent)}] == mounts[0] == mounts[1]
    assert {1000} == {each["securityContext"]["runAsGroup"] for each in _pod()["containers"]}
    assert path in _container("kvindexer")["livenessProbe"]["exec"]["command"][-1]
    assert f"pipe: {{path: {path}}}" in MANIFEST.read_text()
