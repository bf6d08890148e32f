"""The grammar of Kubernetes' label selectors, so that a wrong one is told at the start and not by an API server. Pure.

app=vllm,tier in (gpu, cpu),!canary,model!=small,engine notin (trt),example.com/role
"""

from __future__ import annotations

import re
from typing import Final

SELECTOR_MAX: Final = 2_048

_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_KEY: Final = rf"(?:[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_NAME}"
_VALUE: Final = rf"(?:{_NAME})?"
_ONE: Final = re.compile(
    rf"\s*(?:!\s*(?:{_KEY})|(?:{_KEY})(?:\s*(?:==|=|!=)\s*{_VALUE}|\s+(?:in|notin)\s*\(\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*\))?)\s*"
)
_KEY_ALONE: Final = re.compile(_KEY)


def check_selector(text: str) -> str | None:
    """What is wrong with it; None where nothing is."""
    if len(text) > SELECTOR_MAX:
        return f"a label selector has at most {SELECTOR_MAX} characters"
    place = 0
    while True:
        match = _ONE.match(text, place)
        end = place if match is None else match.end()
        if match is None or (end < len(text) and text[end] != ","):
            form = "a label selector wanted, as app=vllm or role in (prefill, decode)"
            return f"{form}: not read from character {end + 1} on"
        if end == len(text):
            return None
        place = end + 1


def is_label_name(text: str) -> bool:
    """Whether a label can have it for its name."""
    return _KEY_ALONE.fullmatch(text) is not None
