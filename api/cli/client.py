"""One request to a running service, by the client that routers use. Failures become one line for a person.

That client takes time to import, and most of what stands here is wanted by commands that ask nobody.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final, Self, TypeVar

import msgspec

from schemas.rest import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvindexer_client import Client, Reply

TIMEOUT_S: Final = 10.0
"""For one answer, where `--timeout` says nothing else."""
JSON: Final = (("content-type", "application/json"),)
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What reading another's JSON may raise."""
_Shape = TypeVar("_Shape")


class CommandFailed(Exception):
    """A subcommand ends with this line on stderr and this exit code: 1 = the service, 2 = what was typed."""

    def __init__(self, line: str, exit_code: int = 1) -> None:
        super().__init__(line)
        self.exit_code = exit_code


class Named(str):
    """Text from somewhere else than the flag that usually holds it: `name` is what to blame where it is wrong."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, text: str, name: str) -> Self:
        """The text as it is, and where it came from."""
        made = super().__new__(cls, text)
        made.name = name
        return made


class ServiceClient:
    """Speaks to the service at `url`, with `token` as bearer if given, over connections that it keeps.

    Raises `CommandFailed` when it cannot be reached or answers a problem.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        ca: str | None = None,
        cert: tuple[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Nothing is sent before `request`."""
        import kvindexer_client

        try:
            self._client: Client = kvindexer_client.Client(url, token, ca=ca, cert=cert, timeout_s=timeout_s)
        except ValueError as error:
            given, flag = (token, "--token") if "token" in str(error) else (url, "--url")
            raise CommandFailed(f"{given.name if isinstance(given, Named) else flag}: {error}", 2) from error
        except OSError as error:
            file = str(error.filename)
            flag = "--ca" if file == ca else "--cert" if cert is not None and file == cert[0] else "--key"
            raise CommandFailed(f"{flag}: {file}: {_words(error)}", 2) from error
        self.url = self._client.url
        self._timeout_s = timeout_s

    def request(self, method: str, path: str, body: object = None, headers: Sequence[tuple[str, str]] = JSON) -> bytes:
        """The answer's body. `body` is sent as it is if it is bytes, else as JSON."""
        import kvindexer_client

        encoded = None if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        try:
            return self._client.request(method, path, encoded, headers=headers).content
        except kvindexer_client.Refused as refused:
            line = problem_line(refused.status, refused.reason, refused.body)
            raise CommandFailed(f"{self.url} answered {line}") from refused
        except kvindexer_client.DeadlinePassed as late:
            raise CommandFailed(f"{self.url} cannot be reached: no answer in time ({self._timeout_s:g} s)") from late
        except kvindexer_client.KvindexerError as error:
            raise CommandFailed(str(error)) from error

    def reply(self, path: str) -> Reply:
        """Answer of a GET as it came, with its headers. Raises `kvindexer_client.KvindexerError`."""
        return self._client.request("GET", path)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


def client_of(arguments: argparse.Namespace) -> ServiceClient:
    """The client that the flags of a command describe. Raises `CommandFailed`."""
    return client_at(arguments.url, arguments.token, arguments)


def client_at(url: str, token: str | None, arguments: argparse.Namespace) -> ServiceClient:
    """The same for one of several services: what the flags say beside address and token holds for all of them."""
    if (arguments.cert is None) != (arguments.key is None):
        raise CommandFailed("--cert, --key: both or none", 2)
    cert = None if arguments.cert is None else (arguments.cert, arguments.key)
    return ServiceClient(url, token, ca=arguments.ca, cert=cert, timeout_s=arguments.answer_s)


def problem_line(status: int, reason: str, body: bytes) -> str:
    """Status and, of a problem document, each field with its rule, what came and the hint."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except UNREADABLE:
        return f"{status} {reason}, and not in this service's words: a gateway, or another service?"
    items = []
    for item in problem.errors:
        got = "" if item.got is None else f", got {item.got}"
        hint = "" if item.hint is None else f" ({item.hint})"
        items.append(f"{item.field}: {item.rule}{got}{hint}")
    return f"{status} {problem.code}: {'; '.join(items) or problem.detail}"


def decoded(answer: bytes) -> object:
    """The JSON of an answer. Raises `CommandFailed` where it is none."""
    try:
        return msgspec.json.decode(answer)
    except UNREADABLE as error:
        raise CommandFailed("the answer is no JSON: is this the service?") from error


def answer_as(answer: bytes | msgspec.Raw, shape: type[_Shape], what: str) -> _Shape:
    """An answer in that shape. Raises `CommandFailed` where it has another: that it is `what`, as in `no report`."""
    try:
        return msgspec.json.decode(answer, type=shape)
    except UNREADABLE as error:
        raise CommandFailed(f"the answer is {what} ({error}): is this the service?") from error


def _words(error: OSError) -> str:
    words = error.strerror or str(error)
    return words[:1].lower() + words[1:]
