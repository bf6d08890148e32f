"""What users copy of `k8s/` and of the README is what the tests of gateways run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
ENVOYS: Final = sorted((ROOT / "k8s" / "envoy").glob("*.yaml"))
FALLBACK: Final = "envoy.load_balancing_policies.round_robin"


def _filters(file: Path) -> list[dict[str, Any]]:
    """The filters of a configuration that see requests, in order."""
    (listener,) = yaml.safe_load(file.read_text())["static_resources"]["listeners"]
    filters: list[dict[str, Any]] = listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
    return filters


def test_the_script_for_envoy_in_the_readme_is_the_one_that_is_shipped() -> None:
    """It needs no library, and no more than ten lines."""
    (shown,) = re.findall(r"^```lua\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    run = _filters(ROOT / "k8s" / "envoy" / "lua.yaml")[0]["typed_config"]["default_source_code"]["inline_string"]

    assert shown == run
    assert len(shown.splitlines()) <= 10
    assert "require" not in shown


def test_the_filter_for_the_endpoint_picker_in_the_readme_is_the_one_that_is_shipped() -> None:
    """Word for word as a machine reads it."""
    (shown,) = re.findall(
        r"^```yaml\n(- name: envoy.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )

    assert yaml.safe_load(shown) == _filters(ROOT / "k8s" / "envoy" / "ext-proc.yaml")[:1]


@pytest.mark.parametrize("file", ENVOYS, ids=lambda file: file.name)
def test_no_configuration_sends_where_a_client_says(file: Path) -> None:
    """The header is gone before any filter; a destination must be a member of the cluster, or the fallback decides."""
    text = file.read_text()
    early, filters = text.index("mutations: [{remove: x-gateway-destination-endpoint}]"), text.index("http_filters:")
    (engines,) = (each for each in yaml.safe_load(text)["static_resources"]["clusters"] if each["name"] == "engines")
    policy = engines["load_balancing_policy"]["policies"][0]["typed_extension_config"]["typed_config"]

    assert early < filters
    assert "ORIGINAL_DST" not in text
    assert FALLBACK == policy["fallback_policy"]["policies"][0]["typed_extension_config"]["name"]
