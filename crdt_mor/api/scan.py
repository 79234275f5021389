"""Scans: sealed snapshots with rows read on demand, as often as needed.

All outputs of a scan show the same snapshot. It is an Arrow stream (`__arrow_c_stream__`) for pyarrow, polars, pandas
or DuckDB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import polars as pl
import pyarrow as pa

from crdt_mor.api.rows import PART_SIZE, ArrowRows, part_size, selected_columns
from crdt_mor.api.split import SplitScan, split
from crdt_mor.columns.schema import META_COLUMNS
from crdt_mor.columns.tables import in_schema
from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.deadlines import operations
from crdt_mor.laws.merging import merging_of
from crdt_mor.merge.kernel import to_arrow
from crdt_mor.merge.polars_types import polars_frame, polars_schema, selected
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.slices import Slices, balanced_parts
from crdt_mor.read.conditions import checked
from crdt_mor.read.explain import Explanation, explain
from crdt_mor.read.expressions import columns_in, conjunction, conjuncts
from crdt_mor.read.filter_errors import failed_on_rows
from crdt_mor.read.partition_rows import PartitionRows
from crdt_mor.read.prune import Pruning, few, prune
from crdt_mor.read.pushdown import parquet_form, same_in_polars
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.read.trees import with_columns_named


@operations
class Scan(ArrowRows):
    """Rows of one snapshot: some columns, matching a filter, up to a limit. Made by `Table.scan`."""

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
        self._columns = selected_columns(columns, [*META_COLUMNS, *declared] if meta else declared, snapshot.shown)
        if meta and not any(name in META_COLUMNS for name in self._columns):
            self._columns = [*META_COLUMNS, *self._columns]
        self._filter = None if filter is None else checked(filter, snapshot.shown)
        self._limit = _row_count(limit)

    @property
    def as_of(self) -> InstantTime:
        """The completion time of this scan: it shows all commits completed by then, and no later ones.

        For a stable scan, the requested time that it stops before. `as_of`, `checkpoint` and `version` hold forever, so
        they first look for commits of Hudi's writers; if the scan lacks any, `SnapshotExpiredError` is raised: scan
        again.
        """
        return self._snapshot.sealed_cut().time

    @property
    def checkpoint(self) -> str:
        """The point from which `Table.changes(since=...)` continues after this scan."""
        if not self._snapshot.whole:
            raise InvalidInputError(
                "a read-optimized scan omits commits, and later changes would miss them: use the checkpoint of a scan "
                "with consistency='latest' or 'stable'"
            )
        return self._snapshot.sealed_cut().checkpoint(self._snapshot.value.table_id)

    @property
    def version(self) -> int:
        """The timeline version of the scan."""
        self._snapshot.sealed_cut()
        return self._snapshot.value.version

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows, as declared."""
        declared = self._snapshot.shown.declared
        return pa.schema([pa.field(n, pa.string()) if n in META_COLUMNS else declared.field(n) for n in self._columns])

    @property
    def polars_schema(self) -> pl.Schema:
        """The columns with polars types, as in `to_polars` and `frames`."""
        return polars_schema(self.schema)

    def narrowed(
        self,
        *,
        columns: str | Sequence[str] | None = None,
        filter: pl.Expr | str | None = None,
        limit: int | None = None,
    ) -> Scan:
        """Select fewer columns or rows of the same snapshot, in addition to this scan's filter.

        For engines that plan late on a snapshot sealed early.
        """
        if self._limit is not None:
            raise InvalidInputError(f"a scan with a limit cannot be narrowed: narrow first. limit={self._limit}")
        self._snapshot.session.require_own_process()
        names = selected_columns(columns, self._columns, self._snapshot.shown)
        conditions = [] if self._filter is None else [self._filter]
        if filter is not None:
            conditions.append(checked(filter, self._snapshot.shown))
        meta = any(name in META_COLUMNS for name in names)
        return Scan(self._snapshot, names, conjunction(conditions), meta, limit)

    def parts(self, size: int = PART_SIZE) -> list[Scan]:
        """Split the scan into parts for other processes: whole file slices, small ones together up to `size` bytes.

        A part can be pickled and names its files, so reading it needs nothing else of the table. Slices excluded by the
        filter are in no part, so the list may be empty.
        """
        if self._limit is not None:
            raise InvalidInputError(f"a scan with a limit has no parts: omit the limit. limit={self._limit}")
        snapshot, meta = self._snapshot, any(name in META_COLUMNS for name in self._columns)
        parts = balanced_parts([(slice_, slice_.weight) for slice_ in self._pruning.kept], part_size(size))
        return [Scan(snapshot.with_slices(slices), self._columns, self._filter, meta) for slices in parts]

    def split(self) -> SplitScan:
        """Separate base files from the rows that logs change, for engines that read Parquet themselves.

        Reads the base files' footers. Filters and limits are refused.
        """
        if self._filter is not None or self._limit is not None:
            raise InvalidInputError(f"split a scan without a filter and a limit, and filter its rows. scan={self!r}")
        meta = any(name in META_COLUMNS for name in self._columns)
        return split(self._snapshot, self.schema, lambda rest: Scan(rest, self._columns, None, meta).parts())

    def explain(self) -> Explanation:
        """Explain which files, row groups and columns this scan reads or skips. Reads only footers of base files."""
        snapshot = self._snapshot
        session, merging = snapshot.session, merging_of(snapshot.session.config, snapshot.value.schema)
        down, late = self._conditions
        columns = snapshot.read_columns(self._needed(self._stored), down)
        keys = few(self._pruning.keys)
        said = explain(self._pruning, merging, columns, down, late, self._limit, session.store.parquet, keys)
        names = snapshot.names
        if names.are_stored or down is None:
            return replace(said, columns=tuple(map(names.shown, said.columns)))
        shown = with_columns_named(down, {stored: name for name, stored in self._by_shown.items()})
        return replace(said, columns=tuple(map(names.shown, said.columns)), pushed=str(shown))

    @property
    def unopened(self) -> int:
        """Number of file groups that `count` does not open, because their row count is known.

        Their files may be unreadable; `Table.verify` checks that.
        """
        return 0 if self._filter is not None else self._snapshot.unopened

    def count(self) -> int:
        """Count the rows. Without a filter, no data is read if a commit or an earlier scan contains the count."""
        if self._filter is None:
            rows = self._snapshot.count()
            return rows if self._limit is None else min(rows, self._limit)
        return sum(frame.height for frame in self._frames([]))

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield the rows as polars DataFrames, a file slice or a few small ones at a time."""
        return (self._shown(self._restore_polars(frame)) for frame in self._frames(self._stored))

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a polars DataFrame."""
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
        known = self._snapshot.names.by_shown(self._snapshot.schema.declared.names)
        return known | {name: name for name in META_COLUMNS}

    @property
    def _stored(self) -> list[str]:
        names = self._columns
        return list(names) if self._snapshot.names.are_stored else [self._by_shown[name] for name in names]

    @cached_property
    def _parts_of_filter(self) -> list[tuple[pl.Expr, pl.Expr | None]]:
        """The filter's conjuncts, each also with stored names (None if impossible)."""
        parts = [] if self._filter is None else conjuncts(self._filter)
        if self._snapshot.names.are_stored:
            return [(part, part) for part in parts]
        return [(part, with_columns_named(part, self._by_shown)) for part in parts]

    @property
    def _inside(self) -> pl.Expr | None:
        """The filter with stored names, or a weaker condition."""
        if self._snapshot.names.are_stored:
            return self._filter
        return conjunction([part for _, part in self._parts_of_filter if part is not None])

    @cached_property
    def _pruning(self) -> Pruning:
        snapshot = self._snapshot
        snapshot.session.require_own_process()
        session = snapshot.session
        rows = session.views.kept(PartitionRows)
        return prune(snapshot.slices, self._inside, session.config, snapshot.schema, rows)

    @cached_property
    def _conditions(self) -> tuple[pl.Expr | None, pl.Expr | None]:
        """The filter in two parts: on stored names for the kernel and Parquet, and on declared types and this scan's
        names.
        """
        snapshot, schema = self._snapshot, self._snapshot.schema
        numbered = merging_of(snapshot.session.config, snapshot.value.schema).columns.numbered
        down: list[pl.Expr] = []
        late: list[pl.Expr] = []
        for part, inside in self._parts_of_filter:
            # Statistics of numbers do not show the order of their text.
            is_late = inside is None or bool(numbered & set(columns_in(inside)))
            form = None if is_late or inside is None else parquet_form(inside, schema)
            (late if form is None else down).append(part if form is None else form)
        return conjunction(down), conjunction(late)

    def _needed(self, columns: Sequence[str]) -> list[str]:
        _, late = self._conditions
        named = [] if late is None else [self._by_shown[name] for name in columns_in(late)]
        return list(dict.fromkeys([*columns, *named]))

    def _frames(self, columns: Sequence[str], *, kept: bool = False) -> Iterator[pl.DataFrame]:
        """Yield visible rows in stored types, up to the limit. For `kept` see `Snapshot.frames`."""
        down, late = self._conditions
        pruning = self._pruning
        keys = few(pruning.keys)
        snapshot = replace(self._snapshot, slices=pruning.kept if self._limit != 0 else Slices())
        if late is None:
            frames = snapshot.frames(columns, down, self._limit, keys=keys, kept=kept)
        else:
            frames = snapshot.frames(
                self._needed(columns),
                down,
                finish=lambda frame: self._late(frame, late, columns),
                keys=keys,
                kept=kept,
            )
        return frames if self._limit is None else _first(frames, self._limit)

    def _late(self, frame: pl.DataFrame, condition: pl.Expr, columns: Sequence[str]) -> pl.DataFrame:
        named = selected(frame, list(dict.fromkeys(self._by_shown[name] for name in columns_in(condition))))
        try:
            keep = self._shown(self._restore_polars(named)).select(condition.alias("keep"))["keep"]
        except pl.exceptions.PolarsError as error:
            raise failed_on_rows(error, self._snapshot.shown, condition) from error
        # For a literal or a constant column, polars may return a single value for all rows.
        rows = selected(frame, columns)
        return rows.filter(keep if len(keep) == rows.height else keep.new_from_index(0, rows.height))

    def _batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        for frame in self._frames(self._stored):
            rows = self._snapshot.schema.restore(to_arrow(frame))
            rows = rows.rename_columns(schema.names) if rows.num_columns else rows
            yield from (in_schema(rows, schema) if schema.names else rows).to_batches()

    def _shown(self, frame: pl.DataFrame) -> pl.DataFrame:
        names = self._snapshot.names
        return frame if names.are_stored else frame.rename({name: names.shown(name) for name in frame.columns})

    def _restored(self, frame: pl.DataFrame) -> pl.DataFrame:
        return polars_frame(self._snapshot.schema.restore(to_arrow(frame)))

    def _restore_polars(self, frame: pl.DataFrame) -> pl.DataFrame:
        unchanged = same_in_polars(self._snapshot.schema)
        changed = [name for name in frame.columns if name not in unchanged]
        return frame.with_columns(self._restored(frame.select(changed))) if changed else frame


