"""What the README shows of discovery finds engines: its settings, and its annotations, as they stand there."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from api.demo.engine import EngineSimulator
from indexer.settings import load
from tests.support.core_service import RunningService
from tests.support.name_server import NameServer, name_server
from tests.support.pod_engines import STORED, FoundService
from tests.support.pods import container, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.cluster import ApiServer

README: Final = (Path(__file__).parents[3] / "README.md").read_text()
SECTION: Final = README.partition("\n## Let engines be found\n")[2].partition("\n## ")[0]
BY_PODS, ANNOTATED, BY_NAMES = re.findall(r"^```yaml\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)


def in_environment(text: str) -> dict[str, str]:
    """These settings, as a process is given them."""
    leaves = _leaves(yaml.safe_load(text))
    return {"__".join(path): value if isinstance(value, str) else json.dumps(value) for path, value in leaves}


def _leaves(settings: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in settings.items():
        if isinstance(value, dict) and name != "names":
            yield from (((name, *path), each) for path, each in _leaves(value))
        else:
            yield (name,), value


def test_they_are_a_file_of_settings(tmp_path: Path) -> None:
    """Nothing is unknown, or missing."""
    for text in (BY_PODS, BY_NAMES):
        (tmp_path / "kvindexer.yaml").write_text(text)
        load(tmp_path / "kvindexer.yaml", {})


def test_pods_that_are_annotated(api_server: ApiServer) -> None:
    """Whose arguments say nothing."""
    ip, metadata = "127.78.1.1", yaml.safe_load(ANNOTATED)["metadata"]
    with contextlib.ExitStack() as stack:
        engines = [
            stack.enter_context(EngineSimulator(f"tcp://{ip}:{5557 + rank}", f"tcp://{ip}:{6557 + rank}"))
            for rank in range(2)
        ]
        found = stack.enter_context(FoundService(api_server, **in_environment(BY_PODS)))
        made = pod("engine", container(args=[]), annotations=metadata["annotations"])
        made["metadata"]["labels"] = metadata["labels"]
        found.cluster.run("engine", ip, made)
        for engine in engines:
            engine.wait_subscribers(1)
            engine.publish(STORED)
        named, whole = f"{ip}:8000", {0, 1}
        found.service.wait_for(
            lambda: {rank for (_, rank), each in found.entries().items() if each.score > 0} == whole, "both ranks"
        )
        (shown,) = {(each["model"], each["role"], each["origin"]) for each in found.service.sources().values()}

        assert {named} == found.scored()
        assert ("llama", "prefill", "discovery") == shown


def test_names() -> None:
    """Of a headless service."""
    ip, (name,) = "127.78.1.2", yaml.safe_load(BY_NAMES)["discovery"]["dns"]["names"]
    server = NameServer()
    server.put(name, "A", ip)
    with (
        EngineSimulator(f"tcp://{ip}:5557", f"tcp://{ip}:6557") as engine,
        name_server(server),
        RunningService(
            [],
            **in_environment(BY_NAMES),
            discovery__dns__servers=json.dumps([server.address]),
            loads__interval_s="null",
        ) as service,
    ):
        engine.wait_subscribers(1)
        service.wait_for(lambda: [f"{ip}:8000"] == [*service.sources()], "the engine")
        (shown,) = service.sources().values()

    assert ("llama", f"tcp://{ip}:6557") == (shown["model"], shown["replay_endpoint"])
