"""The event that adds, renames, hides, widens or comments on columns. It changes no file.

Earlier writers use stored names, so they need not wait or retry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa
from pyarrow.types import is_nested

from crdt_mor.columns.names import Names, check_shown
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError, SchemaMismatchError
from crdt_mor.model.alteration import Alteration, with_added
from crdt_mor.model.authors import Author
from crdt_mor.model.config import TableConfig
from crdt_mor.model.field_ids import numbered
from crdt_mor.model.instant import begin_after, tick_after
from crdt_mor.model.layout import Layout
from crdt_mor.model.names import ALTER_SCHEMA, DELTA_COMMIT
from crdt_mor.model.rules import Rules
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion

CheckGrowth: TypeAlias = Callable[[Rules, TableSchema, TableSchema], None]
"""Raises if a table with these rules may not widen its schema to the other."""


@dataclass(frozen=True, slots=True)
class AlterationRequest:
    """A user's request, by current names. Comments may use new names too; None removes a comment.

    added: columns; one that another process added meanwhile is widened to hold the values of both.
    """

    renames: Mapping[str, str] = field(default_factory=dict)
    drops: Sequence[str] = ()
    comments: Mapping[str, str | None] = field(default_factory=dict)
    widened: Mapping[str, pa.DataType] = field(default_factory=dict)
    added: pa.Schema = field(default_factory=lambda: pa.schema([]))


def _texts_by_known_name(request: AlterationRequest, known: Container[str]) -> dict[str, str | None]:
    old = {new: before for before, new in request.renames.items()}
    return {name if name in known else old.get(name, name): text for name, text in request.comments.items()}


def altered(
    value: Timeline,
    nonce: str,
    wall_ms: int,
    request: AlterationRequest,
    config: TableConfig,
    author: Author | None,
    check: CheckGrowth,
) -> Timeline | None:
    """Return the version with an empty delta commit that alters columns, or None if nothing changes.

    Raise `InvalidInputError` for a missing column, a taken name, or a drop of a needed column.
    """
    there = TableSchema.from_json(value.schema)
    schema, names, new = with_columns(there, value.names, request.added)
    texts = _texts_by_known_name(request, names.by_shown(schema.declared.names))
    _refuse_fields([*request.renames, *request.drops, *request.widened, *texts], names.outward(schema))
    wide = _widened(request, names, schema)
    if wide != there:
        check(value.rules, there, wide)
    renamed = dict(zip(names.stored(request.renames, schema), request.renames.values(), strict=True))
    dropped = names.stored(request.drops, schema)
    comments = dict(zip(names.stored(texts, schema), texts.values(), strict=True))
    _refuse_needed(dropped, value, config)
    both = [name for name in request.drops if name in request.renames or name in request.widened]
    if both:
        raise InvalidInputError(f"drop a column, or rename or widen it, not both. columns={both}")
    moving = {*dropped, *renamed}
    stays = [name for name in names.visible(schema.declared.names) if name not in moving]
    check_shown([*renamed.values()], [names.shown(stored) for stored in stays])
    taken = {names.shown(stored).lower() for stored in stays}
    occupied = [new for new in renamed.values() if new.lower() in taken]
    if occupied:
        raise InvalidInputError(
            "columns with these names exist already: choose other names, or drop or rename these columns too. "
            f"columns={occupied}"
        )
    all_comments = dict(names.comments)
    requested = begin_after(value.clock, wall_ms)
    alteration = Alteration(
        tick_after(requested, wall_ms),
        renamed=tuple((stored, new) for stored, new in renamed.items() if names.shown(stored) != new),
        dropped=tuple(dropped),
        comments=tuple(
            (stored, text or "") for stored, text in comments.items() if all_comments.get(stored, "") != text
        ),
    )
    are_same = not (alteration.renamed or alteration.dropped or alteration.comments)
    alterations = value.alterations if are_same else (*value.alterations, alteration)
    if new and are_same:
        alterations = with_added(alterations, alteration.at, [*new], new)
    elif new:
        alterations = (*value.alterations, replace(alteration, added=tuple(new.items())))
    if alterations == value.alterations and wide == there:
        return None
    completion = Completion(
        requested, alteration.at, value.version + 1, nonce, DELTA_COMMIT, ALTER_SCHEMA, author=author
    )
    return value.following(
        nonce,
        alteration.at,
        schema=value.schema if wide == there else numbered(value.schema, wide.to_json()),
        alterations=alterations,
        completions=(*value.completions, completion),
    )


def with_columns(schema: TableSchema, names: Names, added: pa.Schema) -> tuple[TableSchema, Names, dict[str, str]]:
    """Return the schema and the names with new columns, and the shown by the stored names of those that are new."""
    stored = names.inward(added, schema, grows=True)
    new = {own: shown for own, shown in zip(stored, added.names, strict=True) if own not in schema}
    columns = [column.with_name(own) for own, column in zip(stored, added, strict=True)]
    differing = {own: shown for own, shown in new.items() if own != shown}
    return schema.grow(pa.schema(columns)), names.with_added(differing), new


def _widened(request: AlterationRequest, names: Names, schema: TableSchema) -> TableSchema:
    stored = names.stored(request.widened, schema)
    return schema.grow(pa.schema([*zip(stored, request.widened.values(), strict=True)]))


def field_above(name: str, schema: TableSchema) -> str | None:
    """Return the nested column if `column.field` names a field inside one, and not a column."""
    above = (name[: dot.start()] for dot in re.finditer(r"\.", name))
    inside = (column for column in above if column in schema and is_nested(schema.declared.field(column).type))
    return None if name in schema else next(inside, None)


def _refuse_fields(asked: Sequence[str], schema: TableSchema) -> None:
    for name in asked:
        column = field_above(name, schema)
        if column is not None:
            raise InvalidInputError(
                "alter cannot change fields inside a column, as their stored names are fixed: add a field with the "
                "other name, and write both for a while. "
                f"field={name!r} column={column!r}"
            )


def _refuse_needed(dropped: Sequence[str], value: Timeline, config: TableConfig) -> None:
    ordering = config.merge.ordering
    layout = Layout.of(value.properties).columns
    together = {name for member in config.merge.columns if len(member.columns) > 1 for name in member.columns}
    roles = {
        "the key": config.key.fields,
        "the partitions": config.key.partition_fields,
        "the ordering": () if ordering is None else (ordering,),
        "the expiry of rows": config.merge.expiry_columns,
        "the order of rows in base files": layout,
        "a payload of several columns": together,
        "a rule": {name for rule in value.rules for name in rule.columns},
    }
    for role, needed in roles.items():
        found = [value.names.shown(name) for name in dropped if name in needed]
        if found:
            raise InvalidInputError(f"cannot drop columns used by {role}. columns={found}")


def require_meant(value: Timeline, new: Mapping[str, str]) -> None:
    """Raise if alterations since a write's begin changed the columns that it adds. The write has stored nothing yet.

    new: visible names by the stored names that the write chose.
    """
    names: Names = value.names
    known = names.by_shown(TableSchema.from_json(value.schema).declared.names)
    lower = {shown.lower(): stored for shown, stored in known.items()}
    there = set(TableSchema.from_json(value.schema).declared.names)
    wrong = [
        shown
        for stored, shown in new.items()
        if (known.get(shown) != stored if stored in there else shown.lower() in lower)
    ]
    if wrong:
        raise SchemaMismatchError(
            "columns were renamed, dropped or added during this write, and its new columns conflict with them. "
            f"Nothing was written: write again. columns={wrong}"
        )
