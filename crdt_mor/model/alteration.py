"""Changes of column names: additions, renames and drops, in event order.

The names at a moment result from all earlier alterations. A table with only stored names has none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from crdt_mor.columns.names import STORED, Names
from crdt_mor.errors import FormatError
from crdt_mor.model.config_properties import OUR_FUNCTIONS, OUR_NAMES
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.partition_functions import from_text

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Alteration:
    """An event of name changes.

    at: EPOCH for the table's creation. added, renamed: (stored name, new name). comments: "" removes a comment.
    """

    at: InstantTime
    added: Pairs = ()
    renamed: Pairs = ()
    dropped: tuple[str, ...] = ()
    comments: Pairs = ()


Alterations = tuple[Alteration, ...]

Shown = Mapping[str, str] | None
"""Names that users see, by stored name. None: both are the same."""


@lru_cache(maxsize=64)
def names_of(alterations: Alterations) -> Names:
    shown, comments = dict[str, str](), dict[str, str]()
    hidden, former = list[str](), list[tuple[str, str]]()
    for alteration in alterations:
        for stored, name in alteration.added:
            shown[stored] = name
        former += [(shown.get(stored, stored), stored) for stored, _ in alteration.renamed]
        if alteration.at != EPOCH:  # columns of partition functions are hidden from the beginning
            former += [(shown.get(stored, stored), stored) for stored in alteration.dropped]
        shown.update(alteration.renamed)
        hidden += alteration.dropped
        comments.update(alteration.comments)
    if not alterations:
        return STORED
    gone = {*hidden}
    return Names(
        tuple((stored, name) for stored, name in shown.items() if stored != name),
        tuple(hidden),
        tuple(former),
        tuple((stored, text) for stored, text in comments.items() if text and stored not in gone),
    )


@lru_cache(maxsize=64)
def names_at(alterations: Alterations, moment: InstantTime) -> Names:
    before = names_of(tuple(a for a in alterations if a.at <= moment))
    later = [stored for a in alterations if a.at > moment for stored, _ in a.added]
    return Names(before.renamed, (*before.hidden, *later), before.former, before.comments)


def with_added(alterations: Alterations, at: InstantTime, new: Sequence[str], shown: Shown) -> Alterations:
    """Add new columns, if names ever differed. shown: visible names of new columns, where they differ."""
    pairs = tuple((stored, (shown or {}).get(stored, stored)) for stored in new)
    if not pairs or (not alterations and all(stored == name for stored, name in pairs)):
        return alterations
    return (*alterations, Alteration(at, added=pairs))


# --- JSON -------------------------------------------------------------------------------------------------------------


def alteration_json(alteration: Alteration) -> list[object]:
    a = alteration
    return [a.at, dict(a.added), dict(a.renamed), list(a.dropped), dict(a.comments)]


def alteration_of(entry: Sequence[Any]) -> Alteration:
    at, added, renamed, dropped, comments = entry
    return Alteration(at, _pairs(added), _pairs(renamed), _texts(dropped), _pairs(comments))


def created_with(properties: Mapping[str, str]) -> Alterations:
    text, functions = properties.get(OUR_NAMES), properties.get(OUR_FUNCTIONS)
    if text is None and functions is None:
        return ()
    hidden = tuple(from_text(functions or "[]"))
    try:
        return (Alteration(EPOCH, added=_pairs(json.loads(text or "{}")), dropped=hidden),)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"restore the damaged hoodie.properties. {OUR_NAMES}={text!r:.200}") from error


def property_of(stored: Mapping[str, str]) -> str:
    """Format visible names as a property, "" for none. stored: stored names by visible names."""
    shown = {name: own for own, name in stored.items()}
    return json.dumps(shown, separators=(",", ":"), ensure_ascii=False) if shown else ""


def _pairs(entry: Mapping[str, Any]) -> Pairs:
    return tuple(zip(_texts(entry.keys()), _texts(entry.values()), strict=True))


def _texts(entry: Any) -> tuple[str, ...]:
    texts = tuple(entry)
    if isinstance(entry, str) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"names of columns. {texts=}")
    return texts
