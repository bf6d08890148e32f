"""Key names: spread over slots, never across them, one key for one thing."""

from __future__ import annotations

import pytest

from indexer.model import SourceId
from indexer.store.failures import DamagedValue
from indexer.store.layout import (
    SEGMENT_FIELDS,
    SLOTS,
    WITHOUT_TTL,
    PartitionKeys,
    deployment_key,
    is_without_ttl,
    partition_of,
    replicas_key,
    segment_of,
    segments_for,
    slot_of_tag,
    source_id,
    source_name,
    tags,
)

POD = SourceId("pod-1", 0)


def all_keys(keys: PartitionKeys, source: SourceId) -> list[bytes]:
    """One of each kind, and a copy of three segments."""
    return [
        keys.epoch,
        keys.owner,
        keys.head,
        keys.log,
        keys.control,
        keys.hints,
        keys.sources,
        keys.source(source),
        *keys.copy(source, 7, 2, 3),
    ]


def test_the_examples_of_the_cluster_specification() -> None:
    """CRC16 of "123456789" is 0x31C3."""
    assert 0x31C3 % SLOTS == slot_of_tag("123456789")


@pytest.mark.parametrize("partitions", [1, 3, 16, 100, 1024])
def test_each_partition_lies_in_its_own_range_of_slots(partitions: int) -> None:
    """As even as the slots are spread over nodes; names are the same on every replica."""
    made = tags(partitions)

    assert list(range(partitions)) == [slot_of_tag(tag) * partitions // SLOTS for tag in made]
    assert made == tags(partitions)


def test_what_belongs_to_no_partition_has_no_tag() -> None:
    """A script touches one of these keys alone, so any slot will do."""
    assert [b"kvi:1:deployment", b"kvi:1:replicas"] == [deployment_key("kvi"), replicas_key("kvi")]


def test_another_number_of_partitions_shares_no_tag() -> None:
    """Two deployments that disagree do not write into each other's keys."""
    assert not set(tags(16)) & set(tags(32))


@pytest.mark.parametrize("partitions", [0, -1, SLOTS + 1])
def test_an_impossible_number_of_partitions_is_refused(partitions: int) -> None:
    """Not even tried: it would look for tags for ever."""
    with pytest.raises(ValueError, match="partitions"):
        tags(partitions)


@pytest.mark.parametrize("namespace", ["", "a{b", "a}", "a:b", "a b", "x" * 65, "ä"])
def test_a_namespace_cannot_move_the_hash_tag(namespace: str) -> None:
    """Redis reads the first pair of braces."""
    with pytest.raises(ValueError, match="namespace"):
        PartitionKeys(namespace, "16.3")


@pytest.mark.parametrize("pod", ["pod-1", "{x}", "}:epoch", "a:1:2:3", "[::1]:8000", "ü"])
def test_all_keys_of_a_partition_have_its_tag(pod: str) -> None:
    """Whatever pods are called: the first braces are the partition's."""
    for key in all_keys(PartitionKeys("kvi", "16.3"), SourceId(pod, 1)):
        head, _, rest = key.partition(b"{")
        assert b"kvi:1:" == head
        assert b"16.3" == rest.partition(b"}")[0]


def test_one_key_for_one_thing() -> None:
    """Nothing that pods may be called makes two things share a key."""
    keys = PartitionKeys("kvi", "16.3")
    sources = [SourceId("a", 1), SourceId("a#1", 0), SourceId("a:1:2:3", 0), SourceId("a", 0), SourceId("epoch", 0)]
    made = [key for source in sources for key in (keys.source(source), *keys.copy(source, 7, 2, 3))]
    made += [keys.epoch, keys.owner, keys.head, keys.log, keys.control, keys.hints, keys.sources]

    assert len(made) == len(set(made))


def test_few_keys_never_expire() -> None:
    """And each says why; a pod of that name is no exception."""
    keys = PartitionKeys("kvi", "16.3")

    assert [keys.epoch, keys.sources] == [key for key in all_keys(keys, POD) if is_without_ttl(key)]
    assert is_without_ttl(deployment_key("kvi"))
    assert not is_without_ttl(replicas_key("kvi"))
    assert not any(map(is_without_ttl, all_keys(keys, SourceId("}:epoch", 0))[7:]))
    assert not any(map(is_without_ttl, all_keys(keys, SourceId("x:sources", 0))[7:]))
    assert all(WITHOUT_TTL.values())


@pytest.mark.parametrize("source", [SourceId("a", 0), SourceId("a#1", 0), SourceId("#", 7), SourceId("ü:8000", 31)])
def test_a_name_leads_back_to_its_source(source: SourceId) -> None:
    """Whatever pods are called."""
    assert source == source_id(source_name(source))


@pytest.mark.parametrize("name", [b"", b"a", b"a#", b"a#x", b"a#-1", b"\xff#0", b"a#" + b"1" * 5_000])
def test_what_is_no_name_is_damage(name: bytes) -> None:
    """Somebody else wrote into the registry."""
    with pytest.raises(DamagedValue):
        source_id(name)


def test_sources_spread_over_partitions() -> None:
    """A thousand pods: every partition has some, none three times its share."""
    counts = [0] * 16
    for number in range(1000):
        counts[partition_of(SourceId(f"10.0.{number // 256}.{number % 256}:8000", 0), 16)] += 1

    assert 0 < min(counts)
    assert 3 * 1000 / 16 > max(counts)


@pytest.mark.parametrize("stride", [1, 64, 1 << 32, 0x9E3779B97F4A7C15])
def test_hashes_spread_over_segments(stride: int) -> None:
    """Also hashes that are only counted up: no segment has twice its share."""
    counts = [0] * 8
    for number in range(8_000):
        counts[segment_of(number * stride & 0xFFFF_FFFF_FFFF_FFFF, 8)] += 1

    assert 2_000 > max(counts)


@pytest.mark.parametrize(
    ("pairs", "segments"),
    [(0, 1), (1, 1), (SEGMENT_FIELDS // 2, 1), (SEGMENT_FIELDS // 2 + 1, 2), (50_000, 8), (1_000_000, 128)],
)
def test_a_new_copy_has_room_to_grow(pairs: int, segments: int) -> None:
    """Half full at most."""
    assert segments == segments_for(pairs)
    assert pairs <= segments * SEGMENT_FIELDS // 2
