"""Hudi's history, as the projection of an archiving event: what moves there from Hudi's active timeline, and how.

    the value's archive      the instants after `since`, up to `watermark`, move; manifest N names `files`
    1. write                 their data file, of level 0; then the merged one, where ten of a level are one of the next
    2. manifest_N            from here on Hudi's readers find them in the history
    3. remove                their files in the active timeline: requested, inflight, then completed, the oldest first
    4. tidy                  manifests but for the newest three, and data files that none of these names

Any number of processes may do this at once, and as late as they like: a process that finds manifest N, or a later one,
passes over the first two steps, since each version is projected before the next one is put. Everything has one name.
The data files of a later archiving begin after this watermark, or reach beyond it, so that tidying up never meets them.

An instant's files are removed by their names, those of the completions in the value, never by their times alone: what
Hudi's own writers may have put beside them is not ours to remove.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crdt_mor.format.archive import (
    VERSION_FILE,
    ArchivedInstant,
    decode_manifest,
    encode_instants,
    encode_manifest,
    manifest_name,
    manifest_number,
    merge_data_files,
)
from crdt_mor.log.segments import SegmentGoneError, read_segment
from crdt_mor.log.steps import Delete, List, MakeDurable, Put, Read, Steps, put_surely, read_named
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import CLEAN, COMMIT, COMPACTION, REPLACE_COMMIT, TimelineFileName, timeline_file_name
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, completed_name
from crdt_mor.planners.archive import data_file_name, is_history_file, span_of
from crdt_mor.store.protocol import Stat

MANIFESTS_KEPT = 3
"""The newest manifests that stay, for readers of Hudi's that hold one of them. As Hudi does."""

_STATES = ("requested", "inflight", "completed")
_WITH_PLANS = {COMMIT: COMPACTION, REPLACE_COMMIT: "clustering", CLEAN: CLEAN}
"""Actions whose requested file is a plan, by the action in the name of the completed file."""


