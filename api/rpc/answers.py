"""From a `LookupAnswer` to the bytes of a `LookupResponse`. Pure.

Its entries come encoded from the core, most of them made once for many answers; only what stands around them is made
here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from indexer import entry_wire
from schemas.rpc.kvindexer.v1.kvindexer_pb2 import LookupResponse, Shards, TokenizerUsed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.lookup import LookupAnswer
    from schemas.rpc.kvindexer.v1.kvindexer_pb2 import Problem

_FIRST: Final = b"\x0a"
"""Tag of field 1, a message: `LookupResult.answer`, `LookupBatchResponse.items`."""
_SECOND: Final = b"\x12"
"""Tag of field 2, a message: `LookupResult.problem`."""


def answer_bytes(answer: LookupAnswer) -> bytes:
    """A `LookupResponse`."""
    head = LookupResponse(
        request_id=answer.request_id,
        model=answer.model,
        lora_name=answer.lora_name,
        resolved_by=answer.resolved_by,
        nearest_model=answer.nearest_model or None,
        prompt_tokens=answer.prompt_tokens,
        state=answer.state,
        reason=answer.reason,
        shards=Shards(answered=answer.shards.answered, total=answer.shards.total),
        took_us=answer.took_us,
    )
    if answer.tokenizer:
        head.tokenizer.CopyFrom(TokenizerUsed(**msgspec.structs.asdict(answer.tokenizer)))
    entries = [each if isinstance(each, msgspec.Raw) else entry_wire.entry(each) for each in answer.pods]
    return b"".join((head.SerializeToString(), *entries))


def result_of_answer(answer: bytes) -> bytes:
    """A `LookupResult` that holds this answer."""
    return _FIRST + entry_wire.sized(answer)


def result_of_problem(problem: Problem) -> bytes:
    """A `LookupResult` that says why there is no answer."""
    return _SECOND + entry_wire.sized(problem.SerializeToString())


def batch_bytes(results: Iterable[bytes]) -> bytes:
    """A `LookupBatchResponse`."""
    return b"".join([part for result in results for part in (_FIRST, entry_wire.varint(len(result)), result)])
