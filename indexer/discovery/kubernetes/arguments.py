"""[pure] What the command line of an engine's container says of its ports, ranks, model and events.

Engines are vLLM and SGLang, started plainly (`vllm serve MODEL …`, `python -m …`), by their image's own entry point, or
by a shell (`sh -c "…"`). What cannot be known from here (a variable that comes of a secret, arithmetic of a shell) is
left out, and never guessed. Arguments are read and forgotten: what is kept holds none but those named here.

Whoever may start a pod chooses them, so whatever stands there is read in time that grows with its length alone, within
`CHARACTERS_MAX`, and raises nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Engine = Literal["vllm", "sglang"]

WORDS_MAX: Final = 2_048
"""Of a command line; engines take some dozens."""
CHARACTERS_MAX: Final = 32_768
"""Of a command line with its variables filled in; engines take some hundreds. What is beyond cannot be known."""
EVENTS_CHARACTERS_MAX: Final = 4_096
BLOCK_SIZE_MAX: Final = 65_536

_SHELLS: Final = frozenset({"sh", "bash", "ash", "dash", "zsh"})
_OPERATORS: Final = frozenset("();<>|&\n")
_TOKEN: Final = re.compile(
    r"""[ \t\r]++|(?P<operator>[();<>|&\n]++)"""
    r"""|(?P<word>(?:[^ \t\r();<>|&\n'"\\]|\\.|'[^']*+'|"(?:[^"\\]|\\.)*+")++)""",
    re.DOTALL,
)
_QUOTED: Final = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)""", re.DOTALL)
_ESCAPED_IN_QUOTES: Final = re.compile(r"""\\(["\\])""")
_OF_KUBERNETES: Final = re.compile(r"\$(?:\$|\(([A-Za-z_][\w.-]*)\))")
_OF_SHELL: Final = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?-([^{}$]*))?\})")
_COMPUTED: Final = re.compile(r"\$\(\([^()]*\)\)|\$\([^()]*\)")
_NOT_KNOWN: Final = re.compile(r"[$`]")
_BEYOND: Final = "$"
"""Stands for a word that is too long: one whose value cannot be known."""
_FLAG: Final = re.compile(r"--?[A-Za-z]")
_EVENTS: Final = "--kv-events-config"
_MODULES: Final = ("vllm.entrypoints.", "sglang.launch_server", "sglang.srt.")

_SHORT: Final = {
    "-dp": "--data-parallel-size",
    "-dpl": "--data-parallel-size-local",
    "-dpn": "--data-parallel-rank",
    "-dpr": "--data-parallel-start-rank",
}
_OF_SGLANG: Final = {
    "--dp": "--data-parallel-size",
    "--dp-size": "--data-parallel-size",
    "--model-path": "--model",
    "--page-size": "--block-size",
}
_RANKS: Final = (
    "--data-parallel-rank",
    "--data-parallel-start-rank",
    "--data-parallel-size-local",
    "--data-parallel-size",
)
_DEFAULT_PORTS: Final[Mapping[Engine, int]] = {"vllm": 8000, "sglang": 30_000}


