"""Which manifests of a mirror's head stay, and which a refresh writes anew.

A manifest stays if all its entries stay. Entries left of the others are written again with new entries,
and with the smallest manifests' as long as they fit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from crdt_mor.mirror.iceberg_manifests import ENTRIES_MAX, STREAMS, Entry, Manifest, Name, Stream
from crdt_mor.mirror.slices import SliceKey
from crdt_mor.model.timeline_parts import FileGroup


@dataclass(frozen=True, slots=True)
class Batch:
    """The entries of a manifest to write."""

    stream: Stream
    spec_id: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    kept: tuple[Manifest, ...]
    made: tuple[Batch, ...]


def group_of(entry: Entry) -> FileGroup:
    return entry.of[0], entry.of[1]


def keys_shown(manifests: Iterable[Manifest]) -> frozenset[SliceKey]:
    """Return the slices that a mirror shows. The files of logs say it before the base file, which may be older."""
    found: dict[FileGroup, str] = {}
    ordered = sorted(manifests, key=lambda manifest: STREAMS.index(manifest.stream))
    for manifest in ordered:
        for entry in manifest.entries:
            if entry.of[2] is not None:
                found[group_of(entry)] = entry.of[2]
    return frozenset(SliceKey(partition, file_id, files) for (partition, file_id), files in found.items())


def plan(
    manifests: Sequence[Manifest],
    changed: Mapping[FileGroup, Sequence[Entry]],
    live: Collection[FileGroup],
    restated: Callable[[Entry], Entry],
    *,
    bounds_stay: bool = True,
) -> Plan:
    """Return the manifests of the next snapshot.

    Args:
        changed: all entries of each changed slice. A base file that the head has already keeps its entry.
        live: all slices of the next snapshot.
        restated: returns an entry as the next snapshot must state it, mostly unchanged.
        bounds_stay: False if a column's type changed, so that bounds must be stated anew.
    """
    fresh = {entry.name: entry for entries in changed.values() for entry in entries}
    kept: list[Manifest] = []
    loose: list[Entry] = []
    for manifest in manifests:
        left = [entry for entry in manifest.entries if _stays(entry, fresh, changed, live)]
        stays = [_next(entry, fresh, restated, bounds_stay=bounds_stay) for entry in left]
        for entry in left:
            fresh.pop(entry.name, None)
        if tuple(stays) == manifest.entries:
            kept.append(manifest)
        else:
            loose += stays
    return _batched(kept, [*loose, *fresh.values()])


def _stays(
    entry: Entry, fresh: Mapping[Name, Entry], changed: Mapping[FileGroup, Sequence[Entry]], live: Collection[FileGroup]
) -> bool:
    group = group_of(entry)
    if group not in live or group not in changed:
        return group in live
    new = fresh.get(entry.name)
    return new is not None and new.of[2] in (None, entry.of[2])


def _next(entry: Entry, fresh: Mapping[Name, Entry], restated: Callable[[Entry], Entry], *, bounds_stay: bool) -> Entry:
    new = fresh.get(entry.name)
    return restated(entry if bounds_stay or new is None else replace(entry, bounds=new.bounds))


def _batched(kept: Sequence[Manifest], loose: Iterable[Entry]) -> Plan:
    made: list[Batch] = []
    absorbed: set[str] = set()
    ordered = sorted(loose, key=_place)
    for (stream, spec_id), found in groupby(ordered, key=lambda entry: (entry.stream, entry.spec_id)):
        entries = list(found)
        alike = [one for one in kept if (one.stream, one.spec_id) == (stream, spec_id)]
        for manifest in sorted(alike, key=lambda one: (len(one.entries), one.path)):
            if len(entries) + len(manifest.entries) <= ENTRIES_MAX:
                entries += manifest.entries
                absorbed.add(manifest.path)
        entries.sort(key=_place)
        chunks = range(0, len(entries), ENTRIES_MAX)
        made += [Batch(stream, spec_id, tuple(entries[at : at + ENTRIES_MAX])) for at in chunks]
    return Plan(tuple(one for one in kept if one.path not in absorbed), tuple(made))


def _place(entry: Entry) -> tuple[str, int, str, str]:
    return entry.stream, entry.spec_id, *group_of(entry)
