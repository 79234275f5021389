"""Encode and check the parts of a timeline value as JSON."""

from __future__ import annotations

import json
import marshal
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from crdt_mor.model.packed_files import PACKED_MIN, PackedFiles
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
"""The JSON format that `Timeline.encode` writes. Missing fields of an older format get their defaults.

A format is new if older releases would misunderstand a field or plan action:

    1  plans contain their file groups
    2  plans name an object with their groups; every plan is a compaction
    3  authors
    4  plans of other services, retention, and the write undone by a rollback
    5  overwrites, which void files of pending writes; savepoints, restores, commits' tokens, migrations
    6  claimed times, at which no other write may begin; posted events
    7  commits of several writers, declarations, column names, `handed_over`, file ids after Hudi's commits, field ids
"""

_BEFORE_CLAIMS = 5


def knows_claims(written_in: int) -> bool:
    """Return True if all releases that can continue values of this format leave claimed times to one-event commits."""
    return written_in > _BEFORE_CLAIMS


_BEFORE_POSTS = 6


def knows_posts(written_in: int) -> bool:
    """Return True if every release that can follow this format keeps the names of taken posts."""
    return written_in > _BEFORE_POSTS


FORMATS_READ = (1, 2, 3, 4, 5, 6, FORMAT)

DROPPED = b'{"format":"dropped"}'
"""The last version of a dropped table: see `log.dropped`."""


@lru_cache(maxsize=16)
def beginnings(version: int, nonce: str) -> tuple[bytes, ...]:
    """Return a version's first bytes in each format. Cached, as a commit looks for a version several times."""
    name = json.dumps({"version": version, "nonce": nonce}, separators=(",", ":"))[1:-1]
    return tuple(f'{{"format":{known},{name}'.encode() for known in FORMATS_READ)


_WITHOUT_TOKENS = 4
"""The last format without tokens in completions."""

_WITHOUT_AUTHORS = 2


def encode_segment(completions: Sequence[Completion]) -> bytes:
    document = {"format": FORMAT, "completions": [completion_json(c) for c in completions]}
    return json.dumps(document, separators=(",", ":")).encode()


def encode_file_ids(ids: FileIds) -> bytes:
    return json.dumps({"format": FORMAT, "file_ids": by_partition(ids)}, separators=(",", ":")).encode()


def decode_file_ids(data: bytes, path: str) -> FileIds:
    with decoding("the file ids of buckets", path):
        return file_ids_of(json.loads(data)["file_ids"])


def encode_schema(schema: str) -> bytes:
    return json.dumps({"format": FORMAT, "schema": schema}, separators=(",", ":")).encode()


def decode_schema(data: bytes, path: str) -> str:
    with decoding("the schema of a table, restore it from a backup", path):
        schema = json.loads(data)["schema"]
        if not isinstance(schema, str):
            raise TypeError(f"a text. {schema=}")
        return schema


def decode_segment(data: bytes, path: str) -> tuple[Completion, ...]:
    """Decode a segment, in completion order; raise `FormatError` with `path` if it is invalid."""
    with decoding("a timeline segment", path):
        document = json.loads(data)
        completions = tuple(completion_of(c, document["format"]) for c in document["completions"])
        require_types(completions)
        return completions


WRONG_SHAPE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors from decoding foreign JSON."""


@contextmanager
def decoding(what: str, path: str) -> Iterator[None]:
    """Raise `FormatError` for the block's errors. what: the expected content, such as "a timeline segment"."""
    try:
        yield
    except WRONG_SHAPE as error:
        raise FormatError(f"not {what}: {error!r}. file={path}") from error


@contextmanager
def decoding_plan(data: bytes, path: str, what: str, formats: Collection[int]) -> Iterator[Any]:
    """Give the fields of a stored plan to the block, which decodes them. Raises `FormatError`."""
    with decoding(what, path):
        stored = json.loads(data)
        if stored["format"] not in formats:
            raise FormatError(f"{what} of a newer release; upgrade crdt-mor. file={path} format={stored['format']}")
        yield stored


_KINDS: Mapping[str, Any] = MappingProxyType({
    "InstantTime": str, "str": str, "int": int, "bool": bool,
    "InstantTime | None": (str, NoneType), "str | None": (str, NoneType), "int | None": (int, NoneType),
})  # fmt: skip

