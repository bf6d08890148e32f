"""What types cannot say about a registration."""

import asyncio

import msgspec
import pytest

from api.rest.registration import descriptor_of, descriptors_of
from indexer.errors import BadRequestError, SourceConflictError
from indexer.model import Descriptor
from schemas.rest import SourceBody


def _body(**members: object) -> SourceBody:
    return msgspec.convert({"pod": "p", "endpoint": "tcp://10.0.0.1:5557"} | members, SourceBody)


def test_fills_in_what_is_not_said() -> None:
    """A pod and where it publishes is enough."""
    expected = Descriptor(
        pod="p", dp_rank=0, endpoint="tcp://10.0.0.1:5557", tenant="default", role="both", engine="vllm"
    )

    assert expected == descriptor_of(_body())
    assert expected == descriptor_of(_body(dp_rank=None, model=None, aliases=None, labels=None, tenant=None))


def test_takes_everything_that_is_said() -> None:
    """Each field of the registration has its place."""
    members: dict[str, object] = {
        "pod": "10.0.0.1:8000",
        "dp_rank": 3,
        "endpoint": "ipc:///run/engine.sock",
        "replay_endpoint": "tcp://[2001:db8::1]:5558",
        "model": "m",
        "lora_name": "a",
        "tenant": "t",
        "role": "prefill",
        "address": "10.0.0.1:8000",
        "aliases": ["http://engine-0"],
        "labels": {"zone": "a"},
        "engine": "sglang",
        "blocks_total": 900,
    }

    assert msgspec.convert(members, Descriptor) == descriptor_of(_body(**members))


@pytest.mark.parametrize(
    "endpoint",
    [
        *(
            "tcp://*:5557",
            "tcp://10.0.0.1",
            "tcp://10.0.0.1:0",
            "tcp://10.0.0.1:65536",
            "tcp://10.0.0.1:5557/",
            "tcp://:1",
        ),
        *(
            "tcp://a b:1",
            "tcp://eth0;10.0.0.1:5557",
            "tcp://-a:1",
            "tcp://u@h:1",
            "tcp://h:1\n",
            "http://h:1",
            "h:1",
            "",
        ),
        *("h:1", "ipc://", "ipc://*", "ipc:// x", "ipc://" + "x" * 101, "inproc://x", "TCP://h:1", "tcp://h:+1"),
        *("tcp://0.0.0.0:5557", "tcp://00.0.0.0:1", "tcp://[::]:5557", "tcp://0:5557", "tcp://127.1:5557"),
        *("tcp://1.2.3.256:1", "tcp://[1.2.3.4]:1", "tcp://[::1::2]:1", "tcp://[::ffff:0.0.0.0]:1", "tcp://[1:2]:1"),
    ],
)
def test_an_endpoint_is_something_to_connect_to(endpoint: str) -> None:
    """A scheme of ours, a host, a port that exists, and nothing after it."""
    with pytest.raises(msgspec.ValidationError):
        _body(endpoint=endpoint)


@pytest.mark.parametrize(
    "endpoint", ["tcp://[0:0:0::0]:5557", "tcp://[0:0:0:0:0:0:0:0]:1", "tcp://[1:2:3:4:5::6:7:8:9]:1"]
)
@pytest.mark.parametrize("field", ["endpoint", "replay_endpoint"])
def test_an_address_for_binding_is_refused(endpoint: str, field: str) -> None:
    """It means every interface here, and none there; so is what only looks like an address."""
    with pytest.raises(BadRequestError) as caught:
        descriptor_of(_body(**{field: endpoint}))

    assert ("endpoint.not_connectable", field) == (caught.value.code, caught.value.issues[0].field)


@pytest.mark.parametrize(
    "endpoint",
    [
        *("tcp://engine-0.svc:5557", "tcp://10-0-0-1.pod:1", "tcp://127.0.0.1:1", "tcp://255.255.255.255:65535"),
        *("tcp://[fe80::1]:5557", "tcp://[::1]:1", "tcp://[1:2:3:4:5:6:7:8]:1", "ipc://@name", "ipc:///run/x.sock"),
    ],
)
def test_takes_names_and_addresses(endpoint: str) -> None:
    """What ZMQ can connect to."""
    assert endpoint == descriptor_of(_body(endpoint=endpoint)).endpoint


@pytest.mark.parametrize("address", ["nope", "10.0.0.1", "10.0.0.1:0", "::1:80", "[::1]", "http://10.0.0.1:80"])
def test_an_address_is_an_ip_and_a_port(address: str) -> None:
    """The error shows the form, and where everything else belongs."""
    with pytest.raises(BadRequestError) as caught:
        descriptor_of(_body(address=address))

    issue = caught.value.issues[0]
    assert ("address.not_allowed", "address", address) == (caught.value.code, issue.field, issue.got)
    assert ("IP:PORT" in issue.rule, "aliases" in (issue.hint or "")) == (True, True)


@pytest.mark.parametrize("address", ["10.0.0.1:8000", "[::1]:8000"])
def test_an_address_of_either_kind_is_taken(address: str) -> None:
    """As routers name endpoints."""
    assert address == descriptor_of(_body(address=address)).address


@pytest.mark.parametrize("name", ["", "a\nb", "a\x00", "a\x7f", "x" * 513])
def test_names_can_be_printed(name: str) -> None:
    """They stand in tables and logs."""
    with pytest.raises(msgspec.ValidationError):
        _body(pod=name)


def test_a_set_names_each_rank_once() -> None:
    """The same pod may have several ranks; the error names the entry."""
    assert [0, 1] == [d.dp_rank for d in asyncio.run(descriptors_of([_body(), _body(dp_rank=1)]))]
    with pytest.raises(SourceConflictError) as caught:
        asyncio.run(descriptors_of([_body(), _body(dp_rank=1), _body()]))

    assert "[2].pod" == caught.value.field
