"""What can go wrong with the store, as one error with facts. Pure."""

from __future__ import annotations

from typing import Final, Literal

from indexer.errors import IndexerError

FailureKind = Literal[
    "unreachable", "timeout", "circuit_open", "loading", "out_of_memory", "read_only", "denied", "unfit", "refused"
]

MEANINGS: Final[dict[FailureKind, str]] = {
    "unreachable": "no connection, or it broke",
    "timeout": "no answer within the deadline",
    "circuit_open": "not asked, because it failed several times just now",
    "loading": "it starts or changes roles",
    "out_of_memory": "it has no memory left and, rightly, evicts nothing",
    "read_only": "it is a replica, or cannot save",
    "denied": "user or password are wrong, or lack a right",
    "unfit": "it is not what this service needs",
    "refused": "it answered with an error",
}
WRONG_TYPE: Final = "WRONGTYPE"
"""Detail of a failure: a key holds something of another type, which somebody else put there."""


class StoreFailure(IndexerError):
    """The store did not do what was asked. Nothing of the address, keys or values is in the text.

    `may_be_done`: the answer was not seen, so the call may have had its effect. All calls are made so that the same
    call again does no harm.
    """

    def __init__(self, kind: FailureKind, detail: str = "", *, may_be_done: bool = False) -> None:
        super().__init__(f"the store: {MEANINGS[kind]}" + (f" ({detail})" if detail else ""))
        self.kind = kind
        self.detail = detail
        self.may_be_done = may_be_done


class DamagedValue(ValueError):
    """Bytes in the store that this version did not write: `what` names the kind, never the content."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: not in the form of layout version 1")
        self.what = what
