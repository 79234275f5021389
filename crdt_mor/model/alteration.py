"""What has become of the columns' names: additions, renames and drops, in the order of their events.

The names at any moment are the fold of the alterations until then. A table whose columns have the names of its files,
and have always had them, has none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from crdt_mor.columns.names import STORED, Names
from crdt_mor.errors import FormatError
from crdt_mor.model.config_properties import OUR_NAMES
from crdt_mor.model.instant import EPOCH, InstantTime

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Alteration:
    """One event. at: its completion; EPOCH: the table's creation.

    added, renamed: pairs of a column's stored name and the name that it has from then on. dropped: stored names.
    comments: pairs of a stored name and what is said of the column from then on; "" takes that away.
    """

    at: InstantTime
    added: Pairs = ()
    renamed: Pairs = ()
    dropped: tuple[str, ...] = ()
    comments: Pairs = ()


Alterations = tuple[Alteration, ...]

Shown = Mapping[str, str] | None
"""What people call some columns, by the stored names; None: all are called so."""


@lru_cache(maxsize=64)
def names_of(alterations: Alterations) -> Names:
    """The names after some alterations."""
    shown, comments = dict[str, str](), dict[str, str]()
    hidden, former = list[str](), list[tuple[str, str]]()
    for alteration in alterations:
        for stored, name in alteration.added:
            shown[stored] = name
        former += [(shown.get(stored, stored), stored) for stored, _ in alteration.renamed]
        former += [(shown.get(stored, stored), stored) for stored in alteration.dropped]
        shown.update(alteration.renamed)
        hidden += alteration.dropped
        comments.update(alteration.comments)
    if not alterations:
        return STORED
    return Names(
        tuple((stored, name) for stored, name in shown.items() if stored != name),
        tuple(hidden),
        tuple(former),
        tuple((stored, text) for stored, text in comments.items() if text and stored not in hidden),
    )


@lru_cache(maxsize=64)
def names_at(alterations: Alterations, moment: InstantTime) -> Names:
    """The names at a moment of the past. Columns that came later, and have a name of their own, are not shown."""
    before = names_of(tuple(a for a in alterations if a.at <= moment))
    later = [stored for a in alterations if a.at > moment for stored, _ in a.added]
    return Names(before.renamed, (*before.hidden, *later), before.former, before.comments)


def with_added(alterations: Alterations, at: InstantTime, new: Sequence[str], shown: Shown) -> Alterations:
    """The alterations with columns that are new in the schema: noted where any column has another name, or had one.

    shown: the names that people see, by stored names, of those of the new columns that have others.
    """
    pairs = tuple((stored, (shown or {}).get(stored, stored)) for stored in new)
    if not pairs or (not alterations and all(stored == name for stored, name in pairs)):
        return alterations
    return (*alterations, Alteration(at, added=pairs))


# --- JSON -------------------------------------------------------------------------------------------------------------


def alteration_json(alteration: Alteration) -> list[object]:
    """A short list."""
    a = alteration
    return [a.at, dict(a.added), dict(a.renamed), list(a.dropped), dict(a.comments)]


def alteration_of(entry: Sequence[Any]) -> Alteration:
    """The alteration in a list; raises one of `WRONG_SHAPE` for anything else."""
    at, added, renamed, dropped, comments = entry
    return Alteration(at, _pairs(added), _pairs(renamed), _texts(dropped), _pairs(comments))


def created_with(properties: Mapping[str, str]) -> Alterations:
    """What the properties of a table say of the names that its columns were created with."""
    text = properties.get(OUR_NAMES)
    try:
        return () if text is None else (Alteration(EPOCH, added=_pairs(json.loads(text))),)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"the table's properties are damaged: restore them. {OUR_NAMES}={text!r:.200}") from error


def property_of(stored: Mapping[str, str]) -> str:
    """The text of that property; "": there is none to be.

    stored: the stored names of the columns that have others, by the names that people see.
    """
    shown = {name: own for own, name in stored.items()}
    return json.dumps(shown, separators=(",", ":"), ensure_ascii=False) if shown else ""


def _pairs(entry: Mapping[str, Any]) -> Pairs:
    return tuple(zip(_texts(entry.keys()), _texts(entry.values()), strict=True))


def _texts(entry: Any) -> tuple[str, ...]:
    texts = tuple(entry)
    if isinstance(entry, str) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"names of columns. {texts=}")
    return texts
