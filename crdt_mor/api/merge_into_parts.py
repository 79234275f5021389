"""Merges by many processes, each for some keys. See `Table.merge`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from crdt_mor.api.data import Data, read_data
from crdt_mor.api.merge_into import Merged, merge_rows, nothing_of, plain_source, sum_of
from crdt_mor.api.scan import Scan
from crdt_mor.api.transaction import merged_in
from crdt_mor.api.update_parts import DistributedStatement, PartDone, commit_in_parts, executed
from crdt_mor.columns.texts import no_rows
from crdt_mor.errors import CrdtMorError
from crdt_mor.events.session import Session
from crdt_mor.ground.deadlines import operations
from crdt_mor.ground.late_imports import Late
from crdt_mor.model.timeline import Timeline
from crdt_mor.read.reads import EVERYTHING
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.write.job_values import Job
from crdt_mor.write.merge_into_plan import MergePlan
from crdt_mor.write.named import NamedStatements
from crdt_mor.write.open_write import OpenWrite
from crdt_mor.write.reading import Read, Wait, computed
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
    """The table's rows of some keys, for the process with the source's rows of these keys."""

    number: int
    _session: Session = field(repr=False)
    _job: Job = field(repr=False)
    _view: Snapshot = field(repr=False)
    _plan: MergePlan = field(repr=False)
    _columns: Timeline = field(repr=False)

    def execute(self, source: Data) -> PartDone:
        """Read the table's rows that may match, and stage the result as invisible files.

        May be called any number of times, anywhere; only the results of `execute_parts` count.

        Args:
            source: the rows with this part's number in `MergeSpread.numbers`; may be empty.
        """
        plan = replace(self._plan, source=plain_source(read_data(source)))
        merged = nothing_of(plan)

        def change(write: OpenWrite) -> None:
            nonlocal merged
            merged = computed(merge_rows(plan, NamedStatements(write.statements)), partial(self._rows, write))

        return replace(executed(self._session, self._job, self._columns, self.number, change), merged=merged)

    def _rows(self, write: OpenWrite, asked: Wait | Read) -> pa.Table:
        view = write.shown(self._view) if write.statements.collected else self._view
        return Scan(view, asked.columns, asked.filter, meta=False).to_arrow()


@operations
@dataclass(frozen=True, slots=True)
class MergeSpread:
    """Assigns the source's rows to the parts of a merge.

    `columns` are the source columns that decide; empty if there is only one part.
    """

    _spread: spreading.Spread = field(repr=False)
    _session: Session = field(repr=False)
    _message: in_parts.DriverMessage = field(repr=False)

    @property
    def columns(self) -> list[str]:
        return self._spread.columns

    def numbers(self, source: Data) -> pa.Array:
        """Return each row's part number."""
        return self._spread.numbers(read_data(source))

    def send_outcomes(self, data: bytes) -> None:
        """Leave a message for `receive_outcomes` in another process, for frameworks that end a job's tasks elsewhere.

        The sealed message lies beside the staged files and is removed with them.
        """
        self._message.write(self._session, data)

    def receive_outcomes(self) -> bytes:
        """Return the message of another holder of this value."""
        return self._message.read(self._session)


def merge_in_parts(
    session: Session,
    plan: MergePlan,
    parts_max: int,
    execute_parts: Callable[[Sequence[MergePart], MergeSpread], Iterable[PartDone | CrdtMorError]],
    token: tuple[str, int] | None,
    commit_info: Mapping[str, str] | None,
    wait_ms: int,
) -> Merged:
    """Commit a merge, each part for some keys in all partitions. The plan's source has columns but no rows."""
    spreads: list[MergeSpread] = []

    def rehearse(statements: Statements) -> None:
        named = NamedStatements(statements)
        computed(merge_rows(plan, named), lambda _: no_rows(named.schema.declared))

    def parts_of(view: Snapshot, job: Job) -> list[MergePart]:
        spread = spreading.Spread.of(plan, view.shown, session.config, view.names, parts_max)
        spreads.append(MergeSpread(spread, session, in_parts.DriverMessage(view.cut.time, session.environment.nonce())))
        columns = in_parts.columns_of(view)
        views = map(view.with_slices, spread.slices(view.slices))
        return [MergePart(number, session, job, part, plan, columns) for number, part in enumerate(views)]

    def execute(parts: Sequence[MergePart]) -> Iterable[PartDone | CrdtMorError]:
        return execute_parts(parts, spreads[0])

    made = DistributedStatement(rehearse, None, lambda _: EVERYTHING, parts_of, execute)
    commit, done = commit_in_parts(session, made, token, commit_info, wait_ms)
    if commit.repeated:
        return merged_in(commit, nothing_of(plan))
    return merged_in(commit, sum_of(plan, [part.merged for part in done if part.merged is not None]))
