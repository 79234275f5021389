"""Statements of a write under shown column names.

Updates and merges compute rows under shown names. Only the written rows get stored names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa

from crdt_mor.columns.names import Names
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import CrdtMorError
from crdt_mor.laws.merging import Merging, merging_of
from crdt_mor.model.config import TableConfig
from crdt_mor.model.config_properties import OUR_SCHEMA
from crdt_mor.model.declared import Declared
from crdt_mor.model.rules import Rules
from crdt_mor.model.timeline import Timeline
from crdt_mor.write.statements import Operation, SchemaMode, Statements, columns_of_delete

_VALUES: Final = re.compile(r"\. (?=\w+=)")
"""The separator between an error's sentence and its values."""


@dataclass(frozen=True)
class NamedStatements:
    """`statements` under the shown names at the write's begin, or under `called`."""

    statements: Statements
    called: Names | None = None

    @property
    def names(self) -> Names:
        """The names of the columns, including new ones of the statements."""
        called = self.statements.value.names if self.called is None else self.called
        return called.with_brought(self.statements.shown)

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
        return rules_under(self.statements.rules, self.names)

    def with_defaults(self, rows: pa.Table) -> pa.Table:
        if not self.statements.rules:
            return rows
        known = self.names.by_shown(self.statements.schema.declared.names)
        stored = self.statements.with_defaults(rows.rename_columns([known[name] for name in rows.column_names]))
        return stored.rename_columns([self.names.shown(name) for name in stored.column_names])

    def upsert(
        self, data: pa.Table, operation: Operation, mode: SchemaMode, *, are_new: bool = False, are_kept: bool = False
    ) -> None:
        stored = self.stored(data, mode)
        with self._said_in_names(lambda shown: shown.upsert(data, operation, mode, are_new=are_new, are_kept=are_kept)):
            self.statements.upsert(stored, operation, mode, are_new=are_new, are_kept=are_kept)

    def stored(self, data: pa.Table, mode: SchemaMode) -> pa.Table:
        """Return upserted rows under stored names, including names for columns that `mode="merge"` adds."""
        stored = self.names.inward(data.schema, self.statements.schema, grows=mode == "merge")
        if stored == data.column_names:
            return data
        there = self.statements.schema.declared.names
        pairs = zip(stored, data.column_names, strict=True)
        self.statements.shown.update({name: shown for name, shown in pairs if name not in there})
        return data.rename_columns(stored)

    def delete(self, data: pa.Table, plain: bool) -> None:
        """Like `Statements.delete`. Unknown columns are ignored, except for former names of required ones."""
        if self.names.former and not set(columns_of_delete(self.config, plain=plain)) <= set(data.column_names):
            self.schema.require_not_renamed(data.column_names)
        rows = known_columns(data, self.names, self.statements.schema)
        with self._said_in_names(lambda shown: shown.delete(data, plain)):
            self.statements.delete(rows, plain)

    @property
    def _declared(self) -> Declared:
        declared = self.statements.declared
        columns = declared.columns and tuple(self.names.shown(name) for name in declared.columns)
        return replace(declared, partitions=None, columns=columns)

    @contextmanager
    def _said_in_names(self, again: Callable[[Statements], None]) -> Iterator[None]:
        """Restate an error in shown names, by making the statement again under them.

        If that fails differently, or not at all, the first error stands, with shown names in its values.
        """
        try:
            yield
        except CrdtMorError as error:
            if self.names.are_stored:
                raise
            said = _error_of(partial(again, self._as_seen()))
            if type(said) is type(error):
                raise said from error
            error.args = (_with_names(str(error), self.names), *error.args[1:])
            raise

    def _as_seen(self) -> Statements:
        value = self.statements.value
        added = tuple(self.names.shown(name) for name in value.added)
        seen = replace(value, schema=self.schema.to_json(), added=added, rules=self.rules, alterations=())
        return Statements(self.config, seen, self.statements.requested, declared=self._declared)


def _error_of(action: Callable[[], None]) -> CrdtMorError | None:
    try:
        action()
    except CrdtMorError as error:
        return error
    return None


def _with_names(text: str, names: Names) -> str:
    """Replace stored by shown names in an error's values, after `key=`."""
    said, start, values = text.partition(found[0] if (found := _VALUES.search(text)) else "\0")
    for stored, shown in names.renamed:
        values = re.sub(rf"(?<!\w){re.escape(stored)}(?!\w)", lambda _: shown, values)  # noqa: B023
    return f"{said}{start}{values}"


def rules_under(rules: Rules, names: Names) -> Rules:
    if not rules or names.are_stored:
        return rules
    from crdt_mor.write.rules import renamed_rules

    return renamed_rules(rules, names.shown)


def shown_rules(value: Timeline) -> Rules:
    return rules_under(value.rules, value.names)


def known_columns(data: pa.Table, names: Names, schema: TableSchema) -> pa.Table:
    if names.are_stored:
        return data
    known = names.by_shown(schema.declared.names)
    data = data.select([name for name in data.column_names if name in known])
    return data.rename_columns([known[name] for name in data.column_names])


def shown_config(config: TableConfig, names: Names) -> TableConfig:
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
    def renamed(columns: Iterable[str]) -> tuple[str, ...]:
        return tuple(by.get(name, name) for name in columns)

    key, merge = config.key, config.merge
    ordering = None if merge.ordering is None else by.get(merge.ordering, merge.ordering)
    members = tuple(member.renamed(renamed(member.columns)) for member in merge.columns)
    return replace(
        config,
        key=replace(key, fields=renamed(key.fields), partition_fields=renamed(key.partition_fields)),
        merge=replace(merge, ordering=ordering, columns=tuple(sorted(members, key=lambda member: member.columns))),
    )


def _named(config: TableConfig) -> list[str]:
    key, merge = config.key, config.merge
    ordering = [] if merge.ordering is None else [merge.ordering]
    return [*key.fields, *key.partition_fields, *ordering, *(name for m in merge.columns for name in m.columns)]
