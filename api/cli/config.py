"""`kvindexer config`: the effective settings, secrets masked; or only whether they are good."""

from __future__ import annotations

import argparse
import os
import sys

import msgspec

from api.access.gates import access_remarks, gates_of
from api.cli.output import counted
from indexer.clock import SystemClock
from indexer.errors import SettingsError
from indexer.settings import (
    BadSettings,
    Settings,
    check_files,
    masked,
    refuse_what_is_not_there,
    remarks,
    unread_variables,
)


def run(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print as YAML, or JSON; `--check` says nothing but that `serve` would take them.

    What `serve` would refuse is an error for `--check`, and else a warning beside what is printed.
    """
    try:
        refuse_what_is_not_there(settings)
        check_files(settings)
        _check_tokenizers(settings)
        gates_of(settings)
    except BadSettings as bad:
        if arguments.check:
            raise
        for error in bad.errors:
            print(f"kvindexer: warning: serve would refuse {error}", file=sys.stderr)
    for remark in (*remarks(settings), *access_remarks(settings), *unread_variables(os.environ)):
        print(f"kvindexer: warning: {remark}", file=sys.stderr)
    if arguments.check:
        asked = "".join(f", and those that {name} tells of" for name in settings.discovery.asked)
        print(f"settings are good: {counted(len(settings.sources), 'source')}{asked}")
    elif arguments.json:
        sys.stdout.write(msgspec.json.encode(masked(settings)).decode() + "\n")
    else:
        sys.stdout.write(msgspec.yaml.encode(masked(settings)).decode())
    return 0


def _check_tokenizers(settings: Settings) -> None:
    """As the node reads them. Raises `BadSettings`."""
    if settings.models.tokenizer is None and not settings.models.tokenizers:
        return  # what reads them takes a while to import
    from indexer.texts.choice import read_tokenizers

    try:
        read_tokenizers(settings.models, SystemClock())
    except SettingsError as error:
        raise BadSettings([error]) from error
