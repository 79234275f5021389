"""Instants that Hudi itself wrote, found in Hudi's timeline directory.

Sealed completions are projected for sure, and those that the value carries are known by name, so as long as the rest
of the directory counts as many completed files as the segments hold, nobody else has written. Only otherwise are names
compared and files read. Never adopted: an instant that the value knows, one whose file carries our own key (a commit
newer than the value, or a stale helper's), and a `.requested` or `.inflight` file alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from crdt_mor.errors import FormatError, UnsupportedFeatureError
from crdt_mor.format.commit import CommitMetadata, decode_commit
from crdt_mor.model.instant import Instant
from crdt_mor.model.names import OWN_KEY, TimelineFileName, join_path
from crdt_mor.model.schema import TableSchema
from crdt_mor.model.timeline import Completion, DataFile, Timeline
from crdt_mor.ops.projection import Projector, completed_name
from crdt_mor.ops.protocol import OWN_FOLDER, read_segment
from crdt_mor.ops.steps import List, Read, Steps
from crdt_mor.store.base import Stat

_DATA_ACTIONS = {"commit", "deltacommit", "replacecommit"}


@dataclass(frozen=True, slots=True)
class Foreign:
    """What Hudi wrote: its completions, in completion order, and the schema joined with theirs."""

    completions: tuple[Completion, ...]
    schema: str


def known_instants(value: Timeline) -> Steps[set[Instant]]:
    """Requested times of everything pending, planned or completed; not of what was given up."""
    known = {p.requested for p in value.pending} | {p.barrier for p in value.plans}
    known |= {c.requested for c in value.completions}
    for segment in value.segments:
        known |= {c.requested for c in (yield from read_segment(segment))}
    return known


def foreign_completions(projector: Projector, value: Timeline) -> Steps[Foreign]:
    """The completed instants in Hudi's directory that are not ours."""
    if (yield List(f"{projector.folder}/history")):
        raise UnsupportedFeatureError(
            "Hudi has archived part of this table's timeline, and this release does not read the archive; reading on "
            f"would lose rows. Keep more commits in Hudi's active timeline. folder={projector.folder}/history"
        )
    names: list[Stat] = yield List(projector.folder)
    parsed = [TimelineFileName.parse(stat.path.rpartition("/")[2]) for stat in names]
    carried = {str(completed_name(c)) for c in value.completions}
    others = [name for name in parsed if name and name.state == "completed" and str(name) not in carried]
    if len(others) == sum(segment.count for segment in value.segments):
        return Foreign((), value.schema)
    known = yield from known_instants(value)
    known |= {r.requested for r in value.rolled_back}
    found: list[Completion] = []
    schema = TableSchema.from_json(value.schema)
    for name in sorted(others, key=lambda n: n.completed or ""):
        if name.requested in known:
            continue
        metadata: CommitMetadata | None = None
        if name.action in _DATA_ACTIONS:
            path = projector.path(name)
            data = yield Read(path)
            if data is None:
                continue
            metadata = decode_commit(data, path, replace=name.action == "replacecommit")
            if OWN_KEY in metadata.extra and value.version == 0:
                raise FormatError(
                    "this table's own timeline is missing, though commits of ours stand in Hudi's: restore the folder "
                    f"from a backup. folder={OWN_FOLDER} instant={name.requested}"
                )
            if OWN_KEY in metadata.extra:
                continue
            if metadata.extra.get("schema"):
                schema = schema.join(TableSchema.from_avro(metadata.extra["schema"]))
        found.append(_completion(name, metadata))
    return Foreign(tuple(found), schema.to_json())


def _completion(name: TimelineFileName, metadata: CommitMetadata | None) -> Completion:
    files: list[DataFile] = []
    replaced: list[tuple[str, str]] = []
    if metadata is not None:
        for partition, stats in metadata.stats.items():
            for stat in stats:
                if not stat.path:
                    raise FormatError(f"a write stat without a path. file={name}")
                paths = [join_path(partition, log) for log in stat.log_files or ()] or [stat.path]
                files += [
                    DataFile(p, stat.file_size_in_bytes or 0, stat.num_writes or 0, stat.num_deletes or 0)
                    for p in paths
                ]
        replaced = [(partition, group) for partition, groups in metadata.replaced.items() for group in groups]
    return Completion(
        name.requested,
        name.completed or name.requested,
        version=0,
        nonce="",
        action=name.action,
        operation=(metadata.operation if metadata else None) or name.action.upper(),
        files=tuple(files),
        replaced=tuple(replaced),
        adopted=True,
    )