class Events(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of an engine's events. `port` 0: whichever it took, which only the engine can tell."""

    port: int | None = None
    """Of rank 0. None: it publishes none that could be listened to here, and `why` says why not."""
    replay_port: int | None = None
    """Of rank 0. None: it replays nothing."""
    why: str = ""


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """What a command line says. None: nothing, or nothing that can be known from here."""

    engine: Engine | None = None
    """None: no engine that is known here is started by it, as far as it can be seen."""
    port: int | None = None
    model: str | None = None
    served: tuple[str, ...] = ()
    """The names under which it serves its model; the first is what it calls it."""
    events: Events | None = None
    ranks: tuple[int, ...] | None = None
    """Those that publish from here. Empty: none do."""
    tells_ranks: bool = False
    """Whether they are said, and not what an engine does where nothing is."""
    block_size: int | None = None
    """Tokens of a block of its cache."""
    unread: tuple[str, ...] = ()
    """Options whose values cannot be known from here."""


NOTHING: Final = Arguments()


def read_arguments(command: Sequence[str], args: Sequence[str], variables: Mapping[str, str]) -> Arguments:
    """Of a container. `variables`: those of its environment whose values stand in the pod itself."""
    words = _within_bounds((*command, *args), lambda word, room: _filled_in(word, variables, room))
    script = _script(words)
    if script is not None:
        words = _within_bounds(_engine_of(_split(script)), lambda word, room: _of_shell(word, variables, room))
    own, engine = _own_words(words, is_whole=bool(command) or script is not None)
    if engine is None:
        return NOTHING
    return _Reading(own, engine).read()


def _within_bounds(words: Sequence[str], read: Callable[[str, int], str]) -> list[str]:
    """Each as it is read, given how long it may become; those that are or become too long are not known."""
    room, out = CHARACTERS_MAX, []
    for word in words[:WORDS_MAX]:
        own = read(word, room) if len(word) <= room else _BEYOND
        room -= len(own)
        out.append(own)
    return out


def _substituted(pattern: re.Pattern[str], value: Callable[[re.Match[str]], str], word: str, room: int) -> str:
    """With values in place of what matches; looked at before, as a short word can become longer than any memory."""
    grows = sum(len(value(match)) - len(match[0]) for match in pattern.finditer(word))
    return pattern.sub(value, word) if len(word) + grows <= room else _BEYOND


def _filled_in(word: str, variables: Mapping[str, str], room: int) -> str:
    """As the kubelet does it: `$(NAME)` where that is known, `$$` for a dollar sign."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] is None else variables.get(match[1], match[0])

    return _substituted(_OF_KUBERNETES, value, word, room)


def _of_shell(word: str, variables: Mapping[str, str], room: int) -> str:
    def value(match: re.Match[str]) -> str:
        given = variables.get(match[1] or match[2]) or match[3]
        return match[0] if given is None else given

    return _substituted(_OF_SHELL, value, word, room)


def _script(words: Sequence[str]) -> str | None:
    """What a shell is given to run, if it is one that is started."""
    if not words or words[0].rpartition("/")[2] not in _SHELLS:
        return None
    for place, word in enumerate(words[1:-1], start=1):
        if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
            return words[place + 1]
    return None


def _split(script: str) -> list[str]:
    """Words and operators, without what it computes and comments on."""
    lines = _COMPUTED.sub("$", script.replace("\\\n", " ")).split("\n")
    return tokens_of("\n".join(line for line in lines if not line.lstrip().startswith("#")))


def tokens_of(script: str) -> list[str]:
    """Words without their quotes, and operators; nothing where quotes do not end."""
    tokens: list[str] = []
    at = 0
    while at < len(script) and len(tokens) < WORDS_MAX:
        match = _TOKEN.match(script, at)
        if match is None:
            return []
        at = match.end()
        if match["operator"] is not None:
            tokens.append(match["operator"])
        elif match["word"] is not None:
            tokens.append(_QUOTED.sub(_unquoted, match["word"]))
    return tokens


def _unquoted(match: re.Match[str]) -> str:
    """What a shell makes of it; in double quotes a backslash counts before those and itself alone."""
    if match[2] is not None:
        return _ESCAPED_IN_QUOTES.sub(r"\1", match[2])
    return match[1] if match[1] is not None else match[3]


def _engine_of(words: Sequence[str]) -> list[str]:
    """Of the commands of a script the one that starts an engine."""
    one: list[str] = []
    for word in (*words, "\n"):
        if word and _OPERATORS.issuperset(word):
            if _start_of(one) is not None:
                return one
            one = []
        else:
            one.append(word)
    return []


def _start_of(words: Sequence[str]) -> tuple[int, Engine] | None:
    """Where an engine's own words begin, and which it is."""
    for place, word in enumerate(words):
        following = words[place + 1] if place + 1 < len(words) else ""
        if word.rpartition("/")[2] in {"vllm", "sglang"} and following == "serve":
            return place + 2, "sglang" if "sglang" in word else "vllm"
        if word == "-m" and following.startswith(_MODULES):
            return place + 2, "sglang" if following.startswith("sglang") else "vllm"
        if word.endswith(".py") and ("vllm" in word or "sglang" in word):
            return place + 1, "sglang" if "sglang" in word else "vllm"
    return None


def _own_words(words: Sequence[str], *, is_whole: bool) -> tuple[Sequence[str], Engine | None]:
    """An engine's own words, and which it is. Arguments alone are those of an image whose entry point is the engine."""
    start = _start_of(words)
    if start is not None:
        return words[start[0] :], start[1]
    if is_whole:
        return (), None
    own = list(words[1:] if words[:1] == ["serve"] else words)
    names = {_name_of(word) for word in own}
    if names & _OF_SGLANG.keys():
        return own, "sglang"
    return own, "vllm" if own else None


def _name_of(word: str) -> str:
    """`--served_model_name=x` is `--served-model-name`."""
    name = word.partition("=")[0]
    if not name.startswith("--"):
        return name
    head, dot, keys = name.partition(".")
    return head.replace("_", "-") + dot + keys


class _Reading:
    """One command line of an engine, taken apart."""

    def __init__(self, words: Sequence[str], engine: Engine) -> None:
        self._engine = engine
        self._options: dict[str, list[str]] = {}
        self._positional: str | None = None
        self._unread: dict[str, None] = {}
        self._take(words)

    def read(self) -> Arguments:
        model = self._text("--model") or self._known(self._positional, "the model")
        return Arguments(
            engine=self._engine,
            port=self._number("--port", 1, 65_535) if "--port" in self._options else self._default_port(),
            model=model,
            served=tuple(
                name for name in self._options.get("--served-model-name", ()) if self._known(name, "its name")
            ),
            events=self._events(),
            ranks=self._ranks(),
            tells_ranks=any(name in self._options for name in _RANKS),
            block_size=self._number("--block-size", 1, BLOCK_SIZE_MAX),
            unread=tuple(self._unread),
        )

    def _take(self, words: Sequence[str]) -> None:
        others = _OF_SGLANG if self._engine == "sglang" else {}
        values: list[str] | None = None
        for place, word in enumerate(words):
            if _FLAG.match(word):
                name, equals, value = _name_of(word), *word.partition("=")[1:]
                name = _SHORT.get(name, others.get(name, name))
                values = self._options[name] = [value] if equals else []
            elif values is not None:
                values.append(word)
            elif place == 0 and self._engine == "vllm":
                self._positional = word

    def _default_port(self) -> int | None:
        """None where a file of its own may say otherwise."""
        return None if "--config" in self._options else _DEFAULT_PORTS[self._engine]

    def _known(self, value: str | None, what: str) -> str | None:
        if value is not None and _NOT_KNOWN.search(value):
            self._unread[what] = None
            return None
        return value or None

    def _text(self, name: str) -> str | None:
        values = self._options.get(name)
        return self._known(values[0], name) if values else None

    def _number(self, name: str, low: int, high: int) -> int | None:
        text = self._text(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(high)) and low <= int(text) <= high):
            self._unread[name] = None
            return None
        return int(text)

    def _ranks(self) -> tuple[int, ...] | None:
        """Each publishes at the base of the ports + its number, counted over all nodes."""
        rank, start, local, size = (self._number(name, 0, 65_535) for name in _RANKS)
        if any(name in self._unread for name in _RANKS):
            return None
        if "--config" in self._options and not any(name in self._options for name in _RANKS):
            return None
        if rank is not None:
            return (rank,)
        first = start or 0
        count = local if local is not None else size if size is not None else 1
        return tuple(range(first, min(first + min(count, RANKS_MAX), 65_536)))

    # -- events -------------------------------------------------------------------------------------------------------

    def _events(self) -> Events | None:
        """None: nothing is said of them, or nothing that can be known from here."""
        told = self._events_told()
        if told is None:
            return None
        publisher = told.get("publisher")
        if self._engine == "vllm" and told.get("enable_kv_cache_events") not in (True, "true", "True"):
            return Events(why="its kv-events-config does not have enable_kv_cache_events: it announces nothing")
        if publisher != "zmq" and (self._engine == "sglang" or publisher is not None):
            return Events(why="the publisher of its kv-events-config is not zmq: it announces nothing")
        endpoint, replay = told.get("endpoint", "tcp://*:5557"), told.get("replay_endpoint")
        for each in (endpoint, replay):
            if isinstance(each, str) and self._known(each, _EVENTS) is None:
                return None
        port, why = _bound_port(endpoint, binds_any=self._engine == "sglang")
        if port is None:
            return Events(why=why)
        replay_port, _ = _bound_port(replay, binds_any=True) if replay is not None else (None, "")
        return Events(port=port, replay_port=replay_port)

    def _events_told(self) -> dict[str, object] | None:
        """JSON, or keys behind a dot, of which the later win as in the engine."""
        told: dict[str, object] = {}
        is_told = False
        for name, values in self._options.items():
            head, dot, key = name.partition(".")
            if head != _EVENTS or not values or len(values[0]) > EVENTS_CHARACTERS_MAX:
                continue
            is_told = True
            if dot:
                told[key.replace("-", "_")] = _value_of(values[0])
                continue
            whole = _decoded(values[0], None)
            if not isinstance(whole, dict):
                self._known("$", _EVENTS)
                return None
            told.update(whole)
        return told if is_told else None


