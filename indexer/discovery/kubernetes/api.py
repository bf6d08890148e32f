"""[I/O] The two calls of a Kubernetes API server that are needed: a page of a list of pods, and a watch.

Relies on `http_clients`: no redirect, cookie or proxy steers it, so the token goes to the configured server alone.
Token and authorities are read anew with each call or session, as both are replaced while a pod runs. Everything that is
read has a bound in bytes and in time. Nothing of a pod is in an error: only statuses, reasons and words of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from indexer.discovery.kubernetes.pod import Failure, PodPage, read_failure, read_page
from indexer.http_clients import TooLong, body_of, client, failures, why_not_reached

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping

    import httpx

    from indexer.settings.in_cluster import Access

Reason = Literal[
    "configuration",
    "unreachable",
    "unauthorized",
    "forbidden",
    "overloaded",
    "refused",
    "expired",
    "silent",
    "ended",
    "unreadable",
    "too_large",
]
"""Why nothing is heard. `expired`: what is asked for is older than the server remembers."""

PAGE_BYTES_MAX: Final = 16 * 1024**2
"""What is read in one step holds the loop. Of a list with more, smaller pages are asked for."""
EVENT_BYTES_MAX: Final = 10 * 1024**2
"""An object of etcd has at most 1.5 MiB by default; as JSON it is up to six times that."""
REFUSAL_BYTES_MAX: Final = 64 * 1024
TOKEN_BYTES_MAX: Final = 64 * 1024
PAGE_S: Final = 30.0
CONNECTIONS_MAX: Final = 4
RETRY_MAX_S: Final = 60.0


class Unheard(Exception):
    """Nothing is heard of the API server, and why: in words of ours, for the operator."""

    def __init__(self, reason: Reason, words: str, retry_s: float = 0.0) -> None:
        super().__init__(words)
        self.reason = reason
        self.words = words
        self.retry_s = retry_s
        """It asked to be left alone for so long."""


class Api:
    """One session with the server: its connections, and whom it believes."""

    def __init__(self, access: Access, connections: httpx.AsyncClient) -> None:
        self._access = access
        self._client = connections

    async def page(self, path: str, query: Mapping[str, str]) -> PodPage:
        """A part of a list. Raises `Unheard`."""
        with _heard():
            async with asyncio.timeout(PAGE_S), self._asked(path, query) as response:
                body = await body_of(response, PAGE_BYTES_MAX)
        try:
            return read_page(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Unheard("unreadable", "its list of pods is none") from error

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str], patience_s: float
    ) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Its lines, several at once as they come, until it ends. Raises `Unheard`, also after `patience_s`."""
        with _heard():
            async with (
                asyncio.timeout(patience_s),
                self._asked(path, query) as response,
                contextlib.aclosing(_lines(response)) as lines,
            ):
                yield lines

    @contextlib.asynccontextmanager
    async def _asked(self, path: str, query: Mapping[str, str]) -> AsyncIterator[httpx.Response]:
        """A 200. Raises `Unheard` for another answer."""
        headers = {"accept": "application/json", "user-agent": "kvindexer"}
        if self._access.token_file is not None:
            headers["authorization"] = f"Bearer {await asyncio.to_thread(_token, Path(self._access.token_file))}"
        async with self._client.stream("GET", self._access.url + path, params=query, headers=headers) as response:
            if response.status_code != HTTPStatus.OK:
                raise _refusal(response, await body_of(response, REFUSAL_BYTES_MAX))
            yield response


async def _lines(response: httpx.Response) -> AsyncGenerator[list[bytes]]:
    """Whole ones. Raises `Unheard` for one that is too long."""
    rest: list[bytes] = []
    size = 0
    async for part in response.aiter_raw():
        first, *others = part.split(b"\n")
        rest.append(first)
        size += len(first)
        if size > EVENT_BYTES_MAX:
            raise Unheard("too_large", f"an event of more than {EVENT_BYTES_MAX} bytes: all is read anew")
        if others:
            yield [b"".join(rest), *others[:-1]]
            rest, size = [others[-1]], len(others[-1])


@contextlib.asynccontextmanager
async def session(access: Access) -> AsyncIterator[Api]:
    """Raises `Unheard` where nobody could be believed."""
    believed = await asyncio.to_thread(_believed, access.ca_file)
    async with client(None, CONNECTIONS_MAX, CONNECTIONS_MAX, tls=believed) as connections:
        yield Api(access, connections)


def failure_of(status: int, told: Failure, retry_s: float = 0.0) -> Unheard:
    """Of a `Status` object, or of an answer that has none."""
    code = told.code or status
    reason = told.reason if told.reason is not None and told.reason.isalnum() else ""
    said = f"status {code}" + (f" ({reason})" if reason else "")
    if code == HTTPStatus.UNAUTHORIZED:
        return Unheard("unauthorized", f"{said}: it does not know the token; is it this cluster's, and still valid?")
    if code == HTTPStatus.FORBIDDEN:
        rule = (
            "get, list and watch of pods in apiGroup '' must be granted to this service's account, by a Role in each "
        )
        return Unheard("forbidden", f"{said}: {rule}namespace, or a ClusterRole for all (k8s/base)")
    if code == HTTPStatus.GONE:
        return Unheard("expired", f"{said}: what was asked for is older than it remembers; all is read anew")
    if code == HTTPStatus.TOO_MANY_REQUESTS:
        return Unheard("overloaded", f"{said}: it has too much to do", retry_s)
    return Unheard("refused", said, retry_s)


def _refusal(response: httpx.Response, body: bytes) -> Unheard:
    try:
        told = read_failure(body)
    except (msgspec.DecodeError, RecursionError):
        told = Failure()
    wait = response.headers.get("retry-after", "")
    retry_s = float(wait) if wait.isascii() and wait.isdigit() and len(wait) < 10 else 0.0  # noqa: PLR2004  no number
    return failure_of(response.status_code, Failure(reason=told.reason), min(retry_s, RETRY_MAX_S))


@contextlib.contextmanager
def _heard() -> Iterator[None]:
    """Faults of the connection in words."""
    try:
        yield
    except TimeoutError as error:
        raise Unheard("silent", "it said nothing in time") from error
    except TooLong as error:
        raise Unheard("too_large", f"an answer of {error}") from error
    except failures() as error:
        raise _unreachable(error) from error


def _unreachable(error: Exception) -> Unheard:
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, ssl.SSLCertVerificationError):
            return Unheard("unreachable", f"its certificate is not believed: {below.verify_message} (ca_file)")
        below = below.__cause__ or below.__context__
    return Unheard("unreachable", why_not_reached(error))


def _believed(ca_file: str | None) -> ssl.SSLContext:
    try:
        believed = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise Unheard("configuration", f"{ca_file} holds no certificates of authorities that can be read") from error
    # Python 3.13 asks of certificates what those that clusters make for themselves often lack; signatures, names and
    # times are looked at all the same.
    believed.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return believed


def _token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            token = file.read(TOKEN_BYTES_MAX).strip().decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise Unheard("configuration", f"{path} holds no token that can be read") from error
    if not token or not token.isprintable() or " " in token:
        raise Unheard("configuration", f"{path} holds no token that can be read")
    return token


def namespace_in(path: str) -> str:
    """Of the pod that this runs in. Raises `Unheard`."""
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Unheard("configuration", f"{path} cannot be read: set discovery.kubernetes.namespaces") from error
