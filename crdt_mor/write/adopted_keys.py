"""Keys that Hudi wrote, compared with where we would put them: a row that is written again elsewhere would live twice.

Hudi keeps what decides a key's file group in the options of its writers: how many buckets there are, and which columns
the hash is of. Users tell us in `hoodie.properties`, and may be wrong. So before this process writes to a table that
Hudi made, some rows of it are keyed again: their record key, partition path and bucket have to be those that they have.
`services.verify` asks that of every row that a snapshot shows.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from operator import itemgetter
from typing import Final

import polars as pl
import pyarrow as pa

from crdt_mor.errors import InvalidInputError, SnapshotExpiredError, UnsupportedFeatureError
from crdt_mor.events.session import Session
from crdt_mor.ground.threads import REQUESTS, in_threads
from crdt_mor.laws.merging import merging_of
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY, DataBlock
from crdt_mor.model.config import TableConfig
from crdt_mor.model.config_properties import BUCKETS, HASH_FIELDS, PARTITION_BUCKETS
from crdt_mor.model.keys import buckets
from crdt_mor.model.names import bucket_of_file_id
from crdt_mor.model.slices import FileSlice, fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import DataFile
from crdt_mor.read.open_slice import base_source, open_slice

FILES_MAX: Final = 32
"""Files from which rows are taken, of as many file groups."""

ROWS_MAX: Final = 1_000
"""Rows that are taken from each."""

_COUNTS_TRIED: Final = 1 << 10
"""Numbers of buckets among which the one is looked for that fits."""

_HASHING_FOLDER: Final = ".hoodie/.bucket_index/partition_bucket_index_meta"
"""Where Hudi keeps the numbers of buckets of single partitions."""

_COPY: Final = "copy it: Table.create(...).append(Table.open(...).scan())"


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A row that would be keyed otherwise if it were written again.

    what: "record key", "partition path" or "bucket". found, made: the one that it has, and the one that it would get;
    None: there is no such bucket.
    """

    what: str
    key: str
    found: object
    made: object
    partition: str
    file_id: str


def require_placed_keys(session: Session, value: Timeline) -> None:
    """Raise where rows that Hudi wrote would be put elsewhere if they were written again, as far as a sample tells.

    A process looks once, when it begins to write, and again for what it adopts later.
    """
    if session.config.ours:
        return
    is_first = session.keys_checked < 0
    completions = session.views.completions(value) if is_first else value.completions
    new = [c for c in completions if c.adopted and c.version > session.keys_checked]
    if is_first:
        _refuse_counts_of_partitions(session)
    if new:
        paths = {file.path for completion in new for file in completion.files}
        _require_placed(session, value, paths)
    session.keys_checked = value.version


def _require_placed(session: Session, value: Timeline, paths: Collection[str]) -> None:
    """Raise where rows of some of these files are misplaced, as far as the value shows them."""
    config = session.config
    live = fold_slices(session.views.snapshot_completions(value))
    written = [(slice_, file) for slice_ in live for file in slice_.files if file.path in paths]
    types = merging_of(config, value.schema).columns.schema
    if absent := [name for name in key_columns(config) if name not in types]:
        raise UnsupportedFeatureError(
            f"the key or partition of this table is of fields in columns, which this release only reads: {_COPY}. "
            f"fields={absent}"
        )

    def some_rows(item: tuple[FileSlice, DataFile]) -> list[tuple[FileSlice, pl.DataFrame]]:
        frames = _some_rows(session, *item)
        return [(item[0], frame.cast({name: types[name] for name in frame.columns})) for frame in frames]

    found = in_threads(some_rows, _spread(written), REQUESTS if session.is_far else None)
    rows = [row for some in found for row in some]
    for slice_, _ in written:
        number = bucket_of_file_id(slice_.file_id)
        if number is not None and config.buckets is not None and number >= config.buckets:
            raise InvalidInputError(
                "a file group of Hudi's is of a bucket beyond the number that hoodie.properties says, so that its rows "
                f"would live twice if they were written again: {_way(config, 'bucket', rows)}. bucket={number} "
                f"buckets={config.buckets} partition={slice_.partition!r} file_group={slice_.file_id}"
            )
    for slice_, frame in rows:
        wrong = next(misplaced_in(config, slice_, frame), None)
        if wrong is not None:
            raise _refusal(config, wrong, rows)


