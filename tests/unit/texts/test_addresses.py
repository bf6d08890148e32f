"""Where an engine's API is: what may lead there, and whose word counts."""

from __future__ import annotations

import pytest

from indexer.model import Descriptor, Origin
from indexer.texts.addresses import base_url, engine_url


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("10.0.0.1:8000", "http://10.0.0.1:8000"),
        ("http://10.0.0.1:8000/", "http://10.0.0.1:8000"),
        ("[fd00::1]:8000", "http://[fd00::1]:8000"),
        ("engine-0.engines:8000", "http://engine-0.engines:8000"),
        ("10.0.0.1", None),
        ("10.0.0.1:8000/admin", None),
        ("user@10.0.0.1:8000", None),
        ("10.0.0.1:8000?x", None),
        ("10.0.0.1:8000#", None),
        ("https://10.0.0.1:8000", None),
        ("10.0.0.1:8000\n", None),
        ("a b:1", None),
    ],
)
def test_an_address_is_host_and_port(address: str, url: str | None) -> None:
    """Nothing in it may lead the question elsewhere on that host."""
    assert url == base_url(address)


POD = "10.0.0.1:8000"
HERE = "http://10.0.0.1:8000"


@pytest.mark.parametrize("origin", ["flag", "config", "api", "topic"])
@pytest.mark.parametrize("pod", [POD, "pod-a", "[fd00::1]:8000"])
def test_an_address_counts_before_a_name(origin: Origin, pod: str) -> None:
    """Whoever gave it; one that is no address is none."""
    assert "http://e:1" == engine_url(Descriptor(pod=pod, address="e:1", origin=origin))
    assert engine_url(Descriptor(pod=pod, address="e", origin=origin)) is None


@pytest.mark.parametrize(
    ("pod", "endpoint", "origin", "url"),
    [
        (POD, "tcp://10.0.0.1:5557", "api", HERE),
        (POD, "tcp://10.0.0.2:5557", "flag", HERE),
        (POD, "ipc:///run/kv", "config", HERE),
        ("[FD00::1]:8000", "tcp://[fd00::1]:5557", "api", "http://[FD00::1]:8000"),
        ("http://E-0.engines:8000/", "tcp://e-0.engines:5557", "api", "http://E-0.engines:8000"),
        ("pod-a", "tcp://10.0.0.1:5557", "flag", None),
        ("10.0.0.1:8000#1", "tcp://10.0.0.1:5557", "flag", None),
        (POD, "tcp://10.0.0.2:5557", "api", None),
        (POD, "tcp://10.0.0.11:5557", "api", None),
        (POD, "ipc:///run/kv", "api", None),
        (POD, "ipc://10.0.0.1:8000", "api", None),
        (POD, None, "topic", None),
        ("169.254.169.254:80", "tcp://10.0.0.1:5557", "api", None),
    ],
)
def test_a_name_counts_where_an_operator_or_the_endpoint_says_so(
    pod: str, endpoint: str | None, origin: Origin, url: str | None
) -> None:
    """Else whoever registers an engine could have users' texts sent anywhere."""
    assert url == engine_url(Descriptor(pod=pod, endpoint=endpoint, origin=origin))
