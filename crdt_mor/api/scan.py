"""A scan: a frozen description of a read. Rows come when they are asked for, as often as they are asked for.

The view is sealed when the scan is made, so every output of one scan shows the same snapshot. A scan is an Arrow stream
(`__arrow_c_stream__`): pass it to pyarrow, polars, pandas or DuckDB as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import polars as pl
import pyarrow as pa

from crdt_mor.api.rows import PART_SIZE, ArrowRows, chosen, part_size
from crdt_mor.columns.schema import META_COLUMNS
from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.deadlines import operations
from crdt_mor.laws.merging import merging_of
from crdt_mor.merge.kernel import to_arrow
from crdt_mor.merge.polars_types import polars_frame, polars_schema, selected
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.slices import balanced_parts
from crdt_mor.read.conditions import checked
from crdt_mor.read.explain import Explanation, explain
from crdt_mor.read.expressions import columns_in, conjunction, conjuncts
from crdt_mor.read.filter_errors import failed_on_rows
from crdt_mor.read.prune import Pruning, pinned_keys, prune
from crdt_mor.read.pushdown import parquet_form, same_in_polars
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.read.trees import with_columns_named


@operations
class Scan(ArrowRows):
    """Rows of one snapshot: `columns` of them, where `filter` holds, at most `limit`. Made by `Table.scan`."""

    def __init__(
        self,
        snapshot: Snapshot,
        columns: str | Sequence[str] | None,
        filter: pl.Expr | str | None,
        meta: bool,
        limit: int | None = None,
    ) -> None:
        snapshot.session.require_own_process()
        self._snapshot = snapshot
        declared = snapshot.shown.declared.names
        self._columns = chosen(columns, [*META_COLUMNS, *declared] if meta else declared, snapshot.shown)
        if meta and not any(name in META_COLUMNS for name in self._columns):
            self._columns = [*META_COLUMNS, *self._columns]
        self._filter = None if filter is None else checked(filter, snapshot.shown)
        self._limit = _row_count(limit)

    @property
    def as_of(self) -> InstantTime:
        """The completion time that this scan shows: everything completed by then, nothing later.

        Of a stable scan, the requested time that it stops before. What is handed out here, as `checkpoint` and
        `version`, holds for ever, so it is only here that commits of Hudi's own writers are looked for; one that is
        missing raises `SnapshotExpiredError`: scan again.
        """
        return self._snapshot.sealed_cut().time

    @property
    def checkpoint(self) -> str:
        """Where `Table.changes(since=...)` goes on from this scan."""
        if not self._snapshot.whole:
            raise InvalidInputError(
                "a read-optimized scan leaves out commits, which changes since then would not bring: take the "
                "checkpoint of a scan with consistency='latest' or 'stable'"
            )
        return self._snapshot.sealed_cut().checkpoint(self._snapshot.value.table_id)

    @property
    def version(self) -> int:
        """The version of the timeline that the scan is sealed to."""
        self._snapshot.sealed_cut()
        return self._snapshot.value.version

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of what comes out, as the table's user declared it."""
        declared = self._snapshot.shown.declared
        return pa.schema([pa.field(n, pa.string()) if n in META_COLUMNS else declared.field(n) for n in self._columns])

    @property
    def polars_schema(self) -> pl.Schema:
        """The columns that come out, in the types of polars, as `to_polars` and `frames` have them."""
        return polars_schema(self.schema)

    def narrowed(
        self,
        *,
        columns: str | Sequence[str] | None = None,
        filter: pl.Expr | str | None = None,
        limit: int | None = None,
    ) -> Scan:
        """Less of the same snapshot: some of this scan's columns, those of its rows for which `filter` holds as well.

        For engines that decide late what they need of a view that was sealed early.
        """
        if self._limit is not None:
            raise InvalidInputError(f"a scan with a limit cannot be narrowed: narrow first. limit={self._limit}")
        self._snapshot.session.require_own_process()
        names = chosen(columns, self._columns, self._snapshot.shown)
        conditions = [] if self._filter is None else [self._filter]
        if filter is not None:
            conditions.append(checked(filter, self._snapshot.shown))
        meta = any(name in META_COLUMNS for name in names)
        return Scan(self._snapshot, names, conjunction(conditions), meta, limit)

    def parts(self, size: int = PART_SIZE) -> list[Scan]:
        """This scan in parts that other processes can read: whole file slices, small ones together up to `size` bytes.

        A part pickles. It names its files, so that reading it looks at nothing else of the table; each row of the scan
        is in one part. Slices that the filter rules out are in none, so there may be no parts at all.
        """
        if self._limit is not None:
            raise InvalidInputError(f"a limit counts the rows of all parts: do without one. limit={self._limit}")
        snapshot, meta = self._snapshot, any(name in META_COLUMNS for name in self._columns)
        parts = balanced_parts([(slice_, slice_.weight) for slice_ in self._pruning.kept], part_size(size))
        return [Scan(snapshot.with_slices(slices), self._columns, self._filter, meta) for slices in parts]

    def explain(self) -> Explanation:
        """What this scan reads, and what it need not: files that are ruled out, columns, what goes down to Parquet.

        Reads footers of base files, and no rows.
        """
        snapshot = self._snapshot
        session, merging = snapshot.session, merging_of(snapshot.session.config, snapshot.value.schema)
        down, late = self._conditions
        columns = snapshot.read_columns(self._needed(self._stored), down)
        said = explain(self._pruning, merging, columns, down, late, self._limit, session.store.parquet, self._keys)
        names = snapshot.names
        if names.are_stored or down is None:
            return replace(said, columns=tuple(map(names.shown, said.columns)))
        shown = with_columns_named(down, {stored: name for name, stored in self._by_shown.items()})
        return replace(said, columns=tuple(map(names.shown, said.columns)), pushed=str(shown))

    @property
    def unopened(self) -> int:
        """Of how many file groups `count` opens no data file, as it is known how many rows they have.

        Commits say it, a hint of shown rows, or an earlier scan of this table.
        So it does not tell whether these files can be read; `Table.verify` does.
        """
        return 0 if self._filter is not None else self._snapshot.unopened

    def count(self) -> int:
        """Number of rows.

        No data is read where no filter asks for it, and a commit says it, or an earlier scan of this table has found
        it out.
        """
        if self._filter is None:
            rows = self._snapshot.count()
            return rows if self._limit is None else min(rows, self._limit)
        return sum(frame.height for frame in self._frames([]))

    def frames(self) -> Iterator[pl.DataFrame]:
        """The rows as polars DataFrames, a file slice or a few small ones at a time."""
        return (self._shown(self._restore_polars(frame)) for frame in self._frames(self._stored))

    def to_polars(self) -> pl.DataFrame:
        """All rows as a polars DataFrame."""
        frames = [self._shown(self._restore_polars(frame)) for frame in self._frames(self._stored, kept=True)]
        if not frames:
            return pl.DataFrame(schema=self.polars_schema)
        return pl.concat(frames, rechunk=False)

    def _first(self, count: int) -> pl.DataFrame:
        limit = count if self._limit is None else min(count, self._limit)
        meta = any(name in META_COLUMNS for name in self._columns)
        return Scan(self._snapshot, self._columns, self._filter, meta, limit).to_polars()

    def __repr__(self) -> str:
        condition = "" if self._filter is None else f", filter={self._filter}"
        limit = "" if self._limit is None else f", limit={self._limit}"
        return f"Scan(columns={self._columns}{condition}{limit}, as_of={self._snapshot.cut.time})"

    # --- inside -------------------------------------------------------------------------------------------------

    @cached_property
    def _by_shown(self) -> dict[str, str]:
        """The stored names of the columns, by the names under which this scan has them."""
        known = self._snapshot.names.by_shown(self._snapshot.schema.declared.names)
        return known | {name: name for name in META_COLUMNS}

    @property
    def _stored(self) -> list[str]:
        """The stored names of the columns that come out."""
        return [self._by_shown[name] for name in self._columns]

    @cached_property
    def _parts_of_filter(self) -> list[tuple[pl.Expr, pl.Expr | None]]:
        """The conditions that must all hold, each also under stored names; None where it has no such form."""
        parts = [] if self._filter is None else conjuncts(self._filter)
        if self._snapshot.names.are_stored:
            return [(part, part) for part in parts]
        return [(part, with_columns_named(part, self._by_shown)) for part in parts]

    @property
    def _inside(self) -> pl.Expr | None:
        """What the filter says under stored names, or less: it rules nothing out for which the filter holds."""
        if self._snapshot.names.are_stored:
            return self._filter
        return conjunction([part for _, part in self._parts_of_filter if part is not None])

    @cached_property
    def _pruning(self) -> Pruning:
        """The file slices that may hold rows for which the filter holds."""
        snapshot = self._snapshot
        snapshot.session.require_own_process()
        return prune(snapshot.slices, self._inside, snapshot.session.config, snapshot.schema)

    @cached_property
    def _keys(self) -> tuple[str, ...] | None:
        """The keys of which alone the filter can hold, if they are few; None: any."""
        return pinned_keys(self._inside, self._snapshot.session.config, self._snapshot.schema)

    @cached_property
    def _conditions(self) -> tuple[pl.Expr | None, pl.Expr | None]:
        """The filter in two parts: for the kernel and the Parquet scan below it, and for rows that are restored.

        The former is one of stored names, the latter of those under which this scan has the columns.
        """
        snapshot, schema = self._snapshot, self._snapshot.schema
        numbered = merging_of(snapshot.session.config, snapshot.value.schema).columns.numbered
        down: list[pl.Expr] = []
        late: list[pl.Expr] = []
        for part, inside in self._parts_of_filter:
            # The statistics of numbers say nothing of the order of their texts.
            is_late = inside is None or bool(numbered & set(columns_in(inside)))
            form = None if is_late or inside is None else parquet_form(inside, schema)
            (late if form is None else down).append(part if form is None else form)
        return conjunction(down), conjunction(late)

    def _needed(self, columns: Sequence[str]) -> list[str]:
        """`columns`, and those that the late part of the filter names; stored names."""
        _, late = self._conditions
        named = [] if late is None else [self._by_shown[name] for name in columns_in(late)]
        return list(dict.fromkeys([*columns, *named]))

    def _frames(self, columns: Sequence[str], *, kept: bool = False) -> Iterator[pl.DataFrame]:
        """Merged rows in stored types, no more than the limit. kept: as in `Snapshot.frames`."""
        down, late = self._conditions
        snapshot = replace(self._snapshot, slices=self._pruning.kept if self._limit != 0 else ())
        if late is None:
            frames = snapshot.frames(columns, down, self._limit, keys=self._keys, kept=kept)
        else:
            frames = snapshot.frames(
                self._needed(columns),
                down,
                finish=lambda frame: self._late(frame, late, columns),
                keys=self._keys,
                kept=kept,
            )
        return frames if self._limit is None else _first(frames, self._limit)

    def _late(self, frame: pl.DataFrame, condition: pl.Expr, columns: Sequence[str]) -> pl.DataFrame:
        """`columns` of the rows of which a condition on restored columns is true."""
        named = selected(frame, list(dict.fromkeys(self._by_shown[name] for name in columns_in(condition))))
        try:
            keep = self._shown(self._restore_polars(named)).select(condition.alias("keep"))["keep"]
        except pl.exceptions.PolarsError as error:
            raise failed_on_rows(error, self._snapshot.shown, condition) from error
        # Of a literal and a column that has one value in all rows, polars may make a single value for all of them.
        rows = selected(frame, columns)
        return rows.filter(keep if len(keep) == rows.height else keep.new_from_index(0, rows.height))

    def _batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        for frame in self._frames(self._stored):
            rows = self._snapshot.schema.restore(to_arrow(frame))
            rows = rows.rename_columns(schema.names) if rows.num_columns else rows
            yield from (rows.cast(schema) if schema.names else rows).to_batches()

    def _shown(self, frame: pl.DataFrame) -> pl.DataFrame:
        """A frame of stored names under those of this scan."""
        names = self._snapshot.names
        return frame if names.are_stored else frame.rename({name: names.shown(name) for name in frame.columns})

    def _restored(self, frame: pl.DataFrame) -> pl.DataFrame:
        return polars_frame(self._snapshot.schema.restore(to_arrow(frame)))

    def _restore_polars(self, frame: pl.DataFrame) -> pl.DataFrame:
        unchanged = same_in_polars(self._snapshot.schema)
        changed = [name for name in frame.columns if name not in unchanged]
        return frame.with_columns(self._restored(frame.select(changed))) if changed else frame


def prefetch(snapshot: Snapshot, filter: pl.Expr | str | None, limit: int | None) -> None:
    """Ask a bucket for the ends of the files that a scan of a snapshot begins with; they are kept in memory."""
    slices = Scan(snapshot, None, filter, meta=False)._pruning.kept  # noqa: SLF001
    replace(snapshot, slices=slices if limit is None else slices[:1]).prefetch()


def _row_count(limit: object) -> int | None:
    if limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0):
        return limit
    raise InvalidInputError(f"a limit is a number of rows, 0 or more. limit={limit!r}")


def _first(frames: Iterator[pl.DataFrame], limit: int) -> Iterator[pl.DataFrame]:
    """Frames until there are `limit` rows; slices after that are not read."""
    left = limit
    for frame in frames:
        yield frame.head(left)
        left -= frame.height
        if left <= 0:
            return
