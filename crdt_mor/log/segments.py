"""Segments: immutable objects with a value's older completions, which keep the value small.

    completions of the value ──seal──► a segment of level 0 ──16 of a level──► one of the next level, and so on
    a wide commit            ──────────► a segment of its own, in the same event
    a completed clean        ──────────► unneeded completions are dropped, mostly stale segments packed again

Many file ids of buckets (`model.file_ids`), a schema of many columns and the tokens of many applications
(`model.tokens`) also move to an object, in the event that changes them.

A segment is put before the version that names it. Sealing and rolling up follow from the tail alone, so all processes
put the same objects. Segments of a single event bear the attempt's name, and the loser of a race deletes them
(`discard`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from crdt_mor.errors import FormatError
from crdt_mor.log.paths import segment_path
from crdt_mor.log.steps import Delete, Put, Steps, put_surely, read_named
from crdt_mor.model.file_ids import Unread
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import COMPLETIONS_BYTES_MAX, COMPLETIONS_MAX, SEGMENTS_MAX, Timeline
from crdt_mor.model.timeline_json import (
    decode_file_ids,
    decode_schema,
    decode_segment,
    encode_file_ids,
    encode_schema,
    encode_segment,
)
from crdt_mor.model.timeline_parts import Completion, Segment, bytes_of, superseded_at
from crdt_mor.model.tokens import Tokens, decode_tokens, encode_tokens, stored_tokens
from crdt_mor.planners.packing import SEGMENT_BYTES_FULL, Chunk, SupersededTimes, in_chunks, repack

FILE_IDS_MAX = 256
"""File ids in a version itself, at fifty bytes each."""

TOKENS_MAX = 128
"""Tokens in a version itself, at seventy bytes each."""

SCHEMA_MAX = 1_024
"""Characters of a schema in a version itself: about forty columns. A shorter one is not worth an object."""

_CLEAN = "clean"
"""The action of a clean; `model.names` must not be imported here."""


class SegmentGoneError(FormatError):
    """A segment is missing: damage, or its value is so old that a sweep deleted the segment."""


Contents = dict[str, tuple[Completion, ...]]
"""Completions by segment name, read once."""


def seal(tail: Timeline, value: Timeline, contents: Contents, own: list[str]) -> Steps[Timeline]:
    """Return `value`, derived from `tail`, with many or large completions moved to segments.

    The tail's completions are projected already. New completions move only if large. own: collects paths put for this
    attempt.
    """
    if len(value.file_ids.groups) > FILE_IDS_MAX:
        value = yield from _with_stored_ids(tail, value, own)
    if value.schema_object is None and len(value.schema) > SCHEMA_MAX:
        value = yield from _with_stored_schema(SegmentName(tail.version, value.nonce, 0, "schema", own), value)
    if len(value.tokens.recent) > TOKENS_MAX:
        value = yield from _with_stored_tokens(SegmentName(tail.version, value.nonce, 0, "tokens", own), value)
    due = _Due.of(tail, value)
    if not (due.many or due.wide or due.cleaned):
        return value
    attempt = SegmentName(tail.version, value.nonce, 0, "wide", own)
    segments = list(tail.segments)
    moved: list[Completion] = []
    if due.many:
        moved += tail.completions
        segments += yield from put_chunks(SegmentName(tail.version, tail.nonce, 0, "live"), _live(moved))
    if due.many or due.wide:
        segments = yield from _roll_up_full(tail, segments, contents)
    if due.wide:
        moved += due.fresh
        segments += yield from put_chunks(attempt, _wide(due.fresh))
    value = value.sealed(segments, moved)
    return (yield from _packed_anew(tail, value, contents, replace(attempt, level=1))) if due.cleaned else value


@dataclass(frozen=True, slots=True)
class _Due:
    """The reasons to seal a version: many older completions, wide new ones, a completed clean. fresh: the new ones."""

    fresh: tuple[Completion, ...] = ()
    many: bool = False
    wide: bool = False
    cleaned: bool = False

    @classmethod
    def of(cls, tail: Timeline, value: Timeline) -> _Due:
        if len(value.restores) > len(tail.restores):
            return cls()  # a restore makes its own segments; the tail's contain dropped completions
        before = {c.requested for c in tail.completions}
        fresh = tuple(c for c in value.completions if c.requested not in before)
        return cls(
            fresh,
            many=len(tail.completions) >= COMPLETIONS_MAX or bytes_of(tail.completions) >= COMPLETIONS_BYTES_MAX,
            wide=bytes_of(fresh) >= COMPLETIONS_BYTES_MAX,
            cleaned=value.retention.dropped > tail.retention.dropped or any(c.action == _CLEAN for c in fresh),
        )


def _wide(fresh: Sequence[Completion]) -> list[Chunk]:
    adopted = [c for c in fresh if c.adopted]  # nobody projects these, so they may be in several segments
    ours = tuple(c for c in fresh if not c.adopted)
    return [*_live(adopted), *([Chunk(ours, None)] if ours else [])]


def _packed_anew(tail: Timeline, value: Timeline, contents: Contents, attempt: SegmentName) -> Steps[Timeline]:
    """Return the value of a clean, without the droppable completions. Stale and small segments are packed again."""
    for segment in value.segments:
        if segment.superseded is None:
            yield from read_once(segment, contents)
    retention = value.retention
    packed = repack(value.segments, contents, value.completions, retention.dropped)
    segments = list(packed.kept)
    segments += yield from put_chunks(replace(attempt, kind="live"), packed.live)
    segments += yield from put_chunks(replace(attempt, kind="past"), packed.history)
    last, count = packed.dropped
    dropped = max(tail.retention.dropped, last)
    retention = replace(retention, dropped=dropped, dropped_count=retention.dropped_count + count)
    return value.sealed(sorted(segments, key=_by_age), (), retention)


def discard(own: list[str]) -> Steps[None]:
    """Delete the segments of certainly lost attempts."""
    while own:
        yield Delete(own[-1])
        own.pop()


def read_once(segment: Segment, contents: Contents) -> Steps[tuple[Completion, ...]]:
    if segment.name not in contents:
        contents[segment.name] = yield from read_segment(segment)
    return contents[segment.name]


def read_segment(segment: Segment) -> Steps[tuple[Completion, ...]]:
    path = segment_path(segment.name)
    return decode_segment((yield from _read(path)), path)


def _read(path: str) -> Steps[bytes]:
    data = yield from read_named(path)
    if data is None:
        raise SegmentGoneError(
            f"an object that the timeline needs is missing. Restore the file from a backup. file={path}"
        )
    return data


def fresh_completions(value: Timeline) -> Steps[tuple[Completion, ...]]:
    """Return this version's own completions in segments, usually none.

    Their segments have names of this version's `seal`. An event beside them may have moved the clock past them.
    """
    own = _attempt(value.version - 1, value.nonce)
    found: list[Completion] = []
    for segment in value.segments:
        if segment.name.startswith(own):
            found += [c for c in (yield from read_segment(segment)) if c.version == value.version]
    return tuple(found)


# --- file ids, schemas and tokens -------------------------------------------------------------------------------------


def with_objects(value: Timeline, known_tail: Timeline | None = None) -> Steps[Timeline]:
    """Read a value's schema, file ids and older tokens, unless the value or `known_tail` contains them.

    Raises `SegmentGoneError` if they are missing.
    """
    for name in unread(value):
        if known_tail is not None and name == known_tail.schema_object and known_tail.schema:
            value = replace(value, schema=known_tail.schema)
        elif known_tail is not None and name == known_tail.file_ids.stored:
            value = replace(value, file_ids=known_tail.file_ids)
        elif known_tail is not None and name == value.tokens.object == known_tail.tokens.object:
            value = replace(value, tokens=replace(value.tokens, stored=known_tail.tokens.stored))
        else:
            value = holding(value, name, (yield from _read(segment_path(name))))
    return value


def unread(value: Timeline) -> list[str]:
    """Return the names of the objects with parts that a decoded value lacks."""
    schema = None if value.schema else value.schema_object
    file_ids = value.file_ids.stored if isinstance(value.file_ids, Unread) else None
    tokens = value.tokens.object if value.tokens.is_unread else None
    return [name for name in (schema, file_ids, tokens) if name is not None]


def holding(value: Timeline, name: str, data: bytes) -> Timeline:
    """Return a decoded value with the part in an object's bytes."""
    path = segment_path(name)
    if name == value.tokens.object:
        return replace(value, tokens=replace(value.tokens, stored=decode_tokens(name, data, path)))
    if name != value.schema_object:
        return replace(value, file_ids=replace(decode_file_ids(data, path), stored=name))
    schema = decode_schema(data, path)
    if not name.endswith(_digest(schema)):
        raise FormatError(f"another schema than the object's name says: restore the file from a backup. file={path}")
    return replace(value, schema=schema)


