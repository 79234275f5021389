"""What a table is made of, as Arrow tables: they print, filter and join like any other."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa

from crdt_mor.api.history import kind_of
from crdt_mor.api.migration_status import MigrationStatus, migration_status
from crdt_mor.api.reading import AsOf, value_at
from crdt_mor.events.heartbeat import BEATS_MISSED, beat_every
from crdt_mor.events.session import Session
from crdt_mor.events.sweep import last_heard
from crdt_mor.ground.deadlines import operations
from crdt_mor.log.paths import POSTS, is_event, post_in
from crdt_mor.log.posts import FRESH_MS
from crdt_mor.model.authors import columns_of
from crdt_mor.model.instant import InstantTime, from_ms, to_datetime
from crdt_mor.model.names import DELTA_COMMIT
from crdt_mor.model.timeline_parts import completed_name
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.services.rollback import claims

_TIMELINE = pa.schema(
    [
        ("requested_at", pa.string()),
        ("completed_at", pa.string()),
        ("state", pa.string()),
        ("action", pa.string()),
        ("operation", pa.string()),
        ("rows", pa.int64()),
        ("deletes", pa.int64()),
        ("files", pa.int64()),
        ("bytes", pa.int64()),
        ("version", pa.int64()),
        ("writes", pa.int64()),
        ("application", pa.string()),
        ("host", pa.string()),
        ("pid", pa.int64()),
        ("message", pa.string()),
        ("silent", pa.duration("ms")),
    ]
)
_PENDING = pa.schema(
    [
        ("requested_at", pa.string()),
        ("since", pa.timestamp("ms", tz="UTC")),
        ("application", pa.string()),
        ("host", pa.string()),
        ("pid", pa.int64()),
        ("message", pa.string()),
        ("commit_info", pa.map_(pa.string(), pa.string())),
        ("silent", pa.duration("ms")),
        ("expires", pa.timestamp("ms", tz="UTC")),
        ("stuck", pa.bool_()),
        ("partitions", pa.list_(pa.string())),
        ("columns", pa.list_(pa.string())),
    ]
)
_POSTS = pa.schema(
    [
        ("name", pa.string()),
        ("kind", pa.string()),
        ("state", pa.string()),
        ("since", pa.timestamp("ms", tz="UTC")),
        ("waits", pa.duration("ms")),
        ("bytes", pa.int64()),
    ]
)
_UNPROJECTED = pa.schema(
    [
        ("requested_at", pa.string()),
        ("completed_at", pa.string()),
        ("version", pa.int64()),
        ("since", pa.timestamp("ms", tz="UTC")),
    ]
)
_TOKENS = pa.schema(
    [
        ("application", pa.string()),
        ("number", pa.int64()),
        ("requested_at", pa.string()),
        ("completed_at", pa.string()),
        ("version", pa.int64()),
    ]
)
_FILES = pa.schema(
    [
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("kind", pa.string()),
        ("path", pa.string()),
        ("instant", pa.string()),
        ("bytes", pa.int64()),
        ("rows", pa.int64()),
        ("deletes", pa.int64()),
    ]
)


@operations
class Inspect:
    """Timeline and files; `table.inspect`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def timeline(self) -> pa.Table:
        """Every instant by requested time: committed, pending, planned, rolled back.

        writes: how many writes a commit of rows holds; several where small writes of several processes became one.
        application, host, pid, message: of its author, which of such a group is the process that published it; null
        where Hudi or an earlier release did. silent: for how long nothing was heard of a pending write, as in
        `pending`. `table.history()` has commits alone, and names all writers.
        """
        value = self._session.views.sealed()
        rows: list[dict[str, object]] = [
            {
                "requested_at": c.requested,
                "completed_at": c.completed,
                "state": "completed",
                "action": c.action,
                "operation": c.operation,
                "rows": c.rows,
                "deletes": c.deletes,
                "files": len(c.files),
                "bytes": sum(file.size for file in c.files),
                "version": c.version,
                "writes": max(1, len(c.members)) if kind_of(c) == "write" else None,
                **columns_of(c.author),
            }
            for c in self._session.views.completions(value)
        ]
        now_ms = self._session.environment.now_ms()
        rows += [
            {
                **_open(p.requested, "pending", DELTA_COMMIT, p.version),
                **columns_of(p.author),
                "silent": silent_for(self._session.run(last_heard(p)), now_ms),
            }
            for p in value.pending
        ]
        rows += [_open(p.barrier, "planned", p.action, p.version) for p in value.plans]
        rows += [_open(r.requested, "rolled back", r.action, r.version) for r in value.rolled_back]
        return pa.Table.from_pylist(sorted(rows, key=lambda r: str(r["requested_at"])), _TIMELINE)

    def pending(self) -> pa.Table:
        """The writes that are under way, oldest first: the author of each, and whether its process is still heard of.

        since: when it began, in UTC. silent: for how long nothing was heard of it; null where that is not known.
        expires: from when on a process that begins a write, or plans a compaction, gives it up if it stays silent: by
            the `writer_expiry` of this table, which other processes may have opened with another.
        stuck: it has been silent for three heartbeats or more, of which there are five an expiry.
        A small write of one event is not pending in the table: it is listed, without its author, from its first file in
            Hudi's timeline on. If its process has died, `roll_back` gives it up, or a sweep.
        partitions, columns: the paths of all partitions that it touches, and all columns that it sets besides the key's
            and the partition's, as it has said at its begin; null: it may touch any. An update that reads others does
            not wait for it.

        Silence is told from the store's times and this machine's clock, so it is as exact as the two agree.
        """
        session = self._session
        now_ms = session.environment.now_ms()
        rows: list[dict[str, object]] = []
        value = session.views.sealed()
        for p in sorted((*value.pending, *claims(session, value)), key=lambda p: p.requested):
            heard_ms = self._session.run(last_heard(p))
            silent = silent_for(heard_ms, now_ms)
            rows.append(
                {
                    "requested_at": p.requested,
                    "since": to_datetime(p.requested),
                    **columns_of(p.author),
                    "silent": silent,
                    "expires": None if heard_ms is None else to_datetime(from_ms(heard_ms + session.expiry_ms)),
                    "stuck": silent is not None and silent >= BEATS_MISSED * beat_every(session.expiry_ms),
                    "partitions": p.declared.partitions,
                    "columns": p.declared.columns and [value.names.shown(name) for name in p.declared.columns],
                }
            )
        return pa.Table.from_pylist(rows, _PENDING)

    def posts(self) -> pa.Table:
        """The small writes, and begins and ends of others, that were put down for whoever publishes next; oldest first.

        kind: `write` or `event`. since: when it was put, by the store's clock. waits: for how long by now.
        state: `waiting`, where a later version may take it; `old`, where it might, but has waited for more than a
            minute, so that nobody takes it and its owner, if it is alive, posts it anew; `ended`, where it was taken,
            or given up, or its time has passed, and a sweep removes it.
        """
        session = self._session
        value, now_ms = session.views.sealed(), session.environment.now_ms()
        rows = []
        for stat in sorted(session.store.list(POSTS), key=lambda stat: (stat.modified_ms, stat.path)):
            name = post_in(stat.path)
            if name is None:
                continue
            waits = now_ms - stat.modified_ms
            state = "ended" if not value.may_take(name) else "old" if waits > FRESH_MS else "waiting"
            rows.append(
                {
                    "name": str(name.name),
                    "kind": "event" if is_event(stat.path) else "write",
                    "state": state,
                    "since": to_datetime(from_ms(stat.modified_ms)),
                    "waits": timedelta(milliseconds=max(0, waits)),
                    "bytes": stat.size,
                }
            )
        return pa.Table.from_pylist(rows, _POSTS)

    def tokens(self) -> pa.Table:
        """The last token of each application, and the commit that carried it.

        An application that wrote nothing for as long as the property `crdt_mor.tokens` says is not in it any more.
        """
        last = self._session.views.sealed().tokens
        rows = [
            {
                "application": token.application,
                "number": token.number,
                "requested_at": token.requested,
                "completed_at": token.completed,
                "version": token.version,
            }
            for token in sorted(last, key=lambda token: token.application)
        ]
        return pa.Table.from_pylist(rows, _TOKENS)

    def unprojected(self) -> pa.Table:
        """The commits that readers here see, and of which Hudi's readers are not told yet; oldest first.

        They are of the newest version alone, as each publisher tells Hudi of the version before. So there are some for
        the moment of a commit, and after a publisher has died, until the next write or upkeep. since: when readers here
        began to see it, in UTC.
        """
        session = self._session
        value = session.views.sealed()
        if value.version == 0 or session.config.layout_one:
            return _UNPROJECTED.empty_table()
        path = session.publisher.projector.path
        rows = [
            {
                "requested_at": c.requested,
                "completed_at": c.completed,
                "version": c.version,
                "since": to_datetime(c.completed),
            }
            for c in session.views.completions(value)
            if c.version >= value.version and not c.adopted and c.requested > value.archive.watermark
            if session.store.stat(path(completed_name(c))) is None
        ]
        return pa.Table.from_pylist(rows, _UNPROJECTED)

    def other_readers(self) -> str:
        """Which other engines see these rows as they are now, and which do not until a compaction: a sentence.

        Hudi's Spark reader and hudi-rs go by what the table declares of its merge; docs/interop.md has each case.
        """
        from crdt_mor.api.other_readers import other_readers

        return other_readers(self._session)

    def migration(self) -> MigrationStatus | None:
        """Return the state of the table's migration, or None for a table that does not move."""
        return migration_status(self._session.views.sealed())

    def files(self, as_of: AsOf | None = None) -> pa.Table:
        """The files of the latest snapshot, or of the one that a scan `as_of` shows, by file group."""
        rows = []
        for slice_ in Snapshot.seal(self._session, *value_at(self._session, as_of)).slices:
            for file in slice_.files:
                kind = "base" if file.is_base else "carry" if slice_.is_carry(file) else "log"
                rows.append(
                    {
                        "partition": slice_.partition,
                        "file_id": slice_.file_id,
                        "kind": kind,
                        "path": file.path,
                        "instant": file.name.instant,
                        "bytes": file.size,
                        "rows": file.rows,
                        "deletes": file.deletes,
                    }
                )
        return pa.Table.from_pylist(rows, _FILES)


def silent_for(heard_ms: int | None, now_ms: int) -> timedelta | None:
    """For how long nothing was heard; none of it where the clocks of store and machine disagree about the order."""
    return None if heard_ms is None else timedelta(milliseconds=max(0, now_ms - heard_ms))


def _open(requested: InstantTime, state: str, action: str, version: int) -> dict[str, object]:
    return {"requested_at": requested, "state": state, "action": action, "version": version}
