"""[I/O] What all replicas of a deployment must agree on. The first to come says; who differs does not start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.store.failures import StoreFailure
from indexer.store.layout import deployment_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from indexer.store.client import Client


async def agree(client: Client, namespace: str, facts: Mapping[str, str]) -> None:
    """Compare facts with those of the replicas before, or lay them down where there were none.

    Values are shown to the operator: of a secret, pass a digest. Raises StoreFailure: `unfit` where one differs.
    """
    key = deployment_key(namespace)
    for name, value in facts.items():
        await client.claim(key, name.encode(), value.encode())
    stands = await client.fields(key)
    for name, value in facts.items():
        found = stands.get(name.encode(), b"").decode(errors="replace")
        if found != value:
            why = f"{name} is {found} for the replicas of this namespace, and {value} here"
            way_out = f"stop all replicas and clear it: kvindexer redis reset --namespace {namespace}"
            raise StoreFailure("unfit", f"{why}; to begin anew, {way_out}")
