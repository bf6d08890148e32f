"""Which tokenizer a question's text is for, what comes of its deadline, and what the answer says of it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from indexer.clock import SystemClock
from indexer.errors import BadRequestError
from indexer.model import Descriptor
from indexer.node import Node
from indexer.settings import Settings
from indexer.settings.sections import Limits, Models, TokenizerEntry
from schemas.lookup import LookupAnswer, LookupQuery, PodEntry, TextPrompt, TokenizerUsed
from tests.support.collecting import run_on, until
from tests.support.text_models import published, published_tokenizer, small_tokenizer
from tests.support.tokenize_engine import engine, never, saying, well

FOX = TextPrompt(prompt="fox")


def _source(pod: str, model: str | None = "m", **fields: object) -> Descriptor:
    return Descriptor(pod=pod, model=model, endpoint=f"tcp://127.0.0.1:{1 + sum(pod.encode())}", **fields)  # type: ignore[arg-type]


@asynccontextmanager
async def _node(models: Models, *sources: Descriptor, **limits: int) -> AsyncIterator[Node]:
    """One that runs until the block ends."""
    node = Node(Settings(models=models, sources=sources, limits=Limits(**limits)), SystemClock())
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(node.run(stop))
        await until(lambda: node._making._group is not None, "the node")
        try:
            yield node
        finally:
            stop.set()


@pytest.fixture
def small(tmp_path: Path) -> TokenizerEntry:
    """A model's folder."""
    return TokenizerEntry(file=str(published(tmp_path / "small")))


@pytest.fixture
def real() -> TokenizerEntry:
    """A model's file."""
    return TokenizerEntry(file=str(published_tokenizer()))


def _ids(prompt: str) -> bytes:
    return b"".join(token.to_bytes(4, "little") for token in small_tokenizer().encode(prompt).ids)


def test_the_base_model_decides(small: TokenizerEntry, real: TokenizerEntry) -> None:
    """However it is named: by itself, by an alias, by none where there is only one."""

    async def body() -> None:
        models = Models(aliases={"short": "m"}, tokenizers={"m": small, "other": real})
        async with _node(models, _source("a"), _source("b", "other")) as node:
            for name in ("m", "short"):
                query = await node.tokenized(LookupQuery(text=FOX, model=name, request_id="r"))
                used = TokenizerUsed(source="file", name="m", tokens=3, cached=name == "short")
                assert LookupQuery(tokens=_ids("fox"), model=name, request_id="r", tokenizer=used) == query
                answer = node.lookup(query)
                assert (used, 3, "m") == (answer.tokenizer, answer.prompt_tokens, answer.model)
            only = await node.tokenized(LookupQuery(text=FOX, pods=("a",)))
            assert _ids("fox") == only.tokens
            other = await node.tokenized(LookupQuery(text=FOX, model="other"))
            assert _ids("fox") != other.tokens
            with pytest.raises(BadRequestError) as caught:
                await node.tokenized(LookupQuery(text=FOX))
            assert "model.missing" == caught.value.code

    run_on("asyncio", body())


def test_a_known_text_is_told_at_once(small: TokenizerEntry) -> None:
    """And so is that there is nothing to tokenize for."""

    async def body() -> None:
        async with _node(Models(tokenizers={"m": small}), _source("a")) as node:
            asked = LookupQuery(text=FOX, model="m", timeout_ms=20_000)
            assert node.tokenized_before(asked) is None
            await node.tokenized(asked)
            used = TokenizerUsed(source="file", name="m", tokens=3, cached=True)
            expected = LookupQuery(tokens=_ids("fox"), model="m", timeout_ms=20_000, tokenizer=used)
            assert expected == node.tokenized_before(asked)
            assert LookupQuery(model="x") == node.tokenized_before(LookupQuery(text=FOX, model="x"))
            with pytest.raises(BadRequestError):
                node.tokenized_before(LookupQuery(text=TextPrompt(prompt="\ud800"), model="m"))
            ids = LookupQuery(tokens=b"", model="m")
            assert ids is node.tokenized_before(ids)
            assert ids is await node.tokenized(ids)

    run_on("asyncio", body())


def test_an_adapter_is_read_by_its_base_models_tokenizer(small: TokenizerEntry) -> None:
    """It was trained on its tokens."""

    async def body() -> None:
        async with _node(Models(tokenizers={"m": small}), _source("a")) as node:
            source = node.registry.named("a")[0]
            source.adapters["tuned"] = 1
            node.registry.version += 1
            query = await node.tokenized(LookupQuery(text=FOX, model="tuned"))
            assert query.tokenizer is not None
            assert "m" == query.tokenizer.name

    run_on("asyncio", body())


