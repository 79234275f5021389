"""Statements of a write under shown column names.

Updates and merges compute rows under shown names. Only the written rows get stored names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from crdt_mor.columns.names import Names
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import ConstraintViolationError, CrdtMorError, InvalidInputError
from crdt_mor.ground.late_imports import Late
from crdt_mor.laws.merging import Merging, merging_of
from crdt_mor.model import partition_functions
from crdt_mor.model.config import TableConfig
from crdt_mor.model.config_properties import OUR_SCHEMA
from crdt_mor.model.rules import Rules
from crdt_mor.model.timeline import Timeline
from crdt_mor.write.statements import CheckedRows, RowsStatement, SchemaMode, Statements, columns_of_delete

if TYPE_CHECKING:
    from crdt_mor.write import rules as writing_rules
else:
    writing_rules = Late("crdt_mor.write.rules")

_VALUES: Final = re.compile(r"\. (?=\w+=)")
"""The separator between an error's sentence and its values."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement of rows after its check by a version.

    stored: the statement under stored names. shown: the shown names of its new columns.
    """

    value: Timeline
    stored: RowsStatement
    checked: CheckedRows
    shown: Mapping[str, str]


@dataclass(frozen=True)
class NamedStatements:
    """`statements` under the shown names at the write's begin, or under `called`."""

    statements: Statements
    called: Names | None = None

    @property
    def names(self) -> Names:
        """The names of the columns, including new ones of the statements."""
        return self.statements.names if self.called is None else self.called.with_added(self.statements.shown)

    @property
    def config(self) -> TableConfig:
        return shown_config(self.statements.config, self.names)

    @property
    def schema(self) -> TableSchema:
        return self.names.outward(self.statements.schema)

    @property
    def merging(self) -> Merging:
        if self.names.are_stored:
            return self.statements.merging
        return merging_of(self.config, self.schema.to_json())

    def text_types(self) -> pa.Schema:
        """Like `text_types`, with new columns of the statements."""
        return _text_types(self.schema, self.merging)

    @property
    def rules(self) -> Rules:
        return rules_under(self.statements.value.rules, self.names)

    def with_defaults(self, rows: pa.Table) -> pa.Table:
        if not self.statements.value.rules:
            return rows
        known = self.names.by_shown(self.statements.schema.declared.names)
        stored = self.statements.with_defaults(rows.rename_columns([known[name] for name in rows.column_names]))
        return stored.rename_columns([self.names.shown(name) for name in stored.column_names])

    def add(self, statement: RowsStatement) -> None:
        self.collect(self.prepared(statement))

    def prepared(self, statement: RowsStatement) -> Prepared:
        """Check a statement by this version; raise if it refuses the rows."""
        given = statement.rows
        if statement.nulls:
            self._require_nulls(statement)
        if statement.kind == "DELETE":
            rows = self._stored_keys(statement)
        else:
            rows = self.stored_rows(given, statement.mode)
        nulls = tuple(rows.column_names[given.column_names.index(name)] for name in statement.nulls)
        stored = statement if rows is given else replace(statement, rows=rows, nulls=nulls)
        statements = self.statements
        with self._errors_in_names():
            checked = statements.check(stored)
        return Prepared(statements.value, stored, checked, {**statements.shown})

    def collect(self, prepared: Prepared) -> None:
        """Add a statement after the check by this version or an equal one."""
        self.statements.shown.update(prepared.shown)
        with self._errors_in_names():
            self.statements.collect(prepared.checked)

    def _require_nulls(self, statement: RowsStatement) -> None:
        there = statement.rows.column_names
        absent = [name for name in statement.nulls if name not in there]
        if absent:
            raise InvalidInputError(f"nulls must name columns of the rows. unknown={absent} known={there}")
        for member in self.merging.rule.members:
            if not {*statement.nulls}.isdisjoint(member.columns):
                raise InvalidInputError(
                    f"{member.payload.name} merges all values of a row, so no write sets it to null: leave the column "
                    f"out of nulls. columns={list(member.columns)}"
                )

    def stored_rows(self, data: pa.Table, mode: SchemaMode) -> pa.Table:
        """Return upserted rows under stored names, including names for columns that `mode="merge"` adds."""
        stored = self.names.inward(data.schema, self.statements.schema, grows=mode == "merge")
        if stored == data.column_names:
            return data
        there = self.statements.schema
        pairs = zip(stored, data.column_names, strict=True)
        self.statements.shown.update({name: shown for name, shown in pairs if name not in there})
        return data.rename_columns(stored)

    def _stored_keys(self, statement: RowsStatement) -> pa.Table:
        """Return the rows of a delete. Unknown columns are ignored, except for former names of required ones."""
        data = statement.rows
        if self.names.former and not set(columns_of_delete(self.config, plain=statement.plain)) <= set(
            data.column_names
        ):
            self.schema.require_not_renamed(data.column_names)
        return known_columns(data, self.names, self.statements.schema)

    @contextmanager
    def _errors_in_names(self) -> Iterator[None]:
        """Put shown names into the errors of statements. A broken rule is worded in them by `RowRules`."""
        try:
            yield
        except ConstraintViolationError:
            raise
        except CrdtMorError as error:
            if not self.names.are_stored:
                error.args = (_with_names(str(error), self.names), *error.args[1:])
            raise


