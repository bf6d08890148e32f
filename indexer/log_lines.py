"""What a line of the log is about: an event out of a closed list, and the names it has to do with. Pure.

The sentence is for people and may change; events and fields are for machines. Nothing of a prompt, no token, salt or
secret is put in either.
"""

from __future__ import annotations

import logging
from typing import Final, Literal, NamedTuple, Protocol, TypedDict, Unpack

Event = Literal[
    "caller_gone",
    "certificate_read",
    "certificate_unusable",
    "clears_refused",
    "command_unreadable",
    "discovery_failing",
    "discovery_handed_over",
    "discovery_remark",
    "discovery_watching",
    "discovery_works",
    "event_skipped",
    "files_limited",
    "library",
    "lines_left_out",
    "listening",
    "metrics_failing",
    "metrics_taken",
    "partition_asserted",
    "partition_lost",
    "partition_owned",
    "partition_reread",
    "partition_trouble",
    "replica_drained",
    "replica_undrained",
    "replicas_changed",
    "replicas_differ",
    "request_failed",
    "requests_refused",
    "settings_remark",
    "source_appeared",
    "source_cleared",
    "source_cordoned",
    "source_damaged",
    "source_discovered",
    "source_rediscovered",
    "source_registered",
    "source_removed",
    "source_restarted",
    "source_rewritten",
    "source_state",
    "source_uncordoned",
    "source_undiscovered",
    "source_warning",
    "sources_replaced",
    "stopped",
    "stopping",
    "store_answers",
    "store_failing",
    "store_key_taken",
    "store_ready",
    "store_unwritten",
    "tokenizer_failing",
    "tokenizer_works",
    "tokens_read",
    "tokens_unusable",
    "topics_refused",
    "traces_failing",
    "traces_taken",
]

EVENTS: Final[dict[Event, str]] = {
    "caller_gone": "A caller hung up before its answer was sent (debug).",
    "certificate_read": "Changed files of `auth.tls` are in use.",
    "certificate_unusable": "Changed files of `auth.tls` cannot be used; the old ones stay.",
    "clears_refused": "`limits.max_clears_per_minute` is reached.",
    "command_unreadable": "A command in the store is not in this version's form.",
    "discovery_failing": "An orchestrator or name server cannot be heard; told once a change, where it lasts.",
    "discovery_handed_over": "Another process looks for engines, or none may for now.",
    "discovery_remark": "Something that discovery found and could not register, or not as it was told.",
    "discovery_watching": "This process is the one that looks for engines.",
    "discovery_works": "It is heard again.",
    "event_skipped": "A fault of ours in applying an event; it alone was left out.",
    "files_limited": "The limit on open files is too low for this fleet.",
    "library": "A library's own line: HTTP, gRPC, the event loop.",
    "lines_left_out": "So many lines of that level more than are written in a second.",
    "listening": "Connections are accepted from now on.",
    "metrics_failing": "The collector does not take metrics; told once a change.",
    "metrics_taken": "It takes them again.",
    "partition_asserted": "A partition is written anew from memory, as the store is not as it was left.",
    "partition_lost": "Another replica, or nobody, owns a partition that was owned here.",
    "partition_owned": "A partition is owned here from now on.",
    "partition_reread": "A followed partition is read anew, as its journal does not go on.",
    "partition_trouble": "Why a partition cannot be owned; told once.",
    "replica_drained": "A replica was told to give up what it owns.",
    "replica_undrained": "A replica may own again.",
    "replicas_changed": "Replicas came or went; partitions are shared out anew.",
    "replicas_differ": "A replica is configured with other sources than this one.",
    "request_failed": "A fault of ours in answering a request.",
    "requests_refused": "How many requests were refused for who asked, since the last such line.",
    "settings_remark": "A setting that is allowed and should be looked at.",
    "source_appeared": "An engine came by its topic on a bound socket.",
    "source_cleared": "A caller had a source forget what was applied.",
    "source_cordoned": "A source is not scored from now on.",
    "source_damaged": "What the store has of a source is incomplete or cannot be read.",
    "source_discovered": "Discovery registered a source, or registered it otherwise.",
    "source_rediscovered": "Discovery says of a source that it is ready or not, another process, or called otherwise.",
    "source_registered": "A caller registered a source.",
    "source_removed": "A source is gone for good.",
    "source_restarted": "An engine restarted: another generation begins.",
    "source_rewritten": "A source's map, or its registration, is written to the store anew.",
    "source_state": "A source's state or bound is another than at the last look.",
    "source_uncordoned": "A source is scored again.",
    "source_undiscovered": "Discovery removed a source that nobody tells of any more.",
    "source_warning": "Something about a source that should be looked at; also shown by `GET /v1/sources`.",
    "sources_replaced": "A caller replaced the list of sources.",
    "stopped": "All is written and closed.",
    "stopping": "Told to stop: what is under way may end.",
    "store_answers": "The store answers again.",
    "store_failing": "The store does not answer, or refuses; told once a change.",
    "store_key_taken": "A key of ours in the store holds something of somebody else.",
    "store_ready": "The store serves, and other replicas agree.",
    "store_unwritten": "The store did not take the rest before the stop.",
    "tokenizer_failing": "An engine asked for the tokens of a text gives none.",
    "tokenizer_works": "It gives them again.",
    "tokens_read": "Changed tokens of `auth.tokens_file` are in force.",
    "tokens_unusable": "The changed file of tokens cannot be used; those of before stay.",
    "topics_refused": "An engine that came by its topic was not let in.",
    "traces_failing": "The collector of traces does not take them; told once a change.",
    "traces_taken": "It takes them again.",
}
"""What each means."""


class About(TypedDict, total=False):
    """Names that a line has to do with, those that apply. `source` is of one source, however it is told."""

    source: object
    model: str | None
    partition: int
    request_id: str | None
    trace_id: str | None


class Line(NamedTuple):
    """What a record of the log carries beside its sentence."""

    event: Event
    named: About


Extra = dict[str, Line]


def about(event: Event, **named: Unpack[About]) -> Extra:
    """As `extra` of a call of the logger."""
    return {"line": Line(event, named)}


def line_of(record: logging.LogRecord) -> Line:
    """What it carries; a library's carries nothing."""
    line: object = getattr(record, "line", None)
    return line if isinstance(line, Line) else _LIBRARY


_LIBRARY: Final = Line("library", {})


OF_COLLECTORS: Final[frozenset[Event]] = frozenset(
    {"traces_failing", "traces_taken", "metrics_failing", "metrics_taken"}
)


class Say(Protocol):
    """A line of the log, or one of too many."""

    def __call__(self, extra: Extra, text: str, *arguments: object, level: int = logging.INFO) -> None:
        """As `Logger.log` has it."""
        ...
