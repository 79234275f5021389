"""Columns get other names, or are not shown any more: an event of the table's names, which changes no file.

Whatever a writer of the value before it brings is in stored names, so that nobody has to wait or to write again. Of two
events that would give two columns one name, the later one is refused, and so is one that knows a column by a name that
it has no more.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from pyarrow.types import is_nested

from crdt_mor.columns.names import Names, check_shown
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError, SchemaMismatchError
from crdt_mor.model.alteration import Alteration
from crdt_mor.model.authors import Author
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import begin_after, tick_after
from crdt_mor.model.layout import Layout
from crdt_mor.model.names import ALTER_SCHEMA, DELTA_COMMIT
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user asks for, by the names that the columns have before.

    comments: None takes one away. They may be by the names that the columns get, too.
    """

    renames: Mapping[str, str]
    drops: Sequence[str]
    comments: Mapping[str, str | None]


def _names_before(asked: Asked, known: Container[str]) -> dict[str, str | None]:
    """The comments by the names that the columns have before, also of those that are named as they are called next."""
    old = {new: before for before, new in asked.renames.items()}
    return {name if name in known else old.get(name, name): text for name, text in asked.comments.items()}


def altered(
    value: Timeline, nonce: str, wall_ms: int, asked: Asked, config: TableConfig, author: Author | None
) -> Timeline | None:
    """The names change: an empty delta commit of its own, begun and completed in one event. None: they are so already.

    Raises `InvalidInputError` for a column that there is not, a name that another one has, and for a drop of a column
    that the table needs.
    """
    schema, names = TableSchema.from_json(value.schema), value.names
    said_of = _names_before(asked, names.by_shown(schema.declared.names))
    _refuse_fields([*asked.renames, *asked.drops, *said_of], names.outward(schema))
    renamed = {names.one(old, schema): new for old, new in asked.renames.items()}
    dropped = [names.one(name, schema) for name in asked.drops]
    comments = {names.one(name, schema): text for name, text in said_of.items()}
    _refuse_needed(dropped, value, config)
    both = [names.shown(stored) for stored in dropped if stored in renamed]
    if both:
        raise InvalidInputError(f"a column is renamed or dropped, not both. columns={both}")
    stays = [n for n in names.visible(schema.declared.names) if n not in dropped and n not in renamed]
    check_shown([*renamed.values()], [names.shown(stored) for stored in stays])
    taken = {names.shown(stored).lower() for stored in stays}
    occupied = [new for new in renamed.values() if new.lower() in taken]
    if occupied:
        raise InvalidInputError(
            "there are columns of these names already: choose others, or drop or rename those in the same call. "
            f"columns={occupied}"
        )
    said = dict(names.comments)
    requested = begin_after(value.clock, wall_ms)
    alteration = Alteration(
        tick_after(requested, wall_ms),
        renamed=tuple((stored, new) for stored, new in renamed.items() if names.shown(stored) != new),
        dropped=tuple(dropped),
        comments=tuple((stored, text or "") for stored, text in comments.items() if said.get(stored, "") != text),
    )
    if not (alteration.renamed or alteration.dropped or alteration.comments):
        return None
    completion = Completion(
        requested, alteration.at, value.version + 1, nonce, DELTA_COMMIT, ALTER_SCHEMA, author=author
    )
    return value.following(
        nonce,
        alteration.at,
        alterations=(*value.alterations, alteration),
        completions=(*value.completions, completion),
    )


def _refuse_fields(asked: Sequence[str], schema: TableSchema) -> None:
    """Raise for a field inside of a column, of whose name the one in files is made, so that it cannot change."""
    for name in asked:
        inside = [
            c for c in schema.declared.names if name.startswith(f"{c}.") and is_nested(schema.declared.field(c).type)
        ]
        if name not in schema.declared.names and inside:
            raise InvalidInputError(
                "a field inside of a column is not renamed, dropped or commented on, since files have it under a name "
                "that is made of the one that people see: add a field of the other name, and write both for a while. "
                f"field={name!r} column={inside[0]!r}"
            )


def _refuse_needed(dropped: Sequence[str], value: Timeline, config: TableConfig) -> None:
    """Raise for a drop of a column that the table needs."""
    ordering = config.merge.ordering
    layout = Layout.of(value.properties).columns
    together = {name for member in config.merge.columns if len(member.columns) > 1 for name in member.columns}
    roles = {
        "the key": config.key.fields,
        "the partitions": config.key.partition_fields,
        "the ordering": () if ordering is None else (ordering,),
        "the order of rows in base files": layout,
        "a payload of several columns": together,
        "a rule": {name for rule in value.rules for name in rule.columns},
    }
    for role, needed in roles.items():
        found = [value.names.shown(name) for name in dropped if name in needed]
        if found:
            raise InvalidInputError(f"{role} needs these columns, which so cannot be dropped. columns={found}")


def require_meant(value: Timeline, new: Mapping[str, str]) -> None:
    """Raise `SchemaMismatchError` where columns that a write adds would not be seen under the names that it means.

    new: the names that people are to see, by the stored names that the write has chosen. The columns were altered since
    it began; it has stored nothing yet.
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
            "columns of this table were renamed, dropped or added while this write was under way, and a column that it "
            f"adds would be another one by now: nothing was written, write again. columns={wrong}"
        )