def _with_stored_ids(tail: Timeline, value: Timeline, own: list[str]) -> Steps[Timeline]:
    ids = tail.file_ids if value.file_ids == tail.file_ids else value.file_ids
    if ids.stored is None:
        name = SegmentName(tail.version, value.nonce, 0, "file-ids", own).of(0)
        own.append(segment_path(name))
        yield from put_surely(Put(segment_path(name), encode_file_ids(ids)))
        ids = replace(ids, stored=name)
    return value if ids.stored == value.file_ids.stored else replace(value, file_ids=ids)


def _with_stored_schema(attempt: SegmentName, value: Timeline) -> Steps[Timeline]:
    name = replace(attempt, kind=f"schema-{_digest(value.schema)}").of(0)
    assert attempt.own is not None
    attempt.own.append(segment_path(name))
    yield from put_surely(Put(segment_path(name), encode_schema(value.schema)))
    return replace(value, schema_object=name)


def _with_stored_tokens(attempt: SegmentName, value: Timeline) -> Steps[Timeline]:
    older, recent = value.tokens.parted(TOKENS_MAX // 2)
    stored = stored_tokens(attempt.of(0), older)
    assert attempt.own is not None
    attempt.own.append(segment_path(stored.name))
    yield from put_surely(Put(segment_path(stored.name), encode_tokens(stored)))
    return replace(value, tokens=Tokens(recent, stored))


def _digest(schema: str) -> str:
    return hashlib.sha256(schema.encode()).hexdigest()[:16]


# --- rolling up -------------------------------------------------------------------------------------------------------


def _roll_up_full(tail: Timeline, segments: list[Segment], contents: Contents) -> Steps[list[Segment]]:
    def full_at(level: int, *, history: bool) -> list[Segment]:
        at = [s for s in segments if s.level == level and (s.superseded is not None) == history]
        small = [s for s in at if s.size < SEGMENT_BYTES_FULL]
        return small if len(small) >= SEGMENTS_MAX else []

    level = 0
    while full := full_at(level, history=False):
        segments = yield from _roll_up_live(tail, segments, full, level + 1, contents)
        level += 1
    for level in sorted({s.level for s in segments if s.superseded is not None}):
        if full := full_at(level, history=True):
            segments = yield from _roll_up_history(tail, segments, full, level + 1, contents)
    return segments


def _roll_up_live(
    tail: Timeline, segments: list[Segment], full: list[Segment], level: int, contents: Contents
) -> Steps[list[Segment]]:
    run: list[Completion] = []
    for segment in full:
        run += yield from read_once(segment, contents)
    ends = superseded_at(run)
    live = [c for c in run if ends[c.requested] is None]
    past = [c for c in run if ends[c.requested] is not None]
    name = SegmentName(tail.version, tail.nonce, level, "live")
    written = yield from put_chunks(name, in_chunks(live, ends))
    written += yield from put_chunks(replace(name, kind="past"), in_chunks(past, ends))
    return sorted([*(s for s in segments if s not in full), *written], key=_by_age)


def _roll_up_history(
    tail: Timeline, segments: list[Segment], full: list[Segment], level: int, contents: Contents
) -> Steps[list[Segment]]:
    """Roll up `full`. Each commit inherits the end of its segment."""
    run: list[Completion] = []
    ends: dict[InstantTime, InstantTime | None] = {}
    for segment in full:
        content = yield from read_once(segment, contents)
        run += content
        ends |= {c.requested: segment.superseded for c in content}
    written = yield from put_chunks(SegmentName(tail.version, tail.nonce, level, "history"), in_chunks(run, ends))
    return sorted([*(s for s in segments if s not in full), *written], key=_by_age)


# --- putting ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SegmentName:
    """The parts of a segment's name. `own`: collects the paths of one attempt."""

    version: int
    nonce: str
    level: int
    kind: str
    own: list[str] | None = None

    def of(self, number: int) -> str:
        name = f"{_attempt(self.version, self.nonce)}{self.level}-{self.kind}"
        return f"{name}-{number}" if number else name


def _attempt(version: int, nonce: str) -> str:
    """Return the beginning of the names that an attempt to follow a version gives."""
    return f"{version:020d}-{nonce}-"


def put_chunks(name: SegmentName, chunks: Iterable[Chunk]) -> Steps[list[Segment]]:
    written = []
    for number, chunk in enumerate(chunks):
        part = chunk.completions
        data = encode_segment(part)
        path = segment_path(name.of(number))
        if name.own is not None:
            name.own.append(path)
        yield from put_surely(Put(path, data))
        first, last = part[0].completed, part[-1].completed
        written.append(Segment(name.of(number), name.level, first, last, len(part), chunk.superseded, len(data)))
    return written


def _live(completions: Iterable[Completion]) -> list[Chunk]:
    """Return completions as live: compactions that supersede them are not checked yet."""
    chosen = list(completions)
    ends: SupersededTimes = dict.fromkeys(c.requested for c in chosen)
    return in_chunks(chosen, ends)


def _by_age(segment: Segment) -> tuple[int, str, str]:
    return -segment.level, segment.first, segment.name
