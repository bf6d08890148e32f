"""The few errors, with facts as fields, sorted by who must act. Translated once, at the edge (api/problems.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

Failure = TypeVar("Failure", bound=BaseException)


class IndexerError(Exception):
    """Root of all errors of this service. Never raised itself."""


def first_of(group: BaseExceptionGroup[Failure]) -> Failure:
    """What ended a group of tasks, out of its wrappings: the others follow from it or are like it."""
    first: Failure | BaseExceptionGroup[Failure] = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


class FieldIssue(msgspec.Struct, frozen=True):
    """One thing wrong with one field: shown to the caller, so `got` is cut short and never holds tokens or secrets."""

    field: str
    rule: str
    got: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        """All of it in one line for a person: which field, what would be right, what came, what to do."""
        got = "" if self.got is None else f" wanted, got {self.got}"
        return f"{self.field}: {self.rule}{got}" + ("" if self.hint is None else f" ({self.hint})")


class BadRequestError(IndexerError):
    """The caller must change the request. `code` is stable and dotted, e.g. `token_ids.not_u32`."""

    def __init__(self, code: str, issues: Sequence[FieldIssue], detail: str | None = None) -> None:
        super().__init__(detail or "; ".join(map(str, issues)))
        self.code = code
        self.issues = tuple(issues)


class SourceUnknownError(IndexerError):
    """No source goes by that name (and rank)."""

    def __init__(self, pod: str, dp_rank: int | None = None) -> None:
        super().__init__(f"no source is known as {pod!r}" + ("" if dp_rank is None else f" with dp_rank {dp_rank}"))
        self.pod = pod
        self.dp_rank = dp_rank


class NotRoutedError(SourceUnknownError):
    """A report names no pod, and where its request went is not known."""

    def __init__(self) -> None:
        super().__init__("")
        self.args = ("no lookup of that request_id is known here that was reported as routed: name the pod",)


class SourceConflictError(IndexerError):
    """A registration contradicts what stands: `rule` says what, `field` where, `hint` the way out if there is one."""

    def __init__(self, field: str, rule: str, *, hint: str | None = None) -> None:
        super().__init__(f"{field}: {rule}" + (f"; {hint}" if hint else ""))
        self.field = field
        self.rule = rule
        self.hint = hint


class SourceElsewhereError(IndexerError):
    """Another replica applies this source's events, and it alone has what was asked: `owner`, where known."""

    def __init__(self, pod: str, owner: str | None) -> None:
        super().__init__(f"this replica only follows {pod!r}" + (f"; ask replica {owner}" if owner else ""))
        self.pod = pod
        self.owner = owner


class SourceSyncingError(IndexerError):
    """This process is about to apply a source's events, and has not all of what was asked for yet."""

    def __init__(self, pod: str) -> None:
        super().__init__(f"what {pod!r} holds is being loaded")
        self.pod = pod


class ReplicaUnknownError(IndexerError):
    """No replica of the deployment goes by that name; `nearest` is a known one much like it."""

    def __init__(self, name: str, nearest: str | None = None) -> None:
        super().__init__(f"no replica is known as {name!r}")
        self.name = name
        self.nearest = nearest


class DrainRefusedError(IndexerError):
    """A replica cannot be drained as things stand: `rule` says why."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


class SchemeConflictError(IndexerError):
    """The question's hash scheme cannot be used in this deployment: `rule` says why."""

    def __init__(self, rule: str) -> None:
        super().__init__(f"scheme: {rule}")
        self.rule = rule


class LimitReachedError(IndexerError):
    """A limit refuses more: `limit` is its settings name, `retry_s` when asking again may help."""

    def __init__(self, limit: str, value: int, retry_s: float = 10.0, *, code: str = "limit.reached") -> None:
        super().__init__(f"limit {limit} = {value} reached")
        self.code = code
        self.limit = limit
        self.value = value
        self.retry_s = retry_s


class TooManyRemovalsError(IndexerError):
    """An exchange of sources would take out more than may go, however long one waits.

    `sources` would be removed or registered anew. `pods`: of so many of their pods blocks are known, more than
    `limits.max_clears_per_minute`; None where `limit` is what the caller allowed itself.
    """

    def __init__(self, sources: int, limit: int, *, pods: int | None = None) -> None:
        what = (
            f"remove or register anew more sources ({sources}) than max_removals = {limit} allows"
            if pods is None
            else f"forget the blocks of {pods} pods, more than the {limit} that limits.max_clears_per_minute allows"
        )
        super().__init__(f"this would {what}: nothing was changed")
        self.sources = sources
        self.limit = limit
        self.pods = pods


class SettingsError(IndexerError):
    """The operator must change a setting: `key` is its dotted path."""

    def __init__(self, key: str, rule: str) -> None:
        super().__init__(f"{key}: {rule}")
        self.key = key
        self.rule = rule
