"""An API server for tests that run against any: the fake one, or with `--api-servers all` a real one, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.control_plane import ControlPlane
from tests.support.kube_api import READER, FakeApi, fake_api_server
from tests.support.real_kube_api import real_api_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.cluster import ApiServer

KINDS = ("fake", "real")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Once for each kind that was asked for."""
    if "api_server" in metafunc.fixturenames:
        asked = metafunc.config.getoption("--api-servers")
        metafunc.parametrize("api_server", KINDS if asked == "all" else [asked], indirect=True)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """Of an account that may read pods."""
    path = tmp_path / "token"
    path.write_text(READER + "\n")
    return path


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real server with etcd behind it, for all tests (`make kube-apiserver`)."""
    with ControlPlane(tmp_path_factory.mktemp("plane")) as running:
        yield running


@pytest.fixture
def api_server(request: pytest.FixtureRequest, tmp_path: Path, token_file: Path) -> Iterator[ApiServer]:
    """Without pods."""
    if request.param == "real":
        with real_api_server(request.getfixturevalue("plane"), tmp_path) as real:
            yield real
    else:
        with fake_api_server() as fake:
            yield FakeApi(fake, token_file)
