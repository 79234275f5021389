"""The rules of a table, asked of rows that are about to be written; and what users ask for, made rules.

This is the only place where rows are held to rules: every write, whoever commits it, makes its statements of rows by
`Statements.upsert`, by the rules of the value that it begins in or follows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.names import Names
from crdt_mor.columns.schema import META_COLUMNS, TableSchema
from crdt_mor.columns.text_types import from_texts
from crdt_mor.errors import ConstraintViolationError, InvalidInputError, SchemaMismatchError
from crdt_mor.laws.merging import Merging, merging_of
from crdt_mor.merge.polars_types import polars_frame
from crdt_mor.model.config import TableConfig
from crdt_mor.model.rules import Rule, Rules
from crdt_mor.model.timeline import Timeline
from crdt_mor.read.conditions import checked
from crdt_mor.read.expressions import columns_in
from crdt_mor.read.sql_names import name_of, quoted
from crdt_mor.read.sql_tokens import Token, tokens_of
from crdt_mor.read.trees import with_columns_named
from crdt_mor.write.named import shown_config


@dataclass(frozen=True, slots=True)
class RowRules:
    """The rules of a table, for rows of one schema.

    are_new: whether no row of the table has these keys, as the statement says: an append, an overwrite, a load.
    """

    rules: Rules
    config: TableConfig
    schema: TableSchema
    are_new: bool

    def completed(self, data: pa.Table) -> pa.Table:
        """The rows with the default of each column that they do not give.

        In a table of partial updates a column that is not given keeps what is there, so that only new rows get one.
        """
        if self.config.merge.partial and not self.are_new:
            return data
        for rule in self.rules:
            if rule.kind == "default" and rule.name not in data.column_names:
                value = _default(rule.text, self.schema.declared.field(rule.name))
                data = data.append_column(rule.name, pa.repeat(value, data.num_rows))
        return data

    def ask(self, rows: pa.Table) -> None:
        """Raise `ConstraintViolationError` where some row breaks a rule.

        rows: in stored types, as they were written.
        """
        for rule in self.rules:
            broken = self._broken(rule, rows) if rule.kind != "default" else None
            if broken is not None and broken.any():
                raise self._violation(rule, rows, broken)

    def _broken(self, rule: Rule, rows: pa.Table) -> np.ndarray | None:
        """Which rows break a rule; None where it asks nothing of them."""
        absent = [name for name in rule.columns if name not in rows.column_names]
        if rule.kind == "not_null":
            if absent:  # of partial updates, where it keeps what is there
                return np.full(rows.num_rows, self.are_new)
            return np.asarray(rows[rule.name].is_null())
        if len(absent) == len(rule.columns):
            return None
        if absent:
            raise SchemaMismatchError(
                "a check asks these columns together, of which a partial update gives all or none: give the others as "
                f"well. check={rule.name!r} columns={list(rule.columns)} missing={absent}"
            )
        if not rows.num_rows:
            return None
        frame = polars_frame(self.schema.restore(rows.select(rule.columns)))
        return frame.select(broken_by(rule, self.schema).fill_null(False).alias("broken"))["broken"].to_numpy()

    def _violation(self, rule: Rule, rows: pa.Table, broken: np.ndarray) -> ConstraintViolationError:
        row, key = int(broken.argmax()), self.config.key
        names = dict.fromkeys([*key.partition_fields, *key.fields])
        values = {name: rows[name][row].as_py() for name in rule.columns if name in rows.column_names}
        return violation(
            "rows break a rule of the table, and nothing was written: mend these rows, or leave them out",
            rule, {name: rows[name][row].as_py() for name in names}, values, int(broken.sum()),
        )  # fmt: skip


def violation(
    what: str, rule: Rule, key: Mapping[str, object], values: Mapping[str, object], rows: int
) -> ConstraintViolationError:
    """The error of rows that break a rule. key, values: of the first one, what the rule looks at."""
    return ConstraintViolationError(
        f"{what}. constraint={str(rule)!r} key={dict(key)} values={dict(values)} rows={rows}",
        f"{rule.kind} {rule.name}", dict(key), rows,
    )  # fmt: skip


def broken_by(rule: Rule, schema: TableSchema) -> pl.Expr:
    """For which rows a rule is broken: null is no."""
    if rule.kind == "not_null":
        return pl.col(rule.name).is_null()
    return ~_condition(rule.text, schema.to_json())


@lru_cache(maxsize=256)
def _condition(text: str, schema: str) -> pl.Expr:
    """The condition of a check, on a table of this schema."""
    return checked(text, TableSchema.from_json(schema))


# --- under other names of columns -------------------------------------------------------------------------------------


def renamed_rules(rules: Iterable[Rule], name: Callable[[str], str]) -> Rules:
    """Rules under other names of their columns. name: the other one of a column."""
    return tuple(
        replace(
            rule,
            name=rule.name if rule.kind == "check" else name(rule.name),
            text=with_names(rule.text, name, rule.columns) if rule.kind == "check" else rule.text,
            columns=tuple(map(name, rule.columns)),
        )
        for rule in rules
    )


def with_names(text: str, name: Callable[[str], str], columns: Collection[str]) -> str:
    """The text of a condition under other names of these columns, in quotes where they change."""
    parts, end = list[str](), 0
    for token, column in _with_columns(text, columns):
        if column is not None and name(column) != column:
            parts += [text[end : token.start], quoted(name(column))]
            end = token.end
    return "".join([*parts, text[end:]])


def meant_by(rules: Iterable[Rule]) -> set[tuple[str, ...]]:
    """What rules say, in words: the same of checks that differ in blanks, or in quotes around a column."""
    return {(rule.kind, rule.name, *_words(rule)) for rule in rules}


def _words(rule: Rule) -> list[str]:
    if rule.kind != "check":
        return [rule.text]
    words = [
        rule.text[token.start : token.end] if column is None else quoted(column)
        for token, column in _with_columns(rule.text, rule.columns)
    ]
    return words or [rule.text]


def _with_columns(text: str, columns: Collection[str]) -> Iterator[tuple[Token, str | None]]:
    """The tokens of a condition, each with the column that it names."""
    tokens = tokens_of(text) or []
    for before, token in zip([None, *tokens], tokens, strict=False):
        column = name_of(text[token.start : token.end])
        is_field = before is not None and before.text == "."
        yield token, column if token.kind in ("name", "word") and column in columns and not is_field else None


def rules_in_stored_names(
    not_null: Sequence[str],
    check: Mapping[str, str],
    default: Mapping[str, object],
    config: TableConfig,
    schema: TableSchema,
    names: Names,
) -> list[Rule]:
    """As `rules_of`, of columns by the names that people see; the rules have stored names, as `config` and `schema`."""
    if names.are_stored:
        return rules_of(not_null, check, default, config, schema)
    shown = names.outward(schema)
    asked = rules_of(not_null, check, default, shown_config(config, names), shown)
    known = names.by_shown(schema.declared.names)
    rules = list(renamed_rules(asked, known.__getitem__))
    for rule, seen in zip(rules, asked, strict=True):
        if rule.kind != "check":
            continue
        meant = with_columns_named(_condition(seen.text, shown.to_json()), known)
        try:
            is_meant = meant is not None and _condition(rule.text, schema.to_json()).meta.eq(meant)
        except InvalidInputError:
            is_meant = False
        if not is_meant:
            raise InvalidInputError(
                "which of its words are columns cannot be told: write their names in double quotes, as these have "
                f"other names on storage. check={seen.name!r} condition={seen.text!r} columns={list(seen.columns)}"
            )
    return rules


# --- what users ask for -----------------------------------------------------------------------------------------------


def rules_of(
    not_null: Sequence[str],
    check: Mapping[str, str],
    default: Mapping[str, object],
    config: TableConfig,
    schema: TableSchema,
) -> list[Rule]:
    """The rules that a user asks for; raises `InvalidInputError` for what the table cannot have."""
    _require_shapes(check, default)
    _require_columns([*not_null, *default], schema)
    rules = [Rule("not_null", name, "", (name,)) for name in not_null]
    rules += [Rule("check", name, text, _columns(name, text, schema)) for name, text in check.items()]
    rules += [
        Rule("default", name, _default_text(value, schema.declared.field(name)), (name,))
        for name, value in default.items()
    ]
    require_rules(rules, config, schema)
    return rules


def require_shown(rules: Collection[Rule], value: Timeline) -> None:
    """Raise `InvalidInputError` where rules are of columns that were dropped meanwhile."""
    dropped = [value.names.shown(name) for rule in rules for name in rule.columns if name in value.names.hidden]
    if dropped:
        raise InvalidInputError(f"the table has no such columns any more: they were dropped. columns={dropped}")


def require_rules(rules: Collection[Rule], config: TableConfig, schema: TableSchema) -> None:
    """Raise `InvalidInputError` where a table with these columns cannot have these rules."""
    if not rules:
        return
    _require_columns([name for rule in rules for name in rule.columns], schema)
    merging = merging_of(config, schema.to_json())
    for rule in rules:
        if rule.kind == "not_null":
            _require_value(rule, merging)
        elif rule.kind == "check":
            _require_as_read(rule, merging)
            _condition(rule.text, schema.to_json())
        else:
            _require_default(rule, config, schema, merging)


def _require_shapes(check: object, default: object) -> None:
    if not isinstance(check, Mapping) or not all(
        isinstance(part, str) and part for pair in check.items() for part in pair
    ):
        raise InvalidInputError(
            'a check has a name, and a condition of SQL that is kept with the table: check={"positive": "price > 0"}. '
            f"check={check!r}"
        )
    if not isinstance(default, Mapping) or not all(isinstance(name, str) for name in default):
        raise InvalidInputError(f'defaults are values by column: default={{"country": "DE"}}. default={default!r}')


def _require_columns(names: Collection[str], schema: TableSchema) -> None:
    unknown = [name for name in names if name not in schema.declared.names]
    if unknown:
        raise InvalidInputError(
            f"rules are about columns of the table, and these are none{schema.meant(unknown)}. "
            f"unknown={unknown} known={schema.declared.names}"
        )


def _columns(name: str, text: str, schema: TableSchema) -> tuple[str, ...]:
    """The columns that a check names, in the table's order."""
    try:
        named = set(columns_in(checked(text, schema)))
    except InvalidInputError as error:
        raise InvalidInputError(
            f"a check is what a filter may be, and this one is not: {error} check={name!r}"
        ) from error
    if not named or not named.isdisjoint(META_COLUMNS):
        raise InvalidInputError(
            "a check is a condition on columns that users write, since it is asked before a row is stored. "
            f"check={name!r} condition={text!r}"
        )
    return tuple(column for column in schema.declared.names if column in named)


