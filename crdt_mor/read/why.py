"""Trace the history of one row: each kept contribution, and the row that the merge makes of it.

    file groups that held the key ─► their slices, one after another ─► the key's own lines
                                       a merge up to each of these lines ─► the row then

Each compaction begins a new slice. It folds the logs into a base file, or passes them on in a carry if a pending write
may come before them. After a commit that rewrites rows, later lines are merged onto its base file.

Lines are in request order, so each merge continues from the row of the line before.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import polars as pl

from crdt_mor.errors import SnapshotExpiredError
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.laws.merging import Merging, merging_of
from crdt_mor.merge import kernel
from crdt_mor.merge.blocks import COMMIT_TIME, RECORD_KEY, DataBlock, DeleteBlock, Slice, is_partial
from crdt_mor.merge.contributions import ORDER, TIME, decode, given_names, scan
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import COMMIT
from crdt_mor.model.slices import FileSlice, Slices, fold_slices
from crdt_mor.model.timeline_parts import Completion, FileGroup
from crdt_mor.planners.clean import is_commit
from crdt_mor.read.damage import naming_damage
from crdt_mor.read.open_slice import open_slice
from crdt_mor.read.partition_rows import PartitionRows
from crdt_mor.read.prune import prune
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.read.window import by_group, require_times, within

Change = Literal["upsert", "delete", "kept", "rewritten", "removed"]
"""The kind of a contribution.

    kept        older contributions in one row, from the oldest kept base file or its carry
    rewritten   the row from a commit that rewrote the base file or moved the key to another file group
    removed     an overwrite, a truncation or a partition delete dropped the row
