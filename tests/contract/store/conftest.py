"""The store suite runs against one server of each chosen kind, started once, emptied before each test.

Kinds: `--store-kinds valkey` (default), several with commas, or `all` that are there (make test-matrix).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from indexer.store.layout import PartitionKeys, is_without_ttl, tags
from tests.support.redis_servers import Kind, Store, binaries, lasting_keys, start_store

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test that uses a store, once for each kind; one that starts servers of its own, for each program."""
    chosen = metafunc.config.getoption("--store-kinds")
    kinds = list(binaries()) if chosen == "all" else chosen.split(",")
    if "store" in metafunc.fixturenames:
        metafunc.parametrize("store_kind", kinds, scope="session")
    if "program_kind" in metafunc.fixturenames:
        metafunc.parametrize("program_kind", [kind for kind in kinds if kind != "cluster"] or ["valkey"])
    if "tls_end" in metafunc.fixturenames:  # the wheels' servers are built without TLS: there a proxy speaks it
        metafunc.parametrize("tls_end", ["proxy", *(kind for kind in kinds if kind == "system")])


@pytest.fixture(scope="session")
def started(store_kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """The server of a kind; a cluster has a replica for each of its primaries."""
    store = start_store(store_kind, tmp_path_factory.mktemp("store"), replicas=True)
    yield store
    store.close()


@pytest.fixture
def store(started: Store) -> Iterator[Store]:
    """It, empty; afterwards no key may be there that lives for ever and is not listed."""
    started.empty()
    yield started
    assert [] == lasting_keys(started, is_without_ttl)


@pytest.fixture
def keys() -> PartitionKeys:
    """Those of one partition."""
    return PartitionKeys("kvi", tags(16)[3])
