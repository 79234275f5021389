"""Arrow tables about a table's timeline, pending writes, tokens and files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from operator import add
from typing import TYPE_CHECKING

import pyarrow as pa

from crdt_mor.api.history import AUTHOR, MOMENT, is_later_than, kind_of
from crdt_mor.api.migration_status import MigrationStatus, migration_status
from crdt_mor.api.reading import AsOf, handed_over_since, value_at
from crdt_mor.api.statements import require_partitions
from crdt_mor.errors import InvalidInputError, SnapshotExpiredError, UnsupportedFeatureError
from crdt_mor.events.heartbeat import BEATS_MISSED, beat_every
from crdt_mor.events.session import Session
from crdt_mor.events.sweep import last_heard
from crdt_mor.ground.deadlines import operations
from crdt_mor.log.paths import POSTS, is_event, post_in
from crdt_mor.log.posts import FRESH_MS
from crdt_mor.model.authors import columns_of
from crdt_mor.model.instant import InstantTime, from_ms, to_datetime
from crdt_mor.model.names import DELTA_COMMIT
from crdt_mor.model.numbers import is_whole
from crdt_mor.model.slices import Slices
from crdt_mor.model.timeline_parts import completed_name
from crdt_mor.read.cut import cut_at
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.services.rollback import claims

if TYPE_CHECKING:
    from crdt_mor.services.metrics import Metrics

_TIMELINE = pa.schema([
    ("requested_at", pa.string()), ("completed_at", pa.string()), ("state", pa.string()), ("action", pa.string()),
    ("operation", pa.string()), ("rows", pa.int64()), ("deletes", pa.int64()), ("files", pa.int64()),
    ("bytes", pa.int64()), ("version", pa.int64()), ("writes", pa.int64()), *AUTHOR[:-1],
    ("silent", pa.duration("ms")),
])  # fmt: skip
_PENDING = pa.schema([
    ("requested_at", pa.string()), ("since", MOMENT), *AUTHOR, ("silent", pa.duration("ms")), ("expires", MOMENT),
    ("stuck", pa.bool_()), ("partitions", pa.list_(pa.string())), ("columns", pa.list_(pa.string())),
    ("keys", pa.int64()),
])  # fmt: skip
_POSTS = pa.schema([
    ("name", pa.string()), ("kind", pa.string()), ("state", pa.string()), ("since", MOMENT),
    ("waits", pa.duration("ms")), ("bytes", pa.int64()),
])  # fmt: skip
_UNPROJECTED = pa.schema([
    ("requested_at", pa.string()), ("completed_at", pa.string()), ("version", pa.int64()), ("since", MOMENT),
])  # fmt: skip
_TOKENS = pa.schema([
    ("application", pa.string()), ("number", pa.int64()), ("requested_at", pa.string()), ("completed_at", pa.string()),
    ("version", pa.int64()),
])  # fmt: skip
_READERS = pa.schema([
    ("reader", pa.string()), ("checkpoint", pa.string()), ("commits", pa.int64()), ("lag", pa.duration("ms")),
    ("lost", pa.bool_()),
])  # fmt: skip
_FILES = pa.schema([
    ("partition", pa.string()), ("file_id", pa.string()), ("kind", pa.string()), ("path", pa.string()),
    ("instant", pa.string()), ("bytes", pa.int64()), ("rows", pa.int64()), ("deletes", pa.int64()),
])  # fmt: skip
_PARTITIONS = pa.schema([
    ("partition", pa.string()), ("files", pa.int64()), ("log_files", pa.int64()), ("bytes", pa.int64()),
    ("rows", pa.int64()), ("deletes", pa.int64()),
])  # fmt: skip
_SIZES = pa.schema([
    ("version", pa.int64()), ("base_bytes", pa.int64()), ("log_bytes", pa.int64()), ("bases", pa.int64()),
    ("logs", pa.int64()),
])  # fmt: skip


@operations
class Inspect:
    """The timeline, pending writes and files of a table, as Arrow tables. Use `table.inspect`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"Inspect({self._session.uri!r})"

    def timeline(self, *, since: AsOf | None = None) -> pa.Table:
        """Return all instants by requested time: completed, pending, planned and rolled back.

        Args:
            since: omit instants completed by this point.

        Returns:
            writes: number of writes in a commit of rows; several in a group of small writes.
            application, host, pid, message: the author, in a group the publisher; null for Hudi or an earlier release.
            silent: time since the last heartbeat of a pending write.
        """
        value = self._session.views.sealed()
        is_wanted = None if since is None else is_later_than(self._session, value, since, "since")
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
            if is_wanted is None or is_wanted(c)
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
        """Return the pending writes, oldest first, with their authors and heartbeats.

        Silence is measured between the store's times and this machine's clock. A small write of one event is listed
        only from its first file in Hudi's timeline on, without its author.

        Returns:
            since: begin of the write, in UTC.
            silent: time since the last heartbeat; null if unknown.
            expires: when other processes may give the silent write up, by this table's `writer_expiry`; they may use
                another value.
            stuck: True after three missed heartbeats; there are five per expiry.
            partitions, columns, keys: declared partition paths, columns besides key and partition, and number of record
                keys; null for any. Updates that read others do not wait for the write.
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
                    "keys": None if p.declared.keys is None else len(p.declared.keys),
                }
            )
        return pa.Table.from_pylist(rows, _PENDING)

    def posts(self) -> pa.Table:
        """Return the posted small writes, begins and ends that wait for a publisher, oldest first.

        Returns:
            kind: `write` or `event`.
            state: `waiting` for the next version; `old` after a minute, when only its owner can post it again; `ended`
                when published, given up or expired.
            since: time of the post by the store's clock.
            waits: time since the post.
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
        """Return the last token of each application, with its commit.

        Applications without a write for the time in the property `crdt_mor.tokens` are dropped.
        """
        last = self._session.views.sealed().tokens
        rows = [(t.application, t.number, t.requested, t.completed, t.version) for t in last]
        return _table(_TOKENS, sorted(rows))

    def unprojected(self) -> pa.Table:
        """Return the commits that Hudi's readers do not see yet, oldest first.

        Before a version is published, Hudi's files of the previous version are written. So only commits of the newest
        version can be listed, until the next write or upkeep. `since` is the UTC time when our readers first saw the
        commit.
        """
        session = self._session
        value = session.views.sealed()
        if value.version == 0 or session.config.layout_one:
            return _UNPROJECTED.empty_table()
        path = session.publisher.projector.path
        rows = [
            (c.requested, c.completed, c.version, to_datetime(c.completed))
            for c in session.views.completions(value)
            if c.version >= value.version and not c.adopted and c.requested > value.archive.watermark
            if session.store.stat(path(completed_name(c))) is None
        ]
        return _table(_UNPROJECTED, rows)

    def handed_over(self) -> datetime | None:
        """Return the UTC time since which Hudi's writers have the table (`maintenance.handover`), or None.

        Until `maintenance.takeback`, writes and upkeep here raise `InvalidInputError`.
        """
        return handed_over_since(self._session.views.sealed())

    def other_readers(self) -> str:
        """Describe which other engines read the current rows, and which need a compaction first.

        The answer follows the declared merge, for Hudi's Spark reader and hudi-rs; see docs/interop.md.
        """
        from crdt_mor.api.other_readers import other_readers

        return other_readers(self._session)

    def migration(self) -> MigrationStatus | None:
        """Return the state of the table's migration, or None for a table that does not move."""
        return migration_status(self._session.views.sealed())

    def readers(self) -> pa.Table:
        """Return the named readers of `changes`, by name.

        Returns:
            checkpoint: null until the first window is done.
            commits: number of unread commits.
            lag: age of the oldest.
            lost: True if unread changes are gone.
        """
        from crdt_mor.services.checkpoints import lags, recorded

        session = self._session
        rows = [
            (one.checkpoint.reader, one.checkpoint.since, one.commits, timedelta(milliseconds=one.ms), one.is_lost)
            for one in lags(session, session.views.sealed(), session.looked_ms(), recorded(session.store))
        ]
        return _table(_READERS, rows)

    def comments(self) -> dict[str, str]:
        """Return the comments of columns by name, see `Table.alter`."""
        names = self._session.views.sealed().names
        return {names.shown(stored): text for stored, text in names.comments}

    def metrics(self) -> Metrics:
        """Return the table's state as numbers, for monitoring. It takes about ten requests and reads no data file."""
        from crdt_mor.services.metrics import metrics

        return metrics(self._session)

    def files(self, as_of: AsOf | None = None, *, partitions: Collection[object] | None = None) -> pa.Table:
        """Return the files of the latest snapshot, or of the snapshot `as_of`, by file group.

        partitions: only files of these partitions, named as in `overwrite`; unknown ones raise `InvalidInputError`.
        """
        rows = []
        for slice_ in self._slices(as_of, partitions):
            for file in slice_.files:
                kind = "base" if file.is_base else "carry" if slice_.is_carry(file) else "log"
                name = (slice_.partition, slice_.file_id, kind, file.path, file.name.instant)
                rows.append((*name, file.size, file.rows, file.deletes))
        return _table(_FILES, rows)

    def partitions(self, as_of: AsOf | None = None, *, partitions: Collection[object] | None = None) -> pa.Table:
        """Return the sums of `files` by partition. Rows and deletes are of files, before the merge."""
        sums: dict[str, list[int]] = {}
        for slice_ in self._slices(as_of, partitions):
            counts = sums.setdefault(slice_.partition, [0] * (len(_PARTITIONS) - 1))
            for file in slice_.files:
                counts[:] = map(add, counts, (1, not file.is_base, file.size, file.rows, file.deletes))
        return _table(_PARTITIONS, [(partition, *counts) for partition, counts in sums.items()])

    def _slices(self, as_of: AsOf | None, partitions: Collection[object] | None) -> Slices:
        value, cut = value_at(self._session, as_of)
        slices = Snapshot.seal(self._session, value, cut).slices
        if partitions is None:
            return slices
        from crdt_mor.write.overwrite import rehearsal, require_known, scope_of

        paths = scope_of(rehearsal(self._session, value), require_partitions(partitions)).partitions or ()
        slices = slices.within(paths)
        require_known(paths, partitions, slices.partitions, as_of)
        return slices

    def sizes(self, versions: Sequence[int]) -> pa.Table:
        """Return the bytes and numbers of base and log files that a scan reads at each kept version."""
        if not all(map(is_whole, versions)):
            raise InvalidInputError(f"pass a list of numbers, as in history()'s version. versions={versions!r:.100}")
        session, rows = self._session, []
        value = session.views.sealed(decided=True)
        for version in versions:
            with suppress(SnapshotExpiredError, UnsupportedFeatureError):  # Hudi 6 only has the latest snapshot
                slices = Snapshot.seal(session, value, cut_at(session, value, version, "versions")).slices
                bases = [slice_.base.size for slice_ in slices if slice_.base is not None]
                logs = [log.size for slice_ in slices for log in slice_.logs]
                rows.append((version, sum(bases), sum(logs), len(bases), len(logs)))
        return _table(_SIZES, rows)


def _table(schema: pa.Schema, rows: Iterable[tuple[object, ...]]) -> pa.Table:
    """rows: values in the order of the schema."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table(columns, schema=schema)


def silent_for(heard_ms: int | None, now_ms: int) -> timedelta | None:
    """Return the time since the last heartbeat, at least 0: the clocks may disagree."""
    return None if heard_ms is None else timedelta(milliseconds=max(0, now_ms - heard_ms))


def _open(requested: InstantTime, state: str, action: str, version: int) -> dict[str, object]:
    return {"requested_at": requested, "state": state, "action": action, "version": version}
