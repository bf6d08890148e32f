"""Addresses of stores: every form, and errors that tell the rule and never the password."""

from __future__ import annotations

import pytest

from indexer.store.address import Address, BadAddress, parse


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://h", Address(kind="standalone", hosts=(("h", 6379),))),
        ("redis://h:7000/3", Address(kind="standalone", hosts=(("h", 7000),), database=3)),
        ("redis://h?db=3", Address(kind="standalone", hosts=(("h", 6379),), database=3)),
        ("redis://[::1]:7000", Address(kind="standalone", hosts=(("::1", 7000),))),
        ("redis://[::1]", Address(kind="standalone", hosts=(("::1", 6379),))),
        ("redis://:p%40ss@h", Address(kind="standalone", hosts=(("h", 6379),), password="p@ss")),  # noqa: S106
        ("redis://u:p:w@h", Address(kind="standalone", hosts=(("h", 6379),), user="u", password="p:w")),  # noqa: S106
        ("rediss://h?ca=/a%20b", Address(kind="standalone", hosts=(("h", 6379),), tls=True, ca="/a b")),
        ("unix:///run/s?db=2", Address(kind="unix", path="/run/s", database=2)),
        ("unix://u:p@/run/s", Address(kind="unix", path="/run/s", user="u", password="p")),  # noqa: S106
        ("redis+cluster://a:1,b", Address(kind="cluster", hosts=(("a", 1), ("b", 6379)))),
        ("rediss+cluster://a", Address(kind="cluster", hosts=(("a", 6379),), tls=True)),
        (
            "redis+sentinel://u:p@a,b:5/main/4",
            Address(
                kind="sentinel",
                hosts=(("a", 26379), ("b", 5)),
                service="main",
                user="u",
                password="p",  # noqa: S106
                database=4,
            ),
        ),
    ],
)
def test_every_form_is_understood(url: str, address: Address) -> None:
    """As written in the module."""
    assert address == parse(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:6379",
        "http://u:hunter2@h",
        "redis://",
        "redis://u:hunter2@h:x",
        "redis://h:0",
        "redis://h:70000",
        "redis://h:٣",
        "redis://u:hunter2@a,b",
        "redis://h/x",
        "redis://h/1/2",
        "redis://h/1?db=1",
        "redis://h?password=hunter2",
        "redis://h?db=1&db=2",
        "redis://h#hunter2",
        "redis://h?ca=/c",
        "redis+cluster://h/1",
        "redis+cluster://a,,b",
        "redis+sentinel://h",
        "redis+other://h",
        "unix://h/s",
        "unix:///",
        "unix:///s?ca=/c",
        "redis://u:hunter2@[::1",
        "redis://u:hunter2@h\u2100",
    ],
)
def test_what_breaks_a_rule_is_told_without_the_address(url: str) -> None:
    """Addresses hold passwords."""
    with pytest.raises(BadAddress) as told:
        parse(url)

    assert "hunter2" not in str(told.value)
    assert told.value.__cause__ is None


def test_an_address_shows_no_password() -> None:
    """Not in logs, not in tracebacks."""
    for url in ("redis://u5er:hunter2@h:1", "unix://u5er:hunter2@/s", "redis+sentinel://u5er:hunter2@h/m"):
        address = parse(url)
        for text in (repr(address), str(address), f"{address}"):
            assert "hunter2" not in text
            assert "u5er" not in text


def test_a_place_is_told_without_secrets() -> None:
    """For the line that says where the service keeps what it knows."""
    assert "standalone [::1]:6379" == parse("redis://u:hush@[::1]").place
    assert "cluster a:1,b:6379" == parse("redis+cluster://:hush@a:1,b").place
    assert "unix /run/s" == parse("unix://:hush@/run/s").place