def prefetch(snapshot: Snapshot, filter: pl.Expr | str | None, limit: int | None) -> None:
    """Prefetch from a bucket the ends of the files that a scan reads first."""
    slices = Scan(snapshot, None, filter, meta=False)._pruning.kept  # noqa: SLF001
    replace(snapshot, slices=slices if limit is None else slices[:1]).prefetch()


def whole(scan: Scan) -> Snapshot:
    """Return the snapshot of a scan of all rows and columns, sealed."""
    snapshot = scan._snapshot  # noqa: SLF001
    is_narrowed = scan._filter is not None or scan._limit is not None  # noqa: SLF001
    if is_narrowed or scan._columns != snapshot.shown.declared.names:  # noqa: SLF001
        raise InvalidInputError(
            f"pass a scan without columns, filter, limit and meta; diff itself takes columns. scan={scan!r}"
        )
    snapshot.sealed_cut()
    return snapshot


def _row_count(limit: object) -> int | None:
    if limit is None:
        return None
    if isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0:
        return min(limit, 2**63 - 1)  # polars takes no more
    raise InvalidInputError(f"limit must be a number of rows, 0 or more. limit={limit!r}")


def _first(frames: Iterator[pl.DataFrame], limit: int) -> Iterator[pl.DataFrame]:
    left = limit
    for frame in frames:
        yield frame.head(left)
        left -= frame.height
        if left <= 0:
            return
