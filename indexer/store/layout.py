"""Every key in Redis: name, type, content, time to live and an example. Pure.

No key is spelled anywhere else. A name begins with the deployment's namespace and the layout's version, then the
partition's hash tag in braces: all keys of a partition lie in one slot of a cluster, so one script may touch them all,
and nothing ever crosses slots. Numbers are written in decimal.

Versions: 1 the first.
"""

from __future__ import annotations

import re
from binascii import crc_hqx
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest

from indexer.model import SourceId
from indexer.store.failures import DamagedValue

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION: Final = 1
SLOTS: Final = 16_384
"""Of a Redis Cluster: fixed by its protocol."""
SEGMENT_FIELDS: Final = 16_384
"""Fields of a map segment, at most: so many expire, or are freed, in a few milliseconds; a million took 324."""
SEGMENTS_MAX: Final = 1 << 16
"""Of a copy: room for half a billion pairs. A state that tells of more was damaged."""
_GENERATIONS: Final = 2**63
_NUMBER_DIGITS: Final = 20
"""Of a 64-bit number: longer ones are none of ours."""
WITHOUT_TTL: Final = {
    "epoch": "an epoch that began anew would let an old owner pass for a new one",
    "deployment": "what all replicas must agree on, for as long as the store is theirs",
    "sources": "the registry: a source is known until it is removed, however long its engine and this service are away",
}
"""The only keys without a time to live, and why."""

SEGMENT_MIX: Final = 0x9E3779B97F4A7C15
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def deployment_key(namespace: str) -> bytes:
    """Hash: what all replicas must agree on (hash scheme, partitions). No TTL. Example: kvi:1:deployment."""
    return f"{_checked(namespace)}:{VERSION}:deployment".encode()


def replicas_key(namespace: str) -> bytes:
    """Hash: who is there. TTL: retain_s, renewed by each beat. Example: kvi:1:replicas.

    Fields: `b:<replica>`, its latest beat, as the server's time in ms, `|`, and what it said as MessagePack (see
    sharding/members.py); `d:<replica>`, a drain mark: the process of that name that is to give up what it owns.
    """
    return f"{_checked(namespace)}:{VERSION}:replicas".encode()


def keys_pattern(namespace: str) -> bytes:
    """For SCAN: finds every key that `is_of` that namespace, and none but those of it and of strangers.

    No letter of a namespace means anything in a pattern.
    """
    return f"{_checked(namespace)}:[0-9]*:*".encode()


def is_of(key: bytes, namespace: str) -> bool:
    """Whether a key belongs to a namespace, in whatever version of the layout."""
    name, _, rest = key.partition(b":")
    version, colon, _ = rest.partition(b":")
    return name == namespace.encode() and version.isdigit() and bool(colon)


def is_owner(key: bytes) -> bool:
    """Whether a key of ours holds a fence token, for as long as a lease."""
    return key.endswith(b":owner")  # names of sources end in #rank, of segments in a number


def _checked(namespace: str) -> str:
    if not _NAMESPACE.fullmatch(namespace):
        raise ValueError("namespace: 1 to 64 letters, digits, _ . or -")
    return namespace


def slot_of_tag(tag: str) -> int:
    """The cluster slot of a hash tag: CRC16 (XMODEM) modulo 16,384, as Redis Cluster's specification says."""
    return crc_hqx(tag.encode(), 0) % SLOTS


