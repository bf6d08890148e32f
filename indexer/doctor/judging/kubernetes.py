"""What a cluster's API server tells of the pods that are looked for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.doctor.checks import Finding, found, found_if

if TYPE_CHECKING:
    from collections.abc import Iterator

    from indexer.doctor.facts import PodsSeen


def judge_pods(seen: PodsSeen) -> Iterator[Finding]:
    """Of one look at it."""
    if seen.elsewhere:
        yield found("kubernetes.reachable", "unknown", seen.elsewhere)
        return
    if seen.trouble:
        yield found("kubernetes.reachable", "problem", f"{seen.place}: {seen.trouble}")
        return
    yield found("kubernetes.reachable", "ok", seen.place)
    yield found_if(seen.refused, "kubernetes.permitted", "problem", seen.refused)
    if seen.refused:
        return
    told = f"{seen.pods} pods, {seen.sources} sources, {seen.not_ready} of them not ready"
    yield found_if(not seen.pods, "kubernetes.pods", "warning", told)
    if not seen.remarks:
        yield found("kubernetes.sources", "ok")
    for pod, remark in seen.remarks.items():
        yield found("kubernetes.sources", "warning", remark, pod)
