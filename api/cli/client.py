"""One request to a running service, with the standard library alone. Failures become one line for a person."""

from __future__ import annotations

import http.client
import ssl
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import msgspec

from schemas.rest import Problem

ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
TIMEOUT_S: Final = 30.0


class CommandFailed(Exception):
    """A subcommand ends with this line on stderr and this exit code: 1 = the service, 2 = what was typed."""

    def __init__(self, line: str, exit_code: int = 1) -> None:
        super().__init__(line)
        self.exit_code = exit_code


class ServiceClient:
    """Speaks to the service at `url`, with `token` as bearer if given.

    Raises `CommandFailed` when it cannot be reached or answers a problem.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        """Nothing is sent before `request`."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError as error:
            raise CommandFailed("--url: the port is no number in 0..65535", 2) from error
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
            raise CommandFailed("--url: http://HOST:PORT or https://HOST:PORT wanted", 2)
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._prefix = parts.path.rstrip("/")
        self._scheme, self._host, self._port = parts.scheme, parts.hostname, port
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._timeout_s = timeout_s

    def request(self, method: str, path: str, body: object = None) -> bytes:
        """The answer's body. `body` is sent as JSON."""
        headers = {**self._headers, "accept": "application/json"}
        encoded = None
        if body is not None:
            encoded = msgspec.json.encode(body)
            headers["content-type"] = "application/json"
        try:
            connection = self._connection()
            try:
                connection.request(method, self._prefix + path, body=encoded, headers=headers)
                response = connection.getresponse()
                answer = response.read(ANSWER_BYTES_MAX)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise CommandFailed(f"{self.url} cannot be reached: {_why(error)}") from error
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise CommandFailed(f"{self.url} answered {problem_line(response.status, response.reason, answer)}")
        return answer

    def _connection(self) -> http.client.HTTPConnection:
        if self._scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)


def problem_line(status: int, reason: str, body: bytes) -> str:
    """Status and, of a problem document, each field with its rule, what came and the hint."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.MsgspecError:
        return f"{status} {reason}"
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
    except msgspec.MsgspecError as error:
        raise CommandFailed("the answer is no JSON: is this the service?") from error


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
