"""Read the newest metadata of an Iceberg mirror, and the files that its kept snapshots need."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from crdt_mor.log.steps import List, Read, Steps, Together, read_named
from crdt_mor.mirror import iceberg_metadata as metadata
from crdt_mor.mirror.files import Sizes
from crdt_mor.mirror.iceberg_manifests import Manifest, read_list, read_manifest, relative
from crdt_mor.mirror.iceberg_types import Json


@dataclass(frozen=True, slots=True)
class State:
    """The newest metadata file.

    Attributes:
        metadata: None if the file is not readable as JSON.
        manifests: of its current snapshot, if it is ours and at this place.
    """

    number: int
    metadata: Json | None
    manifests: tuple[Manifest, ...]


def read_head(root: str) -> Steps[tuple[State, bool] | None]:
    """Return the newest metadata file and whether a mirror of ours wrote it; None without any."""
    number = yield from newest_number()
    if number is None:
        return None
    data = yield from read_named(metadata.metadata_path(number))
    found = None if data is None else _parsed(data)
    if found is None or not metadata.is_ours(found, number):
        return State(number, found, ()), False
    current = metadata.snapshot_of(found)
    if found.get("location") != root or current is None:
        return State(number, found, ()), True
    manifests = yield from _manifests(root, current)
    return State(number, found, manifests or ()), manifests is not None


def newest_number() -> Steps[int | None]:
    numbers = [metadata.number_of(stat.path) for stat in (yield List(metadata.FOLDER))]
    return max((number for number in numbers if number is not None), default=None)


def _parsed(data: bytes) -> Json | None:
    try:
        found = json.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _manifests(root: str, snapshot: Json) -> Steps[tuple[Manifest, ...] | None]:
    """Return the manifests of a snapshot; None if a file is gone."""
    data = yield from read_named(relative(root, snapshot["manifest-list"]))
    listed = [] if data is None else read_list(data)
    paths = [relative(root, one["manifest_path"]) for one in listed]
    contents: list[bytes | None] = (yield Together(tuple(map(Read, paths)))) if paths else []
    whole: list[Manifest] = []
    for path, one, content in zip(paths, listed, contents, strict=True):
        found = content if content is not None else (yield from read_named(path))
        if found is None:
            return None
        whole.append(read_manifest(root, one, found))
    return None if data is None else tuple(whole)


def files_needed(root: str) -> Steps[Sizes]:
    """Return all files that kept snapshots name, base files and metadata too.

    If other engines wrote the newest metadata, the newest of ours counts as well: the next refresh continues it.
    """
    listed = [metadata.number_of(stat.path) for stat in (yield List(metadata.FOLDER))]
    paths: set[str] = {metadata.HINT} if listed else set()
    lists: set[str] = set()
    for number in sorted((one for one in listed if one is not None), reverse=True):
        data = yield from read_named(metadata.metadata_path(number))
        found = None if data is None else _parsed(data)
        named = {} if found is None else found
        paths.add(metadata.metadata_path(number))
        paths |= set(_inside(root, [one["metadata-file"] for one in named.get("metadata-log", ())]))
        lists |= set(_inside(root, [one["manifest-list"] for one in metadata.all_own(named)]))
        if found is not None and metadata.is_ours(found, number):
            break
    return dict.fromkeys(paths | lists) | (yield from _named_by(root, lists))


def _named_by(root: str, lists: Iterable[str]) -> Steps[dict[str, int | None]]:
    """Return the manifests and files that manifest lists name. Snapshots share most manifests."""
    listed: dict[str, Json] = {}
    for path in lists:
        data = yield from read_named(path)
        records = [] if data is None else read_list(data)
        listed |= {relative(root, one["manifest_path"]): one for one in records}
    contents: list[bytes | None] = (yield Together(tuple(map(Read, listed)))) if listed else []
    found = [read_manifest(root, one, data) for one, data in zip(listed.values(), contents, strict=True) if data]
    manifests: dict[str, int | None] = {path: one["manifest_length"] for path, one in listed.items()}
    return manifests | {entry.path: entry.size for manifest in found for entry in manifest.entries}


def _inside(root: str, addresses: Sequence[str]) -> Iterator[str]:
    """Yield the paths of files in this table; a copied table's metadata may name files of the original."""
    for address in addresses:
        if address.startswith(f"{root}/"):
            yield relative(root, address)
