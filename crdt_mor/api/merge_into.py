"""`Table.merge`: rows of a source are merged into a table by clauses, in the words of SQL's MERGE and of delta-rs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa

from crdt_mor.api.data import Data, read_data
from crdt_mor.columns.casts import plain_values
from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.deadlines import operation
from crdt_mor.ground.late_imports import Late
from crdt_mor.model.config import TableConfig
from crdt_mor.model.timeline import Timeline
from crdt_mor.read.sql_names import name_of
from crdt_mor.write.merge_into_plan import Action, Clause, Kind, MergePlan
from crdt_mor.write.named import NamedStatements, shown_config, text_types

if TYPE_CHECKING:
    from crdt_mor.write import merge_into as merging
else:
    merging = Late("crdt_mor.write.merge_into")

_COLUMN: Final = r"""(\w+)\.("(?:[^"]|"")+"|\w+)"""
_EQUALITY: Final = re.compile(rf"^\s*{_COLUMN}\s*==?\s*{_COLUMN}\s*$")
_AND: Final = re.compile(r"""\s+AND\s+(?=(?:[^"]*"[^"]*")*[^"]*$)""", re.IGNORECASE)
"""An AND that stands in no double quotes."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge has done.

    version, requested_at, completed_at: of its commit. updated, deleted, inserted: rows of the table.
    clauses: how many pairs of rows each clause has met, in their order.
    repeated: the token had been used before, and nothing was done now; the counts are 0 then.
    covered: as of `Commit`: None, unless the token was used before by an overwrite.
    """

    version: int
    requested_at: str
    completed_at: str
    updated: int
    deleted: int
    inserted: int
    clauses: tuple[int, ...]
    repeated: bool = False
    covered: tuple[str, ...] | None = None


@dataclass(frozen=True)
class MergeInto:
    """A merge that is being described; each `when_…` gives a longer description, and `execute` does it.

    In clauses a text is SQL, in which `source.x` is a column of the source's row and `target.x` one of the table's row,
    as all earlier writes made it. As an expression of polars they are `pl.col("source").struct.field("x")`.
    `set`, of an insert `values`, and `condition` are other names of `updates` and `predicate`.
    """

    _plan: MergePlan
    _run: Callable[[MergePlan], Merged]

    def when_matched_update(
        self,
        updates: Mapping[str, object] | None = None,
        predicate: pl.Expr | str | None = None,
        *,
        set: Mapping[str, object] | None = None,
        condition: pl.Expr | str | None = None,
    ) -> MergeInto:
        """Set columns of rows that a row of the source meets."""
        return self._with("matched", "update", _given(updates, set), _condition(predicate, condition))

    def when_matched_update_all(
        self, predicate: pl.Expr | str | None = None, *, condition: pl.Expr | str | None = None
    ) -> MergeInto:
        """Set all columns that the source has, of rows that a row of the source meets."""
        return self._with("matched", "update", None, _condition(predicate, condition))

    def when_matched_delete(
        self, predicate: pl.Expr | str | None = None, *, condition: pl.Expr | str | None = None
    ) -> MergeInto:
        """Delete rows that a row of the source meets."""
        return self._with("matched", "delete", None, _condition(predicate, condition))

    def when_not_matched_insert(
        self,
        updates: Mapping[str, object] | None = None,
        predicate: pl.Expr | str | None = None,
        *,
        values: Mapping[str, object] | None = None,
        condition: pl.Expr | str | None = None,
    ) -> MergeInto:
        """Insert a row for each of the source that meets none; columns not given have their default, or are null."""
        return self._with("only in source", "insert", _given(updates, values), _condition(predicate, condition))

    def when_not_matched_insert_all(
        self, predicate: pl.Expr | str | None = None, *, condition: pl.Expr | str | None = None
    ) -> MergeInto:
        """Insert the rows of the source that meet none; columns that it lacks have their default, or are null."""
        return self._with("only in source", "insert", None, _condition(predicate, condition))

    def when_not_matched_by_source_update(
        self,
        updates: Mapping[str, object] | None = None,
        predicate: pl.Expr | str | None = None,
        *,
        set: Mapping[str, object] | None = None,
        condition: pl.Expr | str | None = None,
    ) -> MergeInto:
        """Set columns of rows that no row of the source meets: all file groups are read."""
        return self._with("only in target", "update", _given(updates, set), _condition(predicate, condition))

    def when_not_matched_by_source_delete(
        self, predicate: pl.Expr | str | None = None, *, condition: pl.Expr | str | None = None
    ) -> MergeInto:
        """Delete rows that no row of the source meets: all file groups are read."""
        return self._with("only in target", "delete", None, _condition(predicate, condition))

    @operation
    def execute(self) -> Merged:
        """Do it, in one commit: see `Table.update` for what it waits for."""
        if not self._plan.clauses:
            raise InvalidInputError(
                "a merge says what becomes of rows: merge(source, on='id').when_matched_update_all()"
                ".when_not_matched_insert_all().execute()"
            )
        return self._run(self._plan)

    def _with(
        self, kind: Kind, action: Action, given: Mapping[str, object] | None, condition: pl.Expr | str | None
    ) -> MergeInto:
        clause = Clause(kind, action, None if given is None else dict(given), condition)
        return replace(self, _plan=replace(self._plan, clauses=(*self._plan.clauses, clause)))


def _given(*by_name: Mapping[str, object] | None) -> Mapping[str, object]:
    """The values of a clause; raises `InvalidInputError` unless exactly one of their names was used."""
    given = [values for values in by_name if values is not None]
    if len(given) != 1:
        raise InvalidInputError(
            "pass the values of a clause once: updates={'n': 'source.n'}, or set= of an update and values= of an insert"
        )
    return given[0]


