"""Choose the data files that a sweep deletes, from a listing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import bucket_of_file_id, data_file_name, is_own_token


@dataclass(frozen=True, slots=True)
class Instants:
    """The instants that a sweep knows. The listing is older than `in_hudi`.

    Args:
        live: committed, pending or planned.
        dead: given up, or unknown ones that we began.
        in_hudi: in Hudi's active timeline.
        kept_until: Hudi's savepoints may need older files.
        clock: newer ones may be alive.
    """

    live: Collection[InstantTime]
    dead: Collection[InstantTime]
    in_hudi: Collection[InstantTime]
    kept_until: InstantTime
    clock: InstantTime


def garbage(paths: Iterable[str], instants: Instants) -> dict[InstantTime, list[str]]:
    """Return the data files of dead instants, and of unknown ones with our file names."""
    garbage_paths: dict[InstantTime, list[str]] = {}
    for path in paths:
        name = data_file_name(path)
        if name is None or name.instant in instants.live or not instants.kept_until < name.instant < instants.clock:
            continue
        is_ours = is_own_token(name.token) and bucket_of_file_id(name.file_id) is not None
        is_orphan = is_ours and name.instant not in instants.in_hudi
        if name.instant in instants.dead or name.instant in garbage_paths or is_orphan:
            garbage_paths.setdefault(name.instant, []).append(path)
    return garbage_paths
