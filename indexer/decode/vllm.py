"""vLLM's (and SGLang's) event batches: bytes in, events out. Pure.

Two paths with one meaning. The fast path decodes the whole payload into typed structs, which skips building a dict an
event; it is taken when everything fits. Otherwise the tolerant path decodes to plain values and looks at each event
alone, so that one bad event never costs its batch (P11). `tests/unit/decode` holds both paths to the same answers.

Promises: any bytes give a batch or `None`, nothing raises.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import msgspec

from indexer.decode.envelope import EVENTS_MAX, UNDECODABLE, raw_batch
from indexer.model import (
    UNASKABLE,
    WINDOW_KINDS,
    AllCleared,
    BlocksRemoved,
    BlocksStored,
    Event,
    EventBatch,
    Skipped,
    Tier,
)
from schemas.engine_events import (
    ArrayBatch,
    MapBatch,
    RemovedArray,
    RemovedMap,
    StoredArray,
    StoredMap,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TIERS: Final[dict[str, Tier]] = {
    "GPU": Tier.GPU,
    "CPU": Tier.CPU,
    "CPU_PINNED": Tier.CPU,
    "CPU_TIER1": Tier.CPU,
    "CPU_TIER2": Tier.CPU,
    "STORAGE": Tier.STORAGE,
    "DISK": Tier.STORAGE,
    "FS": Tier.STORAGE,
    "OBJ": Tier.STORAGE,
    "REMOTE": Tier.REMOTE,
    "EXTERNAL": Tier.REMOTE,
}
"""Media seen in the field, upper-cased. Anything else is `unknown`, never GPU (Dynamo #11571)."""

_FIXARRAY: Final = 0x9
"""High four bits of msgpack's short arrays."""
_ARRAY16: Final = 0xDC
_U64: Final = 1 << 64
_HASH_BYTES_MIN: Final = 8
LOOKAHEAD_MAX: Final = 16
"""Tokens beyond its end that a block's hash may cover."""
GROUP_MAX: Final = 1 << 16
WINDOW_MAX: Final = 1 << 31
"""Group numbers and windows beyond these are damage: engines count groups from 0 and windows in tokens of a prompt."""
_U32_MAX: Final = (1 << 32) - 1
_TOKEN_STRUCTS_MAX: Final = 4096

_map_decoder: Final = msgspec.msgpack.Decoder(MapBatch)
_array_decoder: Final = msgspec.msgpack.Decoder(ArrayBatch)
_plain_decoder: Final = msgspec.msgpack.Decoder()
_token_structs: dict[int, Callable[..., bytes]] = {}
_BAD_STORE: Final = Skipped("stored_malformed", suspect=True)
_BAD_REMOVAL: Final = Skipped("removed_malformed", suspect=True)


def decode(payload: bytes) -> EventBatch | None:
    """The batch in `payload`, or None when the bytes are no event batch at all."""
    try:
        batch = (_array_decoder if events_are_arrays(payload) else _map_decoder).decode(payload)
    except UNDECODABLE:
        return _decode_tolerant(payload)
    return EventBatch(batch.ts, typed_events(batch.events), batch.data_parallel_rank)


def tier_of(medium: str | None, locality: str | None = None) -> Tier:
    """The tier of a `medium` string. Absent means GPU: the field is younger (0.10.2) than the events."""
    if locality == "REMOTE":
        return Tier.REMOTE
    if medium is None or medium == "GPU":
        return Tier.GPU
    return TIERS.get(medium.upper(), Tier.UNKNOWN)


def events_are_arrays(payload: bytes) -> bool:
    """Whether the first event of the usual envelope (array, float64, list) is an array.

    A wrong guess only costs time.
    """
    head = payload[10:14]
    if len(head) < 4:  # noqa: PLR2004  the bytes looked at below
        return False
    if head[0] >> 4 == _FIXARRAY:
        first = head[1]
    elif head[0] == _ARRAY16:
        first = head[3]
    else:
        return False
    return first >> 4 == _FIXARRAY or first == _ARRAY16


def typed_events(wire: Sequence[Any]) -> list[Event]:
    """Events of the wire's own structs as what they mean; removals that follow each other become one."""
    events: list[Event] = []
    index, count = 0, len(wire)
    while index < count:
        event = wire[index]
        index += 1
        kind = type(event)
        if kind is StoredMap or kind is StoredArray:
            events.append(_typed_stored(event))
        elif kind is RemovedMap or kind is RemovedArray:
            first = index - 1
            while index < count and type(wire[index]) is kind and _same_lane(wire[index], event):
                index += 1
            events.extend(_joined(wire[first:index]))
        else:
            events.append(AllCleared())
    return events


def _typed_stored(event: Any) -> Event:  # noqa: ANN401  one of the two wire structs
    extra = event.extra_keys
    locality = lookahead = None
    if type(event) is StoredMap:
        locality, lookahead = event.locality, event.lookahead_token_ids
        if event.cache_salt is not None:
            extra = _salted(extra, event.cache_salt, event.parent_block_hash, len(event.block_hashes))
    return _stored(
        event.block_hashes,
        event.parent_block_hash,
        event.token_ids,
        event.block_size,
        tier_of(event.medium, locality),
        _adapter(event.lora_name, event.lora_id),
        extra,
        event.group_idx,
        event.kv_cache_spec_kind,
        event.kv_cache_spec_sliding_window,
        lookahead,
    )


def _same_lane(one: Any, other: Any) -> bool:  # noqa: ANN401  two wire structs of one type
    same: bool = one.medium == other.medium and one.group_idx == other.group_idx and _where(one) == _where(other)
    return same


def _where(event: Any) -> str | None:  # noqa: ANN401  a wire struct of a removal
    """Only maps have a locality."""
    return event.locality if type(event) is RemovedMap else None


def _joined(run: Sequence[Any]) -> list[Event]:
    """Removals that follow each other on one lane, as one event; each alone where one of them is malformed."""
    first = run[0]
    tier, group = tier_of(first.medium, _where(first)), first.group_idx
    hashes = first.block_hashes if len(run) == 1 else [value for event in run for value in event.block_hashes]
    normal = _hashes(hashes)
    if normal is not None and _is_group(group):
        return [BlocksRemoved(hashes=normal, tier=tier, group=group or 0, events=len(run))]
    return [_removed(event.block_hashes, tier, group) for event in run]


def _stored(  # noqa: PLR0917  the wire's own field list
    hashes: Sequence[int | bytes],
    parent: int | bytes | None,
    token_ids: list[Any],
    block_size: int,
    tier: Tier,
    lora_name: str | None,
    extra_keys: list[Any] | None,
    group: int | None,
    kind: str | None,
    window: int | None,
    lookahead: list[Any] | None,
) -> Event:
    normal = _hashes(hashes)
    parents = () if parent is None else _hashes((parent,))
    dense = block_size > 0 and len(token_ids) == len(hashes) * block_size
    if (
        normal is None
        or parents is None
        or block_size < 0
        or not _is_group(group)
        or (window is not None and kind in WINDOW_KINDS and not 0 < window <= WINDOW_MAX)
        or (extra_keys is not None and any(extra_keys) and dense and len(extra_keys) != len(hashes))
        or (lookahead is not None and not _is_lookahead(lookahead, len(hashes) if dense else None))
    ):
        return _BAD_STORE
    tokens = pack_tokens(token_ids)
    return BlocksStored(
        hashes=normal,
        parent=parents[0] if parents else None,
        tokens=b"" if tokens is None else tokens,
        tokens_ok=tokens is not None,
        block_size=block_size,
        tier=tier,
        lora_name=lora_name,
        extra_keys=tuple(extra_keys) if extra_keys and any(extra_keys) else None,
        group=group or 0,
        kind=kind,
        window=window if kind in WINDOW_KINDS else None,
        lookahead=tuple(lookahead) if lookahead and any(lookahead) else None,
    )


def _adapter(lora_name: str | None, lora_id: int | None) -> str | None:
    """The adapter's name, or a name nobody can ask for where the engine told only its number."""
    return lora_name or (None if lora_id is None else f"{UNASKABLE}{lora_id}")


def _is_group(group: int | None) -> bool:
    return group is None or 0 <= group < GROUP_MAX


def _is_lookahead(lookahead: list[list[int]], blocks: int | None) -> bool:
    """Equally many tokens for each block, and not more than any drafter has: they are part of what a block is.

    `blocks`: how many lists there must be; None where the event places nothing by its tokens. More tokens than that
    would make every lookup of this engine's model expensive.
    """
    if blocks is not None and lookahead and len(lookahead) != blocks:
        return False
    lengths = {len(part) for part in lookahead}
    return (
        len(lengths) <= 1
        and max(lengths, default=0) <= LOOKAHEAD_MAX
        and all(0 <= token <= _U32_MAX for part in lookahead for token in part)
    )


def _removed(hashes: Sequence[int | bytes], tier: Tier, group: int | None) -> Event:
    normal = _hashes(hashes)
    if normal is None or not _is_group(group):
        return _BAD_REMOVAL
    return BlocksRemoved(hashes=normal, tier=tier, group=group or 0)


def _hashes(hashes: Sequence[int | bytes]) -> tuple[int, ...] | None:
    """Engine hashes as u64 (decoder rule 6); None when one of them is no hash.

    The common case (plain non-negative ints, which msgpack bounds by 2**64-1) is settled by one C-level minimum.
    """
    try:
        if not hashes or min(hashes) >= 0:  # type: ignore[operator]
            return tuple(hashes)  # type: ignore[arg-type]
    except TypeError:
        pass  # bytes, or a mix: look at each below
    out = []
    for value in hashes:
        if isinstance(value, bytes) and len(value) >= _HASH_BYTES_MIN:
            out.append(int.from_bytes(value[-_HASH_BYTES_MIN:], "big"))
        elif type(value) is int and -(_U64 >> 1) <= value < _U64:
            out.append(value % _U64)
        else:
            return None
    return tuple(out)


def pack_tokens(token_ids: list[Any]) -> bytes | None:
    """The little-endian u32 image of a token list; None when an item is no u32 (SGLang pairs, strings)."""
    count = len(token_ids)
    pack = _token_structs.get(count)
    if pack is None:
        pack = struct.Struct(f"<{count}I").pack
        if len(_token_structs) < _TOKEN_STRUCTS_MAX:
            _token_structs[count] = pack
    try:
        return pack(*token_ids)
    except struct.error:
        return None


def _salted(extra: list[Any] | None, salt: str, parent: object, blocks: int) -> list[Any] | None:
    """SGLang names the salt beside every event of a salted prompt.

    Like vLLM's it enters the block at token 0, beside what else is told of that block; the chain carries it from there.
    """
    if parent is not None or not blocks:
        return extra
    first, *others = extra or [None] * blocks
    keys = first or []
    return [keys if salt in keys else [*keys, salt], *others]


def _decode_tolerant(payload: bytes) -> EventBatch | None:
    try:
        batch = _plain_decoder.decode(payload)
    except UNDECODABLE:
        return _decode_singly(payload)
    if isinstance(batch, dict):
        ts, events, rank = batch.get("ts"), batch.get("events"), batch.get("data_parallel_rank")
    elif isinstance(batch, list) and len(batch) >= 2:  # noqa: PLR2004  ts and events
        ts, events, rank = batch[0], batch[1], batch[2] if len(batch) > 2 else None  # noqa: PLR2004
    else:
        return None
    if (
        not isinstance(events, list)
        or len(events) > EVENTS_MAX
        or not isinstance(ts, int | float)
        or isinstance(ts, bool)
    ):
        return None
    return EventBatch(float(ts), [plain_event(e) for e in events], rank if type(rank) is int else None)


def _decode_singly(payload: bytes) -> EventBatch | None:
    """Where there is one event in it that is no value at all: text that is none, a key that cannot be one."""
    try:
        batch = raw_batch(payload)
    except UNDECODABLE:
        return None
    return None if batch is None else EventBatch(batch.ts, [event_alone(raw) for raw in batch.events], batch.dp_rank)


def event_alone(raw: msgspec.Raw) -> Event:
    """One encoded event that does not fit the usual form."""
    try:
        return plain_event(_plain_decoder.decode(raw))
    except UNDECODABLE:
        return plain_event(None)


_STORED_FIELDS: Final = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
)
_REMOVED_FIELDS: Final = ("block_hashes", "medium", "group_idx")
_ABSENT: Final = object()
_OPTIONAL: Final[dict[str, type]] = {
    "lora_id": int,
    "medium": str,
    "lora_name": str,
    "extra_keys": list,
    "group_idx": int,
    "kv_cache_spec_kind": str,
    "kv_cache_spec_sliding_window": int,
    "locality": str,
    "lookahead_token_ids": list,
    "cache_salt": str,
}
"""What a field must be where it is not nil. Each says which block an event is about: one of another type may have meant
anything, and taken for absent it would make a salted block a plain one."""


