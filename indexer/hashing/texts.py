"""Prompts told in JSON that begin like earlier ones: the tokens of a known beginning need not be parsed again.

    body      {"model":"m","token_ids":[4789,125181, ... ,17]}
    text      what is between the brackets, cut into slices of 4 KiB
    slice     its digest, seeded with that of the slice before, leads to the digests of those chunks of 512 tokens
              (memo.py) that end in it, and to where in the text the last of them ends

Parsing numbers is most of what a long prompt in JSON costs, ten times what its hashes cost, and a conversation says the
same numbers again with every turn. A known beginning is cut out of the body, the rest is parsed as a body of its own,
and the hashes of the beginning come from the chunk memo by its digests.

Pure, but for a bounded memory (recent.py). Holds digests and offsets, never tokens (P10), and only of texts that a
parser accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from xxhash import xxh3_128_intdigest

from indexer.hashing.memo import CHUNK_TOKENS, chunk_digest
from indexer.model import TOKEN_BYTES
from indexer.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Sequence

SLICE_BYTES: Final = 4_096
TEXT_BYTES_MIN: Final = 2 * SLICE_BYTES
"""Shorter texts are parsed: looking for their beginning would cost as much."""
SLICES_MAX: Final = 8_192
"""In each of two halves: 64 MB of text, about 5 MB of memory."""
_COMMA: Final = ord(",")
_U64_MASK: Final = (1 << 64) - 1


class Slice(NamedTuple):
    """`digests`: of the chunks that end in it. `resume`: offset in the text behind the last chunk's comma so far."""

    digests: tuple[bytes, ...]
    resume: int


class Beginning(NamedTuple):
    """The known beginning of a text: its chunks, where they end, and how it goes on being known."""

    digests: list[bytes]
    resume: int
    slices: int
    seed: int


class TextMemo:
    """`salt`: the chunk memo's; any number, not known outside."""

    def __init__(self, salt: int = 0) -> None:
        self._salt = salt & _U64_MASK
        self._slices: Recent[int, Slice] = Recent(SLICES_MAX)

    def beginning(self, body: bytes, begin: int, end: int) -> Beginning:
        """What is known of the text at `body[begin:end]`, the inside of an array of numbers."""
        digests: list[bytes] = []
        resume, seed, slices = 0, self._salt, 0
        view = memoryview(body)
        for at in range(begin, end - SLICE_BYTES + 1, SLICE_BYTES):
            key = xxh3_128_intdigest(view[at : at + SLICE_BYTES], seed)
            known = self._slices.get(key)
            if known is None:
                break
            seed = key & _U64_MASK
            slices += 1
            digests += known.digests
            resume = known.resume
        return Beginning(digests, resume, slices, seed)

    def learn(self, body: bytes, begin: int, end: int, known: Beginning, tokens: bytes) -> None:
        """Remember the text at `body[begin:end]`. `tokens`: those behind the known beginning, as a parser read them."""
        if end - begin < (known.slices + 1) * SLICE_BYTES:
            return
        ends = self._chunk_ends(body, begin + known.resume, end, len(tokens) // TOKEN_BYTES)
        if ends is None:
            return
        view, image = memoryview(body), memoryview(tokens)
        step = CHUNK_TOKENS * TOKEN_BYTES
        seed, done, resume = known.seed, 0, known.resume
        for at in range(begin + known.slices * SLICE_BYTES, end - SLICE_BYTES + 1, SLICE_BYTES):
            key = xxh3_128_intdigest(view[at : at + SLICE_BYTES], seed)
            seed = key & _U64_MASK
            new: list[bytes] = []
            while done < len(ends) and known.resume + ends[done] <= at - begin + SLICE_BYTES:
                new.append(chunk_digest(image[done * step : (done + 1) * step], self._salt))
                resume = known.resume + ends[done]
                done += 1
            self._slices.keep(key, Slice(tuple(new), resume))

    def forget(self) -> None:
        """Remember nothing any more."""
        self._slices.forget()

    @staticmethod
    def _chunk_ends(body: bytes, begin: int, end: int, count: int) -> Sequence[int] | None:
        """Where in `body[begin:end]` each whole chunk ends, behind its comma; None where commas and tokens differ."""
        text = np.frombuffer(body, np.uint8, end - begin, begin)
        commas = (text == _COMMA).nonzero()[0]
        if commas.size != count - 1:
            return None
        ends: list[int] = (commas[CHUNK_TOKENS - 1 :: CHUNK_TOKENS] + 1).tolist()
        return ends