def _spread(files: Sequence[tuple[FileSlice, DataFile]]) -> list[tuple[FileSlice, DataFile]]:
    """One file of each of some file groups, of as many partitions as there are."""
    groups = {slice_.group: (slice_, file) for slice_, file in files}
    seen = Counter[str]()
    ranked = []
    for group, found in groups.items():
        ranked.append((seen[group[0]], found))
        seen[group[0]] += 1
    ranked.sort(key=itemgetter(0))  # the first of each partition, then the second of each
    first = [found for _, found in ranked[: max(FILES_MAX, len(seen))]]
    return first[:: -(-len(first) // FILES_MAX)] if first else []


def key_columns(config: TableConfig) -> list[str]:
    """The columns that say where a row is, and those that say where it would be put."""
    return list(dict.fromkeys([RECORD_KEY, PARTITION_PATH, *config.key.fields, *config.key.partition_fields]))


def _some_rows(session: Session, slice_: FileSlice, file: DataFile) -> Iterator[pl.DataFrame]:
    """A few rows of a file, where it has all columns of the key. What was cleaned meanwhile has none."""
    names = key_columns(session.config)
    try:
        if file.is_base:
            with base_source(session.store, file).open() as parquet:
                batch = next(parquet.iter_batches(ROWS_MAX, columns=names), None)
            if batch is not None and set(names) <= set(batch.schema.names):
                yield pl.DataFrame(pl.from_arrow(batch)).select(names)
            return
        blocks = open_slice(session.store, FileSlice(slice_.partition, slice_.file_id, None, (file,)), session.config)
    except SnapshotExpiredError:
        return
    for block in blocks.blocks:
        if isinstance(block, DataBlock) and block.given is None:
            rows = block.rows if isinstance(block.rows, pl.DataFrame) else pl.read_parquet(io.BytesIO(block.rows))
            if set(names) <= set(rows.columns):
                yield rows.select(names).head(ROWS_MAX)


def misplaced_in(config: TableConfig, slice_: FileSlice, frame: pl.DataFrame) -> Iterator[Misplaced]:
    """The rows of one file group that would be keyed otherwise."""
    if not frame.height:
        return
    data, key = frame.to_arrow(), config.key
    try:
        made, paths = key.record_keys(data), key.partition_paths(data)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"a row that Hudi wrote could not be written again: {error} Let Hudi write this table, or {_COPY}. "
            f"partition={slice_.partition!r} file_group={slice_.file_id}"
        ) from error
    compared = [
        ("record key", frame[RECORD_KEY], pl.Series(pl.from_arrow(made))),
        ("partition path", frame[PARTITION_PATH], pl.Series(pl.from_arrow(paths))),
    ]
    own = bucket_of_file_id(slice_.file_id)
    if own is not None and config.buckets is not None:
        of_file = pl.repeat(own, frame.height, dtype=pl.Int32, eager=True)
        compared.append(("bucket", of_file, pl.Series(buckets(made, key, config.buckets))))
    for what, found, expected in compared:
        for row in found.ne_missing(expected).arg_true():
            yield Misplaced(what, frame[RECORD_KEY][row], found[row], expected[row], *slice_.group)


def _refuse_counts_of_partitions(session: Session) -> None:
    """Raise where Hudi's partitions have numbers of buckets of their own, which this release does not follow."""
    if PARTITION_BUCKETS in session.config.properties or session.store.list(_HASHING_FOLDER):
        raise UnsupportedFeatureError(
            "partitions of this table have numbers of buckets of their own, which this release only reads: let Hudi "
            f"write it, or {_COPY}. folder={_HASHING_FOLDER}"
        )


def _refusal(
    config: TableConfig, wrong: Misplaced, sample: Sequence[tuple[FileSlice, pl.DataFrame]]
) -> InvalidInputError:
    """The error about a row that would live twice, with what would fit all rows that were looked at."""
    return InvalidInputError(
        f"Hudi gave a row another {wrong.what} than this release would, so that it would live twice if it were written "
        f"again: {_way(config, wrong.what, sample)}. "
        f"key={wrong.key!r} {wrong.what.replace(' ', '_')}={wrong.found!r} ours={wrong.made!r} "
        f"buckets={config.buckets} hash_fields={list(config.key.hash_fields or config.key.fields)} "
        f"partition={wrong.partition!r} file_group={wrong.file_id}"
    )


def _way(config: TableConfig, what: str, sample: Sequence[tuple[FileSlice, pl.DataFrame]]) -> str:
    """What to do about rows whose key, partition or bucket, `what`, is another one than would be made of them."""
    others = f"let Hudi write this table, or {_COPY}"
    if what != "bucket":
        return others
    if fitting := _fitting(config, sample):
        return f"this would fit the rows that were looked at, in hoodie.properties: {fitting}. Otherwise {others}"
    return f"no one number of buckets fits, as where {PARTITION_BUCKETS} gives partitions their own: {others}"


def _fitting(config: TableConfig, sample: Sequence[tuple[FileSlice, pl.DataFrame]]) -> str:
    """The properties with which all rows of a sample are where they would be put; empty where none are found."""
    numbered = [(bucket_of_file_id(slice_.file_id), frame[RECORD_KEY].to_arrow()) for slice_, frame in sample]
    texts = [(number, keys.cast(pa.string())) for number, keys in numbered if number is not None]
    if not texts:
        return ""
    least = 1 + max((number for number, _ in texts), default=0)
    counts = dict.fromkeys([config.buckets or least, *range(least, _COUNTS_TRIED)])
    fields = config.key.fields
    subsets = [fields, *(some for size in range(1, len(fields)) for some in combinations(fields, size))]
    for hashed in subsets:
        spec = replace(config.key, hash_fields=() if hashed == fields else hashed)
        for count in counts:
            if all((buckets(keys, spec, count) == number).all() for number, keys in texts):
                return f"{BUCKETS}={count}" + (f" {HASH_FIELDS}={','.join(hashed)}" if hashed != fields else "")
    return ""