_TEXTS = frozenset(["tuple[str, ...]", "tuple[InstantTime, ...]", "tuple[str, ...] | None"])


@cache
def _kinds_of(cls: type) -> Sequence[tuple[str, Any]]:
    return tuple((field.name, _KINDS[str(field.type)]) for field in fields(cls) if field.type in _KINDS)


@cache
def _texts_of(cls: type) -> Sequence[str]:
    return tuple(field.name for field in fields(cls) if field.type in _TEXTS)


def require_types(values: Iterable[object]) -> None:
    for value in values:
        if isinstance(value, Completion):
            if not isinstance(value.files, PackedFiles):
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
    if not all(isinstance(value, str) for value in values):
        raise TypeError(f"texts expected, found={values!r:.200}")


def _is_plain(file: DataFile) -> bool:
    """Check field types fast, because a commit may have many files."""
    kinds = type(file.path), type(file.size), type(file.rows), type(file.deletes), type(file.staged)
    return kinds == (str, int, int, int, str) and (file.size | file.rows | file.deletes).bit_length() <= BITS


def pending_json(p: Pending) -> list[object]:
    plain = [p.requested, p.nonce, p.version, p.begun_ms, author_json(p.author)]
    taken_over = [p.driver, p.drivers] if p.driver else []
    return [*plain, *taken_over, *([] if p.declared == ANYTHING else [declared_json(p.declared)])]


def pending_of(entry: list[Any], written_in: int) -> Pending:
    requested, nonce, version, *rest = entry
    begun_ms = rest.pop(0) if rest else None  # absent in the first release
    author = None if written_in <= _WITHOUT_AUTHORS else author_of(rest.pop(0))
    declared = declared_from(rest.pop()) if rest and isinstance(rest[-1], dict) else ANYTHING
    driver, drivers = rest or ("", 0)
    return Pending(requested, nonce, version, begun_ms, driver, drivers, author, declared)


def plan_json(p: OpenPlan) -> list[object]:
    return [p.barrier, p.nonce, p.version, p.path, *([p.action] if p.action != COMPACTION else [])]


def plan_of(entry: list[Any], written_in: int) -> OpenPlan:
    return OpenPlan(*entry[:4]) if written_in == 1 else OpenPlan(*entry)


_ROLLED_BACK_AS = {DELTA_COMMIT: False, COMPACTION: True}
"""Formats 1 and 2 encode only whether it was a plan."""


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
    """Decode and check a segment entry. Cached, since consecutive versions share most segments."""
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
    plain: list[Any] = [*head, _files_of(files), groups, bool(adopted), driver, author, undone]
    plain.append(overwriting_of(more["overwriting"]) if "overwriting" in more else None)
    plain.append(token_of(more["token"]) if "token" in more else None)
    plain.append(members_of(more["members"]) if "members" in more else ())
    return Completion(*plain)


def _files_of(entries: list[list[Any]]) -> Sequence[DataFile]:
    packed = PackedFiles.of(entries) if len(entries) >= PACKED_MIN else None
    return tuple(DataFile(*entry) for entry in entries) if packed is None else packed


_MARSHAL_PLAIN = 2
"""In this marshal version, equal entries have equal bytes, and `true` differs from 1."""

_COMPLETIONS_KEPT = 64
"""Cached per process, since consecutive versions share most completions."""


def completion_in(entry: list[Any], written_in: int) -> Completion:
    return _completion_in(marshal.dumps(entry, _MARSHAL_PLAIN), written_in)


@lru_cache(maxsize=_COMPLETIONS_KEPT)
def _completion_in(marshalled: bytes, written_in: int) -> Completion:
    completion = completion_of(marshal.loads(marshalled), written_in)
    require_types((completion,))
    return completion


def tokens_noted_in(document: Mapping[str, Any]) -> InstantTime:
    """Return the time up to which completions may lack their write's token."""
    noted: InstantTime = document.get("tokens_noted", EPOCH)
    return max(noted, document["clock"]) if document["format"] <= _WITHOUT_TOKENS and document["version"] else noted
