"""The grammar of `--source`: what is accepted, and what each rejected form is told."""

from __future__ import annotations

import pytest

from indexer.errors import SettingsError
from indexer.model import Descriptor
from indexer.settings import parse_source_flag


def flagged(**fields: object) -> Descriptor:
    """A descriptor as a flag makes it."""
    return Descriptor(**{"origin": "flag", **fields})  # type: ignore[arg-type]


ACCEPTED = {
    "10.0.0.1:8000=tcp://10.0.0.1:5557,model=llama": flagged(
        pod="10.0.0.1:8000", endpoint="tcp://10.0.0.1:5557", model="llama"
    ),
    "[fd00::1]:8000=tcp://[fd00::1]:5557": flagged(pod="[fd00::1]:8000", endpoint="tcp://[fd00::1]:5557"),
    "http://pod-a:8000/v1=tcp://pod-a:5557": flagged(pod="http://pod-a:8000/v1", endpoint="tcp://pod-a:5557"),
    "a=b=tcp://h:1": flagged(pod="a=b", endpoint="tcp://h:1"),
    "a,b=tcp://h:1": flagged(pod="a,b", endpoint="tcp://h:1"),
    "a=tcp=tcp://h:1": flagged(pod="a=tcp", endpoint="tcp://h:1"),
    "a=ipc:///run/kv.sock": flagged(pod="a", endpoint="ipc:///run/kv.sock"),
    "a=tcp://h:65535,rank=3": flagged(pod="a", endpoint="tcp://h:65535", dp_rank=3),
    "a=tcp://h:1,replay=tcp://h:2,model=org/m=x@v1,role=prefill,tenant=t,address=10.0.0.9:80": flagged(
        pod="a",
        endpoint="tcp://h:1",
        replay_endpoint="tcp://h:2",
        model="org/m=x@v1",
        role="prefill",
        tenant="t",
        address="10.0.0.9:80",
    ),
    "a=tcp://h:1,alias=pod-a,alias=http://a/,address=[fd00::1]:80": flagged(
        pod="a", endpoint="tcp://h:1", aliases=("pod-a", "http://a/"), address="[fd00::1]:80"
    ),
}


@pytest.mark.parametrize("text", ACCEPTED)
def test_accepted(text: str) -> None:
    """One flag, one source, every option in its field."""
    assert (ACCEPTED[text],) == parse_source_flag(text)


def test_ranks_add_one_source_a_rank_at_port_plus_rank() -> None:
    """For both endpoints, and from any first rank."""
    made = parse_source_flag("p=tcp://h:5557,replay=tcp://[::1]:6557,ranks=2-4,model=m")

    assert [
        ("p", 2, "tcp://h:5559", "tcp://[::1]:6559", "m"),
        ("p", 3, "tcp://h:5560", "tcp://[::1]:6560", "m"),
        ("p", 4, "tcp://h:5561", "tcp://[::1]:6561", "m"),
    ] == [(d.pod, d.dp_rank, d.endpoint, d.replay_endpoint, d.model) for d in made]


def test_ranks_from_zero_keep_the_first_port() -> None:
    """`ranks=0-7` is eight sources."""
    made = parse_source_flag("p=tcp://h:5557,ranks=0-7")

    assert [(rank, f"tcp://h:{5557 + rank}") for rank in range(8)] == [(d.dp_rank, d.endpoint) for d in made]


def test_the_capacity_is_that_of_each_rank() -> None:
    """Every rank is an engine with a cache of its own."""
    made = parse_source_flag("p=tcp://h:5557,ranks=0-1,blocks=20000")

    assert [20_000, 20_000] == [d.blocks_total for d in made]


REJECTED = {
    "": "NAME=tcp://",
    "pod-a": "NAME=tcp://",
    "pod-a=http://h:1": "NAME=tcp://",
    "=tcp://h:1": "a name has",
    " a=tcp://h:1": "a name has",
    "a\n=tcp://h:1": "a name has",
    "x" * 513 + "=tcp://h:1": "a name has",
    "a=tcp://h": "tcp://HOST:PORT",
    "a=tcp://h:0": "a port is 1..65535",
    "a=tcp://h:65536": "a port is 1..65535",
    "a=tcp://:5557": "--source-bind",
    "a=tcp://*:5557": "--source-bind",
    "a=tcp://fd00::1:5557": "tcp://HOST:PORT",
    "a=tcp://h:1/path": "tcp://HOST:PORT",
    "a=ipc://": "tcp://HOST:PORT or ipc://PATH",
    "a=tcp://h:1=tcp://h:2": "tcp://HOST:PORT",
    "a=tcp://h:1,modle=x": "did you mean model",
    "a=tcp://h:1,": "unknown option ''",
    "a=tcp://h:1,model": "option model needs a value",
    "a=tcp://h:1,model=": "option model needs a value",
    "a=tcp://h:1,model=x,model=y": "option model is given twice",
    "a=tcp://h:1,rank=1,ranks=0-1": "exclude each other",
    "a=tcp://h:1,rank=-1": "rank is 0..65535",
    "a=tcp://h:1,rank=65536": "rank is 0..65535",
    "a=tcp://h:1,rank=²": "rank is 0..65535",
    "a=tcp://h:1,ranks=3": "ranks=A-B",
    "a=tcp://h:1,ranks=3-2": "ranks=A-B",
    "a=tcp://h:65530,ranks=0-7": "a port is 1..65535, got 65536",
    "a=ipc:///run/kv,ranks=0-1": "no port to add a rank to",
    "a=tcp://h:1,replay=h:2": "tcp://HOST:PORT",
    "a=tcp://h:1,replay=tcp://*:2": "--source-bind",
    "a=tcp://h:1,role=both-ways": "role is one of prefill, decode, both",
    "a=tcp://h:1,address=h": "IP:PORT wanted",
    "a=tcp://h:1,address=fd00::1:80": "IP:PORT wanted",
    "a=tcp://h:1,alias= x": "a name has",
    "a=tcp://h:1,blocks=0": "blocks is 1..4294967295, got '0'",
    "a=tcp://h:1,blocks=-5": "blocks is 1..",
    "a=tcp://h:1,blocks=4294967296": "blocks is 1..",
    "a=tcp://h:1,blocks=²": "blocks is 1..",
}


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(text: str) -> None:
    """The error names the flag and the rule."""
    with pytest.raises(SettingsError) as caught:
        parse_source_flag(text)

    assert REJECTED[text] in str(caught.value)
    assert caught.value.key.startswith("--source")
