"""Intents: events as values, which their writer can publish itself, or post for others to publish.

Only the begin and the end of a write are posted so. Neither is decided before it is published: each derives the next
value from the tail that there is then, or nothing where its outcome is there already or it has become impossible.
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
from crdt_mor.model.overwrite import void_files
from crdt_mor.model.posts import Decided, PostName, noting, still_kept, token_of
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import FORMAT, WRONG_SHAPE, file_json, require_types
from crdt_mor.model.timeline_parts import DataFile

BYTES_MAX: Final = 1 << 14
"""Bytes of an event that is posted. The end of a write of hundreds of file groups is published by its writer alone."""


@dataclass(frozen=True, slots=True)
class BeginIntent:
    """The begin of a write. store_ms: what the store's clock said before; nonce: by which its writer finds it."""

    nonce: str
    store_ms: int | None
    author: Author | None
    declared: Declared = ANYTHING

    def derive(self, tail: Timeline, wall_ms: int) -> Timeline | None:
        """The next value; None if the write has begun. Raises where nothing may begin."""
        if tail.find_by_nonce(self.nonce):
            return None
        require_open(tail, self.author)
        return tail.begin(self.nonce, wall_ms, self.store_ms, self.author, self.declared)


@dataclass(frozen=True, slots=True)
class CompleteIntent:
    """The end of a pending write: the files that it commits. driver: of a distributed write, which alone may end it."""

    nonce: str
    requested: InstantTime
    driver: str
    operation: str
    files: tuple[DataFile, ...]
    token: tuple[str, int] | None = None

    def may_end(self, tail: Timeline) -> bool:
        """Whether the write is pending, and its driver's, and its token was not used before."""
        pending = tail.find_pending(self.requested)
        return pending is not None and pending.driver == self.driver and blocking_token(tail, self.token) is None

    def derive(self, tail: Timeline, wall_ms: int) -> Timeline | None:
        """The next value; None if it may not end, or has files that are void or misplaced, which are to go first."""
        if not self.may_end(tail) or void_files(tail, self.requested, self.files):
            return None
        if tail.file_ids.misplaced(self.files):
            return None
        return tail.complete(self.nonce, wall_ms, self.requested, self.operation, self.files, self.token)


Intent = BeginIntent | CompleteIntent


@dataclass(frozen=True, slots=True)
class PostedEvent:
    """An event, and the name under which it is posted."""

    post: PostName
    intent: Intent


def combine(
    tail: Timeline,
    wall_ms: int,
    events: Sequence[PostedEvent],
    commit: Timeline | None = None,
    unposted: Sequence[Intent] = (),
) -> tuple[Timeline, int]:
    """One value that follows `tail` with all of these events that are possible, whose posts it notes; and how many are.

    commit: a value that follows `tail` with the publisher's commit, which comes before them. unposted: its own event.

    It has the nonce of one of them, and is `tail` itself where there is none. Ends come before begins: so what a write
    has begun from holds no commit that completed after its own time.
    """
    value, taken = commit or tail, list[PostName | None]()
    named = [*((intent, None) for intent in unposted), *((event.intent, event.post) for event in events)]
    if not named:
        return value, 0
    for intent, post in sorted(named, key=lambda pair: isinstance(pair[0], BeginIntent)):
        try:
            following = intent.derive(replace(value, version=tail.version), wall_ms)
        except CrdtMorError:
            continue  # its writer will be told
        if following is not None:
            value = following
            taken.append(post)
    noted = Decided.of(value.posts)
    new = [post for post in taken if post is not None and post not in noted]
    return replace(value, posts=still_kept(noting(value.posts, new), value.version)), len(taken)


# --- bytes ------------------------------------------------------------------------------------------------------------


def encode_intent(intent: Intent, table_id: str) -> bytes:
    """The object of an intent."""
    head = {"format": FORMAT, "table_id": table_id, "nonce": intent.nonce}
    return json.dumps({**head, **_body(intent)}, separators=(",", ":")).encode()


def _body(intent: Intent) -> dict[str, object]:
    if isinstance(intent, BeginIntent):
        declared = [] if intent.declared == ANYTHING else [declared_json(intent.declared)]
        return {"begin": [intent.store_ms, author_json(intent.author), *declared]}
    files = [file_json(file) for file in intent.files]
    return {"complete": [intent.requested, intent.driver, intent.operation, files, intent.token]}


def decode_intent(data: bytes, table_id: str | None) -> Intent | None:
    """The intent in an object; None for what is not one of this table, as this release knows them: nobody needs it.

    The writer that has posted it publishes its event itself, if no other does.
    """
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
