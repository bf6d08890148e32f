"""`min_sequence` at a replica that does not collect from the pod itself."""

from __future__ import annotations

import contextlib
import http.client
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from tests.support.core import Answer
from tests.support.core_service import DEADLINE_S
from tests.support.deployment import deployed
from tests.support.in_trouble import tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.many import Member


def asked_before(replica: Member, then: Callable[[], None], **query: Any) -> Answer:  # noqa: ANN401  the request's fields
    """The answer to a question that was sent before `then` happened."""
    where = urlsplit(replica.url)
    with contextlib.closing(http.client.HTTPConnection(where.hostname or "", where.port, timeout=DEADLINE_S)) as asking:
        asking.request("POST", "/v1/lookup", msgspec.json.encode(query), {"content-type": "application/json"})
        then()
        return msgspec.json.decode(asking.getresponse().read(), type=Answer)


def test_what_is_not_applied_yet(tmp_path: Path) -> None:
    """A follower waits, and answers once it has it; where its owner is cut off it says so at the deadline."""
    with deployed(tmp_path, redis__lease_s="8") as deployment:
        deployment.begin()
        cluster, pod = deployment.cluster, deployment.pods[0]
        engine, owner = deployment.engines[pod], cluster.owner_of(deployment.pods[0])
        for name in cluster.others(owner.name):
            wanted = engine.sequence + 1
            prompt = deployment.sample()[0] + 1
            answer = asked_before(
                cluster.replicas[name],
                deployment.publish,
                token_ids=tokens_of(prompt),
                min_sequence={pod: wanted},
                timeout_ms=30_000,
            )
            entry = answer[pod]
            assert (entry.sequence, entry.matched_tokens) == (wanted, engine.history[wanted].get(prompt, 0))
            assert entry.reason is None

        cluster.set_ways("reset", owner.name)
        deployment.publish()
        for name in cluster.others(owner.name):
            answer = cluster.replicas[name].ask(
                tokens_of(deployment.sample()[0]), min_sequence={pod: engine.sequence}, timeout_ms=300
            )
            assert ("degraded", "deadline") == (answer.state, answer[pod].reason)
            assert answer[pod].sequence == engine.sequence - 1
        cluster.set_ways("pass")
        deployment.wait_right()
