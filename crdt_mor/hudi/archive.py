"""Hudi's history: move instants there from Hudi's active timeline, when an archiving event is projected.

    the value's archive      the instants after `since`, up to `watermark`, move; manifest N names `files`
    1. write                 their data file, of level 0; ten files of a level are merged into the next
    2. manifest_N            from here on Hudi's readers find them in the history
    3. remove                their files in the active timeline: requested, inflight, then completed, oldest first
    4. tidy                  all but the newest three manifests, and data files that none of these names

Any number of processes may do this, however late, with the same names. A process that finds manifest N or a later one
skips the first two steps, as each version is projected before the next is put. Files are removed by the names of our
completions, never by time alone: files that Hudi put beside them are not ours. Data files of a later archiving
begin after this watermark or reach beyond it, so step 4 never deletes them.
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
"""Newest manifests kept for Hudi's readers, as Hudi does."""

_STATES = ("requested", "inflight", "completed")
_WITH_PLANS = {COMMIT: COMPACTION, REPLACE_COMMIT: "clustering", CLEAN: CLEAN}
"""Actions with a plan in their requested file."""


@dataclass(frozen=True, slots=True)
class HudiHistory:
    active: str
    folder: str

    def project(self, value: Timeline) -> Steps[None]:
        """Move the instants that this version archived."""
        if not value.archive.files:
            return
        moved = yield from moved_completions(value)
        if moved is None:
            return  # a later clean dropped these commits, so this was projected long ago
        if not (yield from self._is_written(value)):
            yield from self._write(value, moved)
        yield from self.remove({c.requested for c in moved})
        yield from self._tidy(value)

    def _is_written(self, value: Timeline) -> Steps[bool]:
        """Return True if this version's manifest, or a later one, exists, now durable."""
        listed: list[Stat] = yield List(self.folder)
        numbers = (manifest_number(stat.path.rpartition("/")[2]) for stat in listed)
        newest = max((number for number in numbers if number is not None), default=0)
        if newest == value.archive.manifest:
            yield MakeDurable(f"{self.folder}/{manifest_name(newest)}")
        return newest >= value.archive.manifest

    def _write(self, value: Timeline, moved: Sequence[Completion]) -> Steps[None]:
        """Write the data files and the manifest, unless another process does."""
        instants = []
        for completion in moved:
            name = completed_name(completion)
            metadata = yield Read(f"{self.active}/{name}")
            if metadata is None:
                if (yield from self._is_written(value)):
                    return
                continue  # lost before this event
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
        # Without this file, Hudi's readers take the greatest manifest. It cannot be replaced in one step.
        yield Delete(f"{self.folder}/{VERSION_FILE}")

    def _files_before(self, value: Timeline) -> Steps[tuple[str, ...]]:
        number = value.archive.manifest - 1
        path = f"{self.folder}/{manifest_name(number)}"
        data = (yield from read_named(path)) if number > 0 else None
        return () if data is None else decode_manifest(data, path)

    def _merge(self, merged: str, inputs: Iterable[str]) -> Steps[None]:
        """Put the merged data file, unless an input is gone: another process did."""
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

        A requested, not completed instant is pending to Hudi's readers, so after a failed deletion later files stay for
        a sweep. Deletions are durable: a returning file would hide newer archived instants.
        """
        going = set(instants)
        listed: list[Stat] = yield List(self.active)
        parsed = (timeline_file_name(stat.path) for stat in listed)
        found = [name for name in parsed if name and name.requested in going]
        yield from remove_in_order(self.active, found)

    def _tidy(self, value: Timeline) -> Steps[None]:
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


def moved_completions(value: Timeline) -> Steps[list[Completion] | None]:
    """Return the completions that the last archiving event moves, or None if a segment is gone."""
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
    """Remove files of archived instants durably, up to the first that stays. Returns True if all are gone."""
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
    return _STATES.index(name.state), name.requested
