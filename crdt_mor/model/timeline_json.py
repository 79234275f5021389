"""The JSON of a timeline value's parts: short lists for the many small records, and the check of what others wrote."""

from __future__ import annotations

import json
import marshal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache, lru_cache
from types import MappingProxyType, NoneType
from typing import Any

from crdt_mor.errors import FormatError
from crdt_mor.model.authors import author_json, author_of
from crdt_mor.model.declared import ANYTHING, declared_from, declared_json
from crdt_mor.model.file_ids import FileIds, by_partition, file_ids_of
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.names import COMPACTION, DELTA_COMMIT
from crdt_mor.model.numbers import BITS
from crdt_mor.model.overwrite import overwriting_json, overwriting_of
from crdt_mor.model.posts import members_json, members_of, token_of
from crdt_mor.model.timeline_parts import (
    Archive,
    Completion,
    DataFile,
    OpenPlan,
    Pending,
    Retention,
    RolledBack,
    Segment,
    Token,
)

FORMAT = 7
"""Version of the JSON that `Timeline.encode` writes. What a value of an earlier format lacks has its default.

In format 1 an open plan named its file groups; they are in the plan's own object, too.

Before format 4 every plan was a compaction: the entry of one says nothing of its action. A release that gives a plan an
action that the table of actions does not have yet writes the next format, since the releases before it would not know
what to do about that plan.

Format 3 adds the authors of writes and commits; format 4 the plans of other services, and which history is kept,
and which write a rollback undid. Format 5 adds overwrites: a release that reads format 4 would complete a write with
files that an overwrite has voided; savepoints, restores, and the token of a commit; and `moving` and `origin`, what is
known of a migration: such a release would begin a write in a table that is closed. Format 6 adds commits that are
alone: such a release would begin a write at a time that another process has claimed, and find its files under it; and
events that their writers have posted: it would forget a write that was given up while its begin is still posted.
Format 7 adds commits of several writers, and the names of posts: such a release would forget which were taken, and lose
the tokens of all but one writer; what a write has declared at its begin; the names of
columns: such a release would write under names that are not shown; `handed_over`: it would write beside Hudi's; and the
file ids that Hudi's commits have left: it would write to file groups that Hudi has replaced.
"""

_BEFORE_CLAIMS = 5
"""The last format whose writers begin at any even time."""


def knows_claims(written_in: int) -> bool:
    """Whether all releases that can follow a value of this format leave the times alone that lone commits claim."""
    return written_in > _BEFORE_CLAIMS


_BEFORE_POSTS = 6
"""The last format whose writers know no posts of whole writes."""


def knows_posts(written_in: int) -> bool:
    """Whether all releases that can follow a value of this format keep the names of posts that were taken."""
    return written_in > _BEFORE_POSTS


FORMATS_READ = (1, 2, 3, 4, 5, 6, FORMAT)


@lru_cache(maxsize=16)
def beginnings(version: int, nonce: str) -> tuple[bytes, ...]:
    """What a version begins with, in each format. A commit looks for the same version several times."""
    name = json.dumps({"version": version, "nonce": nonce}, separators=(",", ":"))[1:-1]
    return tuple(f'{{"format":{known},{name}'.encode() for known in FORMATS_READ)


_WITHOUT_TOKENS = 4
"""The last format whose completions do not say which token their write carried."""

_WITHOUT_AUTHORS = 2
"""The last format that has no authors."""


def encode_segment(completions: Sequence[Completion]) -> bytes:
    """The bytes of a segment."""
    document = {"format": FORMAT, "completions": [completion_json(c) for c in completions]}
    return json.dumps(document, separators=(",", ":")).encode()


def encode_file_ids(ids: FileIds) -> bytes:
    """The bytes of an object that holds the file ids of buckets."""
    return json.dumps({"format": FORMAT, "file_ids": by_partition(ids)}, separators=(",", ":")).encode()


def decode_file_ids(data: bytes, path: str) -> FileIds:
    """The file ids that an object holds; raises `FormatError` naming `path`."""
    try:
        return file_ids_of(json.loads(data)["file_ids"])
    except WRONG_SHAPE as error:
        raise FormatError(f"these are not the file ids of buckets: {error!r}. file={path}") from error


