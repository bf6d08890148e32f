"""[I/O] Asks an engine where it publishes its events: `GET /kv_event_sources` of vLLM from 0.31 on.

For engines whose ports nobody tells, or that take free ones (port 0 in `--kv-events-config`). Promise: one GET to the
address that is given, bounded in bytes and in time; no redirect is followed, no token shown.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from indexer.discovery.event_endpoints import PATH, NotTold, read_event_sources
from indexer.http_clients import why_not_connected
from indexer.scraping.connection import Unusable, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from indexer.discovery.event_endpoints import Endpoints

PATIENCE_S: Final = 4.0
"""For the whole answer, whatever the engine does."""
ANSWER_BYTES_MAX: Final = 256 * 1024


async def event_sources(address: str, allows: Callable[[str], bool] | None = None) -> Mapping[int, Endpoints]:
    """The sources of the engine whose HTTP side is at `address` (`IP:PORT`), by data-parallel rank; one at least.

    `allows`: whether an endpoint at another host may be connected to; None: it may not. Raises `NotTold`.
    """
    try:
        async with asyncio.timeout(PATIENCE_S):
            connection = await connect(address, ANSWER_BYTES_MAX)
            try:
                content = await connection.get(PATH)
            finally:
                connection.close()
    except TimeoutError as error:
        raise NotTold("no answer in time") from error
    except Unusable as error:
        raise NotTold(str(error)) from error
    except (ConnectionResetError, BrokenPipeError) as error:
        raise NotTold("the connection ended, or it speaks no HTTP") from error
    except OSError as error:
        raise NotTold(why_not_connected(error)) from error
    told = read_event_sources(content, address.rpartition(":")[0], allows)
    if not told.of_rank:
        raise NotTold(told.left_out[0] if told.left_out else f"{PATH} names no source: are its events on?")
    return told.of_rank
