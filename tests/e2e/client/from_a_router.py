"""How a router asks: the lines that the README shows."""

from kvindexer_client import AsyncClient

index = AsyncClient("http://127.0.0.1:8080")  # one for all requests: it keeps its connections


async def pod_for(token_ids: list[int], pods_by_load: list[str]) -> str:
    """Who holds most of the prompt; the least loaded where nobody does, or the index does not answer in 20 ms."""
    ranked = await index.rank(pods_by_load, token_ids, model="llama", timeout_s=0.02)
    return ranked.pods[0]
