"""`kvindexer doctor` beside an API server: whether it may look, what it finds, and which pods became no source."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import yaml

from tests.support.cluster import Cluster
from tests.support.kube_api import Refusal, fake_api_server
from tests.support.pods import container, pod

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cluster import ApiServer


def doctor(
    folder: Path, url: str, token_file: Path, ca_file: Path | None = None
) -> dict[str, list[tuple[str, str, str]]]:
    """Level, subject and what was seen, by check."""
    pods = {"selector": "app=vllm", "namespaces": ["serving"], "url": url, "token_file": str(token_file)}
    if ca_file is not None:
        pods["ca_file"] = str(ca_file)
    config = folder / "kvindexer.yaml"
    config.write_text(yaml.safe_dump({"discovery": {"kubernetes": pods}}))
    said = subprocess.run(
        [sys.executable, "-m", "indexer", "doctor", "--config", str(config), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in said.stderr, said.stderr
    found: dict[str, list[tuple[str, str, str]]] = {}
    for each in json.loads(said.stdout)["findings"]:
        if each["check"].startswith("kubernetes."):
            found.setdefault(each["check"], []).append((each["level"], each.get("subject", ""), each.get("seen", "")))
    return found


def test_what_it_finds(api_server: ApiServer, tmp_path: Path) -> None:
    """Pods, sources, and why one is none; before there are any, that there are none."""
    cluster = Cluster(api_server)
    nobody = doctor(tmp_path, api_server.url, api_server.token_file, api_server.ca_file)
    cluster.run("good", "10.0.0.1")
    cluster.run("slow", "10.0.0.2", ready=False)
    cluster.run("odd", "10.0.0.3", pod("odd", container("a", ["--x"]), container("b", ["--y"])), a=cluster.process())

    found = doctor(tmp_path, api_server.url, api_server.token_file, api_server.ca_file)

    assert ["warning"] == [level for level, _, _ in nobody["kubernetes.pods"]]
    assert ["ok"] == [level for level, _, _ in found["kubernetes.reachable"]]
    assert ["ok"] == [level for level, _, _ in found["kubernetes.permitted"]]
    assert [("ok", "", "3 pods, 2 sources, 1 of them not ready")] == found["kubernetes.pods"]
    ((level, subject, seen),) = found["kubernetes.sources"]
    assert ("warning", "serving/odd") == (level, subject)
    assert "none of its containers publishes" in seen


def test_what_keeps_it_from_looking(tmp_path: Path, token_file: Path) -> None:
    """Not permitted, not to watch either, or nobody there."""
    with fake_api_server() as api:
        api.refusals.append(Refusal(403, "Forbidden"))
        ((level, _, seen),) = doctor(tmp_path, api.url, token_file)["kubernetes.permitted"]
        assert "problem" == level
        assert "get, list and watch of pods" in seen
        api.refusals.extend([None, Refusal(403, "Forbidden")])
        assert ["problem"] == [each[0] for each in doctor(tmp_path, api.url, token_file)["kubernetes.permitted"]]
        url = api.url
    ((level, _, seen),) = doctor(tmp_path, url, token_file)["kubernetes.reachable"]
    assert "problem" == level
    assert "connection refused" in seen
