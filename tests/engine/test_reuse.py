"""A real engine is the judge: what we call reusable is what it then takes from its cache."""

from tests.engine.comparison import Comparison
from tests.engine.conftest import StartService
from tests.engine.engine import Engine
from tests.engine.traffic import Traffic

SEED = 20
BURST = 3


def test_reusable_tokens_are_what_the_engine_then_reports(engine: Engine, start_service: StartService) -> None:
    """Over a cold start, evictions, a late subscriber, a cache reset and an engine restart, for every request."""
    comparison = Comparison(engine, Traffic(SEED))
    from_the_start = start_service("from-the-start", with_source=True)
    from_the_start.wait_live()
    comparison.services.append(from_the_start)
    for _ in range(3):
        comparison.judge("filling up, evictions", 35)
        comparison.send_burst(BURST)

    # The engine has history by now, which only its replay socket still tells.
    late = start_service("late", with_source=False)
    late.register(engine)
    late.wait_live()
    comparison.services.append(late)
    comparison.judge("with a late subscriber", 45)

    # A reset of an idle engine is published with its next step. Until then any index is stale and cannot know it, so
    # the request that makes this step is not judged.
    engine.reset_prefix_cache()
    comparison.send_unjudged()
    comparison.judge("after a cache reset", 45)
    before_restart = engine.journal.events

    generations = {service.name: service.source()["generation"] for service in comparison.services}
    engine.kill()
    engine.start()
    for service in comparison.services:
        service.wait_live(after_generation=generations[service.name])
    comparison.judge("after an engine restart", 45)

    print(f"{comparison.requests} requests compared in {comparison.answers} answers", end=", ")
    print(f"{len(comparison.mismatches)} mismatches")
    print(f"the engine found of the prompt: {dict(comparison.hits)}")
    print(f"blocks in events, first life of the engine: {dict(before_restart)}")
    print(f"blocks in events, second life: {dict(engine.journal.events)}")
    assert [] == [str(mismatch) for mismatch in comparison.mismatches]
    assert comparison.requests > 200
    # The traffic was worth judging: all kinds of answers, evictions, copies of blocks, one clear.
    assert min(comparison.hits[extent] for extent in ("nothing", "a part", "everything")) >= 20
    assert before_restart["BlockRemoved"] > 200
    assert before_restart["BlockStored again"] > 5
    assert before_restart["AllBlocksCleared"] == 1
