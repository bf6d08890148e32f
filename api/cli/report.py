"""`kvindexer report`: what is common to its reports; each shows its own."""

from __future__ import annotations

import argparse
from typing import TypeVar
from urllib.parse import urlencode

from api.cli import output
from api.cli.client import CommandFailed, answer_as, client_of

_Shape = TypeVar("_Shape")


def asked(arguments: argparse.Namespace, shape: type[_Shape], **further: str | None) -> _Shape | None:
    """The report, of what `further` says beside pod and model; None where it went out as it came.

    Raises `CommandFailed`.
    """
    if arguments.csv and arguments.json:
        raise CommandFailed("--csv or --json: not both", 2)
    given = {
        "format": "csv" if arguments.csv else None,
        "pod": arguments.pod,
        "model": arguments.model,
        **further,
    }
    query = urlencode({name: value for name, value in given.items() if value is not None})
    path = f"/v1/reports/{arguments.report}{'?' if query else ''}{query}"
    answer = client_of(arguments).request("GET", path)
    if arguments.csv or arguments.json:
        output.as_it_came(answer)
        return None
    return answer_as(answer, shape, "no report")
