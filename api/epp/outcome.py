"""What became of a picked request is told to the node: where it went, and what its engine reused of the prompt.

Where it went is known twice: as it was picked, and with the response, where the gateway says who served it. No tokens
cross the wire for it. A report that is not taken is counted, and nothing else comes of it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from api.problems import log_fault
from indexer.errors import IndexerError
from schemas.feedback import FeedbackReport
from schemas.lookup import LookupQuery
from schemas.receipts import RoutedReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
        with self._no_fault_of(pick, self._node.routed_refused):
            if pick.query is not None:
                await self._routed(pick, None, first, pick.query)
        return first

    async def served(self, pick: Pick, endpoint: str | None, before: Server | None) -> Server | None:
        """The gateway says who served it, or says nothing: then it was as it was picked."""
        if endpoint is None:
            return before
        server: Server | None = None
        with self._no_fault_of(pick, self._node.routed_refused):
            server = self._server(pick, endpoint, before)
            if server is not None and server != before:
                self._node.note_sent(server.pod, server.dp_rank or 0, pick.request_id, None)
                if pick.told_prompt:
                    await self._routed(pick, pick.request_id, server, LookupQuery())
        return server

    def ended(self, pick: Pick, talk: Conversation, server: Server | None) -> None:
        """The gateway has no more to tell of it.

        Where gateways tell of responses, one without has lost its client; where they do not, it goes on somewhere.
        """
        self._told_of_responses = self._told_of_responses or talk.status is not None
        with self._no_fault_of(pick, self._node.feedback_refused):
            if self._told_of_responses:
                self._node.request_ended(pick.request_id, None)
            report = None if server is None or not pick.told_prompt else _report(pick, talk, server)
            if report is not None:
                self._node.take_feedback(report)

    def _server(self, pick: Pick, endpoint: str, before: Server | None) -> Server | None:
        """Who served, counted; where others take prompts, those are who counts (`before`)."""
        places = pick.ranked.places
        index = next((i for i, place in enumerate(places) if place.endpoint == endpoint), None)
        if index == 0:
            self._node.count_served("first")
            return before
        if index is None and not self._node.known_names((endpoint,), None):
            self._node.count_served("unknown")
            return None
        self._node.count_served("other" if index is None else "fallback")
        if pick.ranked.prefill is not None:
            return before
        return Server(endpoint, None) if index is None else Server(places[index].pod, places[index].dp_rank)

    async def _routed(self, pick: Pick, of: str | None, server: Server, query: LookupQuery) -> None:
        report = RoutedReport(pod=server.pod, dp_rank=server.dp_rank, request_id=pick.request_id, of=of, query=query)
        await self._node.report_routed(report)

    @contextlib.contextmanager
    def _no_fault_of(self, pick: Pick, refused: Callable[[], None]) -> Iterator[None]:
        """What goes wrong with a report costs the client's stream nothing."""
        try:
            yield
        except IndexerError:
            refused()
        except Exception as error:  # noqa: BLE001 - a fault of ours
            log_fault(error, pick.request_id)


def _report(pick: Pick, talk: Conversation, server: Server) -> FeedbackReport | None:
    """What the response says of the prompt's reuse, if anything."""
    report = FeedbackReport(pod=server.pod, dp_rank=server.dp_rank, request_id=pick.request_id, query=LookupQuery())
    if talk.status is None:
        return None
    if talk.status >= FAILED_FROM:
        report.ok = False
        return report
    usage = None if talk.usage is None or talk.status not in _OK else talk.usage.usage()
    if usage is None:
        return None
    report.prompt_tokens, report.cached_tokens = usage
    return report