@dataclass(frozen=True, slots=True)
class HudiHistory:
    """The folders of one table: Hudi's active timeline, and its history."""

    active: str
    folder: str

    def project(self, value: Timeline) -> Steps[None]:
        """Do what the archiving event of this very version asks for; nothing where it has none."""
        if value.archive.version != value.version or not value.archive.files:
            return
        moved = yield from moved_by(value)
        if moved is None:
            return  # a later clean has given up what this event moved, so it was projected long ago
        if not (yield from self._is_written(value)):
            yield from self._write(value, moved)
        yield from self.remove({c.requested for c in moved})
        yield from self._tidy(value)

    def _is_written(self, value: Timeline) -> Steps[bool]:
        """Whether the manifest of this version, or a later one, is there. It lasts from here on."""
        listed: list[Stat] = yield List(self.folder)
        numbers = (manifest_number(stat.path.rpartition("/")[2]) for stat in listed)
        newest = max((number for number in numbers if number is not None), default=0)
        if newest == value.archive.manifest:
            yield MakeDurable(f"{self.folder}/{manifest_name(newest)}")
        return newest >= value.archive.manifest

    def _write(self, value: Timeline, moved: Sequence[Completion]) -> Steps[None]:
        """Write the data files and the manifest, or find that somebody else has."""
        instants = []
        for completion in moved:
            name = completed_name(completion)
            metadata = yield Read(f"{self.active}/{name}")
            if metadata is None:
                if (yield from self._is_written(value)):
                    return
                continue  # nobody has removed it for this event: it was lost before
            plan = None
            if name.action in _WITH_PLANS:
                requested = TimelineFileName(name.requested, _WITH_PLANS[name.action], "requested")
                plan = yield Read(f"{self.active}/{requested}")
            instants.append(ArchivedInstant(name, metadata, plan or None))
        fresh = data_file_name(moved[0].requested, moved[-1].requested, 0)
        yield from put_surely(Put(f"{self.folder}/{fresh}", encode_instants(instants)))
        before = yield from self._files_before(value)
        gone = [name for name in (*before, fresh) if name not in value.archive.files]
        for merged in value.archive.files if gone else ():
            if merged not in before and merged != fresh:
                yield from self._merge(merged, gone)
        listed: list[Stat] = yield List(self.folder)
        sizes = {stat.path.rpartition("/")[2]: stat.size for stat in listed}
        manifest = encode_manifest((name, sizes[name]) for name in value.archive.files if name in sizes)
        yield from put_surely(Put(f"{self.folder}/{manifest_name(value.archive.manifest)}", manifest))
        # Hudi's readers take the greatest manifest where no file says which; this one cannot be replaced in one step.
        yield Delete(f"{self.folder}/{VERSION_FILE}")

    def _files_before(self, value: Timeline) -> Steps[tuple[str, ...]]:
        """The data files that the manifest before that of this version names."""
        number = value.archive.manifest - 1
        path = f"{self.folder}/{manifest_name(number)}"
        data = (yield from read_named(path)) if number > 0 else None
        return () if data is None else decode_manifest(data, path)

    def _merge(self, merged: str, inputs: Iterable[str]) -> Steps[None]:
        """Put the data file `merged`, unless an input of it is gone: then somebody has."""
        contents = []
        for name in inputs:
            path = f"{self.folder}/{name}"
            data = yield from read_named(path)
            if data is None:
                return
            contents.append((data, path))
        yield from put_surely(Put(f"{self.folder}/{merged}", merge_data_files(contents)))

    def remove(self, instants: Iterable[InstantTime]) -> Steps[None]:
        """Remove all files of archived instants from the active timeline.

        An instant that stands as requested, with no completed file, is a pending one to Hudi's readers. So where a file
        cannot be deleted those after it stay, for a sweep by a user that may. They are gone for good: one that a power
        cut brought back would hide from Hudi's readers the archived instants that are newer.
        """
        going = set(instants)
        listed: list[Stat] = yield List(self.active)
        parsed = (timeline_file_name(stat.path) for stat in listed)
        found = [name for name in parsed if name and name.requested in going]
        yield from remove_in_order(self.active, found)

    def _tidy(self, value: Timeline) -> Steps[None]:
        """Remove old manifests, and data files up to the watermark that none of the others names."""
        newest = value.archive.manifest
        named: set[str] = set()
        listed: list[Stat] = yield List(self.folder)
        data_files: list[str] = []
        for path in (stat.path for stat in listed):
            name = path.rpartition("/")[2]
            number = manifest_number(name)
            if number is None:
                data_files += [path] if is_history_file(name) else []
            elif number <= newest - MANIFESTS_KEPT:
                yield Delete(path)
            elif number <= newest and (data := (yield Read(path))) is not None:
                named |= set(decode_manifest(data, path))
        for path in data_files if named >= set(value.archive.files) else ():
            name = path.rpartition("/")[2]
            if name not in named and span_of(name)[1] <= value.archive.watermark:
                yield Delete(path)


def moved_by(value: Timeline) -> Steps[list[Completion] | None]:
    """The completions that the last archiving event moves, by requested time; None where a segment of them is gone."""
    moved: list[Completion] = []
    for segment in value.segments:
        if segment.last > value.archive.since:
            try:
                completions = yield from read_segment(segment)
            except SegmentGoneError:
                return None
            moved += [c for c in completions if value.archive.since < c.requested <= value.archive.watermark]
    return sorted(moved, key=lambda c: c.requested)


def remove_in_order(folder: str, names: Iterable[TimelineFileName]) -> Steps[bool]:
    """Remove files of archived instants from Hudi's active timeline, `folder`, for good; the first that stays ends it.

    Returns whether all of them are gone.
    """
    gone, last = True, ""
    for name in sorted(names, key=when_removed):
        path = f"{folder}/{name}"
        gone = yield Delete(path)
        if not gone:
            break
        last = path
    if last:
        yield MakeDurable(last)
    return gone


def when_removed(name: TimelineFileName) -> tuple[int, InstantTime]:
    """The order in which the files of archived instants are removed from the active timeline."""
    return _STATES.index(name.state), name.requested
