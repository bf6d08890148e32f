"""How replicas of Ray Serve are chosen by what they hold: the lines that the README shows."""

from ray import serve
from ray.serve.config import RequestRouterConfig

by_prefix = RequestRouterConfig(
    request_router_class="kvindexer_ray:KvindexerRouter",
    request_router_kwargs={"url": "http://127.0.0.1:8080", "model": "llama"},
)


@serve.deployment(num_replicas=3, request_router_config=by_prefix)
class Engine:
    async def __call__(self, _request: dict) -> str:
        return serve.get_replica_context().replica_id.unique_id  # the name, or an alias, of its source at the index
