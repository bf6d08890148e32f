"""Who shows which token, what is wrong with a file of them, and what a changed one takes."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.access.access import SocketAccess
from api.access.caller import AT_SOCKET, Caller
from api.access.entries import ENTRIES_MAX, callers_by_digest
from api.access.files import FileUnusable
from api.access.tokens import TokenAccess
from api.problems import RequestRefused
from indexer.errors import SettingsError


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _entry(name: str = "router", token: str = "t", **fields: object) -> dict[str, Any]:  # noqa: S107
    return {"name": name, "sha256": _digest(token), "scopes": ["lookup"], **fields}


def _written(path: Path, entries: object) -> Path:
    path.write_text(json.dumps(entries))
    return path


def _access(folder: Path, *entries: dict[str, Any]) -> TokenAccess:
    return TokenAccess(_written(folder / "tokens", list(entries)))


def test_a_caller_is_known_by_its_token(tmp_path: Path) -> None:
    """With scopes and tenant; the scheme in any case of letters, as HTTP has it."""
    access = _access(tmp_path, _entry(), _entry("b", "u", scopes=["admin", "lookup"], tenant="x"))

    for shown in (b"Bearer t", b"bearer t", b"BEARER  t "):
        assert Caller("router", frozenset({"lookup"}), None) == access.caller(shown)
    assert Caller("b", frozenset({"lookup", "admin"}), "x") == access.caller(b"Bearer u")


@pytest.mark.parametrize(
    "shown",
    [b"", b"t", b"Bearer", b"Bearer ", b"Bearer x", b"Basic t", b"Bearer t,Bearer t", b"Bearer " + b"\xff" * 99],
)
def test_nobody_else_is(tmp_path: Path, shown: bytes) -> None:
    """401, with the challenge that HTTP asks for, and without what was shown."""
    with pytest.raises(RequestRefused) as refused:
        _access(tmp_path, _entry()).caller(shown)

    assert 401 == refused.value.status
    assert "token.unknown" == refused.value.code
    assert (b"www-authenticate", b'Bearer realm="kvindexer", error="invalid_token"') in refused.value.headers


def test_whoever_may_open_the_socket_is_let_in(tmp_path: Path) -> None:
    """To ask and to report, also with what is no token of ours; who shows one is known by it."""
    access = SocketAccess(_access(tmp_path, _entry("b", "u", scopes=["admin"], tenant="x")))

    assert {AT_SOCKET} == {access.caller(shown) for shown in (None, b"Bearer of-the-engine", b"Basic u", b"")}
    assert {"lookup", "report"} == AT_SOCKET.scopes
    assert Caller("b", frozenset({"admin"}), "x") == access.caller(b"Bearer u")


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        (b"hush", "Authorization: Bearer"),
        (b"Basic hush", "Authorization: Bearer"),
        (b"Bearer", "Authorization: Bearer"),
        (b"Bearer hush", "not known here"),
    ],
)
def test_who_shows_it_in_another_form_is_told_the_form(tmp_path: Path, shown: bytes, told: str) -> None:
    """And nothing of what was shown."""
    with pytest.raises(RequestRefused, match=told) as refused:
        _access(tmp_path, _entry()).caller(shown)

    assert "hush" not in str(refused.value)


def test_who_shows_nothing_is_asked(tmp_path: Path) -> None:
    """The answer says how."""
    with pytest.raises(RequestRefused) as refused:
        _access(tmp_path, _entry()).caller(None)

    assert "token.missing" == refused.value.code
    assert (b"www-authenticate", b'Bearer realm="kvindexer"') in refused.value.headers


def test_the_digest_is_no_token(tmp_path: Path) -> None:
    """Who reads the file cannot call."""
    with pytest.raises(RequestRefused):
        _access(tmp_path, _entry()).caller(b"Bearer " + _digest("t").encode())


def test_yaml_is_read_as_json_is() -> None:
    """Digits of a hash may stand in capitals."""
    written = f"- name: router\n  sha256: {_digest('t').upper()}\n  scopes: [lookup]\n".encode()

    assert callers_by_digest(json.dumps([_entry()]).encode()) == callers_by_digest(written)


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ({}, "a list of entries is wanted"),
        (None, "a list of entries is wanted"),
        (["secret-token"], "entry 1: a map of name, sha256, scopes, tenant is wanted"),
        ([_entry(), _entry("b")], "entry 2 (b): sha256: the entry router has the same token"),
        ([_entry(), _entry("router", "u")], "entry 2 (router): name: another entry has it"),
        ([_entry(sha256="secret-token")], "entry 1 (router): sha256: the SHA-256 of the token, 64 hexadecimal digits"),
        ([_entry(sha256=7)], "entry 1 (router): sha256: "),
        ([_entry(scopes=[])], "entry 1 (router): scopes: one or more of admin, lookup, report"),
        ([_entry(scopes="lookup")], "entry 1 (router): scopes: one or more of"),
        ([_entry(scopes=["root"])], "entry 1 (router): scopes: one or more of"),
        ([_entry(tenant="")], "entry 1 (router): tenant: text of 1..256 characters"),
        ([_entry(name="secret token\n")], "entry 1: name: 1..64 letters"),
        (
            [_entry() | {"token": "secret"}],
            "entry 1 (router): an entry has name, sha256, scopes, tenant, and nothing else",
        ),
        ([{"name": "router", "scopes": ["lookup"]}], "entry 1 (router): sha256 is missing: the SHA-256 of the token"),
        ([_entry("n", str(n)) for n in range(2)] * 5_001, f"has more than {ENTRIES_MAX} entries"),
    ],
)
def test_what_is_wrong_is_told_by_entry_and_rule(tmp_path: Path, entries: object, told: str) -> None:
    """Nothing that stands in the file is quoted but names."""
    with pytest.raises(SettingsError) as wrong:
        TokenAccess(_written(tmp_path / "tokens", entries))

    assert str(wrong.value).startswith(f"auth.tokens_file: {tmp_path}/tokens: {told}")
    assert "secret" not in str(wrong.value).replace(str(tmp_path), "")


@pytest.mark.parametrize("written", ["{secret", "- secret: [", "\x00secret", "secret: 1\nsecret"])
def test_what_is_no_document_is_refused_without_quoting_it(tmp_path: Path, written: str) -> None:
    """Not even where the parser would."""
    path = tmp_path / "tokens"
    path.write_text(written)
    with pytest.raises(SettingsError) as wrong:
        TokenAccess(path)

    assert "secret" not in str(wrong.value).replace(str(tmp_path), "")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """With its path."""
    with pytest.raises(SettingsError, match=f"auth.tokens_file: {tmp_path}/none: No such file"):
        TokenAccess(tmp_path / "none")


@given(st.binary(max_size=60))
def test_garbage_is_refused_and_nothing_else(content: bytes) -> None:
    """Whatever a file holds."""
    try:
        callers_by_digest(content)
    except FileUnusable:
        return
    assert content.strip().startswith((b"[", b"-"))


def test_a_changed_file_counts(tmp_path: Path) -> None:
    """Tokens that are taken out are refused; nothing is remembered of them."""
    access = _access(tmp_path, _entry(), _entry("b", "u"))
    read: list[bool] = []
    access.count(read.append)
    _written(tmp_path / "tokens", [_entry("b", "u", scopes=["report"])])
    access.look()
    access.look()

    with pytest.raises(RequestRefused):
        access.caller(b"Bearer t")
    assert {"report"} == access.caller(b"Bearer u").scopes
    assert [True] == read


def test_a_file_that_is_replaced_counts(tmp_path: Path) -> None:
    """By another one of the same size and time, as a mounted secret is."""
    access = _access(tmp_path, _entry())
    other = _written(tmp_path / "other", [_entry("router", "u")])
    before = (tmp_path / "tokens").stat()
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(tmp_path / "tokens")
    access.look()

    assert "router" == access.caller(b"Bearer u").name


@pytest.mark.parametrize("broken", ["", "[", '[{"name": "router"}]', None])
def test_a_broken_file_keeps_the_tokens_of_before(
    tmp_path: Path, broken: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Half a file, or none, is no reason to shut everybody out, and is said once."""
    access = _access(tmp_path, _entry())
    read: list[bool] = []
    access.count(read.append)
    path = tmp_path / "tokens"
    if broken is None:
        path.unlink()
    else:
        path.write_text(broken)
    for _ in range(3):
        access.look()

    assert "router" == access.caller(b"Bearer t").name
    assert [False] == read
    assert 1 == sum("the tokens of before stay in force" in message for message in caplog.messages)
    _written(path, [])
    access.look()
    with pytest.raises(RequestRefused):
        access.caller(b"Bearer t")
