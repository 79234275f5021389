"""Intents: events as values. Their writer publishes them, or posts them for others to publish.

Each derives the next value from the current tail, or nothing if done or impossible.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from crdt_mor.errors import CrdtMorError
from crdt_mor.log.stopping import blocking_token, require_open
from crdt_mor.model.authors import Author, author_json, author_of
from crdt_mor.model.declared import ANYTHING, Declared, declared_from, declared_json
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.posts import Decided, PostName, noting, still_kept, token_of
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import FORMAT, WRONG_SHAPE, file_json, require_types
from crdt_mor.model.timeline_parts import DataFile

BYTES_MAX: Final = 1 << 14
"""Size limit of a posted event. The end of a write in hundreds of file groups is published by its writer alone."""


@dataclass(frozen=True, slots=True)
class BeginIntent:
    """The begin of a write. store_ms: an earlier reading of the store's clock."""

    nonce: str
    store_ms: int | None
    author: Author | None
    declared: Declared = ANYTHING

    def derive(self, tail: Timeline, wall_ms: int) -> Timeline | None:
        """Return the next value, or None if the write has begun. Raises if nothing may begin."""
        if tail.find_by_nonce(self.nonce):
            return None
        require_open(tail, self.author)
        return tail.begin(self.nonce, wall_ms, self.store_ms, self.author, self.declared)


@dataclass(frozen=True, slots=True)
class CompleteIntent:
    """The end of a pending write. driver: the only driver that may end a distributed write."""

    nonce: str
    requested: InstantTime
    driver: str
    operation: str
    files: tuple[DataFile, ...]
    token: tuple[str, int] | None = None

    def may_end(self, tail: Timeline) -> bool:
        pending = tail.find_pending(self.requested)
        return pending is not None and pending.driver == self.driver and blocking_token(tail, self.token) is None

    def derive(self, tail: Timeline, wall_ms: int) -> Timeline | None:
        """Return the next value, or None if the write may not end, or void or misplaced files must go first."""
        if not self.may_end(tail) or tail.void_files(self.requested, self.files):
            return None
        if tail.file_ids.misplaced(self.files):
            return None
        return tail.complete(self.nonce, wall_ms, self.requested, self.operation, self.files, self.token)


Intent = BeginIntent | CompleteIntent


@dataclass(frozen=True, slots=True)
class PostedEvent:
    post: PostName
    intent: Intent


def combine(
    tail: Timeline,
    wall_ms: int,
    events: Sequence[PostedEvent],
    commit: Timeline | None = None,
    unposted: Sequence[Intent] = (),
) -> tuple[Timeline, int]:
    """Apply all possible events to `tail` and note their posts. Returns the value and the number of applied events.

    commit: the publisher's commit after `tail`, which comes first. Ends come before begins: a write begins from a value
    without commits that complete later.
    """
    value, taken = commit or tail, list[PostName | None]()
    named = [*((intent, None) for intent in unposted), *((event.intent, event.post) for event in events)]
    for intent, post in sorted(named, key=lambda pair: isinstance(pair[0], BeginIntent)):
        try:
            following = intent.derive(replace(value, version=tail.version), wall_ms)
        except CrdtMorError:
            continue  # its writer gets this error itself
        if following is not None:
            value = following
            taken.append(post)
    noted = Decided.of(value.posts)
    new = [post for post in taken if post is not None and post not in noted]
    return replace(value, posts=still_kept(noting(value.posts, new), value.version)), len(taken)


# --- bytes ------------------------------------------------------------------------------------------------------------


def encode_intent(intent: Intent, table_id: str) -> bytes:
    head = {"format": FORMAT, "table_id": table_id, "nonce": intent.nonce}
    return json.dumps({**head, **_body(intent)}, separators=(",", ":")).encode()


def _body(intent: Intent) -> dict[str, object]:
    if isinstance(intent, BeginIntent):
        declared = [] if intent.declared == ANYTHING else [declared_json(intent.declared)]
        return {"begin": [intent.store_ms, author_json(intent.author), *declared]}
    files = [file_json(file) for file in intent.files]
    return {"complete": [intent.requested, intent.driver, intent.operation, files, intent.token]}


def decode_intent(data: bytes, table_id: str | None) -> Intent | None:
    """Decode an intent; None for another table or format: its writer publishes it."""
    try:
        document = json.loads(data)
        if document["format"] != FORMAT or document["table_id"] != table_id:
            return None
        intent = _intent_of(document)
        require_types([intent])
    except WRONG_SHAPE:
        return None
    return intent


def _intent_of(document: dict[str, Any]) -> Intent:
    if "begin" in document:
        store_ms, author, *declared = document["begin"]
        return BeginIntent(document["nonce"], store_ms, author_of(author), *map(declared_from, declared))
    requested, driver, operation, files, token = document["complete"]
    named = tuple(DataFile(*file) for file in files)
    require_types(named)
    return CompleteIntent(document["nonce"], requested, driver, operation, named, token_of(token) if token else None)
