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
from crdt_mor.model.layout import BY_KEY, Layout, said
from crdt_mor.model.merge_spec import ColumnMerge, MergeSpec
from crdt_mor.model.rules import Rules, rules_in
from crdt_mor.model.timeline import Timeline
from crdt_mor.write.named import called_config, rules_under, shown_table

_SCHEMA: Final = "schema"

_ARGUMENTS: Final = {"fields": "key", "partition_fields": "partition_by"}


@dataclass(frozen=True)
class Asked:
    """The arguments of `Table.create`, under visible names."""

    config: TableConfig
    columns: TableSchema
    layout: Layout
    rules: Rules

    @classmethod
    def of(cls, config: TableConfig, columns: TableSchema, layout: Layout, rules: Rules, odd: dict[str, str]) -> Asked:
        """Convert from stored names. odd: stored names by visible names, where they differ."""
        names = Names(tuple((own, name) for name, own in odd.items()))
        return cls(
            called_config(config, names),
            names.outward(columns),
            layout.renamed(names.shown),
            rules_under(rules, names),
        )


class _Difference(NamedTuple):
    """advice: a part of the error's message."""

    what: str
    asked: object
    found: object
    advice: str = ""


def start(session: Session, asked: Asked | None) -> None:
    """Start a new table (`asked` is None), or an existing table after comparing it."""
    if asked is not None:
        require_asked_for(session, asked)
    session.start()


def require_asked_for(session: Session, asked: Asked) -> None:
    """Raise with each visible difference: `SchemaMismatchError` for columns only, else `TableExistsError`."""
    value = session.known_tail()
    config, columns = shown_table(session.config, value)
    made, now = (layout.renamed(value.names.shown) for layout in _layouts(session))
    _refuse(
        session.uri,
        [
            *_settings(asked.config, config),
            *_columns(asked.columns.declared, columns, config.created_schema()),
            *_layout(asked.layout, made, now),
            *_rules(asked.rules, session.config, value),
        ],
    )


def require_layout(session: Session, asked: Layout) -> None:
    """Raise `TableExistsError` if the layout differs, in stored names."""
    _refuse(session.uri, [*_layout(asked, *_layouts(session))])


def _refuse(uri: str, found: Sequence[_Difference]) -> None:
    if not found:
        return
    names = [difference.what for difference in found]
    sides = (
        (found[0].asked, found[0].found)
        if len(found) == 1
        else (
            {difference.what: difference.asked for difference in found},
            {difference.what: difference.found for difference in found},
        )
    )
    raise (SchemaMismatchError if names == [_SCHEMA] else TableExistsError)(
        f"there is a table already, with another {' and another '.join(names)}: open it"
        f"{''.join(difference.advice for difference in found)}. path={uri} asked={sides[0]} found={sides[1]}"
    )


def _layouts(session: Session) -> tuple[Layout, Layout]:
    return Layout.of(said(session.config.properties)), Layout.of(session.known_tail().properties)


def _settings(asked: TableConfig, there: TableConfig) -> Iterator[_Difference]:
    parts = [part.name for part in fields(asked.key) if getattr(asked.key, part.name) != getattr(there.key, part.name)]
    if parts:
        yield _Difference("key or partition", _parts(asked, parts), _parts(there, parts))
    if not _is_same_merge(asked.merge, there.merge):
        summaries = asked.merge.summary, there.merge.summary
        sides = summaries if summaries[0] != summaries[1] else (str(asked.merge), str(there.merge))
        yield _Difference("merge", *sides)
    if asked.buckets != there.buckets:
        yield _Difference("buckets", asked.buckets, there.buckets)


def _parts(config: TableConfig, parts: Sequence[str]) -> dict[str, object]:
    values = {_ARGUMENTS.get(part, part): getattr(config.key, part) for part in parts}
    return {name: [*value] if isinstance(value, tuple) else value for name, value in values.items()}


def _is_same_merge(asked: MergeSpec, there: MergeSpec) -> bool:
    if replace(asked, columns=()) != replace(there, columns=()) or len(asked.columns) != len(there.columns):
        return False
    return all(map(_is_same_member, asked.columns, there.columns))


def _is_same_member(asked: ColumnMerge, there: ColumnMerge) -> bool:
    """Compare two payloads. Their parameters may contain visible or stored column names."""
    if not there.called:
        return asked == there
    names = dict(zip(there.called, there.columns, strict=True))
    arguments = {
        name: names.get(value, value) if isinstance(value, str) else value
        for name, value in there.payload.arguments.items()
    }
    return (
        asked.columns == there.columns
        and (asked.payload.name, asked.payload.path) == (there.payload.name, there.payload.path)
        and asked.payload.arguments in (arguments, there.payload.arguments)
    )


def _columns(asked: pa.Schema, there: TableSchema, created: TableSchema | None) -> Iterator[_Difference]:
    """Compare columns: requested columns must exist, and mandatory columns must be requested."""
    made = there.declared if created is None else created.declared
    types = {column.name: [_kind(column)] for column in there.declared}
    for column in made:
        if column.name in types:
            types[column.name].append(_kind(column))
    wanted = {column.name: _kind(column) for column in asked}
    wrong = [name for name, kind in wanted.items() if kind not in types.get(name, ())]
    missing = [name for name in made.names if name in types and name not in wanted]
    if wrong or missing:
        unknown = [name for name in wrong if name not in types]
        advice = '; write with schema_mode="merge" to add columns' if unknown else ""
        sides = ({name: wanted.get(name) for name in (*wrong, *missing)},
                 {name: types.get(name, [None])[0] for name in (*wrong, *missing)})  # fmt: skip
        yield _Difference(_SCHEMA, *sides, advice + there.meant(unknown))
    elif (order := [name for name in there.declared.names if name in wanted]) != [*wanted]:
        yield _Difference(_SCHEMA, [*wanted], order, "; its columns are in another order")


def _kind(column: pa.Field) -> str:
    return f"{column.type}{'' if column.nullable else ' not null'}"


def _layout(asked: Layout, made: Layout, now: Layout) -> Iterator[_Difference]:
    if asked not in (BY_KEY, made, now):
        advice = "; change the layout of its base files with set_properties"
        yield _Difference("layout", asked.properties, now.properties, advice)


def _rules(asked: Rules, config: TableConfig, value: Timeline) -> Iterator[_Difference]:
    if not asked:
        return
    from crdt_mor.write.rules import meant_by

    made, now = (rules_under(rules, value.names) for rules in (rules_in(config.properties), value.rules))
    if meant_by(asked) not in (meant_by(made), meant_by(now)):
        advice = "; change its rules with add_rules and drop_rules"
        yield _Difference("set of rules", [*map(str, asked)], [*map(str, now)], advice)
