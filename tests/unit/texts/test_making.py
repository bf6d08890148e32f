"""Cache, single flight, limits and deadline around the making of tokens."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from indexer.clock import SystemClock
from indexer.errors import BadRequestError, LimitReachedError
from indexer.texts import making
from indexer.texts.choice import Chosen
from indexer.texts.engines import FAILURES_MAX, EngineTokenizer
from indexer.texts.health import Health
from indexer.texts.local import LocalTokenizer, TextLimits
from indexer.texts.making import ENTRY_BYTES, WAITING_BYTES_MAX, Counts, Made, Making, TextOptions
from indexer.texts.template import ChatTemplate, OutOfTime
from schemas.lookup import TextPrompt
from tests.support.collecting import run_on, until
from tests.support.core import ManualClock
from tests.support.said import Said
from tests.support.text_models import small_tokenizer
from tests.support.tokenize_engine import TokenizeEngine, engine, never, well

OPTIONS: dict[str, int] = {
    "bytes_max": 10_000,
    "tokens_max": 1_000,
    "waiting_max": 8,
    "threads": 1,
    "cache_bytes": 100_000,
}
LONG_S = 20.0
TEXT = TextPrompt(prompt="fox")


class Told:
    """What telemetry is told."""

    def __init__(self) -> None:
        self.results: Counter[tuple[str, str]] = Counter()
        self.made = 0
        self.limits: Counter[str] = Counter()

    def came(self, source: str, result: str) -> None:
        self.results[source, result] += 1

    def took(self, source: str, seconds: float) -> None:
        assert source
        assert seconds >= 0
        self.made += 1

    def limit(self, name: str) -> None:
        self.limits[name] += 1


class HeldTokenizer(LocalTokenizer):
    """Begins when it is let, and remembers what it was given."""

    def __init__(self) -> None:
        super().__init__(small_tokenizer(), {})
        self.begun: list[TextPrompt] = []
        self.may_go_on = threading.Event()

    def tokens(self, text: TextPrompt, limits: TextLimits, over: Callable[[], bool]) -> bytes:
        self.begun.append(text)
        assert self.may_go_on.wait(LONG_S)
        return super().tokens(text, limits, over)


class Nowhere:
    """There are no engines."""

    model: str | None = "m"
    tenant = "default"

    def urls(self) -> Sequence[str]:
        return []


class At(Nowhere):
    """There is one."""

    def __init__(self, url: str, tenant: str = "default") -> None:
        self._url = url
        self.tenant = tenant

    def urls(self) -> Sequence[str]:
        return [self._url]


class Bench:
    """What a test asks, and what came of it."""

    def __init__(self, clock: Any = None, **options: int) -> None:  # noqa: ANN401 - either clock
        self.clock = clock or SystemClock()
        self.told = Told()
        counts: Counts = self.told
        self.making = Making(self.clock, TextOptions(**(OPTIONS | options)), counts, 7, Health(self.clock, Said()))
        self.plain = Chosen("m", LocalTokenizer(small_tokenizer(), {}))

    async def make(
        self, text: TextPrompt = TEXT, chosen: Chosen | None = None, within_s: float = LONG_S, at: Nowhere | None = None
    ) -> Made | None:
        return await self.making.make(chosen or self.plain, text, self.clock.now() + within_s, at or Nowhere())


@asynccontextmanager
async def _running(bench: Bench) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(bench.making.run(stop))
        await asyncio.sleep(0)
        try:
            yield
        finally:
            stop.set()


def test_a_text_is_tokenized_once() -> None:
    """Then it is known; one that differs in anything that decides its tokens is another."""

    async def body() -> None:
        bench = Bench()
        first, again = await bench.make(), await bench.make()
        assert first is not None
        assert Made(first.image, cached=True) == again
        assert first.image[:4] == bytes(4), "<s>"
        for other in (
            await bench.make(TextPrompt(prompt="fox", add_special_tokens=False)),
            await bench.make(TextPrompt(prompt="Fox")),
            await bench.make(chosen=Chosen("other", bench.plain.maker)),
        ):
            assert other is not None
            assert not other.cached
        assert {("file", "made"): 4, ("file", "cached"): 1} == bench.told.results

    run_on("uvloop", body())


@pytest.mark.parametrize("prompt", ["", "\0", "😀🏽‍♀️ e\u0301 \u202e", "a" * 9_000, "<s></s><|im_end|>"])
def test_any_text_has_its_tokens(prompt: str) -> None:
    """Empty ones, too: where a model begins every prompt with a token, that is one."""

    async def body() -> None:
        bench = Bench(tokens_max=10_000)
        made = await bench.make(TextPrompt(prompt=prompt))
        assert made is not None
        expected = small_tokenizer().encode(prompt).ids
        assert b"".join(token.to_bytes(4, "little") for token in expected) == made.image

    run_on("asyncio", body())


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (TextPrompt(prompt="a\ud800"), "prompt.not_text"),
        (TextPrompt(messages=[{"role": "user", "content": "a\udfff"}]), "messages.not_text"),
        (TextPrompt(messages=[{"role": "user", "content": object()}]), "messages.not_text"),
        (TextPrompt(messages=[{"role": "user", "content": 2**70}]), "messages.not_text"),
        (TextPrompt(prompt="a" * 10_000), "prompt.too_long"),
        (TextPrompt(prompt="a b " * 2_000), "prompt.too_many_tokens"),
        (TextPrompt(messages=[{"role": "user", "content": "a"}]), "messages.no_template"),
    ],
)
def test_what_cannot_be_read_is_the_callers_error(text: TextPrompt, code: str) -> None:
    """And told without the text."""

    async def body() -> None:
        bench = Bench()
        for _ in range(2):  # nothing is remembered of it
            with pytest.raises(BadRequestError) as caught:
                await bench.make(text)
            assert code == caught.value.code
        limits = {"prompt.too_long": "limits.text_bytes", "prompt.too_many_tokens": "limits.tokens"}
        assert bench.told.limits == ({limits[code]: 2} if code in limits else {})

    run_on("asyncio", body())


def test_equal_texts_that_come_together_are_one_piece_of_work() -> None:
    """All get its tokens, or its error."""

    async def body() -> None:
        bench, held = Bench(), HeldTokenizer()
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(bench.make(chosen=Chosen("m", held))) for _ in range(5)]
            await until(lambda: bool(held.begun), "the work")
            held.may_go_on.set()
        assert 1 == len({made.result() for made in asked})
        assert (1, 1) == (len(held.begun), bench.told.made)
        wrong = TextPrompt(messages=[])
        async with asyncio.TaskGroup() as tasks:
            failing = [tasks.create_task(_code(bench, wrong, held)) for _ in range(3)]
        assert ["messages.no_template"] * 3 == [each.result() for each in failing]

    run_on("asyncio", body())


async def _code(bench: Bench, text: TextPrompt, held: HeldTokenizer) -> str:
    try:
        await bench.make(text, Chosen("m", held))
    except BadRequestError as error:
        return error.code
    return ""


def test_who_waits_no_longer_leaves_without_and_the_work_fills_the_cache() -> None:
    """The next one finds it there."""

    async def body() -> None:
        bench, held = Bench(), HeldTokenizer()
        chosen = Chosen("m", held)
        async with asyncio.TaskGroup() as tasks:
            patient = tasks.create_task(bench.make(chosen=chosen))
            await until(lambda: bool(held.begun), "the work")
            assert await bench.make(chosen=chosen, within_s=0.0) is None
            held.may_go_on.set()
        made = patient.result()
        assert made is not None
        assert Made(made.image, cached=True) == await bench.make(chosen=chosen, within_s=0.0)
        assert {("file", "late"): 1, ("file", "made"): 1, ("file", "cached"): 1} == bench.told.results

    run_on("asyncio", body())


def test_work_that_nobody_waits_for_is_not_begun() -> None:
    """It waited for a thread until its callers had gone."""

    async def body() -> None:
        bench, held = Bench(), HeldTokenizer()
        async with asyncio.TaskGroup() as tasks:
            busy = tasks.create_task(bench.make(chosen=Chosen("m", held)))
            await until(lambda: bool(held.begun), "the only thread at work")
            assert await bench.make(TextPrompt(prompt="late"), within_s=0.0) is None
            held.may_go_on.set()
        assert busy.result() is not None
        late = await bench.make(TextPrompt(prompt="late"))
        assert late is not None
        assert not late.cached

    run_on("asyncio", body())


def test_a_caller_that_goes_away_takes_nobody_with_it() -> None:
    """The work is everybody's."""

    async def body() -> None:
        bench, held = Bench(), HeldTokenizer()
        async with asyncio.TaskGroup() as tasks:
            gone = tasks.create_task(bench.make(chosen=Chosen("m", held)))
            stays = tasks.create_task(bench.make(chosen=Chosen("m", held)))
            await until(lambda: bool(held.begun), "the work")
            gone.cancel()
            await asyncio.wait([gone])
            held.may_go_on.set()
        assert stays.result() is not None

    run_on("asyncio", body())


