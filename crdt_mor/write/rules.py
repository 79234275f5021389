"""Check rows against a table's rules, and convert users' rules to the stored form.

Rows are checked only here, by `Statements.upsert`, with the rules of the value at the write's begin or later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import polars as pl
import pyarrow as pa

from crdt_mor.columns.kinds import kind_of
from crdt_mor.columns.names import Names
from crdt_mor.columns.schema import META_COLUMNS, TableSchema
from crdt_mor.columns.tables import with_columns
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


@dataclass(frozen=True, slots=True)
class RowRules:
    """A table's rules for rows of a schema.

    are_new: no row of the table has these keys, as in an append, an overwrite or a load. names: for errors.
    """

    rules: Rules
    config: TableConfig
    schema: TableSchema
    are_new: bool
    names: Names

    def completed(self, data: pa.Table) -> pa.Table:
        """Fill omitted columns with their defaults.

        In a table of partial updates an omitted column keeps its value, so only new rows get defaults.
        """
        if self.config.merge.partial and not self.are_new:
            return data
        given = {*data.column_names}
        added = {
            rule.name: pa.repeat(_default(rule.text, self.schema.declared.field(rule.name)), data.num_rows)
            for rule in self.rules
            if rule.kind == "default" and rule.name not in given
        }
        return with_columns(data, added)

    def ask(self, rows: pa.Table) -> None:
        """Raise `ConstraintViolationError` if a row breaks a rule.

        rows: in stored types.
        """
        for rule in self.rules:
            broken = self._broken(rule, rows) if rule.kind != "default" else None
            if broken is not None and broken.any():
                raise self._violation(rule, rows, broken)

    def _broken(self, rule: Rule, rows: pa.Table) -> np.ndarray | None:
        """Return the rows that break a rule; None if it does not apply."""
        absent = [name for name in rule.columns if rows.schema.get_field_index(name) < 0]
        if rule.kind == "not_null":
            if absent:  # a partial update keeps the old value
                return np.full(rows.num_rows, self.are_new)
            return np.asarray(rows[rule.name].is_null())
        if len(absent) == len(rule.columns):
            return None
        if absent:
            raise SchemaMismatchError(
                "a check compares these columns together, so a partial update must give all or none: give the others "
                f"as well. check={rule.name!r} columns={list(rule.columns)} missing={absent}"
            )
        if not rows.num_rows:
            return None
        frame = polars_frame(self.schema.restore(rows.select(rule.columns)))
        return frame.select(broken_by(rule, self.schema).fill_null(False).alias("broken"))["broken"].to_numpy()

    def _violation(self, rule: Rule, rows: pa.Table, broken: np.ndarray) -> ConstraintViolationError:
        key, first = self.config.key, rows.slice(int(broken.argmax()), 1)

        def of_row(names: Iterable[str]) -> dict[str, object]:
            shown = self.schema.restore(first.select([*dict.fromkeys(names)]))
            return {self.names.shown(name): shown[name][0].as_py() for name in shown.column_names}

        return violation(
            "rows break a rule of the table, and nothing was written: correct these rows, or omit them",
            renamed_rules([rule], self.names.shown)[0],
            of_row([*key.partition_fields, *key.fields]),
            of_row(name for name in rule.columns if name in rows.column_names),
            int(broken.sum()),
        )


def violation(
    what: str, rule: Rule, key: Mapping[str, object], values: Mapping[str, object], rows: int
) -> ConstraintViolationError:
    """Return the error of broken rules. key, values: of the first row."""
    return ConstraintViolationError(
        f"{what}. constraint={str(rule)!r} key={dict(key)} values={dict(values)} rows={rows}",
        f"{rule.kind} {rule.name}", dict(key), rows,
    )  # fmt: skip


def broken_by(rule: Rule, schema: TableSchema) -> pl.Expr:
    if rule.kind == "not_null":
        return pl.col(rule.name).is_null()
    return ~_condition(rule.text, schema)


@lru_cache(maxsize=256)
def _condition(text: str, schema: TableSchema) -> pl.Expr:
    return checked(text, schema)


# --- under other names of columns -------------------------------------------------------------------------------------


def renamed_rules(rules: Iterable[Rule], name: Callable[[str], str]) -> Rules:
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
    """Rename columns in a condition's text, quoting changed names."""
    parts, end = list[str](), 0
    for token, column in _with_columns(text, columns):
        if column is not None and name(column) != column:
            parts += [text[end : token.start], quoted(name(column))]
            end = token.end
    return "".join([*parts, text[end:]])


def meant_by(rules: Iterable[Rule]) -> set[tuple[str, ...]]:
    """Return the meaning of rules, ignoring blanks and quotes around columns."""
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
    """Like `rules_of`, for shown names, as in `config`; the rules and `schema` use stored names."""
    if names.are_stored:
        return rules_of(not_null, check, default, config, schema)
    shown = names.outward(schema)
    asked = rules_of(not_null, check, default, config, shown)
    known = names.by_shown(schema.declared.names)
    rules = list(renamed_rules(asked, known.__getitem__))
    for rule, seen in zip(rules, asked, strict=True):
        if rule.kind != "check":
            continue
        meant = with_columns_named(_condition(seen.text, shown), known)
        try:
            is_meant = meant is not None and _condition(rule.text, schema).meta.eq(meant)
        except InvalidInputError:
            is_meant = False
        if not is_meant:
            raise InvalidInputError(
                "the columns in a check are ambiguous: put their names in double quotes. "
                f"check={seen.name!r} condition={seen.text!r} columns={list(seen.columns)}"
            )
    return rules


