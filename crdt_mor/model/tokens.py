"""The last token of each application: recent ones in a version, the others in an object that it names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from crdt_mor.model.numbers import BITS
from crdt_mor.model.timeline_json import FORMAT, decoding, token_json
from crdt_mor.model.timeline_parts import Completion, Token


@dataclass(frozen=True)
class Stored:
    """An object with older tokens, by application. entries: None before it is read."""

    name: str
    entries: Mapping[str, Token] | None = field(default=None, compare=False, repr=False)

    @property
    def read(self) -> Mapping[str, Token]:
        if self.entries is None:
            raise AssertionError(f"read the tokens first, with `log.segments.with_objects`. {self.name=}")
        return self.entries


@dataclass(frozen=True)
class Tokens:
    """All last tokens. An application's recent token counts instead of a stored one."""

    recent: tuple[Token, ...] = ()
    stored: Stored | None = None

    def __iter__(self) -> Iterator[Token]:
        if self.stored is not None:
            come_back = {token.application for token in self.recent}
            yield from (token for token in self.stored.read.values() if token.application not in come_back)
        yield from self.recent

    @property
    def object(self) -> str | None:
        return self.stored.name if self.stored is not None else None

    @property
    def is_unread(self) -> bool:
        return self.stored is not None and self.stored.entries is None

    def find(self, application: str) -> Token | None:
        last = next((t for t in self.recent if t.application == application), None)
        return last if last is not None or self.stored is None else self.stored.read.get(application)

    def after(self, completion: Completion) -> Tokens:
        tokens = self
        for application, number in completion.tokens:
            last = tokens.find(application)
            assert last is None or last.number < number, "a token's numbers grow"
            others = tuple(t for t in tokens.recent if t.application != application)
            newest = Token(application, number, completion.requested, completion.completed, completion.version)
            tokens = replace(tokens, recent=(*others, newest))
        return tokens

    def parted(self, most: int) -> tuple[tuple[Token, ...], tuple[Token, ...]]:
        """Return the older tokens, by application, and the `most` newest ones."""
        ordered = sorted(self, key=lambda token: (token.completed, token.application))
        older, newest = ordered[: len(ordered) - most], ordered[len(ordered) - most :]
        return tuple(sorted(older, key=lambda token: token.application)), tuple(newest)


NO_TOKENS: Final = Tokens()


def stored_tokens(name: str, tokens: Iterable[Token]) -> Stored:
    return Stored(name, {token.application: token for token in tokens})


# --- bytes ------------------------------------------------------------------------------------------------------------


def tokens_json(tokens: Tokens) -> object:
    """Return a list, or an object, which older releases refuse."""
    recent = [token_json(token) for token in tokens.recent]
    return recent if tokens.stored is None else {"recent": recent, "object": tokens.stored.name}


def tokens_in(entry: Any) -> Tokens:
    if isinstance(entry, list):
        return Tokens(_tokens_of(entry))
    name = entry["object"]
    if not isinstance(name, str):
        raise TypeError(f"a text. {name=}")
    return Tokens(_tokens_of(entry["recent"]), Stored(name))


def encode_tokens(stored: Stored) -> bytes:
    document = {"format": FORMAT, "tokens": [token_json(token) for token in stored.read.values()]}
    return json.dumps(document, separators=(",", ":")).encode()


def decode_tokens(name: str, data: bytes, path: str) -> Stored:
    with decoding("the tokens of applications, restore them from a backup", path):
        return stored_tokens(name, _tokens_of(json.loads(data)["tokens"]))


_KINDS: Final = (str, int, str, str, int)


def _tokens_of(entries: list[Any]) -> tuple[Token, ...]:
    for entry in entries:
        if tuple(map(type, entry)) != _KINDS or (entry[1] | entry[4]).bit_length() > BITS:
            raise TypeError(f"a token. {entry=!r:.200}")
    return tuple(Token(*entry) for entry in entries)
