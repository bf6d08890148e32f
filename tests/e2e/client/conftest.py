"""One environment as a router has it, and one service with engines, for all tests here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.bare_router import bare_environment
from tests.support.served_fleet import ServedFleet

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds httpx and the client."""
    return bare_environment(tmp_path_factory.mktemp("router") / "venv")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFleet]:
    """Three engines that hold something, and a service that knows."""
    with ServedFleet("--uds", str(tmp_path_factory.mktemp("uds") / "s")) as served:
        served.play_to_first_probe()
        yield served