"""

Block = DataBlock | DeleteBlock
Blocks = dict[InstantTime, list[Block]]


@dataclass(frozen=True)
class Line:
    """One contribution, with the visible row before and after it.

    Frames have one row or none, stored names and types, and payload states.

    Attributes:
        requested: its position in the merge order.
        commit: None if no longer kept or folded with others.
        written: the row of an upsert.
        given: the columns that the upsert set. nulls: as in `DataBlock`.
        ordering: the ordering value of a delete, if any.
        after_delete: the same commit deleted the row first.
        folded: the compaction that folded it into a base file.
        carried: the compactions that passed it on in a carry.
    """

    partition: str
    requested: InstantTime
    change: Change
    commit: Completion | None
    written: pl.DataFrame
    given: tuple[str, ...]
    before: pl.DataFrame
    after: pl.DataFrame
    nulls: tuple[str, ...] = ()
    ordering: object = None
    after_delete: bool = False
    folded: Completion | None = None
    carried: tuple[Completion, ...] = ()


@dataclass(frozen=True)
class Chapter:
    """A file group's contents for one key, from one base file to the next.

    Attributes:
        first_commit: the commit of the base file; None without a base file or if no longer kept.
        last_commit: the commit of the next base file.
        row: the key's row in the base file, or none.
        base_latest: the latest requested time folded into the base file.
        unstable: requested time from which `last_commit` passed contributions on, or None.
        logs: blocks of the logs, by requested time.
        carry: its blocks; several contributions may be folded into one.
    """

    first_commit: Completion | None
    last_commit: Completion | None
    row: pl.DataFrame
    base_latest: str | None
    unstable: InstantTime | None
    logs: Blocks
    carry: Blocks

    @property
    def rewrites(self) -> bool:
        return self.first_commit is not None and not is_compaction(self.first_commit)


def is_compaction(commit: Completion) -> bool:
    """Return True if the commit leaves every row unchanged in its file group."""
    is_ours = commit.action == COMMIT and not commit.adopted and commit.overwriting is None
    return is_ours or not is_commit(commit)


def life_of(snapshot: Snapshot, condition: pl.Expr, record_key: str) -> list[Line]:
    """Return the lines of a key, by partition, in merge order.

    Args:
        condition: on key columns, and optionally partition columns; stored names.

    Raises:
        UnsupportedFeatureError: the table's rows have no commit times.
    """
    require_times(snapshot.session)
    return _Life(snapshot, condition, record_key).lines()


class _Life:
    def __init__(self, snapshot: Snapshot, condition: pl.Expr, record_key: str) -> None:
        self._snapshot = snapshot
        self._session = snapshot.session
        self._condition = condition
        self._record_key = record_key
        self._merging: Merging = merging_of(self._session.config, snapshot.value.schema)
        completions = self._session.views.completions(snapshot.value)
        self._shown = sorted((c for c in completions if snapshot.cut.shows(c)), key=lambda c: c.completed)

    # --- file groups of the key -------------------------------------------------------------------------------------

    def lines(self) -> list[Line]:
        told: dict[str, list[Line]] = {}
        groups = [*self._groups()]
        parts = by_group(within(self._shown, frozenset(group for group, _ in groups)))
        for group, ended in groups:
            self._add_lines(told.setdefault(group[0], []), group, parts[group], ended)
        return [line for partition in sorted(told) for line in told[partition]]

    def _groups(self) -> Iterator[tuple[FileGroup, Completion | None]]:
        """Yield the file groups that held the key, oldest first, each with its replacing commit."""
        for commit in self._shown:
            if commit.replaced:
                before = [c for c in self._shown if c.completed < commit.completed]
                for slice_ in self._pruned(before):
                    if slice_.group in set(commit.replaced):
                        yield slice_.group, commit
        for slice_ in self._pruned(self._shown):
            yield slice_.group, None

    def _pruned(self, completions: Sequence[Completion]) -> Slices:
        session, rows = self._session, self._session.views.kept(PartitionRows)
        return prune(self._folded(completions), self._condition, session.config, self._snapshot.schema, rows).kept

    # --- contents of a file group -----------------------------------------------------------------------------------

    def _chapters(self, group: FileGroup, completions: Sequence[Completion]) -> list[Chapter]:
        since = self._snapshot.value.retention.since_of(group)
        makers = [c for c in completions if any(file.is_base for file in c.files)]
        oldest = next((c for c in reversed(makers) if c.completed <= since), None)
        bases = [c for c in makers if c.completed > since]
        found: list[Chapter] = []
        for begun, end in zip([oldest, *bases], [*bases, None], strict=True):
            slice_ = self._slice(
                completions if end is None else [c for c in completions if c.completed < end.completed]
            )
            if slice_ is None:
                continue
            try:
                found.append(self._chapter(slice_, begun, end))
            except SnapshotExpiredError:
                if end is None:
                    raise
                found.clear()  # cleaned by Hudi: nothing before the next base file is kept
        return found

    def _slice(self, completions: Sequence[Completion]) -> FileSlice | None:
        return next(iter(self._folded(completions)), None)

    def _folded(self, completions: Sequence[Completion]) -> Slices:
        return fold_slices(completions, old_logs=self._session.config.was_upgraded)

    def _chapter(self, slice_: FileSlice, begun: Completion | None, ended: Completion | None) -> Chapter:
        store, config = self._session.store, self._session.config
        carries = tuple(log for log in slice_.logs if slice_.is_carry(log))
        with naming_damage(store, slice_):
            opened = open_slice(store, replace(slice_, logs=slice_.fresh_logs), config)
            carried = open_slice(store, replace(slice_, base=None, logs=carries), config).blocks
            row = self._none if opened.base is None else self._row_of(opened.base)
            logs, carry = self._by_time(opened.blocks), self._by_time(carried)
        unstable = None if ended is None else self._unstable(ended)
        return Chapter(begun, ended, row, opened.base_latest, unstable, logs, carry)

    def _unstable(self, compaction: Completion) -> InstantTime | None:
        """Return the oldest write pending at the compaction's plan, if known."""
        pending = ((p.requested, "~") for p in self._snapshot.value.pending)
        known = [*((c.requested, c.completed) for c in self._shown), *pending]
        barrier = compaction.requested
        return min((requested for requested, completed in known if requested < barrier < completed), default=None)

    def _by_time(self, blocks: Sequence[Block]) -> Blocks:
        found: Blocks = {}
        for block in blocks:
            for requested, own in self._own(block):
                found.setdefault(requested, []).append(own)
        return found

    def _row_of(self, base: ParquetSource) -> pl.DataFrame:
        columns = self._merging.columns
        return scan(base, columns).filter(self._only_key.condition).select(columns.select_all()).collect()

    def _own(self, block: Block) -> Iterator[tuple[InstantTime, Block]]:
        if isinstance(block, DeleteBlock):
            keys = block.keys.filter(pl.col(RECORD_KEY).cast(pl.String) == self._record_key)
            for i in range(keys.height):
                own = keys.slice(i, 1)
                time = own[TIME][0] if TIME in own.columns else None
                requested = InstantTime(block.instant if time is None else time)
                yield requested, DeleteBlock(requested, own.drop(TIME, strict=False))
            return
        columns = self._merging.columns
        rows = decode([block], columns, columns.select_all(), self._only_key)
        # The decoded frame includes columns absent from the block. Only this rule needs the block's own columns.
        given = tuple(given_names(block)) if self._merging.rule.kind == "columns" else block.given
        for i in range(rows.height):
            row = rows.slice(i, 1)
            requested = InstantTime(row[COMMIT_TIME][0] if block.own_times else block.instant)
            yield requested, DataBlock(requested, row, given, unset=block.unset, nulls=block.nulls)

    @cached_property
    def _by_request(self) -> dict[InstantTime, Completion]:
        return {c.requested: c for c in self._shown if is_commit(c)}

    @cached_property
    def _only_key(self) -> kernel.KeyCondition:
        key = self._merging.columns.merge_key
        value = pl.Series([self._record_key]).cast(self._merging.columns.schema[key])
        return kernel.KeyCondition(key, pl.col(key).is_in(value.implode()))

    # --- visible rows -----------------------------------------------------------------------------------------------

    def _add_lines(
        self, lines: list[Line], group: FileGroup, parts: Sequence[Completion], ended: Completion | None
    ) -> None:
        """parts: of the file group's commits. ended: the commit that replaced it."""
        others = len(lines)
        completions = [c for c in parts if ended is None or c.completed < ended.completed]
        for number, run in enumerate(_runs(self._chapters(group, completions))):
            self._begin(lines, group, run[0], others)
            blocks = run[0].carry | {at: own for chapter in reversed(run) for at, own in chapter.logs.items()}
            merged_so_far = _MergedSoFar(run[0].row, run[0].base_latest, self._merging)
            for requested, own in self._steps(blocks):
                after = merged_so_far.merged(requested, own)
                if not number or requested not in run[0].carry:
                    line = self._line(group[0], requested, own, _row(lines), after)
                    lines.append(_as_kept(line) if requested in run[0].carry else self._with_upkeep(line, run))
        if ended is not None and len(lines) > others and _row(lines).height:
            lines.append(Line(group[0], ended.requested, "removed", ended, self._none, (), _row(lines), self._none))

    def _begin(self, lines: list[Line], group: FileGroup, chapter: Chapter, others: int) -> None:
        """Append a line for a chapter's base file, if the file contains the key or its commit dropped the key.

        `others` counts the lines of other file groups.
        """
        row, begun = chapter.row, chapter.first_commit
        if not row.height and not (chapter.rewrites and len(lines) > others and _row(lines).height):
            return
        if lines and lines[-1].change == "removed" and lines[-1].commit is begun:
            lines.pop()
        given = tuple(self._merging.columns.stored) if row.height else ()
        if row.height and not lines and (begun is None or is_compaction(begun)):
            at = InstantTime(str(row[COMMIT_TIME][0]))
            lines.append(Line(group[0], at, "kept", None, row, given, _row(lines), row, folded=begun))
        else:
            assert begun is not None, "the commit of a base file is kept, or its line is the first"
            change: Change = "rewritten" if row.height else "removed"
            lines.append(Line(group[0], begun.requested, change, begun, row, given, _row(lines), row))

    def _steps(self, blocks: Blocks) -> Iterator[tuple[InstantTime, Sequence[Block]]]:
        """Yield blocks by requested time, and a commit's rows of several ordering values one by one, least first."""
        rule = self._merging.rule
        for requested in sorted(blocks):
            rows = [block for block in blocks[requested] if isinstance(block, DataBlock)]
            if not rule.has_orders or len(rows) < 2:
                yield requested, blocks[requested]
                continue
            first, *others = sorted(rows, key=self._order)
            yield requested, [*(block for block in blocks[requested] if isinstance(block, DeleteBlock)), first]
            yield from ((requested, [row]) for row in others)

    def _order(self, block: DataBlock) -> Any:
        assert isinstance(block.rows, pl.DataFrame)
        return block.rows[str(self._merging.rule.ordering)][0]

    def _line(
        self, partition: str, requested: InstantTime, blocks: Sequence[Block], before: pl.DataFrame, after: pl.DataFrame
    ) -> Line:
        commit = self._by_request.get(requested)
        rows = [block for block in blocks if isinstance(block, DataBlock)]
        if rows:
            written = rows[-1].rows
            assert isinstance(written, pl.DataFrame)
            given = self._given(rows[-1])
            shown = self._merging.rule.show(written)
            return Line(
                partition,
                requested,
                "upsert",
                commit,
                shown,
                given,
                before,
                after,
                rows[-1].nulls,
                after_delete=len(rows) < len(blocks),
            )
        deletes = [block.keys for block in blocks if isinstance(block, DeleteBlock)]
        columns, name = self._merging.columns.stored, self._merging.rule.ordering
        values = (keys[ORDER].cast(columns[name]) for keys in deletes if ORDER in keys.columns and name is not None)
        ordering = next((own[0] for own in values), None)
        return Line(partition, requested, "delete", commit, self._none, (), before, after, ordering=ordering)

    def _with_upkeep(self, line: Line, run: Sequence[Chapter]) -> Line:
        carried: list[Completion] = []
        first = next(i for i, chapter in enumerate(run) if line.requested in chapter.logs)
        for chapter, following in pairwise(run[first:]):
            if line.requested in following.logs or chapter.last_commit is None:
                continue
            if not self._is_passed_on(line, chapter, following):
                return replace(line, folded=chapter.last_commit, carried=tuple(carried))
            carried.append(chapter.last_commit)
        return replace(line, carried=tuple(carried))

    def _is_passed_on(self, line: Line, chapter: Chapter, following: Chapter) -> bool:
        """Return True if a compaction put the line into its carry.

        A fold of rows has the time of the last of them; a fold of deletes and removed rows that of the first. If the
        latest commit wins, rows go into the base file, except rows of a log compaction.
        """
        if self._merging.rule.kind == "latest" and line.change == "upsert":
            rows = (at for at, own in following.carry.items() if any(isinstance(block, DataBlock) for block in own))
            return line.requested <= max(rows, default="")
        since = [*following.carry, *([] if chapter.unstable is None else [chapter.unstable])]
        return bool(following.carry) and line.requested >= min(since)

    def _given(self, block: DataBlock) -> tuple[str, ...]:
        assert isinstance(block.rows, pl.DataFrame)
        stored = self._merging.columns.stored
        given = set(stored if block.given is None else block.given)
        states = [member for member in self._merging.rule.members if member.hidden in given]
        given = given.difference(*(member.columns for member in states))
        given = given.union(*(member.given_in(block.rows) for member in states))
        return tuple(name for name in stored if name in given)

    @property
    def _none(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self._merging.columns.schema)