def _require_value(rule: Rule, merging: Merging) -> None:
    """Raise where null says nothing in a column, so that no row can be asked for a value."""
    for member in merging.rule.members:
        if rule.name in member.columns and member.payload.nulls == "skip":
            raise InvalidInputError(
                f"a null says nothing to {member.payload.name}, which shows what was written besides, so that a write "
                f"may always leave the column out: take not_null away. column={rule.name!r}"
            )


def _require_as_read(rule: Rule, merging: Merging) -> None:
    """Raise where a column is written in another type than it is read in, which a condition cannot be asked of."""
    written = [name for name in rule.columns if name in merging.accepts]
    if written:
        raise InvalidInputError(
            "a check is asked of what is written, and to these columns values of other types are written than are "
            f"read: leave them out of the check. check={rule.name!r} columns={written}"
        )


def _require_default(rule: Rule, config: TableConfig, schema: TableSchema, merging: Merging) -> None:
    if rule.name in (*config.key.fields, *config.key.partition_fields):
        raise InvalidInputError(
            f"each row says its key and its partition, for which there is no default. column={rule.name!r}"
        )
    try:
        column = pa.repeat(_default(rule.text, schema.declared.field(rule.name)), 1)
        schema.normalise(pa.table({rule.name: column}), merging.accepts)
    except (SchemaMismatchError, pa.ArrowException) as error:
        raise InvalidInputError(
            f"a default is a value of its column's type, as it is written. column={rule.name!r} default={rule.text!r} "
            f"type={schema.declared.field(rule.name).type}"
        ) from error