def test_so_many_texts_wait_at_most() -> None:
    """Of different ones; equal ones are one. Bytes are bounded, too."""

    async def body() -> None:
        bench, held = Bench(waiting_max=2, bytes_max=WAITING_BYTES_MAX), HeldTokenizer()
        chosen = Chosen("m", held)
        async with asyncio.TaskGroup() as tasks:
            for name in "aab":
                tasks.create_task(bench.make(TextPrompt(prompt=name), chosen))
            await until(lambda: bool(held.begun), "the work")
            with pytest.raises(LimitReachedError) as caught:
                await bench.make(TextPrompt(prompt="c"), chosen)
            assert ("texts.too_many", "limits.texts_waiting") == (caught.value.code, caught.value.limit)
            held.may_go_on.set()
        held.may_go_on.clear()
        half, more = (TextPrompt(messages=[{"content": name * (WAITING_BYTES_MAX // 2)}]) for name in "xy")
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(_code(bench, half, held))
            await until(lambda: half in held.begun, "the work")
            with pytest.raises(LimitReachedError) as caught:
                await bench.make(more, chosen)
            assert "texts.too_many" == caught.value.code
            held.may_go_on.set()
        assert "messages.no_template" == waiting.result()
        assert {"limits.texts_waiting": 1, "texts.waiting_bytes": 1} == bench.told.limits
        assert await bench.make(TextPrompt(prompt="c"), chosen), "room again"

    run_on("asyncio", body())


def test_the_cache_is_bounded_in_bytes() -> None:
    """The least lately used goes; what is larger than all of it does not come in."""

    async def body() -> None:
        image = 4 * len(small_tokenizer().encode("a").ids)
        bench = Bench(cache_bytes=2 * (ENTRY_BYTES + image))
        texts = [TextPrompt(prompt=name) for name in "abc"]
        for text in (texts[0], texts[1], texts[0], texts[2]):
            await bench.make(text)
        known = [(made := await bench.make(text)) is not None and made.cached for text in (texts[0], texts[2])]
        assert [True, True] == known
        assert 2 * (ENTRY_BYTES + image) == bench.making.cache_bytes
        for _ in range(2):
            large = await bench.make(TextPrompt(prompt="q z" * 200))
            assert large is not None
            assert not large.cached
        assert {"limits.text_cache_bytes": 1} == bench.told.limits
        bench.making.forget()
        assert 0 == bench.making.cache_bytes
        assert {"limits.text_cache_bytes": 1} == bench.told.limits, "that was nobody's limit"

    run_on("asyncio", body())


def test_a_template_that_tells_the_time_is_believed_for_a_minute() -> None:
    """Others for good."""

    async def body() -> None:
        clock = ManualClock(at=0.0)
        bench = Bench(clock)
        dated = LocalTokenizer(small_tokenizer(), {"default": ChatTemplate("{{ strftime_now('%H:%M') }}", {}, clock)})
        undated = LocalTokenizer(small_tokenizer(), {"default": ChatTemplate("x", {}, clock)})
        text = TextPrompt(messages=[{"role": "user", "content": "a"}])
        for maker, after in ((dated, False), (undated, True)):
            cached = []
            for _ in range(2):
                for _ in range(2):
                    made = await bench.make(text, Chosen(str(id(maker)), maker))
                    assert made is not None
                    cached.append(made.cached)
                clock.at += 60
            assert [False, True, after, True] == cached

    run_on("asyncio", body())


def test_engines_are_asked_while_the_service_runs() -> None:
    """Once for equal texts of one tenant; another's engines may have another tokenizer."""

    async def body() -> None:
        bench = Bench()
        chosen = Chosen("default", EngineTokenizer())
        async with engine() as one:
            assert await bench.make(chosen=chosen, at=At(one.url)) is None, "not yet"
            async with _running(bench):
                for tenant, cached in (("a", False), ("a", True), ("b", False)):
                    made = await bench.make(chosen=chosen, at=At(one.url, tenant))
                    assert made is not None
                    assert cached == made.cached
                assert await bench.make(chosen=chosen) is None, "nobody to ask"
            assert 2 == len(one.asked)
        assert {("engine", "failed"): 2, ("engine", "made"): 2, ("engine", "cached"): 1} == bench.told.results

    run_on("uvloop", body())


async def _slowly(one: TokenizeEngine, question: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(0.1)
    await well(one, question, writer)


def test_callers_in_a_hurry_are_no_failure_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """They leave without tokens; what they asked for is known afterwards, and nobody's engine rests for it."""
    monkeypatch.setattr(making, "ENGINE_S", LONG_S)

    async def body() -> None:
        bench = Bench()
        chosen = Chosen("m", EngineTokenizer())
        texts = [TextPrompt(prompt=str(number)) for number in range(FAILURES_MAX)]
        async with engine(_slowly) as one, _running(bench):
            for text in texts:
                assert await bench.make(text, chosen, within_s=0.0, at=At(one.url)) is None
            await until(lambda: bench.told.made == FAILURES_MAX, "what they left")
            made = [await bench.make(text, chosen, at=At(one.url)) for text in (texts[0], TEXT)]
            assert [True, False] == [each is not None and each.cached for each in made]
            assert made[1] is not None
        assert {("engine", "late"): FAILURES_MAX, ("engine", "made"): 1, ("engine", "cached"): 1} == bench.told.results

    run_on("asyncio", body())


SOON_S = 0.1


def test_who_joins_an_engines_work_waits_by_its_own_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work goes on as long as one caller waits, and those in a hurry leave before; the engine is asked once."""
    monkeypatch.setattr(making, "ENGINE_S", SOON_S)

    async def body() -> None:
        bench, may_answer = Bench(), asyncio.Event()
        chosen = Chosen("m", EngineTokenizer())

        async def when_let(one: TokenizeEngine, question: dict[str, Any], writer: asyncio.StreamWriter) -> None:
            await may_answer.wait()
            await well(one, question, writer)

        async with engine(when_let) as one, _running(bench), asyncio.TaskGroup() as tasks:
            first = tasks.create_task(bench.make(chosen=chosen, within_s=SOON_S, at=At(one.url)))
            patient = tasks.create_task(bench.make(chosen=chosen, at=At(one.url)))
            assert await first is None
            for _ in range(3):  # well beyond the first one's time, and the twofold of it
                assert await bench.make(chosen=chosen, within_s=SOON_S, at=At(one.url)) is None
            may_answer.set()
            made = await patient
            assert made is not None
            assert not made.cached
            assert 1 == len(one.asked)

    run_on("asyncio", body())


def test_who_joins_work_that_is_given_up_has_it_begun_anew() -> None:
    """It was late for those before; who has come meanwhile has time left."""

    class LooksAgain(HeldTokenizer):
        def tokens(self, text: TextPrompt, limits: TextLimits, over: Callable[[], bool]) -> bytes:
            was_over = over()
            image = super().tokens(text, limits, over)
            if was_over:
                raise OutOfTime
            return image

    async def body() -> None:
        bench, held = Bench(), LooksAgain()
        chosen = Chosen("m", held)
        assert await bench.make(chosen=chosen, within_s=0.0) is None
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(bench.make(chosen=chosen)) for _ in range(3)]
            await until(lambda: bool(held.begun), "the work")
            held.may_go_on.set()
        assert all(made.result() is not None for made in asked)
        assert 2 == len(held.begun)

    run_on("asyncio", body())


def test_an_engine_that_hangs_is_found_out_though_callers_keep_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each joins those before it, and no longer than a caller waits twice; who then has time left has it asked anew."""
    monkeypatch.setattr(making, "ENGINE_S", SOON_S)

    async def body() -> None:
        bench = Bench(waiting_max=1)
        chosen = Chosen("m", EngineTokenizer())
        async with engine(never) as one, _running(bench), asyncio.TaskGroup() as tasks:
            outcomes = []

            def found_out() -> bool:
                outcomes.append(tasks.create_task(bench.make(chosen=chosen, within_s=SOON_S, at=At(one.url))))
                return len(one.asked) == FAILURES_MAX

            await until(found_out, "that it is asked anew")
        assert {None} == {each.result() for each in outcomes}

    run_on("asyncio", body())


def test_the_end_waits_for_no_thread() -> None:
    """Who waits learns that there are no tokens; what was not begun never is; a template at work gives up."""

    async def body() -> None:
        bench, held, before = Bench(), HeldTokenizer(), set(threading.enumerate())
        chosen = Chosen("m", held)
        async with asyncio.TaskGroup() as tasks:
            async with _running(bench):
                asked = [tasks.create_task(bench.make(TextPrompt(prompt=name), chosen)) for name in "ab"]
                await until(lambda: bool(held.begun), "the only thread at work")
            assert {None} == {await each for each in asked}
        assert await bench.make() is None, "no more work"
        held.may_go_on.set()
        await until(lambda: not set(threading.enumerate()) - before, "the end of the thread")
        assert 1 == len(held.begun)
        assert 0 == bench.told.made

    run_on("asyncio", body())


def test_the_stop_does_not_wait_for_an_engine_for_long() -> None:
    """Whoever waits for it learns that there are no tokens."""

    async def body() -> None:
        bench = Bench()
        async with engine(never) as one, asyncio.TaskGroup() as tasks:
            async with _running(bench):
                asking = tasks.create_task(bench.make(chosen=Chosen("m", EngineTokenizer(one.url))))
                await until(lambda: bool(one.asked), "the question")
            assert await asking is None

    run_on("asyncio", body())
