"""A table that is handed over to Hudi's writers: while it is, nothing of ours begins in it.

By default our tables are ordered by the commit time of their rows in a way that some of Hudi's writers refuse, its
data source and `MERGE INTO`. A table that is quiet and fully compacted has one answer under any order. So it can
declare `COMMIT_TIME_ORDERING`, Hudi's plain rule, until it is taken back. Since when it is, the value says: one field,
`handed_over`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from crdt_mor.errors import InvalidInputError
from crdt_mor.model.config_merge import merge_properties
from crdt_mor.model.config_properties import MERGE_MODE, ORDERING
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.merge_spec import MergeSpec

PLAIN: Final[Mapping[str, str | None]] = {MERGE_MODE: "COMMIT_TIME_ORDERING", ORDERING: None}
"""The properties of a table while it is handed over; None: it has no such one."""


def own_properties(merge: MergeSpec) -> Mapping[str, str | None]:
    """The same properties while it is not."""
    return dict(merge_properties(merge))


def is_plain(properties: Mapping[str, str]) -> bool:
    """Whether the properties of a table of ours say that it is handed over."""
    return all(properties.get(name) == text for name, text in PLAIN.items())


def require_not_handed_over(since: InstantTime) -> None:
    """Raise where a table is handed over. since: the field of the value."""
    if since != EPOCH:
        raise handed_over_error(f"since={since}")


def handed_over_error(values: str) -> InvalidInputError:
    """What is said to whatever would begin in such a table. values: what is known of it."""
    return InvalidInputError(
        "this table is handed over to Hudi's writers, and takes no writes from here meanwhile: end theirs, and take it "
        f"back with table.maintenance.takeback(), or crdt-mor takeback. It can be read as before. {values}"
    )