# --- user requests ----------------------------------------------------------------------------------------------------


def rules_of(
    not_null: Sequence[str],
    check: Mapping[str, str],
    default: Mapping[str, object],
    config: TableConfig,
    schema: TableSchema,
) -> list[Rule]:
    """Return a user's rules; raise `InvalidInputError` if the table cannot have them."""
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
    dropped = [value.names.shown(name) for rule in rules for name in rule.columns if name in value.names.hidden]
    if dropped:
        raise InvalidInputError(f"these columns of rules were dropped meanwhile: omit them. columns={dropped}")


def require_rules(rules: Collection[Rule], config: TableConfig, schema: TableSchema) -> None:
    """Raise `InvalidInputError` if a table with these columns cannot have these rules."""
    if not rules:
        return
    _require_columns([name for rule in rules for name in rule.columns], schema)
    merging = merging_of(config, schema.to_json())
    for rule in rules:
        if rule.kind == "not_null":
            _require_value(rule, merging)
        elif rule.kind == "check":
            _require_as_read(rule, merging)
            _condition(rule.text, schema)
        else:
            _require_default(rule, config, schema, merging)


def _require_shapes(check: object, default: object) -> None:
    if not isinstance(check, Mapping) or not all(
        isinstance(part, str) and part for pair in check.items() for part in pair
    ):
        raise InvalidInputError(
            f'pass checks as names with SQL conditions: check={{"positive": "price > 0"}}. check={check!r}'
        )
    if not isinstance(default, Mapping) or not all(isinstance(name, str) for name in default):
        raise InvalidInputError(f'pass defaults as values by column: default={{"country": "DE"}}. default={default!r}')


def _require_columns(names: Collection[str], schema: TableSchema) -> None:
    unknown = [name for name in dict.fromkeys(names) if name not in schema]
    if unknown:
        raise InvalidInputError(
            f"the table lacks columns of these rules{schema.meant(unknown)}. "
            f"unknown={unknown} known={schema.declared.names}"
        )


def _columns(name: str, text: str, schema: TableSchema) -> tuple[str, ...]:
    try:
        named = set(columns_in(checked(text, schema)))
    except InvalidInputError as error:
        raise InvalidInputError(f"a check must be a valid filter: {error} check={name!r}") from error
    if not named or not named.isdisjoint(META_COLUMNS):
        raise InvalidInputError(
            "a check needs a condition on columns that users write, because it runs before a row is stored. "
            f"check={name!r} condition={text!r}"
        )
    return tuple(sorted(named, key=schema.declared.get_field_index))


def _require_value(rule: Rule, merging: Merging) -> None:
    for member in merging.rule.members:
        if rule.name in member.columns and member.payload.nulls == "skip":
            raise InvalidInputError(
                f"{member.payload.name} ignores nulls, so a write may always omit the column: remove not_null. "
                f"column={rule.name!r}"
            )


def _require_as_read(rule: Rule, merging: Merging) -> None:
    written = [name for name in rule.columns if name in merging.accepts]
    if written:
        raise InvalidInputError(
            "a check runs on written values, and these columns are written in other types than they are read: omit "
            f"them from the check. check={rule.name!r} columns={written}"
        )


def _require_default(rule: Rule, config: TableConfig, schema: TableSchema, merging: Merging) -> None:
    if rule.name in config.key.identity:
        raise InvalidInputError(f"key and partition columns cannot have a default: remove it. column={rule.name!r}")
    try:
        column = pa.repeat(_default(rule.text, schema.declared.field(rule.name)), 1)
        schema.select([rule.name]).normalise(pa.table({rule.name: column}), merging.accepts)
    except (SchemaMismatchError, pa.ArrowException) as error:
        raise InvalidInputError(
            f"pass a default of the column's type. column={rule.name!r} default={rule.text!r} "
            f"type={schema.declared.field(rule.name).type}"
        ) from error


# --- defaults ---------------------------------------------------------------------------------------------------------


def _default_text(value: object, column: pa.Field) -> str:
    try:
        scalar = _default(value, column) if isinstance(value, str) else pa.scalar(value, column.type)
        text = scalar.cast(pa.string()).as_py()
        is_number = isinstance(value, int | float) and not kind_of(column.type).mixes  # a number without a unit
        is_same = isinstance(text, str) and not is_number and _default(text, column).equals(scalar)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        is_same = False
    if not is_same:
        raise InvalidInputError(
            "a default must be a number, text, truth value, date or time of its column's type, not null: convert it. "
            f"column={column.name!r} type={column.type} default={value!r}"
        )
    return str(text)


def _default(text: str, column: pa.Field) -> pa.Scalar:
    return kind_of(column.type).from_texts(pa.scalar(text, pa.string()), column.type)


def default_values(rules: Rules, schema: TableSchema) -> Iterator[tuple[str, object]]:
    for rule in rules:
        if rule.kind == "default":
            yield rule.name, _default(rule.text, schema.declared.field(rule.name)).as_py()