def test_where_there_is_nobody_to_ask_about_nothing_is_tokenized(small: TokenizerEntry) -> None:
    """The lookup says why; with nothing configured, too."""

    async def body() -> None:
        for models in (Models(tokenizer=small.file), Models()):
            async with _node(models, _source("a"), _source("b", "other")) as node:
                for fields, reason in (
                    ({"model": "unknown"}, "model_unknown"),
                    ({"model": "m", "pods": ("nobody",)}, "pod_unknown"),
                    ({"model": "m", "pods": ("b",)}, "other_model"),
                    ({"model": "m", "tenant": "another"}, "model_unknown"),
                ):
                    query = await node.tokenized(LookupQuery(text=FOX, **fields))  # type: ignore[arg-type]
                    assert (None, None, None, False) == (query.text, query.tokens, query.tokenizer, query.overdue)
                    answer = node.lookup(query)
                    assert (reason, 0, msgspec.UNSET) == (answer.reason, answer.prompt_tokens, answer.tokenizer)

    run_on("asyncio", body())


def test_without_a_tokenizer_a_text_is_refused() -> None:
    """With what to do instead."""

    async def body() -> None:
        async with _node(Models(), _source("a")) as node:
            for text, field in ((FOX, "prompt"), (TextPrompt(messages=[]), "messages")):
                with pytest.raises(BadRequestError) as caught:
                    await node.tokenized(LookupQuery(text=text, model="m"))
                assert ("prompt.no_tokenizer", field) == (caught.value.code, caught.value.issues[0].field)

    run_on("asyncio", body())


def test_to_hash_no_source_need_be_there(small: TokenizerEntry) -> None:
    """A tokenizer is enough."""

    async def body() -> None:
        async with _node(Models(tokenizers={"m": small})) as node:
            query = await node.tokenized(LookupQuery(text=FOX, model="m", block_size=1))
            assert 3 == len(node.hash(query).hashes)
            unknown = await node.tokenized(LookupQuery(text=FOX, model="x", block_size=1))
            assert unknown.tokens is None

    run_on("asyncio", body())


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize("group", ["rank", "pod"])
def test_beyond_the_deadline_an_answer_says_so(small: TokenizerEntry, encoding: str, group: str) -> None:
    """Of every candidate; a name that nobody has is still told as such."""

    async def body() -> None:
        async with _node(Models(tokenizers={"m": small}), _source("a"), _source("a", dp_rank=1), _source("b")) as node:
            asked = LookupQuery(text=FOX, model="m", timeout_ms=0, pods=("b", "a", "c"), group=group)  # type: ignore[arg-type]
            query = await node.tokenized(asked)
            assert (True, None, 0) == (query.overdue, query.tokens, query.timeout_ms)
            answer = node.lookup(query, encoding=encoding)  # type: ignore[arg-type]
            encode, decode = (
                (msgspec.json.encode, msgspec.json.decode)
                if encoding == "json"
                else (msgspec.msgpack.encode, msgspec.msgpack.decode)
            )
            told = decode(encode(answer), type=LookupAnswer)
            pods = msgspec.convert(decode(encode(answer.pods)), list[PodEntry])
            assert ("no_signal", "deadline", 0) == (told.state, told.reason, told.prompt_tokens)
            ranks = [("a", 0)] if group == "pod" else [("a", 0), ("a", 1)]
            assert {(*rank, "deadline", 0.0) for rank in [*ranks, ("b", 0)]} | {("c", 0, "pod_unknown", 0.0)} == {
                (entry.pod, entry.dp_rank, entry.reason, entry.score) for entry in pods
            }

    run_on("asyncio", body())


def test_a_text_leaves_the_rest_what_is_left_of_its_time(small: TokenizerEntry) -> None:
    """Who waits for events after it has that long."""

    async def body() -> None:
        async with _node(Models(tokenizers={"m": small}), _source("a")) as node:
            query = await node.tokenized(LookupQuery(text=FOX, model="m", timeout_ms=20_000))
            assert query.timeout_ms is not None
            assert 0 < query.timeout_ms <= 20_000
            assert (await node.tokenized(LookupQuery(text=FOX, model="m"))).timeout_ms is None

    run_on("asyncio", body())


def test_an_engine_is_asked_where_its_source_says_it_is() -> None:
    """By the name of the model; engines of others and of other tenants are not."""

    async def body() -> None:
        async with engine() as one, engine() as other:
            at, elsewhere = (f"127.0.0.1:{each.port}" for each in (one, other))
            async with _node(
                Models(tokenizer="engine"),
                _source("a", address=at),
                _source("b", "other", address=elsewhere),
                _source("c", tenant="another", address=f"localhost:{other.port}"),
                _source("d"),
            ) as node:
                query = await node.tokenized(LookupQuery(text=FOX, model="m"))
                assert TokenizerUsed(source="engine", name="default", tokens=3, cached=False) == query.tokenizer
                assert bytes([102, 0, 0, 0, 111, 0, 0, 0, 120, 0, 0, 0]) == query.tokens
                with pytest.raises(BadRequestError) as caught:
                    await node.tokenized(LookupQuery(text=FOX))
                assert "model.missing" == caught.value.code
                assert [{"model": "m", "prompt": "fox", "add_special_tokens": True}] == one.asked
                assert [] == other.asked

    run_on("asyncio", body())


