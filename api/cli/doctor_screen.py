"""What `kvindexer doctor` shows to a person: by group, what is well in a line, the rest with what to do."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from rich.text import Text

from indexer.doctor.checks import CHECKS, GROUPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from indexer.doctor.checks import Finding, Group, Level

SUBJECTS_SHOWN: Final = 5
_STYLES: Final[dict[Level, str]] = {"ok": "green", "warning": "yellow", "problem": "bold red", "unknown": "cyan"}
_TITLES: Final[dict[Group, str]] = {
    "service": "Service",
    "settings": "Settings",
    "kubernetes": "Kubernetes",
    "sources": "Sources",
    "endpoints": "Event endpoints",
    "replay": "Replay",
    "engines": "Engines",
    "store": "Store",
    "replicas": "Replicas",
    "unknowable": "What nobody can know",
}
_COUNTED: Final[dict[Level, tuple[str, str]]] = {
    "problem": ("problem", "problems"),
    "warning": ("warning", "warnings"),
    "unknown": ("cannot be known", "cannot be known"),
    "ok": ("ok", "ok"),
}
"""Of one and of several; the worst first, here and within a check."""
_INDENT: Final = 10
_WIDTH_MIN: Final = 40
_WIDTH_MAX: Final = 120


def print_findings(findings: Sequence[Finding], console: Console) -> None:
    """By group in their order; then the sum."""
    by_check: dict[str, dict[Level, list[Finding]]] = defaultdict(lambda: defaultdict(list))
    for finding in findings:
        by_check[finding.check][finding.level].append(finding)
    for group in GROUPS:
        mine = [check for check, entry in CHECKS.items() if entry.group == group and check in by_check]
        if not mine:
            continue
        console.print(Text(_TITLES[group], style="bold"))
        for check in mine:
            levels = by_check[check]
            total = sum(map(len, levels.values()))
            for level in (level for level in _COUNTED if level in levels):
                _print_outcome(check, level, levels[level], total, console)
        console.print()
    console.print(_sum(findings))


def _print_outcome(check: str, level: Level, found: Sequence[Finding], total: int, console: Console) -> None:
    head = Text("  ").append(f"{level:<{_INDENT - 2}}", style=_STYLES[level])
    if level == "ok":
        console.print(head.append(_printable(CHECKS[check].title + _what(found, total))))
        return
    not_so = "not known" if level == "unknown" else "not so"
    title = f"{not_so}: {CHECKS[check].title}{_share(len(found), total)} [{check}]"
    console.print(head.append(_filled(title, console)[_INDENT:]), soft_wrap=True)
    first = found[0]
    lines = [*_subjects(found), first.means, f"to do: {first.do}" if first.do else ""]
    for line in map(_printable, filter(None, lines)):
        console.print(_filled(line, console), soft_wrap=True)


def _filled(line: str, console: Console) -> str:
    """Below what is beside its level, as wide as the screen."""
    width, margin = min(max(console.width, _WIDTH_MIN), _WIDTH_MAX), " " * _INDENT
    return textwrap.fill(line, width, initial_indent=margin, subsequent_indent=margin, break_long_words=False)


def _printable(line: str) -> str:
    """Engines and services chose some of the words: none of them steers a terminal."""
    return line if line.isprintable() else ascii(line)[1:-1]


def _what(found: Sequence[Finding], total: int) -> str:
    """Beside what is well: of one what was seen, of several how many."""
    if len(found) == 1 and total == 1:
        return f" ({found[0].seen})" if found[0].seen else ""
    return f" ({len(found)} of {total})" if len(found) < total else f" ({total})"


def _share(count: int, total: int) -> str:
    return "" if total == 1 else f" ({count} of {total})"


def _subjects(found: Sequence[Finding]) -> list[str]:
    """Who, and what was seen of each; names alone in one line."""
    if not any(finding.seen for finding in found):
        names = [finding.subject for finding in found if finding.subject]
        shown = ", ".join(names[:SUBJECTS_SHOWN])
        return [shown + _more(len(names))] if names else []
    told = [
        each.seen if each.seen.startswith(f"{each.subject}:") else ": ".join(filter(None, (each.subject, each.seen)))
        for each in found[:SUBJECTS_SHOWN]
    ]
    return [*told, *filter(None, [_more(len(found)).strip()])]


def _more(count: int) -> str:
    return f" and {count - SUBJECTS_SHOWN} more (--json has all)" if count > SUBJECTS_SHOWN else ""


def _sum(findings: Sequence[Finding]) -> Text:
    counts = Counter(finding.level for finding in findings)
    out = Text()
    for level, (singular, plural) in _COUNTED.items():
        count = counts[level]
        out.append(", " if out else "")
        out.append(f"{count} {singular if count == 1 else plural}", style=_STYLES[level] if count else "")
    return out
