"""Tables handed over to Hudi's writers. Meanwhile nothing of ours begins there.

Hudi's data source and `MERGE INTO` refuse our default order by commit time. A quiet, fully compacted table gives the
same answer under any order. So it declares Hudi's plain rule, `COMMIT_TIME_ORDERING`.
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
"""The properties of a table handed over. None: absent."""


def own_properties(merge: MergeSpec) -> Mapping[str, str | None]:
    """Return the same properties of a table that is not handed over."""
    return dict(merge_properties(merge))


def is_plain(properties: Mapping[str, str]) -> bool:
    """Return True if the properties of our table mean that it is handed over."""
    return all(properties.get(name) == text for name, text in PLAIN.items())


def require_not_handed_over(since: InstantTime) -> None:
    if since != EPOCH:
        raise handed_over_error(f"since={since}")


def handed_over_error(values: str) -> InvalidInputError:
    return InvalidInputError(
        "this table is handed over to Hudi's writers and accepts no writes from crdt-mor: stop them, then call "
        f"table.maintenance.takeback(), or crdt-mor takeback. Reading works as before. {values}"
    )
