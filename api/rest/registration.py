"""From a registration body to a `Descriptor`: what types cannot say about it. No I/O."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Container, Sequence
from typing import Final

from indexer.errors import BadRequestError, FieldIssue, SettingsError, SourceConflictError
from indexer.model import DEFAULT_TENANT, Descriptor, SourceId
from indexer.settings.source_flag import check_address
from schemas.rest import SourceBody

SOURCES_A_TURN: Final = 256
"""About a millisecond."""

_TCP: Final = "tcp://"
_CONNECTABLE: Final = "an address to connect to"


def descriptor_of(body: SourceBody, path: str = "", silent_models: Container[str] = ()) -> Descriptor:
    """The descriptor, of origin `api`. `path` prefixes the field names in errors. Raises `BadRequestError`.

    `silent_models`: those whose engines may announce nothing, and so need no endpoint.
    """
    if body.endpoint is None and (body.model is None or body.model not in silent_models):
        hint = "only models in models.approximate do without"
        issue = FieldIssue(f"{path}endpoint", "required: tcp://HOST:PORT (IPv6 in brackets) or ipc://PATH", None, hint)
        raise BadRequestError("endpoint.missing", [issue])
    if body.endpoint is None and body.replay_endpoint is not None:
        issue = FieldIssue(f"{path}replay_endpoint", "only together with endpoint")
        raise BadRequestError("replay_endpoint.not_allowed", [issue])
    for name in ("endpoint", "replay_endpoint"):
        endpoint = getattr(body, name)
        if endpoint is not None:
            _check_connectable(endpoint, f"{path}{name}")
    if body.address is not None:
        _check_address(body.address, f"{path}address")
    return Descriptor(
        pod=body.pod,
        dp_rank=body.dp_rank or 0,
        endpoint=body.endpoint,
        replay_endpoint=body.replay_endpoint,
        model=body.model,
        lora_name=body.lora_name,
        tenant=body.tenant or DEFAULT_TENANT,
        role=body.role or "both",
        address=body.address,
        aliases=tuple(body.aliases or ()),
        labels=dict(body.labels or {}),
        engine=body.engine or "vllm",
        blocks_total=body.blocks_total,
        origin="api",
    )


async def descriptors_of(bodies: Sequence[SourceBody], silent_models: Container[str] = ()) -> list[Descriptor]:
    """The descriptors of a whole set, in which each pod and rank stands once. Raises `SourceConflictError`.

    Gives the loop back now and then: nothing bounds the set but the size of a body.
    """
    descriptors: list[Descriptor] = []
    seen: set[SourceId] = set()
    for i, body in enumerate(bodies):
        if i % SOURCES_A_TURN == 0:
            await asyncio.sleep(0)
        descriptor = descriptor_of(body, f"[{i}].", silent_models)
        if descriptor.id in seen:
            raise SourceConflictError(f"[{i}].pod", f"{descriptor.id} is in the list twice")
        seen.add(descriptor.id)
        descriptors.append(descriptor)
    return descriptors


def _check_address(address: str, field: str) -> None:
    try:
        check_address(address, field)
    except SettingsError:
        hint = "a URL or a bare name goes into aliases"
        issue = FieldIssue(field, "IP:PORT, an IPv6 address in brackets", address[:40], hint)
        raise BadRequestError("address.not_allowed", [issue]) from None


def _check_connectable(endpoint: str, field: str) -> None:
    """Refuse the address that means every interface, and what looks like an address and is none."""
    if not endpoint.startswith(_TCP):
        return
    host = endpoint.removeprefix(_TCP).rpartition(":")[0]
    bracketed = host.startswith("[")
    try:
        address = ipaddress.IPv6Address(host[1:-1]) if bracketed else ipaddress.ip_address(host)
    except ValueError:
        if bracketed or not host.strip("0123456789."):
            hint = "an IPv6 address stands in brackets, an IPv4 address has four numbers"
            raise _unconnectable(field, endpoint, hint) from None
        return
    mapped = getattr(address, "ipv4_mapped", None)
    if (mapped or address).is_unspecified:
        raise _unconnectable(field, endpoint, "0.0.0.0 and [::] are for binding; name the engine's own address")


def _unconnectable(field: str, endpoint: str, hint: str) -> BadRequestError:
    return BadRequestError("endpoint.not_connectable", [FieldIssue(field, _CONNECTABLE, endpoint[:40], hint)])