def _condition(predicate: pl.Expr | str | None, condition: pl.Expr | str | None) -> pl.Expr | str | None:
    if predicate is not None and condition is not None:
        raise InvalidInputError("pass the condition of a clause as predicate or as condition, not as both")
    return condition if predicate is None else predicate


def do_merge(plan: MergePlan, statements: NamedStatements, read: Callable[..., pa.Table]) -> Merged:
    """Read the rows that the source may meet, and add to a write's statements what the clauses say.

    read: gives the rows for which a `filter` holds, as the write's statements so far make them. One that gives the rows
        before the write alone will do where no row moves in a table with an ordering column: such a move is refused.
    """
    config, schema = statements.config, statements.schema
    target = read(filter=None if plan.reads_all else plan.meets(schema))
    outcome = merging.merged(plan, target, statements)
    fields = config.key.fields
    own = tuple((name, name) for name in fields)
    if outcome.inserted is not None and not outcome.are_unmet:
        by_key = MergePlan(outcome.inserted, own)
        merging.refuse_there(plan, outcome.inserted, read(filter=by_key.meets(schema)), statements)
    if outcome.moved:
        keys = pa.concat_tables([rows.select(fields) for rows in outcome.moved])
        there = MergePlan(keys, own).meets(schema)
        merging.refuse_occupied(outcome, read(filter=there), plan, statements)
    for gone in outcome.deletes:
        statements.delete(gone, plain=False)
    for rows in (*outcome.rows, *outcome.moved):
        statements.upsert(rows, "UPSERT", "strict", are_kept=True)
    if outcome.inserted is not None:
        statements.upsert(outcome.inserted, "INSERT", "strict")
    if outcome.moved and config.merge.ordering is not None:
        merging.refuse_hidden(outcome, read(filter=there), plan, statements)
    return _counted(plan, outcome.counts)


def _counted(plan: MergePlan, clauses: Sequence[int]) -> Merged:
    """What a merge has done. clauses: how many pairs of rows each has met."""
    counts = Counter[str]()
    for clause, count in zip(plan.clauses, clauses, strict=True):
        counts[clause.action] += count
    return replace(
        nothing_of(plan),
        updated=counts["update"],
        deleted=counts["delete"],
        inserted=counts["insert"],
        clauses=tuple(clauses),
        repeated=False,
    )


def sum_of(plan: MergePlan, parts: Sequence[Merged]) -> Merged:
    """What a merge has done that was made in parts."""
    return _counted(plan, [sum(part.clauses[i] for part in parts) for i in range(len(plan.clauses))])


def nothing_of(plan: MergePlan) -> Merged:
    """What a merge does whose token was used before."""
    return Merged(0, "", "", 0, 0, 0, (0,) * len(plan.clauses), repeated=True)


def merge_of(
    source: Data,
    on: str | Sequence[str] | None,
    aliases: tuple[str, str],
    config: TableConfig,
    value: Timeline,
    run: Callable[[MergePlan], Merged],
) -> MergeInto:
    """A merge without clauses. on: as of `Table.merge`. config, value: the table's."""
    rows, config = plain_source(read_data(source, lambda: text_types(config, value))), shown_config(config, value.names)
    plan = MergePlan(rows, _pairs(on, aliases, config), aliases)
    require_columns(plan)
    return MergeInto(plan, run)


def require_columns(plan: MergePlan) -> None:
    """Raise where a source lacks columns by which its rows meet those of the table."""
    rows = plan.source
    absent = [name for name, _ in plan.on if name not in rows.column_names]
    if absent:
        raise InvalidInputError(
            f"the source lacks columns by which its rows meet those of the table: name others, on=... missing={absent} "
            f"source={rows.column_names}"
        )


def plain_source(rows: pa.Table) -> pa.Table:
    """Rows of a source, without list views, which polars has not; refuses several columns of one name."""
    repeated = [name for name, count in Counter(rows.column_names).items() if count > 1]
    if repeated:
        raise InvalidInputError(f"column names of a source must differ: rename one. repeated={repeated}")
    return pa.table([plain_values(column) for column in rows.columns], names=rows.column_names)


def _pairs(on: Any, aliases: tuple[str, str], config: TableConfig) -> tuple[tuple[str, str], ...]:
    """Pairs of a column of the source and one of the table."""
    if len(set(aliases)) < 2 or not all(alias.isidentifier() and not alias.startswith("_") for alias in aliases):
        raise InvalidInputError(
            "the source and the table are called by two names, which begin with a letter: source_alias=, "
            f"target_alias=. aliases={list(aliases)}"
        )
    if on is None:
        return tuple((name, name) for name in config.key.fields)
    texts = [on] if isinstance(on, str) else list(on) if isinstance(on, Iterable) else []
    if not texts or not all(isinstance(name, str) for name in texts):
        raise InvalidInputError(
            f"rows meet where columns are equal: on='id', on=['id', 'day'], or leave it out for the key. on={on!r}"
        )
    if isinstance(on, str) and ("=" in on or any(f"{alias}." in on for alias in aliases)):
        return tuple(_equality(part, aliases) for part in _AND.split(on))
    return tuple((name, name) for name in texts)


def _equality(text: str, aliases: tuple[str, str]) -> tuple[str, str]:
    """`target.id = source.id`, as a pair of a column of the source and one of the table."""
    found = _EQUALITY.match(text)
    sides = {found[1]: name_of(found[2]), found[3]: name_of(found[4])} if found else {}
    if sides.keys() != {*aliases}:
        source, table = aliases
        raise InvalidInputError(
            f"rows meet where columns are equal: on='{table}.id = {source}.id AND ...', or on=['id']; a further "
            f"condition belongs to the clauses. on={text!r}"
        )
    return sides[aliases[0]], sides[aliases[1]]
