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
        self._told_of_responses = False

    async def sent(self, pick: Pick) -> Server | None:
        """It goes to the endpoint picked first, as far as is known; None: nobody was."""
        if not pick.ranked.places:
            return None
        place = pick.ranked.prefill or pick.ranked.places[0]
        first = Server(place.pod, place.dp_rank)
        if pick.query is not None:
            await self._routed(pick.request_id, None, first, pick.query)
        return first

    async def served(self, pick: Pick, endpoint: str | None, before: Server | None) -> Server | None:
        """The gateway says who served it, or says nothing: then it was as it was picked."""
        if endpoint is None:
            return before
        places = pick.ranked.places
        index = next((i for i, place in enumerate(places) if place.endpoint == endpoint), None)
        if index == 0:
            self._node.count_served("first")
            return before
        if index is None and not self._node.known_names((endpoint,), None):
            self._node.count_served("unknown")
            return None
        self._node.count_served("other" if index is None else "fallback")
        server = Server(endpoint, None) if index is None else Server(places[index].pod, places[index].dp_rank)
        if pick.ranked.prefill is not None:
            return before
        self._node.note_sent(server.pod, server.dp_rank or 0, pick.request_id, None)
        if pick.told_prompt:
            await self._routed(pick.request_id, pick.request_id, server, LookupQuery())
        return server

    def ended(self, pick: Pick, talk: Conversation, server: Server | None) -> None:
        """The gateway has no more to tell of it.

        Where gateways tell of responses, one without has lost its client; where they do not, it goes on somewhere.
        """
        self._told_of_responses = self._told_of_responses or talk.status is not None
        if self._told_of_responses:
            self._node.request_ended(pick.request_id, None)
        if server is None or talk.status is None or not pick.told_prompt:
            return
        report = FeedbackReport(pod=server.pod, dp_rank=server.dp_rank, request_id=pick.request_id, query=LookupQuery())
        usage = None if talk.usage is None else talk.usage.usage()
        if talk.status >= FAILED_FROM:
            report.ok = False
            self._feed(report)
        elif usage is not None and talk.status in _OK:
            report.prompt_tokens, report.cached_tokens = usage
            self._feed(report)

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
