"""A first load: sort the rows of an invisible table once, and put them as base files.

    batches ─ checked, keyed, lifted ─► runs ─ merged (load_sorting.py) ─► a base file for each file group ─► one commit

Only the first write of a table may put base files under its own time: a base file begins a file slice, and would hide
earlier rows and folds of others. So the table stays invisible until the load is complete (`events/load.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import Literal

import polars as pl
import pyarrow as pa

from crdt_mor.columns.arrow_input import in_tables
from crdt_mor.errors import InvalidInputError
from crdt_mor.events import rollback
from crdt_mor.events.write import WriteOutcome
from crdt_mor.format.base_file import ROW_GROUP_ROWS
from crdt_mor.ground.threads import REQUESTS, THREADS, groups_in_threads
from crdt_mor.log.paths import STAGED
from crdt_mor.merge.blocks import COMMIT_TIME, PARTITION_PATH, RECORD_KEY
from crdt_mor.merge.orders import as_base_rows
from crdt_mor.merge.precombine import RowsWrite
from crdt_mor.model.field_ids import field_ids
from crdt_mor.model.layout import BY_KEY, Layout
from crdt_mor.model.names import BaseFileName, bucket_file_id, join_path
from crdt_mor.model.timeline_parts import DataFile
from crdt_mor.write.base_files import base_file, shown_rows
from crdt_mor.write.load_sorting import ORDER, RUN_ROWS, Run, Sorting, in_order
from crdt_mor.write.log_files import BUCKET, Group, put_chunks
from crdt_mor.write.named import NamedStatements
from crdt_mor.write.open_write import OpenWrite
from crdt_mor.write.statements import RowsStatement, Statements

_SEQUENCE = "_hoodie_commit_seqno"

RUN_BYTES = 128 << 20
"""Approximate bytes of Arrow rows that are sorted in memory."""

GROUP_BYTES = 4 << 20
"""Most bytes of the rows of a file group that is put beside others."""

Heard = Callable[[Literal["read", "written"], int], None]
"""Progress callback: "read" or "written", and the rows so far."""


@dataclass
class Load:
    """A load, the first write of its table. token: the token in its file names."""

    write: OpenWrite
    token: str
    heard: Heard
    sorting: Sorting = field(init=False)
    _used_states: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        session, requested = self.write.session, self.write.begun.requested
        self.sorting = Sorting(session.store, lambda: f"{STAGED}/{requested}-{session.environment.nonce()}")

    def commit(self, batches: Iterable[pa.RecordBatch]) -> WriteOutcome:
        """Read, sort and put all rows, and complete the write; a failure leaves nothing behind."""
        begun, session = self.write.begun, self.write.session
        try:
            return self.write.commit(lambda: self._files(batches), "INSERT")
        finally:
            session.run(rollback.remove_staged_files(begun.requested, begun.nonce))

    def _files(self, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        runs = self._runs(batches)
        rows = _without_repeats(self.sorting.merged(runs), self._partitioned)
        session = self.write.session
        at_once = REQUESTS if session.is_far else THREADS
        puts = self._puts(rows)
        return list(groups_in_threads(lambda one: one[0](), puts, itemgetter(1), session.memory_limit, at_once))

    def _puts(self, rows: Iterable[pl.DataFrame]) -> Iterator[tuple[Callable[[], DataFile], int]]:
        """Yield the put of each file group, and the bytes of its rows.

        A large file group is put here, while its rows are merged.
        """
        written = 0
        for (partition, bucket), pieces in groupby(_by_group(rows), key=itemgetter(0)):
            frames = (piece for _, piece in pieces)
            held, size = _held(frames)
            put = partial(self._put, partition, bucket, chain(held, frames), written)
            if size <= GROUP_BYTES:
                yield put, size
                written += sum(frame.height for frame in held)
            else:
                file = put()
                yield partial(replace, file), 0
                written += file.rows
            self.heard("written", written)

    @property
    def _partitioned(self) -> bool:
        return bool(self.write.session.config.key.partition_fields)

    # --- to runs --------------------------------------------------------------------------------------------------

    def _runs(self, batches: Iterable[pa.RecordBatch]) -> list[Run]:
        runs, read = list[Run](), 0
        for table, is_last in in_tables(batches, RUN_ROWS, RUN_BYTES):
            self.write.require_pending()
            (rows,) = _without_repeats([in_order(self._rows(table, len(runs)))], self._partitioned)
            runs.append(Run(rows=rows) if is_last and not runs else self.sorting.run([rows]))
            read += table.num_rows
            del table, rows  # free memory before the next rows are read
            self.heard("read", read)
        return runs

    def _rows(self, data: pa.Table, part: int) -> pl.DataFrame:
        write = self.write
        statements = Statements(write.session.config, write.value, write.begun.requested, part)
        named = NamedStatements(statements)
        shown = data.rename_columns([named.names.shown(name) for name in data.column_names])
        named.add(RowsStatement("UPSERT", shown, are_new=True))  # the sorted rows reveal repeats
        (statement,) = statements.collected
        assert isinstance(statement, RowsWrite)
        merging = statements.merging
        rule = merging.rule
        if rule.has_orders:
            parts = statement.as_stored(rule)
            rows = as_base_rows(parts, rule, merging.columns, write.begun.requested, BUCKET, each=True)
        else:
            rows = shown_rows(statement.rows, merging)
            rows = rule.settle(rows, seen=True) if rule.kind == "columns" else rows
        self._used_states |= {name for name in rule.hidden if rows[name].null_count() < rows.height}
        return rows

    # --- to base files --------------------------------------------------------------------------------------------

    def _put(self, partition: str, bucket: int, pieces: Iterator[pl.DataFrame], first: int) -> DataFile:
        """Put the base file of a file group from rows merged on demand, numbered from `first`."""
        write, merging = self.write, self.write.statements.merging
        requested, file_id = write.begun.requested, bucket_file_id(bucket)
        name = str(BaseFileName(file_id, self.token, requested))
        unused = merging.rule.hidden - self._used_states
        schema = merging.schema.select(name for name in merging.schema.declared.names if name not in unused)

        def numbered() -> Iterator[pl.DataFrame]:
            number = first
            for frame in _in_row_groups(pieces):
                numbers = pl.int_range(number, number + frame.height).cast(pl.String)
                yield frame.with_columns(
                    pl.lit(requested).alias(COMMIT_TIME), (pl.lit(f"{requested}_0_") + numbers).alias(_SEQUENCE)
                )
                number += frame.height

        layout = replace(BY_KEY, compression=Layout.of(write.value.properties).compression)
        ids = field_ids(write.session.known_tail().schema)
        content, statistics = base_file(write.session.config, partition, name, numbered(), schema, ids, THREADS, layout)
        file = DataFile(join_path(partition, name), 0, 0)
        write.expect_file(file)
        size, own = put_chunks(write.session.store, file.path, content)
        write.note_placed(file, own=own)
        return replace(file, size=size, rows=statistics.rows)


def _without_repeats(frames: Iterable[pl.DataFrame], partitioned: bool) -> Iterator[pl.DataFrame]:
    """Yield the sorted frames; raise if a key occurs twice in a partition."""
    last: tuple[object, ...] | None = None
    for frame in frames:
        if not frame.height:
            continue
        again = frame.filter(pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in ORDER))
        if last == frame.select(ORDER).row(0):
            again = frame.head(1)
        if again.height:
            where = f" partition={again[PARTITION_PATH][0]!r}" if partitioned else ""
            raise InvalidInputError(
                "a key occurs twice in the source, so nothing was created: remove one of the rows, or create the table "
                "and upsert, where the last row wins. "
                f"key={again[RECORD_KEY][0]!r}{where}"
            )
        last = frame.select(ORDER).row(-1)
        yield frame


def _by_group(frames: Iterable[pl.DataFrame]) -> Iterator[tuple[Group, pl.DataFrame]]:
    for frame in frames:
        for piece in frame.partition_by(PARTITION_PATH, BUCKET, maintain_order=True):
            yield (piece[PARTITION_PATH][0], piece[BUCKET][0]), piece


def _held(frames: Iterator[pl.DataFrame]) -> tuple[list[pl.DataFrame], int]:
    """Return the frames of a file group and their bytes; only the first frames if these exceed `GROUP_BYTES`."""
    held, size = list[pl.DataFrame](), 0
    for frame in frames:
        held.append(frame)
        size += int(frame.estimated_size())
        if size > GROUP_BYTES:
            break
    return held, size


def _in_row_groups(pieces: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    waiting: list[pl.DataFrame] = []
    for piece in pieces:
        waiting.append(piece)
        if sum(frame.height for frame in waiting) >= ROW_GROUP_ROWS:
            yield pl.concat(waiting, rechunk=True)
            waiting = []
    if waiting:
        yield pl.concat(waiting, rechunk=True)