def tags(partitions: int) -> list[str]:
    """The hash tag of each partition, so that partition i of n lies in the i-th of n equal ranges of slots.

    Nodes of a cluster own ranges of slots, so partitions spread over them as evenly as slots do. The same number of
    partitions always gives the same tags; another number gives others for most, and is another layout.
    """
    if not 1 <= partitions <= SLOTS:
        raise ValueError(f"partitions: between 1 and {SLOTS}")
    found: dict[int, str] = {}
    number = 0
    while len(found) < partitions:
        tag = f"{partitions}.{number}"
        found.setdefault(slot_of_tag(tag) * partitions // SLOTS, tag)
        number += 1
    return [found[partition] for partition in range(partitions)]


def is_number(text: bytes) -> bool:
    """Whether this is a whole number that we may have written."""
    return text.isdigit() and len(text) <= _NUMBER_DIGITS


def is_generation(text: bytes) -> bool:
    """Whether this is a number that generations reach: scripts compare them as doubles, entries hold 64 bits."""
    return is_number(text) and int(text) < _GENERATIONS


def partition_of(source: SourceId, partitions: int) -> int:
    """Which partition a source belongs to, for as long as the number of partitions stands."""
    return xxh3_64_intdigest(source_name(source)) % partitions


def source_name(source: SourceId) -> bytes:
    """A source within key names and journal entries: unlike `str`, never the same for two. Example: pod-1#0."""
    return f"{source.pod}#{source.dp_rank}".encode()


def source_id(name: bytes) -> SourceId:
    """The source of a name. Raises DamagedValue."""
    pod, mark, rank = name.rpartition(b"#")
    try:
        if not (mark and is_number(rank)):
            raise DamagedValue("source")
        return SourceId(pod.decode(), int(rank))
    except UnicodeDecodeError:
        raise DamagedValue("source") from None


def segment_of(engine_hash: int, segments: int) -> int:
    """Which segment holds an engine hash. Some engines number blocks upwards, so the hash is mixed first."""
    return ((engine_hash * SEGMENT_MIX & 0xFFFF_FFFF_FFFF_FFFF) >> 32) % segments


def segments_for(pairs: int) -> int:
    """Segments of a new copy that is to hold so many pairs: a power of two, half full at most, room for growth."""
    return 1 << max(0, (2 * pairs - 1).bit_length() - (SEGMENT_FIELDS - 1).bit_length())


class PartitionKeys:
    """The keys of one partition. `tag` comes from `tags`."""

    def __init__(self, namespace: str, tag: str) -> None:
        self._prefix = f"{_checked(namespace)}:{VERSION}:{{{tag}}}:".encode()

    @property
    def epoch(self) -> bytes:
        """String: the fence token given last. No TTL. Example: kvi:1:{16.3}:epoch."""
        return self._prefix + b"epoch"

    @property
    def owner(self) -> bytes:
        """String: fence token `epoch:replica:nonce` of the owner. TTL: the lease. Example: kvi:1:{16.3}:owner.

        During a handover `to:<replica>`: nobody owns it, and that replica alone may take it. TTL: for how long.
        """
        return self._prefix + b"owner"

    @property
    def head(self) -> bytes:
        """String: id of the journal's last entry. TTL: retain_s, as the journal's. Example: kvi:1:{16.3}:head.

        It makes the journal's ids contiguous: an entry is written only after the one that its writer wrote before.
        """
        return self._prefix + b"head"

    @property
    def log(self) -> bytes:
        """Stream, the journal: one field, `a` in the first entry of an epoch, `e` in others (see entries.py).

        Ids `<epoch>-<n>`, n from 1 without a gap. TTL: retain_s, renewed with each entry; trimmed to a budget of bytes.
        Example: kvi:1:{16.3}:log.
        """
        return self._prefix + b"log"

    @property
    def control(self) -> bytes:
        """Stream of commands: `v` verb, `s` source, `g` generation, `d` descriptor. Ids are Redis's own.

        `c`, the command's nonce, stands only in those that count against `limits.max_clears_per_minute`.
        TTL: retain_s; bounded in entries. Example: kvi:1:{16.3}:ctl.
        """
        return self._prefix + b"ctl"

    @property
    def hints(self) -> bytes:
        """Stream of what is expected of sources: `w` the process that wrote it, `h` hints as MessagePack (hints.py).

        Anybody's, and nothing counts because of it. TTL: retain_s; bounded in entries. Example: kvi:1:{16.3}:hints.
        """
        return self._prefix + b"hints"

    @property
    def loads(self) -> bytes:
        """Hash: how busy engines are; `l`, as the replica that reads their metrics told it last (loads.py).

        Anybody's, and nothing that is held counts because of it. TTL: a minute, or three of its intervals. Example:
        kvi:1:{16.3}:loads.
        """
        return self._prefix + b"loads"

    @property
    def names(self) -> bytes:
        """Hash: what engines say they serve; `n`, as the replica that asks them told it last (names.py).

        Anybody's, and nothing that is held counts because of it. TTL: retain_s, renewed once a minute. Example:
        kvi:1:{16.3}:names.
        """
        return self._prefix + b"names"

    @property
    def sources(self) -> bytes:
        """Hash, the registry: source → descriptor as MessagePack. No TTL. Example: kvi:1:{16.3}:sources."""
        return self._prefix + b"sources"

    @property
    def types(self) -> dict[bytes, str]:
        """The keys of the partition that are no source's, and Redis's word for what each holds."""
        strings, streams = (self.epoch, self.owner, self.head), (self.log, self.control)
        return dict.fromkeys(strings, "string") | dict.fromkeys(streams, "stream") | {self.sources: "hash"}

    def source(self, source: SourceId) -> bytes:
        """Hash: state of one source. TTL: retain_s, renewed by the owner. Example: kvi:1:{16.3}:src:pod-1#0.

        Fields: `generation`, `cursor` (sequence applied last; absent before the first), `facts` (see facts.py), `copy`
        and `segments` (where the map is), `pairs` (fields in it), `gone` (fields it ever lost), `complete` (1 when the
        copy is whole), `command` (nonce of the command applied last, and its id in the control stream), `counts` (see
        counts.py). A removed source keeps `generation` and `command` only, a cleared one `cursor`, `facts` and
        `counts`, too, until its owner begins the generation: it goes on behind what was applied.
        """
        return self._prefix + b"src:" + source_name(source)

    def history(self, source: SourceId) -> bytes:
        """Stream: what happened to one source, for people. TTL: a week or retain_s, renewed with each entry.

        Fields: `w` the process that wrote it, `n` its number there, `e` the entry (see happenings.py). Ids are Redis's
        own; bounded in entries. It outlives the source. Example: kvi:1:{16.3}:hist:pod-1#0.
        """
        return self._prefix + b"hist:" + source_name(source)

    def segment(self, source: SourceId, generation: int, copy: int, segment: int) -> bytes:
        """Hash, at most 16,384 fields: a part of a source's reverse map; fields and values see segments.py.

        TTL: retain_s, renewed by the owner. Example: kvi:1:{16.3}:map:pod-1#0:1764450000000000:1:7.
        """
        return self._prefix + b"map:%b:%d:%d:%d" % (source_name(source), generation, copy, segment)

    def belongs(self, key: bytes, source: SourceId) -> bool:
        """Whether a key is this source's own: its state, or a segment."""
        name = source_name(source)
        return key == self.source(source) or key.startswith(self._prefix + b"map:%b:" % name)

    def copy(self, source: SourceId, generation: int, copy: int, segments: int) -> Iterator[bytes]:
        """All segments of one copy."""
        return (self.segment(source, generation, copy, number) for number in range(segments))


def is_without_ttl(key: bytes) -> bool:
    """Whether a key is one of those that never expire."""
    name = key.rpartition(b":")[2].decode(errors="replace")  # names of sources end in #rank, of segments in a number
    return name in WITHOUT_TTL
