"""What the settings of discovery by DNS must keep."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from indexer.settings.dns_rules import read_server
from indexer.settings.layers import BadSettings, load
from indexer.settings.sections import Settings


def _load(tmp_path: Path, dns: object) -> Settings:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump({"discovery": {"dns": dns}}))
    return load(path, {})


def test_a_name_needs_nothing_else(tmp_path: Path) -> None:
    """The defaults are those of vLLM."""
    names = _load(
        tmp_path, {"names": {"vllm.ns.svc": {}, "_kv._tcp.x.": {"kind": "srv", "ranks": 4}}}
    ).discovery.dns.names

    assert {"vllm.ns.svc", "_kv._tcp.x."} == names.keys()
    assert ("a", 8000, None, 1) == (
        names["vllm.ns.svc"].kind,
        names["vllm.ns.svc"].port,
        names["vllm.ns.svc"].events_port,
        names["vllm.ns.svc"].ranks,
    )


@pytest.mark.parametrize(
    ("dns", "told"),
    [
        ({"names": {"a b": {}}}, "a name as name servers know it wanted, got 'a b'"),
        ({"names": {"10.0.0.1": {}}}, "10.0.0.1 is an address and no name"),
        ({"names": {"x": {"replay_port": 5557}}}, "events_port (5557) and replay_port (5557) must be two ports"),
        ({"names": {"a..b": {}}}, "a name as name servers know it wanted"),
        ({"names": {"x": {"evnts_port": 1}}}, "did you mean events_port?"),
        ({"names": {"x": {"kind": "mx"}}}, "invalid enum value 'mx' at .kind"),
        ({"names": {"X.y": {}, "x.y.": {}}}, "are the same name"),
        ({"names": {"x": {"kind": "srv", "events_port": 5557}}}, "leave it out"),
        ({"names": {"x": {"events_port": 0, "replay_port": 1}}}, "tells its replay port"),
        ({"names": {"x": {"events_port": 0, "ranks": 2}}}, "leave ranks out"),
        ({"names": {"x": {"events_port": 65535, "ranks": 2}}}, "beyond 65535"),
        ({"names": {"x": {"events_port": 5557, "replay_port": 5558, "ranks": 2}}}, "as far apart"),
        ({"names": {"x": {"replay_port": 5558, "ranks": 2}}}, "as far apart"),
        ({"names": {f"x{i}": {} for i in range(65)}}, "at most 64, got 65"),
        ({"servers": ["dns.example"]}, "IP or IP:PORT wanted"),
        ({"servers": ["10.0.0.1:0"]}, "IP or IP:PORT wanted"),
        ({"refresh_min_s": 9, "refresh_max_s": 8}, "must be at least discovery.dns.refresh_min_s (9), got 8"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, dns: object, told: str) -> None:
    """With the key and the rule."""
    with pytest.raises(BadSettings) as caught:
        _load(tmp_path, dns)

    assert told in str(caught.value)
    assert "discovery.dns" in str(caught.value)


def test_servers() -> None:
    """IPv6 has brackets where a port follows."""
    assert ("10.0.0.1", 53) == read_server("10.0.0.1")
    assert ("10.0.0.1", 5353) == read_server("10.0.0.1:5353")
    assert ("fd00::1", 53) == read_server("fd00::1")
    assert ("fd00::1", 53) == read_server("[fd00::1]:53")
