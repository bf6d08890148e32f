"""From a client's request, as the gateway has it, to the question whose prompt it is. Pure.

Only what OpenAI's clients send to complete a text is read. Of anything else the model counts, if it names one.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import msgspec

from api.pick.openai_body import CUT_BYTES_MAX, question
from api.rest.header_options import add_header_options
from indexer.errors import BadRequestError
from schemas.lookup import LookupQuery
from schemas.rest import TEXT_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from api.epp.conversation import Wanted

COMPLETIONS: Final = b"/completions"
"""How the paths of both kinds end, whatever a gateway puts before them."""
WHOLE_BYTES_MAX: Final = 2 * 2**20
"""A longer body is read up to `CUT_BYTES_MAX`: either takes some milliseconds of the loop."""
MODEL_HEADERS: Final = (b"x-gateway-model-name-rewrite", b"x-gateway-model-name")
"""Where gateways that read bodies themselves put a model."""


def question_of(wanted: Wanted, tokens_max: int) -> LookupQuery:
    """The question; one without a prompt, and thus about load alone, where that is not understood."""
    body, cut = _beginning(wanted.body)
    asked = None
    path = wanted.headers.get(b":path", COMPLETIONS).partition(b"?")[0].rstrip(b"/")
    if body and path.endswith(COMPLETIONS):
        asked = question(body, cut=cut or wanted.cut, tokens_max=tokens_max)
    if asked is None:
        asked = LookupQuery(tokens=b"", model=None if cut else _model_in(body))
    if asked.model is None:
        asked.model = _model_told(wanted.headers)
    asked.pods = wanted.subset
    _add_options(asked, wanted.headers)
    return asked


def is_about_load(asked: LookupQuery) -> bool:
    """Whether it tells no prompt."""
    return asked.text is None and not asked.tokens


def _beginning(parts: Sequence[bytes]) -> tuple[bytes, bool]:
    """As much of a body as is read, in one step, and whether there is more."""
    if sum(map(len, parts)) <= WHOLE_BYTES_MAX:
        return b"".join(parts), False
    kept, left = [], CUT_BYTES_MAX
    for part in parts:
        kept.append(part[:left])
        left -= len(kept[-1])
        if not left:
            break
    return b"".join(kept), True


class _Model(msgspec.Struct):
    model: str | None = None


def _model_in(body: bytes) -> str | None:
    try:
        model = msgspec.json.decode(body, type=_Model).model if body else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return model if model and len(model) <= TEXT_MAX else None


def _model_told(headers: Mapping[bytes, bytes]) -> str | None:
    for name in MODEL_HEADERS:
        if 0 < len(headers.get(name, b"")) <= TEXT_MAX:
            return headers[name].decode("utf-8", "replace")
    return None


def _add_options(asked: LookupQuery, headers: Mapping[bytes, bytes]) -> None:
    """What headers say beside the body; where they contradict it, the body counts: engines read that."""
    with contextlib.suppress(BadRequestError):
        add_header_options(asked, headers)
