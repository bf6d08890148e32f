"""A primary, its replica and a sentinel that watches them: on free ports, ready when the block begins."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tests.support.redis_servers import Server, binaries, follows, free_port, own_server, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.redis_servers import Kind


@contextlib.contextmanager
def watched(folder: Path, kind: Kind = "valkey") -> Iterator[tuple[Server, Server, Server]]:
    """Primary, replica, sentinel. The sentinel acts a third of a second after the primary fell silent."""
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(own_server(folder, "--repl-diskless-sync-delay", "0", kind=kind))
        replica = stack.enter_context(own_server(folder, "--replicaof", f"127.0.0.1 {primary.port}", kind=kind))
        wait_for(lambda: follows(replica), "the replica to follow")
        settings = folder / "sentinel.conf"
        settings.write_text(
            f"sentinel monitor main 127.0.0.1 {primary.port} 1\n"
            "sentinel down-after-milliseconds main 300\n"
            "sentinel failover-timeout main 2000\n"
        )
        sentinel = Server(binaries()[kind], folder / f"sentinel{free_port()}", settings=settings)
        stack.callback(sentinel.stop)
        with sentinel.client() as ask:
            wait_for(lambda: ask.sentinel_master("main")["num-slaves"] == 1, "the sentinel to know the replica")
        yield primary, replica, sentinel
