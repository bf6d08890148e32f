"""What is told of a source in an operator's words: why it is not live and exact, and what should be looked at. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from indexer.index.states import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from indexer.index.registry import Registry
    from indexer.index.source import SourceIndex
    from indexer.index.states import SourceFacts
    from indexer.lookup_view import Prepared

DOUBTS: Final[Mapping[str, str]] = {
    "gap": "a gap: messages were lost and could not be fetched again",
    "sequence_jump": "its batch numbers jumped",
    "process_unproven": "after an absence it is not sure that the same engine process is back",
    "dropped": "more arrived than could be kept, and some was dropped",
    "replay_differs": "its replay endpoint has other batches than arrive",
    "undecodable": "a message could not be decoded",
    "unknown_kind": "it sent an event of a kind that is not known",
    "event_malformed": "it sent an event that could not be read",
    "event_too_large": "it sent an event that is too large to be read",
    "stored_malformed": "it announced blocks in a form that could not be read",
    "removed_malformed": "it took back blocks in a form that could not be read",
    "hash_contradiction": "it used one block hash for two contents",
    "group_contradiction": "its events name cache groups in ways that contradict each other",
    "drift": "engines were reported to reuse something else than was claimed of it (GET /v1/reports/consistency)",
    "over_capacity": "it holds more than its blocks_total: removals were not announced, or that is set too low",
    "announced_again": "it computed blocks anew that it is known to hold, and took none back: removals may not be told",
    "fault": "an event could not be applied by a fault of this service, whose log says where",
}
"""Reasons of `SourceFacts.doubts` and `suspicions`."""

SHORTFALLS: Final[Mapping[str, str]] = {
    "store": "a part of its map was gone from the store",
    "waiting": "blocks wait for the announcement of the block before them, or of their tokens",
    "orphans": "more blocks waited for the block before them than limits.orphans allows",
    "cleared_by_operator": "an operator cleared it, and what it held before is not announced again",
    "forgotten": "it was gone so long that what it held was forgotten (staleness.retain_s)",
    "cleared_at_gap": "messages were lost and what was known was cleared (events.gap_policy)",
    "expired": "blocks of a tier without removals were given up after their time (staleness.entry_ttl_s)",
    "lanes": "it has more cache groups and tiers than can be kept apart",
    "self_reference": "it announced a block as its own parent",
    "block_size_changed": "it announced blocks of another size than before",
    "lookahead_changed": "it announced blocks whose hashes look further ahead than before",
}
"""Reasons of `SourceFacts.shortfalls`."""


StandingWarning = Literal[
    "replay",
    "endpoint_shared",
    "model",
    "replay_shared",
    "capacity",
    "unannounced",
    "waiting",
    "served_model",
    "served_names",
]
"""What follows from a registration, and from what is held."""
NAMES_SHOWN: Final = 3
NO_REPLAY: Final = "no replay endpoint: lost batches cannot be fetched again, nor what was published before the start"


def reason_in_words(facts: SourceFacts, view: Prepared, *, followed: bool = False) -> str | None:
    """What made the state or bound less than live and exact, in a sentence. `followed`: another replica owns it."""
    if facts.is_withheld:
        return _why_withheld(facts)
    if view.state == "new" or facts.is_approximate:
        return _why_silent(facts)
    if view.state == "syncing":
        return "its map is being read from the store" if facts.loading else "a replay or probe is under way"
    if view.state in {"stale", "down"}:
        return _why_stale(facts, view, followed=followed)
    if facts.in_doubt:
        return "something claimed may be false: " + _told(facts.doubts | facts.suspicions, DOUBTS)
    if facts.rule_missing:
        return "the hit rule of one of its cache groups is not known"
    if facts.shortfalls:
        return "something held may be missing: " + _told(facts.shortfalls, SHORTFALLS)
    return None if facts.complete else "its history before our first message is not known"


def _why_withheld(facts: SourceFacts) -> str:
    if facts.cordoned:
        return "cordoned by an operator"
    return f"not ready: {facts.unready_why}" if facts.unready_why else "not ready"


def _why_silent(facts: SourceFacts) -> str:
    if facts.is_approximate:
        return "its engine never announced anything (models.approximate): what was routed to it is all that is known"
    return "connected, and no message yet" if facts.connected else "not connected yet"


def _why_stale(facts: SourceFacts, view: Prepared, *, followed: bool) -> str:
    if view.state == "stale" and facts.reloading:
        return "what is known may be behind the store's journal, and is read anew"
    if not facts.connected:
        return "the connection is lost"
    if view.state == "stale" and facts.lease_until != NEVER:
        return "the store does not confirm that this replica still owns it: others may know more"
    if followed:  # its connection may be well: the owner or the store may be what is silent
        return "nothing was heard of it lately from the replica that owns it"
    return "the connection was not seen up lately"


def warnings_of(source: SourceIndex, registry: Registry) -> dict[str, str]:
    """What an operator should look at, by a key that stays while the words may change."""
    warnings = dict(source.warnings)
    warnings.update(_standing(source, registry).items())
    if source.facts.is_approximate:
        warnings.pop("replay", None)  # of an engine that announces nothing, nothing is lost
    return warnings


def listed_warnings(source: SourceIndex, registry: Registry) -> dict[str, str]:
    """The same as lists and the answer to a registration show them, before and wherever its sockets are opened."""
    described = source.descriptor
    unasked = described.endpoint is not None and described.replay_endpoint is None and not source.facts.is_approximate
    return {**({"replay": NO_REPLAY} if unasked else {}), **warnings_of(source, registry)}


def _standing(source: SourceIndex, registry: Registry) -> dict[StandingWarning, str]:
    out: dict[StandingWarning, str] = {}
    neighbours = registry.neighbours(source.descriptor)
    if neighbours is not None:
        first, others = neighbours
        more = f" and of {others - 1} more" if others > 1 else ""
        out["endpoint_shared"] = f"its endpoint is also that of {first}{more}: one engine under several names"
    if source.model is None and registry.has_models(source.descriptor.tenant):
        out["model"] = "no model, and others have one: it answers for none, and is never named; give it its model"
    heard = registry.publishes_at(source.descriptor.replay_endpoint, source.descriptor.tenant)
    if heard is not None:
        whose = "its own" if heard == source.descriptor.id else f"that of {heard}"
        out["replay_shared"] = f"its replay endpoint is the endpoint of events, {whose}: no engine binds one port twice"
    told, gpu = source.descriptor.blocks_total, source.gpu_lane
    if told is None and source.engine_blocks is None and not source.facts.is_approximate:
        out["capacity"] = (
            "capacity unknown (blocks_total): once messages are lost for good, blocks that are gone cannot be told "
            "from blocks that are held"
        )
    elif gpu is not None and source.holds_too_much:
        out["capacity"] = (
            f"holds {gpu.pairs} blocks in GPU memory, more than its blocks_total of {told}: removals were not "
            "announced, or that is set too low"
        )
    if source.has_unannounced_ends:
        out["unannounced"] = (
            "it stores in a tier whose producers announce no removals (staleness.entry_ttl_s): what is matched there "
            "may be gone, and has the bound `upper`"
        )
    out.update(_of_names(source, registry))
    if source.map.waiting:
        out["waiting"] = f"{source.map.waiting} blocks wait for a parent or for tokens"
    return out


def _of_names(source: SourceIndex, registry: Registry) -> dict[StandingWarning, str]:
    """What its engine says it serves, beside what it was registered with and what others are called."""
    out: dict[StandingWarning, str] = {}
    served, model, tenant = source.serves, source.model, source.descriptor.tenant
    if served is None or model is None:
        return out
    if model not in served.names and not any(registry.is_alias(name, model) for name in served.names):
        shown = ", ".join(served.names[:NAMES_SHOWN])
        out["served_model"] = f"its model is {model}, and its engine serves {shown}: another engine's address?"
    others = [name for name in served.names if name != model and registry.means(name, tenant) != model]
    others += [name for name in served.adapters if registry.means(name, tenant) is not None]
    if others:
        first, more = others[0], f" (and {len(others) - 1} more)" if len(others) > 1 else ""
        meant = registry.means(first, tenant)
        out["served_names"] = f"its engine also serves {first}{more}, and who asks for that is answered for {meant}"
    return out


def _told(reasons: Iterable[str], words: Mapping[str, str]) -> str:
    return "; ".join(words.get(reason, reason) for reason in sorted(reasons))
