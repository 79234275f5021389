"""What lies in a table's folder, and what for: the rows, what retention needs beside them by kind, and the rest.

Each file has to earn its place by a rule of the table's own, given its newest value. What no rule names is the rest:
files of history that is not kept, versions and instants that should have gone long ago, what dead processes left. A
leak of any service shows there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from crdt_mor import Table
from crdt_mor.format.archive import decode_manifest, manifest_number
from crdt_mor.hudi.archive import MANIFESTS_KEPT
from crdt_mor.log.paths import PLANS, SEGMENTS, VERSIONS, segment_path
from crdt_mor.log.publish import EXPIRE_EVERY
from crdt_mor.log.tail import KEPT_VERSIONS
from crdt_mor.model.instant import LAST
from crdt_mor.model.names import COMMIT, DELTA_COMMIT, TimelineFileName
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.planners.archive import KEPT_COMMITS
from tests.inside import hudi_folder_of, session_of

ROWS, REST = "rows", "the rest"


@dataclass(frozen=True)
class Account:
    """Files and bytes by what needs them."""

    files: Counter[str]
    bytes: Counter[str]
    strangers: tuple[str, ...]
    """The files that nothing needs."""

    @property
    def total(self) -> int:
        return sum(self.bytes.values())

    def __str__(self) -> str:
        parts = (f"{kind} {self.bytes[kind]:,} in {self.files[kind]:,}" for kind, _ in self.bytes.most_common())
        return f"{self.total:,} bytes: {', '.join(parts)}"


def account(table: Table, path: Path) -> Account:
    """The account of a table at rest that keeps no history, as its newest value has it."""
    session = session_of(table)
    value = session.tail()
    completions = session.views.completions(value)
    needed: dict[str, str] = {".hoodie/hoodie.properties": "the table's properties"}
    needed[f"{session.publisher.projector.folder}/.crdt_mor"] = "the table's properties"
    for slice_ in fold_slices(completions):
        needed |= dict.fromkeys((file.path for file in slice_.files), ROWS)
        needed[f"{slice_.partition}/.hoodie_partition_metadata".removeprefix("/")] = "the table's properties"
    needed |= dict.fromkeys(_of_versions(path, value), "the newest versions")
    needed |= dict.fromkeys(_named_by_versions(path), "what they name")
    needed |= dict.fromkeys(_active(path, table, value, completions), "Hudi's active timeline")
    needed |= dict.fromkeys(_archived(path, table), "Hudi's history")
    files, sizes, strangers = Counter[str](), Counter[str](), []
    for file in path.rglob("*"):
        if file.is_file():
            name = str(file.relative_to(path))
            kind = needed.get(name, REST)
            files[kind] += 1
            sizes[kind] += file.stat().st_size
            strangers += [name] if kind == REST else []
    return Account(files, sizes, tuple(sorted(strangers)))


def _names(path: Path, folder: str) -> list[str]:
    return sorted(f"{folder}/{file.name}" for file in (path / folder).glob("*") if file.is_file())


def _of_versions(path: Path, value: Timeline) -> list[str]:
    """The newest versions, and as many as may have followed since somebody had to delete older ones."""
    oldest = value.version - KEPT_VERSIONS - EXPIRE_EVERY
    return [name for name in _names(path, VERSIONS) if int(Path(name).stem) >= oldest]


def _named_by_versions(path: Path) -> Iterable[str]:
    """The segments and the plans that a version names, or that were made since the oldest one."""
    versions = [Timeline.decode((path / name).read_bytes(), name) for name in _names(path, VERSIONS)]
    oldest = versions[0]
    for version in versions:
        yield from (segment_path(segment.name) for segment in version.segments)
        yield from (plan.path for plan in version.plans)
    for name in _names(path, SEGMENTS):
        if int(Path(name).name.partition("-")[0]) >= oldest.version:
            yield name
    for name in _names(path, PLANS):
        if Path(name).name.partition("-")[0] > oldest.clock:
            yield name


def _active(path: Path, table: Table, value: Timeline, completions: list[Completion]) -> Iterable[str]:
    """The files of instants in Hudi's active timeline, from the first one on that may not be archived yet.

    What a version that still stands has published may not, nor the newest commits; it goes in the order in which the
    instants were requested.
    """
    folder = hudi_folder_of(table)
    oldest = value.version - KEPT_VERSIONS - EXPIRE_EVERY
    newest = sorted(c.requested for c in completions if c.action in (DELTA_COMMIT, COMMIT))[-KEPT_COMMITS:]
    first = min([*(c.requested for c in completions if c.version >= oldest), *newest], default=LAST)
    for name in _names(path, folder):
        parsed = TimelineFileName.parse(Path(name).name)
        if parsed is not None and parsed.requested >= first:
            yield name


def _archived(path: Path, table: Table) -> Iterable[str]:
    """The newest manifests of Hudi's history, and what they name."""
    folder = session_of(table).publisher.projector.archive
    manifests = sorted(
        (number, name) for name in _names(path, folder) if (number := manifest_number(Path(name).name)) is not None
    )
    for _, name in manifests[-MANIFESTS_KEPT:]:
        yield name
        yield from (f"{folder}/{file}" for file in decode_manifest((path / name).read_bytes(), name))