class _MergedSoFar:
    """The row so far, onto which later lines are merged in request order.

    Deletes with ordering values also count against later lines and stay beside the row. Hudi folds partial updates with
    each other before the base, so after a partial update each merge starts again with all lines.
    """

    def __init__(self, row: pl.DataFrame, latest: str | None, merging: Merging) -> None:
        self._merging, self._blocks = merging, list[Block]()
        self._set(row, latest)

    def merged(self, requested: InstantTime, blocks: Sequence[Block]) -> pl.DataFrame:
        rule, columns = self._merging.rule, self._merging.columns
        self._blocks += blocks
        files = Slice(self._base, self._latest, tuple(self._blocks))
        row = pl.concat(kernel.merge(files, rule, columns, select=columns.select_all()))
        if rule.kind == "columns" or not any(is_partial(block) for block in self._blocks):
            self._set(row, max(self._latest or requested, requested))
            has_floor = rule.kind == "ordering" or (rule.has_orders and not row.height)  # else it is in the row
            self._blocks = [b for b in self._blocks if isinstance(b, DeleteBlock) and has_floor]
        return row

    def _set(self, row: pl.DataFrame, latest: str | None) -> None:
        self._base = _as_base(row) if row.height else None
        self._latest = latest if row.height else None


def _as_base(row: pl.DataFrame) -> ParquetSource:
    data = io.BytesIO()
    row.write_parquet(data)
    return ParquetSource.in_memory(data.getvalue())


def _row(lines: Sequence[Line]) -> pl.DataFrame:
    return lines[-1].after if lines else pl.DataFrame()


def _runs(chapters: Sequence[Chapter]) -> list[list[Chapter]]:
    runs: list[list[Chapter]] = []
    for chapter in chapters:
        if not runs or chapter.rewrites:
            runs.append([])
        runs[-1].append(chapter)
    return runs


def _as_kept(line: Line) -> Line:
    return replace(line, change="kept" if line.change == "upsert" else line.change, commit=None, after_delete=False)
