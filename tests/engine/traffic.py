"""Seeded chat-like traffic as token ids: same seed and same replies, same prompts. No I/O."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.engine.engine import BLOCK_SIZE, LONGEST_TOKENS
from tests.engine.tiny_model import FIRST_WORD, VOCABULARY

SYSTEM_PROMPT_TOKENS = (160, 150, 64)
"""Two that end on a block border and one that does not: there the first turn decides the shared block's content."""

SALTS = (None, None, None, None, None, None, "blue", "green")
"""One a conversation. Two conversations have a cache of their own, though they share a system prompt with others."""

TALKATIVE = (4, 3, 1, 1, 1, 1, 2, 2)
"""How often each conversation speaks, beside the others."""

LONGEST_REPLY_TOKENS = 70


@dataclass(frozen=True, slots=True)
class Request:
    """One completion request."""

    prompt: tuple[int, ...]
    max_tokens: int
    salt: str | None = None


@dataclass(slots=True)
class _Conversation:
    system: tuple[int, ...]
    salt: str | None
    history: tuple[int, ...] = ()
    last: Request | None = field(default=None)


class Traffic:
    """Conversations that take turns, some of them much more talkative than others.

    The prompt of a turn is everything said before in that conversation, replies included, and something new. A
    twentieth has nothing to do with any conversation, a sixth repeats a request to the letter.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        systems = [self._words(length) for length in SYSTEM_PROMPT_TOKENS]
        self._conversations = [_Conversation(systems[number % len(systems)], salt) for number, salt in enumerate(SALTS)]
        self._current: _Conversation | None = None

    def next_request(self) -> Request:
        """The next request; call `replied` with its output before asking for another."""
        kind = self._random.random()
        if kind < 0.05:
            self._current = None
            return self._request(self._words(self._random.choice((1, 31, 32, 33, 65, 200, 256))), None)
        conversation = self._current = self._choose()
        if conversation.last is not None and kind < 0.22:
            return conversation.last
        if (
            not conversation.history
            or len(conversation.history) > LONGEST_TOKENS - 2 * LONGEST_REPLY_TOKENS - 2 * BLOCK_SIZE
        ):
            conversation.history = conversation.system
        conversation.last = self._request(self._next_turn(conversation.history), conversation.salt)
        return conversation.last

    def replied(self, request: Request, output: Sequence[int]) -> None:
        """Take a reply into the conversation it belongs to."""
        if self._current is not None:
            self._current.history = request.prompt + tuple(output)

    def burst(self, size: int) -> list[Request]:
        """New requests to be sent at once: a shared beginning, two of them equal. They belong to no conversation.

        Started in one step, they compute equal blocks side by side, and the engine keeps them all.
        """
        beginning = self._words(4 * BLOCK_SIZE)
        first = self._request(beginning + self._words(40), None)
        return [first, first, *(self._request(beginning + self._words(40), None) for _ in range(size - 2))]

    def _choose(self) -> _Conversation:
        # Half of all turns go to two of the conversations: some prefixes stay warm while others are evicted.
        return self._random.choices(self._conversations, TALKATIVE)[0]

    def _next_turn(self, history: tuple[int, ...]) -> tuple[int, ...]:
        """Something new after the history: a third each ends on a block border, one token behind it, and anywhere."""
        said = self._random.randint(1, LONGEST_REPLY_TOKENS)
        style = self._random.randrange(3)
        if style < 2:
            said += -(len(history) + said) % BLOCK_SIZE + style
        return history + self._words(said)

    def _request(self, prompt: tuple[int, ...], salt: str | None) -> Request:
        return Request(prompt, max_tokens=self._random.randint(1, LONGEST_REPLY_TOKENS), salt=salt)

    def _words(self, count: int) -> tuple[int, ...]:
        return tuple(self._random.choices(range(FIRST_WORD, VOCABULARY), k=count))
