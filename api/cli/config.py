"""`kvindexer config`: the effective settings, secrets masked; or only whether they are good."""

from __future__ import annotations

import argparse
import sys

import msgspec

from indexer.settings import Settings, masked


def run(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print as YAML, or JSON; `--check` says nothing but that all is well."""
    if arguments.check:
        print(f"settings are good: {len(settings.sources)} sources")
    elif arguments.json:
        sys.stdout.write(msgspec.json.encode(masked(settings)).decode() + "\n")
    else:
        sys.stdout.write(msgspec.yaml.encode(masked(settings)).decode())
    return 0
