"""One engine and the services around it, for as long as the suite runs."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.engine import MODEL, Engine
from tests.engine.service import Service
from tests.engine.tiny_model import write_tiny_model

ROOT = Path(__file__).parents[2]

StartService = Callable[..., Service]


@pytest.fixture(autouse=True)
def _end_in_order_when_told_to() -> None:
    """A SIGTERM ends the run as Ctrl-C does: through the fixtures, which leave no engine behind."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the processes print. Not `tmp_path`: pytest cannot close that one when a run is interrupted in a fixture."""
    return tmp_path_factory.mktemp("logs")


@pytest.fixture
def engine(logs: Path) -> Iterator[Engine]:
    """A running engine that has published nothing yet."""
    engine = Engine(Path(os.environ["KVINDEXER_ENGINE_PYTHON"]), write_tiny_model(logs / "tiny"), logs)
    try:
        engine.start()
        yield engine
    finally:
        engine.close()


@pytest.fixture
def start_service(engine: Engine, logs: Path) -> Iterator[StartService]:
    """Start a service under a name, with the engine as its `--source` or without any; it must end in order."""
    command = Path(os.environ.get("KVINDEXER_COMMAND", ROOT / ".venv/bin/kvindexer"))
    source = f"{engine.address}={engine.events_endpoint},replay={engine.replay_endpoint},model={MODEL}"
    started: list[Service] = []

    def start(name: str, *, with_source: bool) -> Service:
        started.append(Service(name, command, engine, logs, source=source if with_source else None))
        return started[-1]

    yield start

    assert {service.name: 0 for service in started} == {service.name: service.close() for service in started}
