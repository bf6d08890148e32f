"""Which endpoints are within the list of those that callers may register."""

from __future__ import annotations

import pytest

from api.access.endpoints import EndpointRules
from api.problems import RequestRefused
from indexer.errors import SettingsError
from indexer.model import Descriptor

LIST = (
    "10.0.0.0/8",
    "192.0.2.7",
    "2001:db8::/32",
    "engine-0.example",
    "*.pods.example",
    "ipc:///run/kv/",
    "ipc://@one",
)


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://10.1.2.3:5557",
        "10.1.2.3:8000",
        "tcp://192.0.2.7:1",
        "tcp://[2001:db8::1]:5557",
        "tcp://[::ffff:10.0.0.1]:5557",
        "tcp://engine-0.example:1",
        "tcp://Engine-0.Example.:1",
        "tcp://a.pods.example:1",
        "tcp://a.b.pods.example:1",
        "ipc:///run/kv/a",
        "ipc://@one",
    ],
)
def test_within(endpoint: str) -> None:
    """By network, name, suffix and path."""
    assert EndpointRules(LIST).admits(endpoint)


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://11.0.0.1:5557",
        "tcp://192.0.2.8:1",
        "tcp://[2001:db9::1]:1",
        "tcp://pods.example:1",
        "tcp://evilpods.example:1",
        "tcp://engine-0.example.evil:1",
        "tcp://localhost:1",
        "tcp://0x0a000001:1",
        "tcp://10.1:1",
        "tcp://167772161:1",
        "ipc:///run/kvx",
        "ipc:///run/kv/../../etc",
        "ipc://@two",
        "",
    ],
)
def test_outside(endpoint: str) -> None:
    """Names are not resolved, and nothing is an address that is not written as one."""
    assert not EndpointRules(LIST).admits(endpoint)


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "[::ffff:169.254.169.254]",
        "[::a9fe:a9fe]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:a9fe:a9fe::]",
        "100.100.100.200",
        "0.0.0.0",  # noqa: S104 - not bound
        "224.0.0.1",
        "255.255.255.255",
    ],
)
def test_a_wide_network_is_no_leave_for_special_addresses(host: str) -> None:
    """Metadata services of clouds among them; who means them names them."""
    assert not EndpointRules(("0.0.0.0/0", "::/0", "128.0.0.0/1", "fc00::/7")).admits(f"tcp://{host}:80")
    assert EndpointRules(("169.254.169.254/32",)).admits("tcp://169.254.169.254:80")
    assert EndpointRules(("169.254.0.0/16",)).admits("tcp://[::ffff:169.254.169.254]:80")


@pytest.mark.parametrize(
    "entry", ["10.0.0.1/8", "tcp://h:1", "h:1", "", "*", "*.", "a*.b", "0x7f.1", "127.1", "ipc:///a/../b", "a b", "a/b"]
)
def test_what_is_no_entry_is_told(entry: str) -> None:
    """At the start, by the setting."""
    with pytest.raises(SettingsError, match=r"^auth\.endpoints: "):
        EndpointRules((entry,))


@pytest.mark.parametrize("field", ["endpoint", "replay_endpoint", "address"])
def test_each_place_that_is_connected_to_is_judged(field: str) -> None:
    """The refusal names field and rule."""
    fields = {"endpoint": "tcp://10.0.0.1:1", field: "169.254.169.254:80" if field == "address" else "tcp://h:80"}
    with pytest.raises(RequestRefused) as refused:
        EndpointRules(LIST).check(Descriptor(pod="p", **fields), "[3].")

    assert (403, "endpoint.not_allowed") == (refused.value.status, refused.value.code)
    assert (f"[3].{field}", "within auth.endpoints") == (refused.value.issues[0].field, refused.value.issues[0].rule)


def test_an_empty_list_admits_nothing() -> None:
    """Unlike none at all."""
    assert not EndpointRules(()).admits("tcp://127.0.0.1:1")
