"""`Table.create(exist_ok=True)` with an existing table: check that it is the requested one.

Visible names, columns and rules are compared as they are now. Original types, layout and rules match too. So a program
that creates its table if missing keeps working, unless it names a column that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, NamedTuple

import pyarrow as pa

from crdt_mor.columns.names import Names
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import SchemaMismatchError, TableExistsError
from crdt_mor.events.session import Session
from crdt_mor.model.config import TableConfig
from crdt_mor.model.layout import BY_KEY, Layout, layout_properties
from crdt_mor.model.merge_spec import ColumnMerge, MergeSpec
from crdt_mor.model.rules import Rules, rules_in
from crdt_mor.model.timeline import Timeline
from crdt_mor.write.named import called_config, rules_under, shown_table

_SCHEMA: Final = "schema"

_ARGUMENTS: Final = {"fields": "key"}


@dataclass(frozen=True)
class CreateArguments:
    """The arguments of `Table.create`, under visible names."""

    config: TableConfig
    columns: TableSchema
    layout: Layout
    rules: Rules

    @classmethod
    def of(
        cls, config: TableConfig, columns: TableSchema, layout: Layout, rules: Rules, odd: dict[str, str]
    ) -> CreateArguments:
        """Convert from stored names. odd: stored names by visible names, where they differ."""
        hidden = tuple(one.column for one in config.key.functions)
        names = Names(tuple((own, name) for name, own in odd.items()), hidden)
        return cls(
            called_config(config, names),
            names.outward(columns),
            layout.renamed(names.shown),
            rules_under(rules, names),
        )


class _Difference(NamedTuple):
    """advice: a part of the error's message."""

    part: str
    requested: object
    existing: object
    advice: str = ""


def start(session: Session, requested: CreateArguments | None) -> None:
    """Start a new table (`requested` is None), or an existing table after comparing it."""
    if requested is not None:
        require_requested(session, requested)
    session.start()


def require_requested(session: Session, requested: CreateArguments) -> None:
    """Raise with each visible difference: `SchemaMismatchError` for columns only, else `TableExistsError`."""
    value = session.known_tail()
    config, columns = shown_table(session.config, value)
    created, current = (layout.renamed(value.names.shown) for layout in _layouts(session))
    _refuse(
        session.uri,
        [
            *_settings(requested.config, config),
            *_columns(requested.columns.declared, columns, config.created_schema()),
            *_layout(requested.layout, created, current),
            *_rules(requested.rules, session.config, value),
        ],
    )


def require_layout(session: Session, requested: Layout) -> None:
    """Raise `TableExistsError` if the layout differs, in stored names."""
    _refuse(session.uri, [*_layout(requested, *_layouts(session))])


def _refuse(uri: str, differences: Sequence[_Difference]) -> None:
    if not differences:
        return
    names = [difference.part for difference in differences]
    sides = (
        (differences[0].requested, differences[0].existing)
        if len(differences) == 1
        else (
            {difference.part: difference.requested for difference in differences},
            {difference.part: difference.existing for difference in differences},
        )
    )
    raise (SchemaMismatchError if names == [_SCHEMA] else TableExistsError)(
        f"there is a table already, with another {' and another '.join(names)}: open it"
        f"{''.join(difference.advice for difference in differences)}. path={uri} asked={sides[0]} found={sides[1]}"
    )


def _layouts(session: Session) -> tuple[Layout, Layout]:
    return Layout.of(layout_properties(session.config.properties)), Layout.of(session.known_tail().properties)


def _settings(requested: TableConfig, existing: TableConfig) -> Iterator[_Difference]:
    parts = [
        part.name
        for part in fields(requested.key)
        if getattr(requested.key, part.name) != getattr(existing.key, part.name)
    ]
    if parts:
        yield _Difference("key or partition", _parts(requested, parts), _parts(existing, parts))
    if not _is_same_merge(requested.merge, existing.merge):
        summaries = requested.merge.summary, existing.merge.summary
        sides = summaries if summaries[0] != summaries[1] else (str(requested.merge), str(existing.merge))
        yield _Difference("merge", *sides)
    if requested.merge.expiry != existing.merge.expiry:
        yield _Difference("ttl", requested.merge.ttl, existing.merge.ttl)
    if requested.buckets != existing.buckets:
        yield _Difference("buckets", requested.buckets, existing.buckets)


def _parts(config: TableConfig, parts: Sequence[str]) -> dict[str, object]:
    values = {_ARGUMENTS.get(part, part): getattr(config.key, part) for part in parts}
    return {name: [*map(str, value)] if isinstance(value, tuple) else value for name, value in values.items()}


def _is_same_merge(requested: MergeSpec, existing: MergeSpec) -> bool:
    rules = [replace(merge, columns=(), expiry=None) for merge in (requested, existing)]
    if rules[0] != rules[1] or len(requested.columns) != len(existing.columns):
        return False
    return all(map(_is_same_member, requested.columns, existing.columns))


def _is_same_member(requested: ColumnMerge, existing: ColumnMerge) -> bool:
    """Compare two payloads. Their parameters may contain visible or stored column names."""
    if not existing.called:
        return requested == existing
    names = dict(zip(existing.called, existing.columns, strict=True))
    arguments = {
        name: names.get(value, value) if isinstance(value, str) else value
        for name, value in existing.payload.arguments.items()
    }
    return (
        requested.columns == existing.columns
        and (requested.payload.name, requested.payload.path) == (existing.payload.name, existing.payload.path)
        and requested.payload.arguments in (arguments, existing.payload.arguments)
    )


def _columns(requested: pa.Schema, existing: TableSchema, created: TableSchema | None) -> Iterator[_Difference]:
    """Compare columns: requested columns must exist, and mandatory columns must be requested."""
    made = existing.declared if created is None else created.declared
    types = {column.name: [_kind(column)] for column in existing.declared}
    for column in made:
        if column.name in types:
            types[column.name].append(_kind(column))
    wanted = {column.name: _kind(column) for column in requested}
    wrong = [name for name, kind in wanted.items() if kind not in types.get(name, ())]
    missing = [name for name in made.names if name in types and name not in wanted]
    if wrong or missing:
        unknown = [name for name in wrong if name not in types]
        advice = '; write with schema_mode="merge" to add columns' if unknown else ""
        sides = ({name: wanted.get(name) for name in (*wrong, *missing)},
                 {name: types.get(name, [None])[0] for name in (*wrong, *missing)})  # fmt: skip
        yield _Difference(_SCHEMA, *sides, advice + existing.meant(unknown))
    elif (order := [name for name in existing.declared.names if name in wanted]) != [*wanted]:
        yield _Difference(_SCHEMA, [*wanted], order, "; its columns are in another order")


def _kind(column: pa.Field) -> str:
    return f"{column.type}{'' if column.nullable else ' not null'}"


def _layout(requested: Layout, created: Layout, current: Layout) -> Iterator[_Difference]:
    if requested not in (BY_KEY, created, current):
        advice = "; change the layout of its base files with set_properties"
        yield _Difference("layout", requested.properties, current.properties, advice)


def _rules(requested: Rules, config: TableConfig, value: Timeline) -> Iterator[_Difference]:
    if not requested:
        return
    from crdt_mor.write.rules import meant_by

    created, current = (rules_under(rules, value.names) for rules in (rules_in(config.properties), value.rules))
    if meant_by(requested) not in (meant_by(created), meant_by(current)):
        advice = "; change its rules with add_rules and drop_rules"
        yield _Difference("set of rules", [*map(str, requested)], [*map(str, current)], advice)