RANKS_MAX: Final = 1_024
"""Of one pod."""


def _value_of(text: str) -> object:
    """As the engine takes what stands behind a dotted key: JSON, else text."""
    return _decoded(text, text)


def _decoded(text: str, otherwise: object) -> object:
    """What it is as JSON, and where it is none, or goes too deep, what is given."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return otherwise


def _bound_port(endpoint: object, *, binds_any: bool) -> tuple[int | None, str]:
    """The port that an engine binds, or why there is none to connect to.

    vLLM binds where `*` or `::` stands in its endpoint, and connects otherwise; a replay endpoint is always bound.
    """
    if not isinstance(endpoint, str):
        return None, "the endpoint of its events is no text"
    if not endpoint.startswith("tcp://"):
        return None, "its events go to an endpoint that no other pod can reach: tcp://*:PORT is wanted"
    port = endpoint.removeprefix("tcp://").rpartition(":")[2]
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65_535):  # noqa: PLR2004  a port
        return None, "the endpoint of its events has no port"
    if not (binds_any or "*" in endpoint or "::" in endpoint):
        return None, (
            "it connects to the endpoint of its events instead of binding it: write tcp://*:PORT there, or listen by "
            "topic (events.source_bind)"
        )
    return int(port), ""


def referenced(words: Sequence[str]) -> frozenset[str]:
    """Names of variables that a command line may need; others are not kept."""
    names: set[str] = set()
    for word in _within_bounds(words, lambda word, _: word):
        names.update(match[1] for match in _OF_KUBERNETES.finditer(word) if match[1] is not None)
        names.update(match[1] or match[2] for match in _OF_SHELL.finditer(word))
    return frozenset(names)
