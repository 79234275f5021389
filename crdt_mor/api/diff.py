"""Compare the rows of two tables, such as a table and its copy, at given moments.

    file groups    of a table in two places: equal files are skipped without reading rows
    buckets        if both tables hash keys alike, only buckets that may share keys are read together
    parts          more than `PART_BYTES` of files are read once per part of their keys

Rows match by key, and by partition if both tables have the same partition columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Final

import polars as pl

from crdt_mor.api.reading import AsOf, value_at
from crdt_mor.api.scan import Scan
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import bucket_of_file_id
from crdt_mor.model.policies import plural
from crdt_mor.model.slices import FileSlice
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.store.across import is_same
from crdt_mor.write.named import shown_config

PART_BYTES: Final = 64 << 20
"""Bytes of files behind the rows in memory, of both tables together."""

KEYS_NAMED: Final = 10
"""Most keys named per kind of difference."""

DIFFERENCE: Final = "_difference"
"""A column: here, there or changed."""

_NUMBER: Final = "_crdt_number"

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Differences:
    """The result of `Table.diff`.

    Attributes:
        version, other_version: of the timelines.
        at, other_at: the compared moments, 17 digits.
        columns_here, columns_there: columns only in this table, and in the other.
        here, there: number of rows only in this table, and in the other.
        changed: number of rows with different values.
        key: columns that identify a row.
        keys_here, keys_there, keys_changed: first keys of these rows, at most 10 each.
        same_file_groups: number of file groups with equal bytes; their rows were not read.
        rows, other_rows: number of rows read.
    """

    version: int
    other_version: int
    at: InstantTime
    other_at: InstantTime
    columns_here: tuple[str, ...]
    columns_there: tuple[str, ...]
    here: int
    there: int
    changed: int
    key: tuple[str, ...]
    keys_here: tuple[tuple[object, ...], ...]
    keys_there: tuple[tuple[object, ...], ...]
    keys_changed: tuple[tuple[object, ...], ...]
    same_file_groups: int
    rows: int
    other_rows: int

    @property
    def is_equal(self) -> bool:
        """True if both tables show the same rows and columns."""
        return not (self.columns_here or self.columns_there or self.here or self.there or self.changed)

    def __str__(self) -> str:
        if self.is_equal:
            return f"equal: {self.rows:,} rows compared, {self.same_file_groups:,} file groups the same by their bytes"
        columns = [f"columns only {where} {list(found)}" for where, found in self._columns if found]
        rows = f"{plural(self.here, 'row', ',')} only here, {self.there:,} only there, {self.changed:,} changed"
        return "; ".join([rows, *columns])

    @property
    def _columns(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        return ("here", self.columns_here), ("there", self.columns_there)


def diff(one: Snapshot, two: Snapshot, columns: str | Sequence[str] | None) -> Differences:
    return diff_with_keys(one, two, columns, KEYS_NAMED)[0]


def diff_with_keys(
    one: Snapshot, two: Snapshot, columns: str | Sequence[str] | None, most: int | None
) -> tuple[Differences, pl.DataFrame]:
    """Return also the first `most` keys of each kind, None for all."""
    if one.moment is not None and two.moment is not None:  # one moment for both
        one, two = (replace(side, moment=max(one.moment, two.moment)) for side in (one, two))
    comparison = _Comparison(one, two, [columns] if isinstance(columns, str) else columns, most)
    comparison.run()
    return comparison.differences(), comparison.keys()


def sealed(session: Session, as_of: AsOf | None, name: str = "as_of") -> Snapshot:
    return Snapshot.seal(session, *value_at(session, as_of, name, look=True))


class _KeySample:
    """The first `most` keys of a kind of difference, None for all."""

    def __init__(self, none: pl.DataFrame, most: int | None) -> None:
        self.count = 0
        self.keys = none
        self._most = most

    def add(self, keys: pl.DataFrame) -> None:
        self.count += keys.height
        left = None if self._most is None else self._most - self.keys.height
        if left != 0 and keys.height:
            self.keys = self.keys.vstack(keys.sort(keys.columns).slice(0, left))


class _Comparison:
    def __init__(self, one: Snapshot, two: Snapshot, columns: Sequence[str] | None, most: int | None) -> None:
        self._sides = one, two
        configs = [shown_config(side.session.config, side.names) for side in self._sides]
        self._aligned = _require_same_key(*configs)
        self._key = (*configs[0].key.fields, *self._partition_fields(configs))
        ours, theirs = (side.shown for side in self._sides)
        self._only = [_missing(ours, theirs), _missing(theirs, ours)]
        common = [name for name in ours.declared.names if name in theirs]
        if columns is not None:
            self._only = [(), ()]
            common = _chosen(columns, common)
        self._values = [name for name in common if name not in self._key]
        self._types = _common_types(self._sides, [*self._key, *self._values])
        self._modulus = _modulus(configs[0], configs[1], self._sides)
        self._samples = {kind: _KeySample(self._empty.select(self._key), most) for kind in ("here", "there", "changed")}
        self._rows = [0, 0]
        self._same = 0

    def _partition_fields(self, configs: Sequence[TableConfig]) -> list[str]:
        key = configs[0].key
        return [one for one in key.partition_by if self._aligned and isinstance(one, str) and one not in key.fields]

    def run(self) -> None:
        for slices in self._classes():
            self._compare(self._differing(slices))

    def keys(self) -> pl.DataFrame:
        return pl.concat(
            sample.keys.select(pl.lit(kind).alias(DIFFERENCE), pl.all()) for kind, sample in self._samples.items()
        )

    def differences(self) -> Differences:
        one, two = self._sides
        here, there, changed = self._samples.values()
        return Differences(
            version=one.value.version,
            other_version=two.value.version,
            at=one.cut.time,
            other_at=two.cut.time,
            columns_here=self._only[0],
            columns_there=self._only[1],
            here=here.count,
            there=there.count,
            changed=changed.count,
            key=self._key,
            keys_here=tuple(here.keys.head(KEYS_NAMED).rows()),
            keys_there=tuple(there.keys.head(KEYS_NAMED).rows()),
            keys_changed=tuple(changed.keys.head(KEYS_NAMED).rows()),
            same_file_groups=self._same,
            rows=self._rows[0],
            other_rows=self._rows[1],
        )

    def _classes(self) -> Iterator[list[list[FileSlice]]]:
        parts: dict[int, list[list[FileSlice]]] = {}
        for number, side in enumerate(self._sides):
            for slice_ in side.slices:
                bucket = bucket_of_file_id(slice_.file_id) or 0
                parts.setdefault(bucket % self._modulus, [[], []])[number].append(slice_)
        return (parts[residue] for residue in sorted(parts))

    def _differing(self, slices: Sequence[Sequence[FileSlice]]) -> list[list[FileSlice]]:
        """Return the file slices with different bytes. Only for the same table in two places."""
        one, two = (side.value for side in self._sides)
        if self._sides[0].expiry_time != self._sides[1].expiry_time:
            return [list(of) for of in slices]
        if one.table_id is None or (one.table_id, one.schema, one.alterations) != (
            two.table_id, two.schema, two.alterations,
        ):  # fmt: skip
            return [list(of) for of in slices]
        stores = [side.session.store for side in self._sides]
        there = {slice_.group: slice_ for slice_ in slices[1]}
        same = {
            slice_.group
            for slice_ in slices[0]
            if slice_ == there.get(slice_.group)
            and all(is_same(stores[0], stores[1], file.path, file.size) for file in slice_.files)
        }
        self._same += len(same)
        return [[slice_ for slice_ in of if slice_.group not in same] for of in slices]

    def _compare(self, slices: Sequence[Sequence[FileSlice]]) -> None:
        size = sum(file.size for of in slices for slice_ in of for file in slice_.files)
        parts = -(-size // PART_BYTES)
        for part in range(parts):
            frames = [
                pl.concat([self._empty, *self._read(side, of, part, parts)])
                for side, of in zip(self._sides, slices, strict=True)
            ]
            self._rows = [rows + frame.height for rows, frame in zip(self._rows, frames, strict=True)]
            self._compare_rows(*frames)

    @property
    def _empty(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self._types)

    def _read(self, side: Snapshot, slices: Sequence[FileSlice], part: int, parts: int) -> Iterator[pl.DataFrame]:
        names = list(self._types)
        for frame in Scan(side.with_slices(slices), names, None, meta=False).frames() if slices else ():
            rows = frame.select(names).cast(self._types)  # type: ignore[arg-type]
            yield rows if parts == 1 else rows.filter(pl.struct(self._key).hash() % parts == part)

    def _compare_rows(self, here: pl.DataFrame, there: pl.DataFrame) -> None:
        """Compare rows, with all rows of each key present. A key has several rows if partition columns differ."""
        key = list(self._key)
        several = pl.concat([of.select(key).filter(of.select(key).is_duplicated()) for of in (here, there)]).unique()
        if several.is_empty():
            return self._compare_single(here, there)
        alone = [of.join(several, on=key, how="anti", nulls_equal=True) for of in (here, there)]
        self._compare_single(*alone)
        many = [of.join(several, on=key, how="semi", nulls_equal=True) for of in (here, there)]
        return self._compare_several(*many)

    def _compare_single(self, here: pl.DataFrame, there: pl.DataFrame) -> None:
        key = list(self._key)
        self._samples["here"].add(here.join(there, on=key, how="anti", nulls_equal=True).select(key))
        self._samples["there"].add(there.join(here, on=key, how="anti", nulls_equal=True).select(key))
        both = here.join(there, on=key, how="inner", nulls_equal=True, suffix=_NUMBER)
        unlike = [pl.col(name).ne_missing(pl.col(name + _NUMBER)) for name in self._values]
        if unlike:
            self._samples["changed"].add(both.filter(pl.any_horizontal(unlike)).select(key))

    def _compare_several(self, here: pl.DataFrame, there: pl.DataFrame) -> None:
        counts = [_by_key(of, len(self._key)) for of in (here, there)]
        unmatched: dict[str, list[Key]] = {kind: [] for kind in self._samples}
        for key in counts[0] | counts[1]:
            rows = [count.get(key, (key, Counter()))[1] for count in counts]
            only_here, only_there = (rows[0] - rows[1]).total(), (rows[1] - rows[0]).total()
            values = (counts[0].get(key) or counts[1][key])[0]
            many = {
                "here": max(0, only_here - only_there),
                "there": max(0, only_there - only_here),
                "changed": min(only_here, only_there),
            }
            for kind, number in many.items():
                unmatched[kind] += [values] * number
        schema = {name: self._types[name] for name in self._key}
        for kind, keys in unmatched.items():
            self._samples[kind].add(pl.DataFrame(keys, schema=schema, orient="row"))


def _by_key(rows: pl.DataFrame, fields: int) -> dict[Hashable, tuple[Key, Counter[str]]]:
    found: dict[Hashable, tuple[Key, Counter[str]]] = {}
    for row in rows.iter_rows():
        key, values = row[:fields], repr(row[fields:])
        found.setdefault(repr(key), (key, Counter()))[1][values] += 1
    return found


def _require_same_key(one: TableConfig, two: TableConfig) -> bool:
    if one.key.fields != two.key.fields:
        raise InvalidInputError(
            "tables are compared by key, and the key columns differ: compare the results of their scans instead. "
            f"key={list(one.key.fields)} other_key={list(two.key.fields)}"
        )
    return one.key.partition_by == two.key.partition_by


def _missing(one: TableSchema, two: TableSchema) -> tuple[str, ...]:
    return tuple(name for name in one.declared.names if name not in two)


def _chosen(columns: Sequence[str], common: Sequence[str]) -> list[str]:
    both = {*common}
    unknown = [name for name in columns if name not in both]
    if unknown:
        raise InvalidInputError(f"some columns are not in both tables. columns={unknown} both={list(common)}")
    return list(columns)


def _common_types(sides: Sequence[Snapshot], names: Sequence[str]) -> Mapping[str, pl.DataType]:
    schemas = [Scan(side, names, None, meta=False).polars_schema for side in sides]
    types: dict[str, pl.DataType] = {}
    for name in names:
        found = [of[name] for of in schemas]
        cause: Exception | None = None
        try:
            types[name] = pl.concat(
                [pl.DataFrame(schema={name: kind}) for kind in found], how="vertical_relaxed"
            ).schema[name]
        except pl.exceptions.PolarsError as error:
            cause = error
        if cause is not None or {pl.String} < set(found) - {pl.Categorical, pl.Enum}:
            raise InvalidInputError(
                "the types of a column in the two tables cannot be compared: leave the column out, columns=[…]. "
                f"column={name} types={[str(kind) for kind in found]}"
            ) from cause
    return types


def _modulus(one: TableConfig, two: TableConfig, sides: Sequence[Snapshot]) -> int:
    """Return a modulus that puts a key's buckets of both tables into the same class; 1 if unknown."""
    types = [[side.shown.stored.field(name).type for name in one.key.fields] for side in sides]
    elsewhere = any(side.value.foreign_group is not None for side in sides)
    if elsewhere or types[0] != types[1] or one.buckets is None or two.buckets is None:
        return 1
    return gcd(one.buckets, two.buckets)