# --- defaults ---------------------------------------------------------------------------------------------------------


def _default_text(value: object, column: pa.Field) -> str:
    """A default as the table keeps it, of which `_default` makes the same value."""
    try:
        is_text = isinstance(value, str)
        scalar = from_texts(pa.scalar(value), column.type) if is_text else pa.scalar(value, column.type)
        text = scalar.cast(pa.string()).as_py()
        is_number = isinstance(value, int | float) and pt.is_time(column.type)  # which does not say its unit
        is_same = isinstance(text, str) and not is_number and _default(text, column).equals(scalar)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        is_same = False
    if not is_same:
        raise InvalidInputError(
            "a default is one value, not null, of its column's type, which is a number, a text, a truth value, a date "
            f"or a time: convert it. column={column.name!r} type={column.type} default={value!r}"
        )
    return str(text)


def _default(text: str, column: pa.Field) -> pa.Scalar:
    """The value that a text is in a column."""
    return from_texts(pa.scalar(text, pa.string()), column.type)


def default_values(rules: Rules, schema: TableSchema) -> Iterator[tuple[str, object]]:
    """The columns that have a default, each with its value."""
    for rule in rules:
        if rule.kind == "default":
            yield rule.name, _default(rule.text, schema.declared.field(rule.name)).as_py()
