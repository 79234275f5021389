"""A merge that many processes make, each of them of some keys; see `Table.merge_in_parts`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from crdt_mor.api.data import Data, SchemaLike, read_data, read_schema
from crdt_mor.api.merge_into import (
    Merged,
    MergeInto,
    do_merge,
    merge_of,
    nothing_of,
    plain_source,
    require_columns,
    sum_of,
)
from crdt_mor.api.moving import move_plan
from crdt_mor.api.scan import Scan
from crdt_mor.api.table_writes import WAIT, merged_in
from crdt_mor.api.update_parts import Elsewhere, PartDone, commit_in_parts, executed
from crdt_mor.errors import CrdtMorError, InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.ground.deadlines import operations
from crdt_mor.ground.late_imports import Late
from crdt_mor.model.timeline import Timeline
from crdt_mor.read.reads import EVERYTHING
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.write.job_values import Job
from crdt_mor.write.merge_into_plan import MergePlan
from crdt_mor.write.named import NamedStatements, shown_table
from crdt_mor.write.open_write import OpenWrite
from crdt_mor.write.statements import Statements

if TYPE_CHECKING:
    from crdt_mor.write import merge_into_parts as spreading
    from crdt_mor.write import update_parts as in_parts
else:
    spreading = Late("crdt_mor.write.merge_into_parts")
    in_parts = Late("crdt_mor.write.update_parts")


@operations
@dataclass(frozen=True, slots=True)
class MergePart:
    """The table's rows of some keys, for any process that has the source's rows of them. number: the part's."""

    number: int
    _session: Session = field(repr=False)
    _job: Job = field(repr=False)
    _view: Snapshot = field(repr=False)
    _plan: MergePlan = field(repr=False)
    _columns: Timeline = field(repr=False)

    def execute(self, source: Data) -> PartDone:
        """Read the table's rows that those of the source may meet, and stage what becomes of them where nobody looks.

        source: the rows of which `MergeSpread.numbers` gives this part's number; where there are none, no rows.
        It may be called any number of times, anywhere; what counts is what `execute_parts` gives back.
        """
        plan = replace(self._plan, source=plain_source(read_data(source)))
        merged = nothing_of(plan)

        def change(write: OpenWrite) -> None:
            nonlocal merged
            merged = do_merge(plan, NamedStatements(write.statements), partial(self._read, write))

        return replace(executed(self._session, self._job, self._columns, self.number, change), merged=merged)

    def _read(self, write: OpenWrite, *, filter: pl.Expr | str | None = None) -> pa.Table:
        """The rows for which a condition holds, as the statements of a write make them."""
        view = write.shown(self._view) if write.statements.collected else self._view
        return Scan(view, None, filter, meta=False).to_arrow()


@operations
@dataclass(frozen=True, slots=True)
class MergeSpread:
    """Which part of a merge each row of its source belongs to.

    columns: those of the source that say it; none where all rows belong to one part.
    """

    _spread: spreading.Spread = field(repr=False)
    _session: Session = field(repr=False)
    _word: in_parts.Word = field(repr=False)

    @property
    def columns(self) -> list[str]:
        return self._spread.columns

    def numbers(self, source: Data) -> pa.Array:
        """The number of the part of each row."""
        return self._spread.numbers(read_data(source))

    def tell(self, data: bytes) -> None:
        """Leave word for `told` in another process: for frameworks that end the tasks of a job elsewhere.

        It lies beside what the parts have staged, is removed with it, and is sealed, so that `told` gives what another
        holder of this value has left, and nothing else.
        """
        self._word.tell(self._session, data)

    def told(self) -> bytes:
        """The word that was left."""
        return self._word.told(self._session)


@operations
class MergedByMany:
    """The part of a table that many processes merge rows into together."""

    _session: Session

    def merge_in_parts(
        self,
        schema: SchemaLike,
        on: str | Sequence[str] | None = None,
        *,
        parts: int,
        execute_parts: Callable[[Sequence[MergePart], MergeSpread], Iterable[PartDone | CrdtMorError]],
        source_alias: str = "source",
        target_alias: str = "target",
        wait: timedelta = WAIT,
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> MergeInto:
        """As `merge`, computed elsewhere: each part is some of the keys, in every partition.

        schema: of the rows of the source, which stay where they are.
        parts: how many there are at most. A merge on other columns than the key, or one that inserts rows under other
            keys than the source's, is one part.
        execute_parts: as of `update_in_parts`, with what says to which part each row of the source belongs. It is
            called where there are no such rows as well, as clauses may be about rows that none of the source meets.
        """
        _require_parts(parts)

        def run(plan: MergePlan) -> Merged:
            return _merged(self._session, plan, parts, execute_parts, wait, token, commit_info)

        session, rows = self._session, read_schema(schema).empty_table()
        return merge_of(rows, on, (source_alias, target_alias), session.config, session.known(), run)

    def move_in_parts(
        self,
        schema: SchemaLike,
        *,
        partition: Mapping[str, object],
        parts: int,
        execute_parts: Callable[[Sequence[MergePart], MergeSpread], Iterable[PartDone | CrdtMorError]],
        wait: timedelta = WAIT,
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> Merged:
        """As `move`, computed elsewhere, as `merge_in_parts` is; the source has the columns of the key, each key once.

        schema: of the rows of the source. parts: how many there are at most.
        """
        _require_parts(parts)
        config, columns = shown_table(self._session.config, self._session.known())
        keys = plain_source(read_schema(schema).empty_table())
        plan = move_plan(keys, partition, config, columns)
        require_columns(plan)
        return _merged(self._session, plan, parts, execute_parts, wait, token, commit_info)


def _require_parts(parts: int) -> None:
    if parts < 1:
        raise InvalidInputError(f"a merge is made in one part at least. parts={parts!r}")


def _merged(
    session: Session,
    plan: MergePlan,
    parts_max: int,
    execute_parts: Callable[[Sequence[MergePart], MergeSpread], Iterable[PartDone | CrdtMorError]],
    wait: timedelta,
    token: tuple[str, int] | None,
    commit_info: Mapping[str, str] | None,
) -> Merged:
    """One commit of what parts make of rows of the source and of the table. plan: has no rows of the source."""
    spreads: list[MergeSpread] = []

    def rehearse(statements: Statements) -> None:
        named = NamedStatements(statements)
        do_merge(plan, named, partial(_no_rows, named))

    def parts_of(view: Snapshot, job: Job) -> list[MergePart]:
        spread = spreading.Spread.of(plan, view.shown, session.config, view.names, parts_max)
        spreads.append(MergeSpread(spread, session, in_parts.Word(view.cut.time, session.environment.nonce())))
        columns = in_parts.columns_of(view)
        views = map(view.with_slices, spread.slices(view.slices))
        return [MergePart(number, session, job, part, plan, columns) for number, part in enumerate(views)]

    def execute(parts: Sequence[MergePart]) -> Iterable[PartDone | CrdtMorError]:
        return execute_parts(parts, spreads[0])

    made = Elsewhere(rehearse, None, lambda _: EVERYTHING, parts_of, execute)
    commit, done = commit_in_parts(session, made, wait, token, commit_info)
    if commit.repeated:
        return merged_in(commit, nothing_of(plan))
    return merged_in(commit, sum_of(plan, [part.merged for part in done if part.merged is not None]))


def _no_rows(statements: NamedStatements, *, filter: pl.Expr | str | None = None) -> pa.Table:  # noqa: ARG001  of none
    return statements.schema.declared.empty_table()