def _with_names(text: str, names: Names) -> str:
    """Replace stored by shown names, in an error's sentence within quotes and in its values, after `key=`."""
    sentence, start, values = text.partition(found[0] if (found := _VALUES.search(text)) else "\0")
    shown = dict(names.renamed)
    if not shown:
        return text
    stored = "|".join(map(re.escape, shown))
    sentence = re.sub(f"(?<=')({stored})(?=')", lambda found: shown[found[0]], sentence)
    values = re.sub(rf"(?<!\w)({stored})(?!\w)", lambda found: shown[found[0]], values)
    return f"{sentence}{start}{values}"


def rules_under(rules: Rules, names: Names) -> Rules:
    if not rules or names.are_stored:
        return rules
    return writing_rules.renamed_rules(rules, names.shown)


def shown_rules(value: Timeline) -> Rules:
    return rules_under(value.rules, value.names)


def known_columns(data: pa.Table, names: Names, schema: TableSchema) -> pa.Table:
    if names.are_stored:
        return data
    known = names.by_shown(schema.declared.names)
    data = data.select([name for name in data.column_names if name in known])
    return data.rename_columns([known[name] for name in data.column_names])


def shown_config(config: TableConfig, names: Names) -> TableConfig:
    if names.are_stored:
        return config
    there = tuple(member for member in config.merge.columns if [*member.columns] == names.visible(member.columns))
    return called_config(replace(config, merge=replace(config.merge, columns=there)), names)


def shown_table(config: TableConfig, value: Timeline) -> tuple[TableConfig, TableSchema]:
    return shown_config(config, value.names), value.names.outward(TableSchema.from_json(value.schema))


def text_types(config: TableConfig, value: Timeline) -> pa.Schema:
    """Return the column types for reading text files, in shown names.

    Columns whose payload accepts several types are omitted, so that their types are guessed.
    """
    shown, schema = shown_table(config, value)
    return _text_types(schema, merging_of(shown, schema.to_json()))


def _text_types(schema: TableSchema, merging: Merging) -> pa.Schema:
    return pa.schema([column for column in schema.declared if column.name not in merging.accepts])


def called_config(config: TableConfig, names: Names) -> TableConfig:
    if names.are_stored:
        return config
    shown = renamed_config(config, {name: names.shown(name) for name in _named(config)})
    created = config.created_schema()
    if created is None:
        return shown
    return replace(shown, properties={**config.properties, OUR_SCHEMA: names.outward(created).to_json()})


def renamed_config(config: TableConfig, by: Mapping[str, str]) -> TableConfig:
    def shown(name: str) -> str:
        return by.get(name, name)

    def renamed(columns: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(shown, columns))

    key, merge = config.key, config.merge
    ordering = None if merge.ordering is None else shown(merge.ordering)
    members = tuple(member.renamed(renamed(member.columns)) for member in merge.columns)
    unavailable = tuple((None if name is None else shown(name), marker) for name, marker in merge.unavailable)
    expiry = merge.expiry and replace(merge.expiry, column=shown(merge.expiry.column))
    columns = tuple(sorted(members, key=lambda member: member.columns))
    return replace(
        config,
        key=replace(key, fields=renamed(key.fields), partition_by=partition_functions.renamed(key.partition_by, shown)),
        merge=replace(merge, ordering=ordering, columns=columns, unavailable=unavailable, expiry=expiry),
    )


def _named(config: TableConfig) -> list[str]:
    key, merge = config.key, config.merge
    ordering = [] if merge.ordering is None else [merge.ordering]
    members = (name for m in merge.columns for name in m.columns)
    marked = (name for name, _ in merge.unavailable if name is not None)
    return [*key.fields, *key.partition_fields, *ordering, *merge.expiry_columns, *members, *marked]
