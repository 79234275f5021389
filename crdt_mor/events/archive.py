"""Archive old instants, as protocol steps, to keep Hudi's active timeline small.

look       list Hudi's directory and the versions, read the completions after the watermark
derive     move the watermark over the prefix that `planners.archive` allows, in one event
project    write the history, then remove the files (`hudi.archive`); any process may do so
"""

from __future__ import annotations

from dataclasses import dataclass

from crdt_mor.hudi.adoption import require_own_history
from crdt_mor.hudi.projection import Projector, TablePublisher
from crdt_mor.log.segments import read_segment
from crdt_mor.log.steps import List, Nonce, Steps
from crdt_mor.log.tail import listed_versions
from crdt_mor.model.handover import require_not_handed_over
from crdt_mor.model.names import timeline_file_name
from crdt_mor.model.numbers import whole_number
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.planners.archive import Prefix, archivable, data_file_name, files_with
from crdt_mor.store.protocol import Stat

_REFUSAL = (  # two writers of one history would overwrite each other
    "Hudi's writers have archived instants of this table, so crdt_mor does not. Leave archiving to Hudi, or set "
    "hoodie.archive.automatic=false for its writers and copy the table, "
    "Table.create(...).append(Table(...).scan())."
)


@dataclass(frozen=True, slots=True)
class ArchivedPrefix:
    value: Timeline
    prefix: Prefix


def archive_once(publisher: TablePublisher, known_tail: Timeline, keep: int) -> Steps[ArchivedPrefix]:
    nonce = yield Nonce()
    prefix = Prefix((), "")

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        nonlocal prefix
        require_not_handed_over(tail.handed_over)
        found = yield from prefix_of(publisher.projector, tail, keep)
        prefix = found
        if not found.completions:
            return None
        first, last = found.completions[0].requested, found.completions[-1].requested
        files = files_with(tail.archive.files, data_file_name(first, last, 0))
        return tail.archive_until(nonce, wall_ms, last, len(found.completions), files)

    value = yield from publisher.publish(derive, known_tail)
    return ArchivedPrefix(value, prefix)


def prefix_of(projector: Projector, tail: Timeline, keep: int) -> Steps[Prefix]:
    yield from require_own_history(projector, tail, _REFUSAL)
    listed: list[Stat] = yield List(projector.folder)
    names = [timeline_file_name(stat.path) for stat in listed]
    versions = yield from listed_versions()  # deleted oldest first: all versions below the least are gone
    numbers = [whole_number(_stem(stat)) for stat in versions]
    oldest = min((number for number in numbers if number is not None), default=0)
    completions = yield from completions_after(tail)
    return archivable(tail, completions, [name for name in names if name], oldest, keep)


def completions_after(tail: Timeline) -> Steps[list[Completion]]:
    """Return the completions after the archive's watermark, and some earlier ones."""
    completions = list(tail.completions)
    for segment in tail.segments:
        if segment.last > tail.archive.watermark:
            completions += yield from read_segment(segment)
    return completions


def _stem(stat: Stat) -> str:
    return stat.path.rpartition("/")[2].removesuffix(".json")
