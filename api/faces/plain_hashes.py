"""The short way for the common `/query_by_hash`: local hashes read without a Python object for each.

Like `PlainJson` it only says "this is the question" or "not mine"; what is unusual or wrong is the strict decoder's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import simdjson

from api.faces.questions import plain_options
from api.rest.lookup_request import QUERY_HASHES_MAX
from schemas.lookup import LookupQuery

if TYPE_CHECKING:
    from numpy.typing import NDArray

BODY_MAX: Final = 4 * 2**20
"""A parser keeps buffers of several times its largest document; 131,072 hashes take 2.8 MB."""
HASHES: Final = "block_hashes"
_NAME: Final = b'"block_hashes"'
_U64: Final = np.dtype(np.uint64)


class PlainHashes:
    """One reusable parser; not for two threads."""

    def __init__(self) -> None:
        self._parser = simdjson.Parser(max_capacity=BODY_MAX)

    def read(self, body: bytes) -> LookupQuery | None:
        """The question, or None when this body must go the strict way."""
        if body[:1] != b"{" or _NAME not in body or len(body) > BODY_MAX:
            return None
        if body.find(b"[", body.find(b"[") + 1) >= 0:
            return None  # with one bracket there is no array in the array, which the parser would flatten
        try:
            # No proxy of the parser may outlive this call, or it refuses the next document.
            document = self._parser.parse(body)
            if not isinstance(document, simdjson.Object):
                return None
            hashes, options = _hashes(document), plain_options(document, HASHES)
        except (ValueError, TypeError, RuntimeError, KeyError):
            self._parser = simdjson.Parser(max_capacity=BODY_MAX)
            return None
        if hashes is None or not _is_plain(options):
            return None
        return LookupQuery(block_hashes=memoryview(hashes), scheme="dynamo", **options)  # type: ignore[arg-type]  # checked


def _hashes(document: simdjson.Object) -> NDArray[np.uint64] | None:
    """As u64, whether they are all signed or all unsigned."""
    array = document[HASHES]
    if not isinstance(array, simdjson.Array) or len(array) > QUERY_HASHES_MAX:
        return None
    try:
        image = array.as_buffer(of_type="i")
    except (ValueError, TypeError, RuntimeError):
        image = array.as_buffer(of_type="u")
    return np.frombuffer(image, _U64)


def _is_plain(options: dict[str, Any] | None) -> bool:
    """Whether it is a question of Dynamo's that hashes alone answer."""
    return options is not None and not {"block_size", "cache_salt"} & options.keys()
