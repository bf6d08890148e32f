"""SETTINGS.md tells every setting there is, as the sections of settings have it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import yaml

from indexer.settings import load, masked
from tests.repo.settings_reference import FILE, reference

if TYPE_CHECKING:
    from pathlib import Path

_ROW = re.compile(r"^\| `([^`]+)` \| (.+?) \| (.+?) \| (.*) \|$", re.MULTILINE)


def _keys(tree: dict[str, object], above: str = "") -> set[str]:
    """Of all values; a map that is empty is one."""
    found: set[str] = set()
    for name, value in tree.items():
        found |= _keys(value, f"{above}{name}.") if isinstance(value, dict) and value else {above + name}
    return found


def test_it_is_up_to_date() -> None:
    """`make settings` writes it anew."""
    assert reference() == FILE.read_text()


def test_every_setting_stands_in_it_and_is_explained() -> None:
    """Those that `kvindexer config` prints."""
    rows = {name: meaning for name, _, _, meaning in _ROW.findall(reference())}
    settings = _keys({name: value for name, value in masked(load(environment={})).items() if name != "sources"})

    assert settings
    without_settings = {"discovery.dns", "discovery.kubernetes"}  # sections, as long as nothing stands in them
    assert set() == settings - rows.keys() - without_settings
    assert [] == [name for name, meaning in rows.items() if not meaning.strip()]


def test_what_it_calls_default_changes_nothing(tmp_path: Path) -> None:
    """All of them in one file are the settings without a file, but for those that have keys below them."""
    written: dict[str, object] = {}
    for name, default, _, _ in _ROW.findall(reference()):
        *above, last = name.split(".")
        if not above or "NAME" in above:
            continue
        section = written
        for part in above:
            section = section.setdefault(part, {})  # type: ignore[assignment]  maps all the way
        section[last] = yaml.safe_load(default.split("`")[1])
    path = tmp_path / "defaults.yaml"
    path.write_bytes(msgspec.yaml.encode(written))

    assert 60 < len(_keys(written))
    assert load(path, environment={}) == load(environment={})
