"""gRPC answers as plain values, to be compared with what REST says."""

from __future__ import annotations

from typing import Any

from schemas.rpc.kvindexer.v1 import kvindexer_pb2 as pb

_ALWAYS = frozenset({"tiers", "prefix", "shards"})
_LEFT_OUT = frozenset({"nearest_model", "tokenizer"})
"""What REST leaves out where there is none; all else is null there."""


def as_builtins(message: Any) -> dict[str, Any]:  # noqa: ANN401 - any message
    """Fields by name; null where a field is absent."""
    out: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.name not in _ALWAYS and field.has_presence and not message.HasField(field.name):
            out[field.name] = None
        elif field.is_repeated:
            out[field.name] = [as_builtins(each) if field.message_type else each for each in value]
        else:
            out[field.name] = as_builtins(value) if field.message_type else value
    return out


def as_rest(answer: pb.LookupResponse) -> dict[str, Any]:
    """As the JSON of REST has it."""
    out = as_builtins(answer)
    return {name: value for name, value in out.items() if value is not None or name not in _LEFT_OUT}