def decode_segment(data: bytes, path: str) -> tuple[Completion, ...]:
    """The completions in a segment, in completion order; raises `FormatError` naming `path`."""
    try:
        document = json.loads(data)
        completions = tuple(completion_of(c, document["format"]) for c in document["completions"])
        require_types(completions)
        return completions
    except WRONG_SHAPE as error:
        raise FormatError(f"not a timeline segment: {error!r}. file={path}") from error


WRONG_SHAPE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""What a text that is JSON, but not ours, can lead to; the last one if it is nested a thousand deep."""

_KINDS: Mapping[str, Any] = MappingProxyType({
    "InstantTime": str, "str": str, "int": int, "bool": bool,
    "InstantTime | None": (str, NoneType), "str | None": (str, NoneType), "int | None": (int, NoneType),
})  # fmt: skip

_TEXTS = frozenset(["tuple[str, ...]", "tuple[InstantTime, ...]", "tuple[str, ...] | None"])
"""Types of fields that hold nothing but texts, as dataclasses say them."""


@cache
def _kinds_of(cls: type) -> Sequence[tuple[str, Any]]:
    """The fields of a dataclass that hold one value each, and what that has to be."""
    return tuple((field.name, _KINDS[str(field.type)]) for field in fields(cls) if field.type in _KINDS)


@cache
def _texts_of(cls: type) -> Sequence[str]:
    """The fields of a dataclass that hold texts."""
    return tuple(field.name for field in fields(cls) if field.type in _TEXTS)


def require_types(values: Iterable[object]) -> None:
    """Raise TypeError where a value has a field of another type than it says."""
    for value in values:
        if isinstance(value, Completion):
            require_types(file for file in value.files if not _is_plain(file))
            require_texts(*(text for group in value.replaced for text in group))
        cls: Any = type(value)
        for name, kind in _kinds_of(cls):
            content: Any = getattr(value, name)
            is_kind = isinstance(content, kind) and (kind is bool or not isinstance(content, bool))
            if not is_kind or (isinstance(content, int) and content.bit_length() > BITS):
                raise TypeError(f"{cls.__name__}.{name}={content!r}")
        for name in _texts_of(cls):
            require_texts(*(getattr(value, name) or ()))


def require_texts(*values: object) -> None:
    """Raise TypeError where one of these is no text."""
    if not all(isinstance(value, str) for value in values):
        raise TypeError(f"texts expected, found={values!r:.200}")


def _is_plain(file: DataFile) -> bool:
    """Whether a file is what it says, asked quickly: there are many of them."""
    kinds = type(file.path), type(file.size), type(file.rows), type(file.deletes), type(file.staged)
    return kinds == (str, int, int, int, str) and (file.size | file.rows | file.deletes).bit_length() <= BITS


def pending_json(p: Pending) -> list[object]:
    plain = [p.requested, p.nonce, p.version, p.begun_ms, author_json(p.author)]
    taken_over = [p.driver, p.drivers] if p.driver else []
    return [*plain, *taken_over, *([] if p.declared == ANYTHING else [declared_json(p.declared)])]


def pending_of(entry: list[Any], written_in: int) -> Pending:
    requested, nonce, version, *rest = entry
    begun_ms = rest.pop(0) if rest else None  # the first release noted none
    author = None if written_in <= _WITHOUT_AUTHORS else author_of(rest.pop(0))
    declared = declared_from(rest.pop()) if rest and isinstance(rest[-1], dict) else ANYTHING
    driver, drivers = rest or ("", 0)
    return Pending(requested, nonce, version, begun_ms, driver, drivers, author, declared)


def plan_json(p: OpenPlan) -> list[object]:
    return [p.barrier, p.nonce, p.version, p.path, *([p.action] if p.action != COMPACTION else [])]


def plan_of(entry: list[Any], written_in: int) -> OpenPlan:
    return OpenPlan(*entry[:4]) if written_in == 1 else OpenPlan(*entry)


_ROLLED_BACK_AS = {DELTA_COMMIT: False, COMPACTION: True}
"""How formats 1 and 2 tell the two actions that they know: by whether it was a plan."""


def rolled_back_json(r: RolledBack) -> list[object]:
    return [r.requested, r.nonce, r.version, _ROLLED_BACK_AS.get(r.action, r.action)]


def rolled_back_of(entry: list[Any]) -> RolledBack:
    was_plan = {plan: action for action, plan in _ROLLED_BACK_AS.items()}
    return RolledBack(*entry[:3], *(was_plan[a] if isinstance(a, bool) else a for a in entry[3:]))


def retention_json(r: Retention) -> dict[str, object]:
    return {
        "since": r.since,
        "stable_since": r.stable_since,
        "groups": [[*group, since] for group, since in r.groups],
        **({"dropped": [r.dropped, r.dropped_count]} if r.dropped_count else {}),
    }


def retention_of(entry: Mapping[str, Any]) -> Retention:
    groups = tuple(((partition, file_id), since) for partition, file_id, since in entry["groups"])
    return Retention(entry["since"], entry["stable_since"], groups, *entry.get("dropped", ()))


def segment_json(s: Segment) -> list[object]:
    return [s.name, s.level, s.first, s.last, s.count, s.superseded, *([s.size] if s.size else [])]


@lru_cache(maxsize=1024, typed=True)
def segment_of(*entry: Any) -> Segment:
    """The segment in an entry of a version, of the types that it says; raises one of `WRONG_SHAPE` for another.

    A version carries most of those of the one before.
    """
    segment = Segment(*entry)
    require_types((segment,))
    return segment


def token_json(t: Token) -> list[object]:
    return [t.application, t.number, t.requested, t.completed, t.version]


def archive_json(a: Archive) -> dict[str, object]:
    return {
        "watermark": a.watermark, "since": a.since, "version": a.version, "count": a.count, "manifest": a.manifest,
        "files": a.files,
    }  # fmt: skip


def archive_of(entry: Mapping[str, Any]) -> Archive:
    files = tuple(entry["files"])
    if not all(isinstance(name, str) and "/" not in name for name in files):
        raise TypeError(f"files of the history. {files=}")
    return Archive(entry["watermark"], entry["since"], entry["version"], entry["count"], entry["manifest"], files)


def file_json(f: DataFile) -> list[object]:
    return [f.path, f.size, f.rows, f.deletes, *([f.staged] if f.staged else [])]


def completion_json(c: Completion) -> list[object]:
    files = [file_json(f) for f in c.files]
    plain = [c.requested, c.completed, c.version, c.nonce, c.action, c.operation, files, c.replaced, int(c.adopted)]
    more: dict[str, object] = {"overwriting": overwriting_json(c.overwriting)} if c.overwriting else {}
    more |= {"token": list(c.token)} if c.token else {}
    more |= {"members": members_json(c.members)} if c.members else {}
    ends = [c.driver, c.undone] if c.undone else [c.driver] if c.driver else []
    return [*plain, author_json(c.author), *ends, *([more] if more else [])]


def completion_of(entry: list[Any], written_in: int) -> Completion:
    head, (files, replaced, adopted, *rest) = entry[:6], entry[6:]
    author = None if written_in <= _WITHOUT_AUTHORS else author_of(rest.pop(0))
    groups = tuple((a, b) for a, b in replaced)
    more: Mapping[str, Any] = rest.pop() if rest and isinstance(rest[-1], dict) else {}
    driver = rest.pop(0) if rest else ""
    (undone,) = rest or [None]
    plain: list[Any] = [*head, tuple(DataFile(*f) for f in files), groups, bool(adopted), driver, author, undone]
    plain.append(overwriting_of(more["overwriting"]) if "overwriting" in more else None)
    plain.append(token_of(more["token"]) if "token" in more else None)
    plain.append(members_of(more["members"]) if "members" in more else ())
    return Completion(*plain)


_MARSHAL_PLAIN = 2
"""The form of marshal in which equal entries are equal bytes, and `true` is no 1."""

_COMPLETIONS_KEPT = 64
"""How many completions a process keeps as it has read them: a version carries most of those of the one before."""


def completion_in(entry: list[Any], written_in: int) -> Completion:
    """The completion in an entry of a version, of the types that it says; raises one of `WRONG_SHAPE` for another."""
    return _completion_in(marshal.dumps(entry, _MARSHAL_PLAIN), written_in)


@lru_cache(maxsize=_COMPLETIONS_KEPT)
def _completion_in(marshalled: bytes, written_in: int) -> Completion:
    completion = completion_of(marshal.loads(marshalled), written_in)
    require_types((completion,))
    return completion


def tokens_noted_in(document: Mapping[str, Any]) -> InstantTime:
    """Up to when the completions that a version knows may lack the token of their write."""
    noted: InstantTime = document.get("tokens_noted", EPOCH)
    return max(noted, document["clock"]) if document["format"] <= _WITHOUT_TOKENS and document["version"] else noted
