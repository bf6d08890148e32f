"""Publish in pieces, so that no backlog piles up in the sockets between the engines and the service.

A piece is sent while the one before it is applied: the service always has work and memory holds the index alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtest.publisher import Publisher
from loadtest.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadtest.processes import Child


def publish_in_pieces(
    engines: Child[Publisher], service: Child[Service], piece: Callable[[], bool], others: Sequence[int] = ()
) -> None:
    """Call `piece`, which sends something and says whether there is more, until all is sent and applied.

    `others`: what sources before these engines' must have applied; -1 for nothing.
    """
    sent = engines.call(Publisher.last)
    more = True
    while more:
        applying = service.ask(Service.applied, [*others, *sent])
        more = piece()
        sent = engines.call(Publisher.last)
        applying.result()
    service.call(Service.applied, [*others, *sent])


def fill(
    engines: Child[Publisher], service: Child[Service], sources: int, pairs: int, others: Sequence[int] = ()
) -> None:
    """Bring the fleet to what `Traffic` says it holds."""
    engines.call(Publisher.prepare_fleet, sources, pairs)
    publish_prepared(engines, service, others)


def publish_prepared(engines: Child[Publisher], service: Child[Service], others: Sequence[int] = ()) -> None:
    """Publish what was prepared."""
    publish_in_pieces(engines, service, lambda: engines.call(Publisher.publish_piece), others)
