"""For what callers report: a server of small limits, a double in the node's place, and a connection."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING

import pytest

from api.rest.limits import RestLimits
from api.server import ServerSettings
from tests.support.fake_node import FakeNode
from tests.support.serving import DEADLINE_S, served_in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[FakeNode, tuple[str, int]]]:
    """The double, and where the server is, for all tests of a module."""
    node = FakeNode()
    with served_in_thread(node, ServerSettings(port=0, limits=RestLimits(tokens=8))) as address:
        yield node, address


@pytest.fixture
def node(shared: tuple[FakeNode, tuple[str, int]]) -> FakeNode:
    """The double behind it, which was told nothing yet."""
    node, _ = shared
    node.routed.clear()
    node.refused_routed = 0
    node.fed.clear()
    node.refused_feedback = 0
    node.fault = None
    return node


@pytest.fixture
def client(node: FakeNode, shared: tuple[FakeNode, tuple[str, int]]) -> Iterator[http.client.HTTPConnection]:
    """A connection."""
    del node
    connection = http.client.HTTPConnection(*shared[1], timeout=DEADLINE_S)
    yield connection
    connection.close()
