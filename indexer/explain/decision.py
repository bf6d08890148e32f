"""From facts about one source to findings, the one that decides first. Pure.

What is seen goes before what may be: that a block was removed is a fact, that its announcement was in a lost batch is
a guess, and that it never came is what is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from indexer.explain.codes import ADVICE
from indexer.index.removals import Why
from indexer.source_words import DOUBTS, SHORTFALLS
from schemas.explain import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from indexer.explain.codes import Code
    from indexer.explain.facts import Began, Facts, Gone, How, Miss

LATELY_S: Final = 600.0
"""A clear or restart explains the miss of what was held before; of one longer ago it is only told."""
MANY_HELD: Final = 16
"""Blocks: who holds so many, and none that begins like the prompt, may be asked for other tokens than it computes."""
_TOLD_BY_ITSELF: Final = frozenset(
    {"waiting", "expired", "store", "cleared_by_operator", "forgotten", "cleared_at_gap"}
)
"""Shortfalls that have a code of their own."""
_TRUST: Final = frozenset({"stale", "gap", "in_doubt"})
_ALL_IS_WELL: Final = frozenset({"complete", "last_token"})
UNSCORED: Final[Mapping[Code, str]] = {
    "no_events_yet": "nothing was heard of it yet, so nothing is known of what it holds",
    "down": "it gave no sign of life{silent}, and is not scored until it does",
    "cordoned": "an operator has taken it out of the scores",
    "not_ready": "its pod is not ready",
    "lagging": "the newest proof that nothing is missing is {lag} old, more than max_lag_ms allows",
    "deadline": "the deadline passed before the question could be answered for it",
    "approximate": "its engine announces nothing, and what was routed there alone says what it may hold",
    "other_model": "it serves another model than the one asked about",
    "model_unknown": "nobody serves the model that was named",
    "filtered": "pod_roles, or an empty pods, leaves it out",
    "pod_unknown": "no source goes by that name, or has that rank",
    "other_block_size": "the block hashes are of another block size than its own of {size}",
    "block_size_unknown": "it has announced no block yet that tells its block size",
    "adapter_unknown": "no source has announced a block of this adapter",
    "below_block_size": "the prompt's {tokens} tokens are less than one block of {size}",
    "lookahead": "its hashes cover tokens beyond a block's end: the prompt is too short, or hashes alone do not do",
}
"""By reason of the lookup, where that is all there is to say."""
_BEGAN: Final[Mapping[How, str]] = {
    "engine_clear": "the engine dropped all its blocks{ago}",
    "operator_clear": "an operator had it forgotten{ago}: the engine may hold it still, and announces no block twice",
    "gap_clear": "messages were lost and all that was known was dropped{ago} (events.gap_policy: clear)",
    "forgotten": "it was gone for so long that what was known was dropped{ago} (staleness.retain_s)",
    "restart": "a new process of the engine began{ago}: what the one before held is gone, and the block may have been "
    "among it",
}


def decide(facts: Facts) -> list[Finding]:
    """All findings, the one that decides first; never empty."""
    entry = facts.entry
    if facts.changed:
        return [_finding("syncing", "what is known of it changed while this was answered"), *_common(facts)]
    unscored = next((code for code in UNSCORED if code == entry.reason), None)
    if unscored is not None:
        elsewhere = [] if facts.miss is None else list(_seen(facts, facts.miss))
        return [*elsewhere, _unscored(facts, unscored), *_common(facts)]
    if facts.miss is None:
        further = list(_beside(facts))
        return [_as_far_as_trusted(_whole(facts), further), *further]
    found = [*_seen(facts, facts.miss), *_possible(facts)]
    old = None if facts.began is None else _began(facts.began)
    if not found:
        found = [_never(facts)]
    if old is not None and old not in found:
        found.append(old)
    return [*found, *_start(facts, facts.miss), *_beside(facts, {each.code for each in found})]


def _finding(code: Code, why: str) -> Finding:
    return Finding(code=code, why=why, advice=ADVICE[code])


def _unscored(facts: Facts, code: Code) -> Finding:
    entry = facts.entry
    why = UNSCORED[code].format(
        silent="" if facts.silent_s is None else f" for {_span(facts.silent_s)}",
        lag="not known" if entry.lag_ms is None else _span(entry.lag_ms / 1_000),
        size=entry.block_size,
        tokens=facts.prompt_tokens,
    )
    return _finding(code, why)


def _whole(facts: Facts) -> Finding:
    """No block is missing."""
    entry = facts.entry
    size = entry.block_size or 1
    expected = entry.matched_tokens
    if not facts.partial:
        expected = min(expected, max(0, facts.prompt_tokens - 1) // size * size)
    if facts.blocks is None:
        return _finding("syncing", "its map is being read, and its block size is not known yet")
    if entry.reusable_tokens < expected:
        why = f"all {facts.blocks} whole blocks are held, and {entry.reusable_tokens} tokens of them can be used: the "
        return _finding("hybrid_group", why + "windows of other cache groups hold too little of what is behind these")
    if expected < entry.matched_tokens:
        why = f"all {facts.blocks} whole blocks are held; the last is computed again, for its last token"
        return _finding("last_token", why)
    return _finding("complete", f"all {facts.blocks} whole blocks of the prompt are held")


def _as_far_as_trusted(whole: Finding, further: Sequence[Finding]) -> Finding:
    """Where it is in doubt that all is held, the doubt says what to do."""
    doubt = next((each for each in further if each.code in _TRUST), None)
    if doubt is None or whole.code not in _ALL_IS_WELL:
        return whole
    return Finding(code=whole.code, why=f"{whole.why}, if what is known of it is right", advice=doubt.advice)


# -- what is seen ------------------------------------------------------------------------------------------------------


def _seen(facts: Facts, miss: Miss) -> Iterator[Finding]:
    """Facts about the block itself, the strongest first."""
    if miss.gone is not None:
        yield _went(miss.block, miss.gone, followed=facts.followed)
    if miss.groups is not None:
        held, wanted = (", ".join(map(str, groups)) for groups in miss.groups)
        why = f"block {miss.block} is held by cache group {held} and not by {wanted}, which must hold it, too"
        yield _finding("hybrid_group", why)
    if miss.elsewhere is not None:
        how, adapter, tokens = miss.elsewhere
        if how == "salt":
            yield _finding("other_salt", f"{tokens} tokens of the prompt are held without a cache salt")
        else:
            name = "without an adapter" if adapter is None else f"under the adapter {adapter!r}"
            yield _finding("other_adapter", f"{tokens} tokens of the prompt are held {name}")
    if miss.waits:
        yield _finding("waiting", f"block {miss.block} was announced, and the block before it is not known")


def _went(block: int, gone: Gone, *, followed: bool) -> Finding:
    where = f"block {block} went from {gone.tier} {_span(gone.ago_s)} ago"
    if gone.why is Why.GIVEN_UP:
        return _finding("given_up", f"{where}: after a loss it could not be told from a block that is gone")
    # A journal tells that presence ended, not why: of a tier with a time to live that is how it ends.
    if gone.why is Why.EXPIRED or (followed and gone.ttl_s is not None):
        life = "" if gone.ttl_s is None else f" of {_span(gone.ttl_s)}"
        return _finding("expired", f"{where}, at the end of its time to live{life}")
    return _finding("evicted", f"{where}: the engine removed it")


# -- what may be -------------------------------------------------------------------------------------------------------


def _possible(facts: Facts) -> Iterator[Finding]:
    """Reasons for which the block may have been announced and not be known, or gone before this life."""
    miss = facts.miss
    if miss is None or miss.gone is not None or miss.groups is not None or miss.elsewhere is not None or miss.waits:
        return
    yield from _missed(facts)
    if miss.block == 0 and facts.begins_salted and not facts.begins_plain:
        yield _finding("other_salt", "all prompts that it was heard to hold begin with a cache salt, and not with this")
    yield from _before(facts)
    others = sorted(facts.shortfalls - _TOLD_BY_ITSELF)
    if others:
        why = "; ".join(SHORTFALLS.get(each, f"an event could not be used ({each})") for each in others)
        yield _finding("not_indexed", why)


def _missed(facts: Facts) -> Iterator[Finding]:
    """It may have been announced in this life, and not heard."""
    if facts.entry.state == "syncing":
        yield _finding("syncing", "a replay, a probe or a load from the store is under way")
    if facts.entry.state == "stale":
        yield _stale(facts)
    if "gap" in facts.doubts:
        yield _gap(facts)
    others = facts.doubts - {"gap"}
    if others:
        yield _doubt(others)


def _before(facts: Facts) -> Iterator[Finding]:
    """It may be of before what is known."""
    began = facts.began
    by_engine = began is None or began.how in {"engine_clear", "restart"}
    if began is not None and (not by_engine or (began.ago_s is not None and began.ago_s <= LATELY_S)):
        yield _began(began)
    if "store" in facts.shortfalls:
        yield _finding("history_truncated", SHORTFALLS["store"])
    elif not facts.complete and by_engine:
        batch = "" if facts.joined_at is None else f", at batch {facts.joined_at}"
        yield _finding("history_truncated", f"this service joined in the middle of its life{batch}")


def _never(facts: Facts) -> Finding:
    """What is left."""
    miss, known_s = facts.miss, facts.removals_known_s
    why = f"block {0 if miss is None else miss.block} was not announced in this life of the engine"
    if not facts.removals_kept:
        why += ", or went: removals are not kept here (limits.removals_kept)"
    elif known_s is not None:
        why += f", or went more than {_span(known_s)} ago: removals of before are not known (limits.removals_kept)"
    if facts.followed:
        why += "; another replica applies its events, and its journal tells only of what was placed"
    return _finding("never_stored", why)


def _began(began: Began) -> Finding:
    code: Code = "restarted" if began.how == "restart" else "cleared"
    return _finding(code, _BEGAN[began.how].format(ago="" if began.ago_s is None else f" {_span(began.ago_s)} ago"))


# -- what else should be known -----------------------------------------------------------------------------------------


def _start(facts: Facts, miss: Miss) -> Iterator[Finding]:
    """Not even the first block, of an engine that holds many."""
    if miss.block or miss.gone is not None or miss.groups is not None or miss.elsewhere is not None:
        return
    held = facts.blocks_held
    if facts.begins_salted and facts.begins_plain:
        yield _finding("other_salt", "some of the prompts that it holds begin with a cache salt, and not with this")
    if held < MANY_HELD and not miss.starts_held_by:
        return
    if miss.starts_held_by:
        others = f"{', '.join(miss.starts_held_by)} hold the first block" + ("" if held else "; it holds nothing")
        yield _finding("start_differs", f"of {held} blocks that it holds none begins like this prompt, while {others}")
    else:
        yield _finding(
            "start_differs", f"of {held} blocks that it holds none begins like this prompt, nor does another's"
        )


def _beside(facts: Facts, told: AbstractSet[str] = frozenset()) -> Iterator[Finding]:
    """Of what is matched, and of the source."""
    entry = facts.entry
    outside = entry.matched_tokens - entry.tiers.gpu
    if outside:
        tiers = {"cpu": entry.tiers.cpu, "storage": entry.tiers.storage, "remote": entry.tiers.remote}
        where = [f"{tokens} in {tier}" for tier, tokens in (tiers | {"unknown": entry.tiers.unknown}).items() if tokens]
        why = f"of {entry.matched_tokens} matched tokens {', '.join(where)}, and not in GPU memory"
        yield _finding("tier_only", why)
    if facts.rule_missing and "hybrid_group" not in told:
        yield _finding("hybrid_group", "the hit rule of one of its cache groups is not known: it may reuse less")
    yield from (each for each in _common(facts) if each.code not in told)


def _common(facts: Facts) -> Iterator[Finding]:
    """Of the source, whatever it holds."""
    expected = facts.entry.speculative_tokens
    if expected:
        yield _finding("speculative", f"{expected} tokens are expected to be held soon, by what was routed there")
    if facts.entry.state == "stale":
        yield _stale(facts)
    if "gap" in facts.doubts:
        yield _gap(facts)
    others = facts.doubts - {"gap"}
    if others:
        yield _doubt(others)
    if facts.waiting:
        why = f"announced and not placed yet, for want of the block before or of tokens: {facts.waiting} of its blocks"
        yield _finding("waiting", why)


def _stale(facts: Facts) -> Finding:
    span = "" if facts.silent_s is None else f" for {_span(facts.silent_s)}"
    return _finding("stale", f"nothing proves{span} that what is known of it is all: it may hold more, or less")


def _gap(facts: Facts) -> Finding:
    gaps, batches = facts.lost
    count = f", {batches} in {gaps} {'gap' if gaps == 1 else 'gaps'}" if gaps else ""
    return _finding("gap", f"batches were lost for good in this life{count}: it may hold more, or less")


def _doubt(doubts: AbstractSet[str]) -> Finding:
    return _finding("in_doubt", "; ".join(DOUBTS.get(each, each) for each in sorted(doubts)))


_STEPS: Final[tuple[tuple[float, Callable[[float], str]], ...]] = (
    (10.0, lambda s: f"{s:.1f} s"),
    (600.0, lambda s: f"{s:.0f} s"),
    (36_000.0, lambda s: f"{s / 60:.0f} min"),
)


def _span(seconds: float) -> str:
    """A time in the unit that people would say it in."""
    return next((told(seconds) for below, told in _STEPS if seconds < below), f"{seconds / 3_600:.0f} h")
