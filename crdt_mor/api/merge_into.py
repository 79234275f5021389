"""`Table.merge`: merge source rows into a table by clauses, as in SQL's MERGE and delta-rs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
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
from crdt_mor.write.reading import Read, Reading
from crdt_mor.write.statements import RowsStatement
from crdt_mor.write.update import set_exactly

if TYPE_CHECKING:
    from crdt_mor.write import merge_into as merging
else:
    merging = Late("crdt_mor.write.merge_into")

_COLUMN: Final = r"""(\w+)\.("(?:[^"]|"")+"|\w+)"""
_EQUALITY: Final = re.compile(rf"^\s*{_COLUMN}\s*==?\s*{_COLUMN}\s*$")
_AND: Final = re.compile(r"""\s+AND\s+(?=(?:[^"]*"[^"]*")*[^"]*$)""", re.IGNORECASE)
"""An AND outside double quotes."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a merge.

    Attributes:
        version, requested_at, completed_at: of its commit.
        updated, deleted, inserted: numbers of table rows.
        clauses: matched pairs of rows per clause.
        repeated: the token was used before; nothing was done, and all counts are 0.
        covered: as in `Commit`, after a repeated token.
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
    """A merge under construction: each `when_…` adds a clause, `execute` runs it.

    In SQL, `source.x` is a column of the source's row and `target.x` of the table's row, after all earlier writes. In
    polars they are `pl.col("source").struct.field("x")`. `set` (for inserts `values`) and `condition` are aliases of
    `updates` and `predicate`.
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
        """Set columns of table rows that match a source row."""
        return self._with("matched", "update", _given(updates, set), _condition(predicate, condition))

    def when_matched_update_all(
        self, predicate: pl.Expr | str | None = None, *, condition: pl.Expr | str | None = None
    ) -> MergeInto:
        """Set all source columns of table rows that match a source row."""
        return self._with("matched", "update", None, _condition(predicate, condition))

    def when_matched_delete(
        self, predicate: pl.Expr | str | None = None, *, condition: pl.Expr | str | None = None
    ) -> MergeInto:
        """Delete table rows that match a source row."""
        return self._with("matched", "delete", None, _condition(predicate, condition))

    def when_not_matched_insert(
        self,
        updates: Mapping[str, object] | None = None,
        predicate: pl.Expr | str | None = None,
        *,
        values: Mapping[str, object] | None = None,
        condition: pl.Expr | str | None = None,
    ) -> MergeInto:
        """Insert a row for each unmatched source row; other columns get their default or null."""
        return self._with("only in source", "insert", _given(updates, values), _condition(predicate, condition))

    def when_not_matched_insert_all(
        self, predicate: pl.Expr | str | None = None, *, condition: pl.Expr | str | None = None
    ) -> MergeInto:
        """Insert each unmatched source row; missing columns get their default or null."""
        return self._with("only in source", "insert", None, _condition(predicate, condition))

    def when_not_matched_by_source_update(
        self,
        updates: Mapping[str, object] | None = None,
        predicate: pl.Expr | str | None = None,
        *,
        set: Mapping[str, object] | None = None,
        condition: pl.Expr | str | None = None,
    ) -> MergeInto:
        """Set columns of table rows that match no source row. All file groups are read."""
        return self._with("only in target", "update", _given(updates, set), _condition(predicate, condition))

    def when_not_matched_by_source_delete(
        self, predicate: pl.Expr | str | None = None, *, condition: pl.Expr | str | None = None
    ) -> MergeInto:
        """Delete table rows that match no source row. All file groups are read."""
        return self._with("only in target", "delete", None, _condition(predicate, condition))

    @operation
    def execute(self) -> Merged:
        """Run the merge in one commit. For its waits see `Table.update`."""
        if not self._plan.clauses:
            raise InvalidInputError(
                "add a clause to the merge: merge(source, on='id').when_matched_update_all()"
                ".when_not_matched_insert_all().execute()"
            )
        return self._run(self._plan)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Suggest the method for a name of delta-spark."""
            ours = re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)
            instead = f". Use {ours}()" if ours in vars(type(self)) else ""
            message = f"{type(self).__name__!r} object has no attribute {name!r}{instead}"
            raise AttributeError(message, name=name, obj=self)

    def _with(
        self, kind: Kind, action: Action, given: Mapping[str, object] | None, condition: pl.Expr | str | None
    ) -> MergeInto:
        clause = Clause(kind, action, None if given is None else dict(given), condition)
        return replace(self, _plan=replace(self._plan, clauses=(*self._plan.clauses, clause)))


def _given(*by_name: Mapping[str, object] | None) -> Mapping[str, object]:
    given = [values for values in by_name if values is not None]
    if len(given) != 1:
        raise InvalidInputError(
            "pass the values of a clause once: updates={'n': 'source.n'}, or set= for an update, values= for an insert"
        )
    if not isinstance(given[0], Mapping):
        raise InvalidInputError(
            "pass the values of a clause as a dict, and its condition second or by name: "
            f"when_matched_update({{'n': 'source.n'}}, condition='source.n > 0'). values={given[0]!r}"
        )
    return given[0]


def _condition(predicate: pl.Expr | str | None, condition: pl.Expr | str | None) -> pl.Expr | str | None:
    if predicate is not None and condition is not None:
        raise InvalidInputError("pass the condition of a clause as predicate or as condition, not as both")
    return condition if predicate is None else predicate


def merge_rows(plan: MergePlan, statements: NamedStatements) -> Reading[Merged]:
    """Read the rows that the source may match, and add the clauses' statements to a write.

    Each answer contains the write's statements so far.
    """
    config, schema = statements.config, statements.schema
    target = yield Read(filter=None if plan.reads_all else plan.meets(schema))
    outcome = merging.merged(plan, target, statements)
    if outcome.inserted and not outcome.are_unmet:
        there = _with_keys_of(outcome.inserted, statements)
        merging.refuse_existing_keys(plan, outcome.inserted, (yield Read(filter=there)), statements)
    if outcome.moved:
        there = _with_keys_of(outcome.moved, statements)
        merging.refuse_occupied(outcome, (yield Read(filter=there)), plan, statements)
    for gone in outcome.deletes:
        statements.add(RowsStatement("DELETE", gone))
    for rows in (*outcome.rows, *outcome.moved):
        statements.add(set_exactly(rows, statements))
    for rows in outcome.inserted:
        statements.add(replace(set_exactly(rows, statements), kind="INSERT", are_kept=False))
    if outcome.moved and config.merge.ordering is not None:
        merging.refuse_hidden(outcome, (yield Read(filter=there)), plan, statements)
    return _counted(plan, outcome.counts)


def _with_keys_of(tables: Sequence[pa.Table], statements: NamedStatements) -> pl.Expr:
    """Return the condition of the rows that share a key with these."""
    fields = statements.config.key.fields
    keys = pa.concat_tables([rows.select(fields) for rows in tables], promote_options="permissive")
    return MergePlan(keys, tuple((name, name) for name in fields)).meets(statements.schema)


def _counted(plan: MergePlan, clauses: Sequence[int]) -> Merged:
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
    return _counted(plan, [sum(part.clauses[i] for part in parts) for i in range(len(plan.clauses))])


def nothing_of(plan: MergePlan) -> Merged:
    return Merged(0, "", "", 0, 0, 0, (0,) * len(plan.clauses), repeated=True)


def merge_of(
    source: Data,
    on: str | Sequence[str] | None,
    aliases: tuple[str, str],
    config: TableConfig,
    value: Timeline,
    run: Callable[[MergePlan], Merged],
) -> MergeInto:
    rows, config = plain_source(read_data(source, lambda: text_types(config, value))), shown_config(config, value.names)
    plan = MergePlan(rows, _pairs(on, aliases, config), aliases)
    require_columns(plan)
    return MergeInto(plan, run)


def require_columns(plan: MergePlan) -> None:
    rows = plan.source
    absent = [name for name, _ in plan.on if name not in rows.column_names]
    if absent:
        lacks = "the keys to move lack key columns: add them"
        if not plan.is_move:
            lacks = "the source lacks columns of `on`: pass other columns as `on`"
        raise InvalidInputError(f"{lacks}. missing={absent} given={rows.column_names}")


def plain_source(rows: pa.Table) -> pa.Table:
    """Return source rows without list views, which polars lacks; refuse repeated column names."""
    repeated = [name for name, count in Counter(rows.column_names).items() if count > 1]
    if repeated:
        raise InvalidInputError(f"column names of a source must differ: rename columns. repeated={repeated}")
    return pa.table([plain_values(column) for column in rows.columns], names=rows.column_names)


def _pairs(on: Any, aliases: tuple[str, str], config: TableConfig) -> tuple[tuple[str, str], ...]:
    if len(set(aliases)) < 2 or not all(alias.isidentifier() and not alias.startswith("_") for alias in aliases):
        raise InvalidInputError(
            "source_alias and target_alias must be two different names that begin with a letter. "
            f"aliases={list(aliases)}"
        )
    if on is None:
        return tuple((name, name) for name in config.key.fields)
    texts = [on] if isinstance(on, str) else list(on) if isinstance(on, Collection) else []
    if not texts or not all(isinstance(name, str) for name in texts):
        raise InvalidInputError(
            "pass the columns to match as on='id', on=['id', 'day'] or on='target.id = source.id', or omit `on` for "
            f"the key. on={on!r}"
        )
    if isinstance(on, str) and ("=" in on or any(f"{alias}." in on for alias in aliases)):
        return tuple(_equality(part, aliases) for part in _AND.split(on))
    return tuple((name, name) for name in texts)


def _equality(text: str, aliases: tuple[str, str]) -> tuple[str, str]:
    found = _EQUALITY.match(text)
    sides = {found[1]: name_of(found[2]), found[3]: name_of(found[4])} if found else {}
    if sides.keys() != {*aliases}:
        source, table = aliases
        if len(sides) == 2:
            raise InvalidInputError(
                f"`on` names other rows than {table} and {source}: write these, or pass source_alias= and "
                f"target_alias=. on={text!r}"
            )
        raise InvalidInputError(
            f"`on` may only compare columns for equality: on='{table}.id = {source}.id AND ...', or on=['id']. Put "
            f"other conditions in the clauses. on={text!r}"
        )
    return sides[aliases[0]], sides[aliases[1]]
