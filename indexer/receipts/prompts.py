"""Prompts that were asked lately: kept for some seconds, and found by what stands for them. No I/O; time is given.

`of` of a routed report needs all hashes of a prompt, while those of its answer end where nobody holds more. So the
question is kept with its tokens for some seconds, within a bound of bytes. Later a keyed digest stands for it, and that
only while somebody names prompts instead of request ids: whoever never does pays nothing for it.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from xxhash import xxh3_128_digest

from indexer.hashing.memo import CHUNK_TOKENS, chunk_digest
from indexer.model import DEFAULT_TENANT, TOKEN_BYTES
from indexer.question import prompt_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from indexer.receipts.answer import Answered
    from schemas.lookup import LookupQuery

QUERY_BYTES: Final = 500
"""Of a question that is kept, beside its prompt."""
HASH_BYTES: Final = 8
CHUNK_BYTES: Final = CHUNK_TOKENS * TOKEN_BYTES
START_BYTES: Final = CHUNK_TOKENS * 8
"""A chunk that is told by its digest keeps the body that it stands in, as text."""
LOOKED_AT_MAX: Final = 128
LOOKED_AT_BYTES: Final = 4 * 2**20
"""Prompts looked at for the first report that names one, the newest: within a millisecond."""
BYTES_LIMIT: Final = "feedback.prompt_bytes"


class Prompts:
    """Those of answers that are remembered. `kept_s`, `bytes_max`: how long, and how much; `salt` as `Answers` has it.

    `is_found` tells whether an answer is still found by its request: of others no digest is made.
    """

    def __init__(
        self,
        salt: int,
        *,
        kept_s: float,
        bytes_max: int,
        digests_s: float,
        is_found: Callable[[Answered], bool],
        reached: Callable[[str], None],
    ) -> None:
        self._salt = salt
        self._kept_s = kept_s
        self._bytes_max = bytes_max
        self._digests_s = digests_s
        self._is_found = is_found
        self._reached = reached
        self._kept: deque[Answered] = deque()
        self.bytes = 0
        self._by_prompt: dict[tuple[str, str | None, bytes], Answered] = {}
        """By tenant, model, and what stands for the prompt."""
        self._digests_until = 0.0
        """So long digests are made: `digests_s` behind the last report that named a prompt."""

    def keep(self, record: Answered, query: LookupQuery) -> None:
        """The question that was just answered."""
        if not self._bytes_max:
            return
        record.query, record.prompt_bytes = query, _bytes_of(query)
        self.bytes += record.prompt_bytes
        self._kept.append(record)
        if record.at < self._digests_until:
            self._digest(record)
        while self.bytes > self._bytes_max:
            self._reached(BYTES_LIMIT)
            self._drop_oldest()

    def find(self, query: LookupQuery, lora_name: str | None, model: str | None, now: float) -> Answered | None:
        """The newest answer to the same prompt, model and tenant; prompts by tokens and by hashes are not compared."""
        until, self._digests_until = self._digests_until, now + self._digests_s
        if now >= until:
            self._digest_the_newest(prompt_tokens(query))
        key = (query.tenant or DEFAULT_TENANT, model, prompt_digest(query, lora_name, self._salt))
        return self._by_prompt.get(key)

    def forget(self, record: Answered) -> None:
        """It is found no longer."""
        if record.digest is not None:
            key = (record.tenant, record.model, record.digest)
            if self._by_prompt.get(key) is record:
                del self._by_prompt[key]

    def drop_one(self, now: float) -> bool:
        """The oldest is kept no longer, where its time is over; whether it was."""
        if not self._kept or now - self._kept[0].at < self._kept_s:
            return False
        self._drop_oldest()
        return True

    def _drop_oldest(self) -> None:
        record = self._kept.popleft()
        record.query = None
        self.bytes -= record.prompt_bytes

    def _digest_the_newest(self, tokens: int) -> None:
        """Of those as long as this: nobody named a prompt before."""
        looked_at = 0
        for record in islice(reversed(self._kept), LOOKED_AT_MAX):
            if record.prompt_tokens == tokens and looked_at + record.prompt_bytes <= LOOKED_AT_BYTES:
                looked_at += record.prompt_bytes
                self._digest(record)

    def _digest(self, record: Answered) -> None:
        """From now on it is found by its prompt."""
        if record.query is None or record.digest is not None or not self._is_found(record):
            return
        digest = record.digest = prompt_digest(record.query, record.lora_name, self._salt)
        key = (record.tenant, record.model, digest)
        known = self._by_prompt.get(key)
        if known is None or known.at <= record.at:
            self._by_prompt[key] = record


def prompt_digest(query: LookupQuery, lora_name: str | None, salt: int) -> bytes:
    """What stands for a prompt in this process: the same however its beginning is told."""
    told = (lora_name, query.cache_salt, query.mm_items, query.block_size, query.scheme)
    parts = [msgspec.msgpack.encode(told), *query.start]
    if query.block_hashes is None:
        tokens = memoryview(query.tokens or b"")
        parts += [chunk_digest(tokens[at : at + CHUNK_BYTES], salt) for at in range(0, len(tokens), CHUNK_BYTES)]
    else:
        parts.append(np.asarray(query.block_hashes, np.uint64).tobytes())
    return xxh3_128_digest(b"".join(parts), salt)


def _bytes_of(query: LookupQuery) -> int:
    hashes = 0 if query.block_hashes is None else len(query.block_hashes) * HASH_BYTES
    return QUERY_BYTES + len(query.tokens or b"") + len(query.start) * START_BYTES + hashes
