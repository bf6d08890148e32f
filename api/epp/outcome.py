"""What became of a picked request is told to the node: where it went, and what its engine reused of the prompt.

Where it went is known twice: as it was picked, and with the response, where the gateway says who served it. No tokens
cross the wire for it. A report that is not taken is counted, and nothing else comes of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from api.problems import log_fault
from indexer.errors import IndexerError
from schemas.feedback import FeedbackReport
from schemas.lookup import LookupQuery
from schemas.receipts import RoutedReport

if TYPE_CHECKING:
    from api.epp.conversation import Conversation
    from api.epp.picking import Pick
    from api.ports import NodePort

FAILED_FROM: Final = 500
_OK: Final = range(200, 300)

Served = Literal["first", "fallback", "other", "unknown"]
"""Who served a request: the endpoint picked first, one behind it, another pod, or nobody who is known here."""


class Server(NamedTuple):
    """Whom a request was served by, as far as is known. `dp_rank` None: the pod's only one."""

    pod: str
    dp_rank: int | None


class Outcomes:
    """One instance a server."""

    def __init__(self, node: NodePort) -> None:
        self._node = node

    async def sent(self, pick: Pick) -> Server | None:
        """It goes to the endpoint picked first, as far as is known; None: nobody was."""
        if not pick.places:
            return None
        first = Server(pick.places[0].pod, pick.places[0].dp_rank)
        if pick.query is not None:
            await self._routed(pick.request_id, None, first, pick.query)
        return first

    async def served(self, pick: Pick, endpoint: str | None, before: Server | None) -> Server | None:
        """The gateway says who served it, or says nothing: then it was as it was picked."""
        if endpoint is None:
            return before
        index = next((i for i, place in enumerate(pick.places) if place.endpoint == endpoint), None)
        if index == 0:
            self._node.count_served("first")
            return before
        place = None if index is None else pick.places[index]
        server = Server(endpoint, None) if place is None else Server(place.pod, place.dp_rank)
        known = True
        if pick.told_prompt:
            known = await self._routed(pick.request_id, pick.request_id, server, LookupQuery())
        by: Served = "fallback" if place is not None else "other" if known else "unknown"
        self._node.count_served(by)
        return server

    def ended(self, pick: Pick, talk: Conversation, server: Server | None) -> None:
        """The gateway has no more to tell of it."""
        if server is None or talk.status is None or not pick.told_prompt:
            return
        if talk.status >= FAILED_FROM:
            self._feed(
                FeedbackReport(
                    pod=server.pod, dp_rank=server.dp_rank, request_id=pick.request_id, ok=False, query=LookupQuery()
                )
            )
        usage = None if talk.usage is None else talk.usage.usage()
        if usage is not None and talk.status in _OK:
            self._feed(
                FeedbackReport(
                    pod=server.pod,
                    dp_rank=server.dp_rank,
                    request_id=pick.request_id,
                    prompt_tokens=usage.prompt_tokens,
                    cached_tokens=usage.cached_tokens,
                    query=LookupQuery(),
                )
            )

    async def _routed(self, request_id: str, of: str | None, server: Server, query: LookupQuery) -> bool:
        """Whether it was taken."""
        report = RoutedReport(pod=server.pod, dp_rank=server.dp_rank, request_id=request_id, of=of, query=query)
        try:
            await self._node.report_routed(report)
        except IndexerError:
            self._node.routed_refused()
            return False
        except Exception as error:  # noqa: BLE001 - a fault of ours: the client's stream goes on
            log_fault(error, request_id)
            return False
        return True

    def _feed(self, report: FeedbackReport) -> None:
        try:
            self._node.take_feedback(report)
        except IndexerError:
            self._node.feedback_refused()
        except Exception as error:  # noqa: BLE001 - as above
            log_fault(error, report.request_id)