def plain_event(event: Any) -> Event:  # noqa: ANN401  anything msgpack can hold
    """One event from plain values, whatever they are."""
    if isinstance(event, dict):
        tag, fields = event.get("type"), event
    elif isinstance(event, list) and event:
        tag = event[0]
        names = _STORED_FIELDS if tag == "BlockStored" else _REMOVED_FIELDS
        fields = dict(zip(names, event[1:], strict=False))
    else:
        return Skipped("event_malformed", suspect=True)
    if tag == "BlockStored":
        return _plain_stored(fields)
    if tag == "BlockRemoved":
        return _plain_removed(fields)
    if tag == "AllBlocksCleared":
        return AllCleared()
    return Skipped("unknown_kind", suspect=True)


def _plain_stored(fields: dict[Any, Any]) -> Event:
    hashes = fields.get("block_hashes")
    parent = fields.get("parent_block_hash", _ABSENT)
    token_ids = fields.get("token_ids")
    block_size = fields.get("block_size")
    salts = fields.get("lora_name")
    if isinstance(salts, dict):  # SGLang 0.5.18/19 appended a map of salts where vLLM has the adapter (E14)
        fields = {**fields, "lora_name": None, "cache_salt": salts.get("cache_salt", _ABSENT)}
    if (
        not _are_hashes(hashes)
        or not isinstance(token_ids, list)
        or type(block_size) is not int
        or not (parent is None or isinstance(parent, bytes) or type(parent) is int)
        or not _well_typed(fields)
    ):
        return _BAD_STORE
    extra, salt = fields.get("extra_keys"), fields.get("cache_salt")
    if salt is not None:
        extra = _salted(extra, salt, parent, len(hashes))
    return _stored(
        hashes,
        parent,
        token_ids,
        block_size,
        tier_of(fields.get("medium"), fields.get("locality")),
        _adapter(fields.get("lora_name"), fields.get("lora_id")),
        extra,
        fields.get("group_idx"),
        fields.get("kv_cache_spec_kind"),
        fields.get("kv_cache_spec_sliding_window"),
        fields.get("lookahead_token_ids"),
    )


def _plain_removed(fields: dict[Any, Any]) -> Event:
    hashes = fields.get("block_hashes")
    lane = {name: fields.get(name) for name in ("medium", "group_idx", "locality")}
    if not _are_hashes(hashes) or not _well_typed(lane):
        return _BAD_REMOVAL
    return _removed(hashes, tier_of(lane["medium"], lane["locality"]), lane["group_idx"])


def _are_hashes(value: Any) -> TypeGuard[list[int | bytes]]:  # noqa: ANN401  anything msgpack can hold
    """Whether this is a list of ints and bytes: a float or a bool would pass for an int later on."""
    return isinstance(value, list) and all(type(item) is int or type(item) is bytes for item in value)


def _well_typed(fields: dict[Any, Any]) -> bool:
    """Whether each optional field is absent, nil or of the type the wire promises, and so is what its lists hold."""
    for name, kind in _OPTIONAL.items():
        value = fields.get(name)
        if value is not None and type(value) is not kind:
            return False
    return all(keys is None or type(keys) is list for keys in fields.get("extra_keys") or ()) and all(
        type(part) is list and all(type(token) is int for token in part)
        for part in fields.get("lookahead_token_ids") or ()
    )
