"""Check that Hudi's rows lie where this engine would put them, or a rewritten row would live twice.

The options of Hudi's writers decide a key's file group. Users repeat them in `hoodie.properties`, perhaps wrongly. So
before the first write to a table made by Hudi, `require_placed_keys` keys a sample of rows again.
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
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import DataFile
from crdt_mor.read.open_slice import base_source, open_slice

FILES_MAX: Final = 32
"""Sampled files, each of another file group."""

ROWS_MAX: Final = 1_000
"""Sampled rows per file."""

_COUNTS_TRIED: Final = 1 << 10
"""Most bucket numbers tried for a hint in the error."""

_HASHING_FOLDER: Final = ".hoodie/.bucket_index/partition_bucket_index_meta"
"""Hudi's folder with the bucket numbers of single partitions."""

_COPY: Final = "copy it: Table.create(...).append(Table(...).scan())"


@dataclass(frozen=True, slots=True)
class MisplacedRow:
    """A row that would get another key, partition or bucket if it were written again.

    kind: "record key", "partition path" or "bucket".
    stored, computed: the stored and the recomputed value; None: there is no such bucket.
    """

    kind: str
    key: str
    stored: object
    computed: object
    partition: str
    file_id: str


def require_placed_keys(session: Session, value: Timeline) -> None:
    """Raise if sampled rows of Hudi would be written to another place.

    A process checks once when it begins to write, and later only newly adopted commits.
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
    config = session.config
    live = session.views.slices(value)
    written = [(slice_, file) for slice_ in live for file in slice_.files if file.path in paths]
    types = merging_of(config, value.schema).columns.schema
    if absent := [name for name in key_columns(config) if name not in types]:
        raise UnsupportedFeatureError(
            f"the key or partition of this table uses nested fields, which this release only reads: {_COPY}. "
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
                "Hudi has a file group with a bucket beyond the number in hoodie.properties; its rows would live twice "
                f"after a rewrite: {_way(config, 'bucket', rows)}. bucket={number} "
                f"buckets={config.buckets} partition={slice_.partition!r} file_group={slice_.file_id}"
            )
    for slice_, frame in rows:
        wrong = next(misplaced_rows(config, slice_, frame), None)
        if wrong is not None:
            raise _refusal(config, wrong, rows)


def _spread(files: Sequence[tuple[FileSlice, DataFile]]) -> list[tuple[FileSlice, DataFile]]:
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
    return list(dict.fromkeys([RECORD_KEY, PARTITION_PATH, *config.key.identity]))


def _some_rows(session: Session, slice_: FileSlice, file: DataFile) -> Iterator[pl.DataFrame]:
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


def misplaced_rows(config: TableConfig, slice_: FileSlice, frame: pl.DataFrame) -> Iterator[MisplacedRow]:
    if not frame.height:
        return
    data, key = frame.to_arrow(), config.key
    try:
        made, paths = key.record_keys(data), key.partition_paths(data)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"a row by Hudi cannot be rewritten: {error} Let Hudi write this table, or {_COPY}. "
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
            yield MisplacedRow(what, frame[RECORD_KEY][row], found[row], expected[row], *slice_.group)


def _refuse_counts_of_partitions(session: Session) -> None:
    if PARTITION_BUCKETS in session.config.properties or session.store.list(_HASHING_FOLDER):
        raise UnsupportedFeatureError(
            "partitions of this table have their own bucket numbers, which this release only reads: let Hudi "
            f"write it, or {_COPY}. folder={_HASHING_FOLDER}"
        )


def _refusal(
    config: TableConfig, wrong: MisplacedRow, sample: Sequence[tuple[FileSlice, pl.DataFrame]]
) -> InvalidInputError:
    return InvalidInputError(
        f"Hudi gave a row another {wrong.kind} than this release would; the row would live twice after a rewrite: "
        f"{_way(config, wrong.kind, sample)}. "
        f"key={wrong.key!r} {wrong.kind.replace(' ', '_')}={wrong.stored!r} ours={wrong.computed!r} "
        f"buckets={config.buckets} hash_fields={list(config.key.hash_fields or config.key.fields)} "
        f"partition={wrong.partition!r} file_group={wrong.file_id}"
    )


def _way(config: TableConfig, kind: str, sample: Sequence[tuple[FileSlice, pl.DataFrame]]) -> str:
    others = f"let Hudi write this table, or {_COPY}"
    if kind != "bucket":
        return others
    if fitting := _fitting(config, sample):
        return f"set in hoodie.properties: {fitting}. The sampled rows fit this. Otherwise {others}"
    return f"no single number of buckets fits; perhaps {PARTITION_BUCKETS} gives partitions their own: {others}"


def _fitting(config: TableConfig, sample: Sequence[tuple[FileSlice, pl.DataFrame]]) -> str:
    """Return the properties under which all sampled rows are placed right, or ""."""
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
