"""What a lookup's headers may say: a salt, which is never in a URL, and deadlines, ours and Envoy's. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from indexer.errors import BadRequestError, FieldIssue
from schemas.lookup import LookupQuery
from schemas.rest import TEXT_MAX

SALT_HEADER: Final = b"x-kvindexer-cache-salt"
ENVOY_DEADLINE: Final = b"x-envoy-expected-rq-timeout-ms"
DEADLINE_HEADERS: Final = (b"x-kvindexer-timeout-ms", ENVOY_DEADLINE)
HEADER_MS_MAX: Final = 10**15 - 1
"""More than anybody means: gateways put their own deadlines here, whatever these are."""
_MILLISECONDS: Final = re.compile(rb"[0-9]{1,15}")


def add_header_options(query: LookupQuery, headers: Mapping[bytes, bytes]) -> None:
    """The salt where the body has none; the smallest of all deadlines."""
    if SALT_HEADER in headers:
        salt = _salt(headers[SALT_HEADER])
        if query.cache_salt not in {None, salt}:  # one of the two would see blocks of the other
            issue = FieldIssue(SALT_HEADER.decode(), "the body's cache_salt, or one of the two alone")
            raise BadRequestError("cache_salt.not_allowed", [issue])
        query.cache_salt = salt
    for name in DEADLINE_HEADERS:
        if name in headers:
            query.timeout_ms = _smaller(query.timeout_ms, name, headers[name])


def _salt(header: bytes) -> str:
    try:
        salt = header.decode()
    except UnicodeDecodeError:
        salt = ""
    if not 1 <= len(salt) <= TEXT_MAX:
        rule = f"UTF-8 of 1..{TEXT_MAX} characters"
        raise BadRequestError("cache_salt.not_allowed", [FieldIssue(SALT_HEADER.decode(), rule)])
    return salt


def _smaller(timeout_ms: int | None, name: bytes, text: bytes) -> int | None:
    if not _MILLISECONDS.fullmatch(text):
        issue = FieldIssue(name.decode(), "milliseconds, a whole number")
        raise BadRequestError("timeout_ms.not_allowed", [issue])
    value = int(text)
    if name == ENVOY_DEADLINE and value == 0:
        return timeout_ms  # its way to say that there is none
    return value if timeout_ms is None else min(timeout_ms, value)
