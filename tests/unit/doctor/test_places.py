"""What the text of an endpoint tells of where it is."""

from __future__ import annotations

import pytest

from indexer.doctor.places import host_and_port, is_address, is_every_interface, is_loopback, one_spelling


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("tcp://10.0.0.1:5557", ("10.0.0.1", 5557)),
        ("tcp://[fd00::1]:5557", ("fd00::1", 5557)),
        ("10.0.0.1:8000", ("10.0.0.1", 8000)),
        ("ipc:///run/kv", None),
        ("http://a:1", None),
        ("pod-a", None),
        ("a:b", None),
        ("", None),
    ],
)
def test_host_and_port(text: str, place: tuple[str, int] | None) -> None:
    """Of TCP endpoints and addresses alone."""
    assert place == host_and_port(text)


@pytest.mark.parametrize(
    ("text", "loopback", "every"),
    [
        ("tcp://127.0.0.1:1", True, False),
        ("tcp://localhost:1", True, False),
        ("tcp://[::1]:1", True, False),
        ("ipc:///run/kv", True, False),
        ("tcp://10.0.0.1:1", False, False),
        ("tcp://engine-a:1", False, False),
        ("tcp://0.0.0.0:1", False, True),
        ("tcp://[::]:1", False, True),
        ("tcp://[::ffff:0.0.0.0]:1", False, True),
        ("tcp://*:1", False, True),
    ],
)
def test_whom_it_leads_to(text: str, loopback: bool, every: bool) -> None:
    """To the machine itself, or to nobody that could be connected to."""
    assert (loopback, every) == (is_loopback(text), is_every_interface(text))


def test_one_place_has_one_spelling() -> None:
    """Letter case and the name of the loopback do not matter; a path stays as it is."""
    assert one_spelling("tcp://LOCALHOST:5557") == one_spelling("tcp://127.0.0.1:5557")
    assert "ipc:///run/KV" == one_spelling("ipc:///run/KV")


def test_names_that_are_addresses() -> None:
    """Numbers with a port; a host's name may be anything."""
    assert [True, True, False, False] == [
        is_address(each) for each in ("10.0.0.1:8000", "[fd00::1]:80", "a:80", "10.0.0.1")
    ]