def test_an_engine_is_asked_by_its_name_where_that_is_an_address() -> None:
    """Where no address is told: as a gateway is sent there."""

    async def body() -> None:
        async with engine() as one, _node(Models(tokenizer="engine"), _source(f"127.0.0.1:{one.port}")) as node:
            query = await node.tokenized(LookupQuery(text=FOX, model="m"))
            assert query.tokens
            assert [[]] == [_of_texts(view.warnings) for view in await node.source_views()]

    run_on("asyncio", body())


def _of_texts(warnings: list[str]) -> list[str]:
    return [warning for warning in warnings if "token" in warning]


def _logged(caplog: pytest.LogCaptureFixture, word: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if word in record.getMessage()]


def test_sources_whose_engine_cannot_be_asked_say_so(small: TokenizerEntry, caplog: pytest.LogCaptureFixture) -> None:
    """Each in a remark, all in one line of the log; not those of models that have files, or an engine of their own."""

    async def body() -> None:
        entries = {"file": small, "one": TokenizerEntry(engine="http://127.0.0.1:1")}
        models = Models(tokenizer="engine", tokenizers=entries)
        sources = [_source("a"), _source("b"), _source("c", "file"), _source("d", "one"), _source("e", address="e:1")]
        async with _node(models, *sources) as node:
            await until(lambda: bool(_logged(caplog, "address=")), "the line")
            said = {view.pod: _of_texts(view.warnings) for view in await node.source_views()}
            assert {"a": 1, "b": 1, "c": 0, "d": 0, "e": 0} == {pod: len(told) for pod, told in said.items()}
            assert [f"source a, b: {said['a'][0]}"] == _logged(caplog, "address=")
            assert (await node.tokenized(LookupQuery(text=FOX, model="m", pods=("a",)))).overdue

    run_on("asyncio", body())


@pytest.mark.parametrize("by", ["address", "setting"])
def test_a_source_says_while_its_engine_fails_to_make_tokens(by: str, caplog: pytest.LogCaptureFixture) -> None:
    """And why; one line when that begins, and one when it is over."""
    caplog.set_level("INFO")

    async def body() -> None:
        async with engine(saying("404 Not Found", b"")) as one:
            at = f"127.0.0.1:{one.port}"
            models = Models(tokenizers={"m": TokenizerEntry(engine=one.url if by == "setting" else True)})
            async with _node(models, _source("a", address=at if by == "address" else None), _source("z", "z")) as node:

                async def asked() -> tuple[bool, list[list[str]]]:
                    query = await node.tokenized(LookupQuery(text=FOX, model="m"))
                    return query.overdue, [_of_texts(view.warnings) for view in await node.source_views()]

                remark = "POST /tokenize failed when its engine was asked last: status 404"
                for _ in range(2):
                    assert (True, [[remark], []]) == await asked()
                one.reply = well
                assert (False, [[], []]) == await asked()
                fails, again = f"{one.url}: POST /tokenize fails: status 404", f"{one.url}: POST /tokenize works again"
                assert [f"engine {fails}", f"engine {again}"] == _logged(caplog, "POST /tokenize")

    run_on("asyncio", body())


def test_an_engine_that_says_nothing_costs_the_deadline() -> None:
    """And then the answer comes without its tokens."""

    async def body() -> None:
        async with engine(never) as one:
            models = Models(tokenizers={"m": TokenizerEntry(engine=one.url)})
            async with _node(models, _source("a"), text_timeout_ms=50) as node:
                query = await node.tokenized(LookupQuery(text=FOX, model="m"))
                assert query.overdue
                assert 1 == len(one.asked)

    run_on("asyncio", body())


def test_no_hub_is_reached(small: TokenizerEntry, real: TokenizerEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at the start, not for a text: there is no socket to reach one by."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a connection was tried")

    async def body() -> None:
        with monkeypatch.context() as patched:
            for name in ("connect", "connect_ex", "sendto"):
                patched.setattr(socket.socket, name, refuse)
            for name in ("getaddrinfo", "create_connection", "gethostbyname"):
                patched.setattr(socket, name, refuse)
            async with _node(Models(tokenizers={"m": small, "n": real}), _source("a"), _source("b", "n")) as node:
                for model in "mn":
                    query = await node.tokenized(LookupQuery(text=FOX, model=model))
                    assert query.tokens
                chat = TextPrompt(messages=[{"role": "user", "content": "fox"}])
                assert (await node.tokenized(LookupQuery(text=chat, model="m"))).tokens

    run_on("asyncio", body())
