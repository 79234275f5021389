"""A table read whole: whether each row can be read, and is where a write of its key would look for it.

One file group after the other is read with all of its columns, and merged as any reader merges it. Of the keys that are
kept meanwhile, those of one bucket are together in memory, as a key has the same bucket in each partition; a table
without buckets keeps them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import polars as pl

from crdt_mor.errors import FormatError, InvalidInputError, SnapshotExpiredError
from crdt_mor.events.session import Session
from crdt_mor.laws.merging import merging_of
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY
from crdt_mor.model.config import TableConfig
from crdt_mor.model.names import bucket_of_file_id
from crdt_mor.model.slices import FileSlice
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.write.adopted_keys import Misplaced, key_columns, misplaced_in

KEYS_NAMED: Final = 10
"""How many keys that are in several partitions are named."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a file group.

    check: "read", where its rows cannot be read; else "record key", "partition path" or "bucket", where rows would get
    another one if they were written again, so that they would live twice.
    rows: how many; None: it cannot be told. said: what is wrong with the first of them.
    """

    check: str
    partition: str
    file_group: str
    rows: int | None
    said: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What `Table.verify` has found. version: of the timeline that was read; rows: how many were.

    keys_in_several_partitions: how many keys have a row in more than one partition, which is no damage: readers show
    each of these rows. some_keys: the first of them.
    """

    version: int
    rows: int
    file_groups: int
    findings: tuple[Finding, ...]
    keys_in_several_partitions: int
    some_keys: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        """Whether nothing was found that is wrong."""
        return not self.findings


def verify(session: Session) -> Verified:
    """Read all that the newest snapshot shows. See `Table.verify`."""
    value = session.views.sealed(look=True)
    snapshot = Snapshot.seal(session, value)
    rows, several = 0, 0
    findings: list[Finding] = []
    some_keys: list[str] = []
    for _, slices in groupby(sorted(snapshot.slices, key=_bucket), _bucket):
        places: list[pl.DataFrame] = []
        for slice_ in slices:
            frame = _read(session, snapshot, slice_, findings)
            if frame is not None:
                rows += frame.height
                findings += _misplaced(session.config, slice_, frame)
                places.append(frame.select(RECORD_KEY, PARTITION_PATH))
        twice = _in_several(places)
        several += len(twice)
        some_keys += twice[: KEYS_NAMED - len(some_keys)]
    return Verified(value.version, rows, len(snapshot.slices), tuple(findings), several, tuple(some_keys))


def _bucket(slice_: FileSlice) -> int:
    number = bucket_of_file_id(slice_.file_id)
    return -1 if number is None else number


def _read(session: Session, snapshot: Snapshot, slice_: FileSlice, findings: list[Finding]) -> pl.DataFrame | None:
    """The rows of a file group in what says where they are; None, and a finding more, where they cannot be read.

    A file that is gone may be one that a clean has removed meanwhile: then the newest snapshot has others.
    """
    schema = merging_of(session.config, snapshot.value.schema).columns.schema
    kept = [name for name in key_columns(session.config) if name in schema]
    try:
        frames = snapshot.with_slices([slice_]).frames([*schema], None)
        return pl.concat(
            [pl.DataFrame(schema={name: schema[name] for name in kept}), *(f.select(kept) for f in frames)]
        )
    except FormatError as error:
        findings.append(Finding("read", *slice_.group, None, str(error)))
    except SnapshotExpiredError as error:
        newest = Snapshot.seal(session, session.views.sealed(look=True))
        later = [other for other in newest.slices if other.group == slice_.group]
        if later != [slice_]:
            return _read(session, newest, later[0], findings) if later else None
        findings.append(Finding("read", *slice_.group, None, str(error)))
    return None


def _misplaced(config: TableConfig, slice_: FileSlice, frame: pl.DataFrame) -> Iterator[Finding]:
    """The rows of a file group that would be put elsewhere, where the table says enough to tell."""
    if not set(key_columns(config)) <= set(frame.columns):
        return
    first: dict[str, Misplaced] = {}
    rows = Counter[str]()
    try:
        for row in misplaced_in(config, slice_, frame):
            first.setdefault(row.what, row)
            rows[row.what] += 1
    except InvalidInputError as error:
        yield Finding("record key", *slice_.group, frame.height, str(error))
    for what, row in first.items():
        said = f"a write would give this row another {what}: key={row.key!r} found={row.found!r} made={row.made!r}"
        yield Finding(what, *slice_.group, rows[what], said)


def _in_several(places: Sequence[pl.DataFrame]) -> list[str]:
    """The keys that are in several partitions, sorted."""
    if len(places) < 2:
        return []
    counts = pl.concat(places).group_by(RECORD_KEY).agg(pl.col(PARTITION_PATH).n_unique().alias("partitions"))
    return sorted(counts.filter(pl.col("partitions") > 1)[RECORD_KEY].to_list())
