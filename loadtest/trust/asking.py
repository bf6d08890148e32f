"""Lookups of one service over one connection. Does I/O."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from loadtest.trust.judging import Told

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WAIT_MAX_S: Final = 30.0
_JSON: Final = {"Content-Type": "application/json"}


class Answer(msgspec.Struct, frozen=True):
    """Of a lookup."""

    request_id: str
    state: str
    pods: list[Told]


class Asker:
    """Asks one service. Not for several threads."""

    def __init__(self, url: str, model: str | None) -> None:
        self._model = model
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=WAIT_MAX_S)

    def close(self) -> None:
        """The connection."""
        self._connection.close()

    def ask(self, tokens: Sequence[int]) -> Answer:
        """`POST /v1/lookup`."""
        question = {"token_ids": tokens, "model": self._model}
        return msgspec.json.decode(self._call("POST", "/v1/lookup", msgspec.json.encode(question)), type=Answer)

    def report_reuse(self, reports: Sequence[Mapping[str, object]]) -> None:
        """`POST /v1/feedback`. All must be of answers that are known."""
        taken = msgspec.json.decode(self._call("POST", "/v1/feedback", msgspec.json.encode(reports)))
        assert taken["joined"] == len(reports), taken

    def get(self, path: str) -> Any:  # noqa: ANN401  what JSON can say
        """Anything else."""
        return msgspec.json.decode(self._call("GET", path, None))

    def sources(self) -> dict[str, dict[str, Any]]:
        """By pod."""
        return {source["pod"]: source for source in self.get("/v1/sources")["sources"]}

    def _call(self, method: str, path: str, body: bytes | None) -> bytes:
        self._connection.request(method, path, body, _JSON)
        answered = self._connection.getresponse()
        content = answered.read()
        assert answered.status in {http.client.OK, http.client.ACCEPTED}, f"{path}: {answered.status} {content!r}"
        return content
