"""What a payload costs: merging the touched keys of one file slice, beside overwrite-latest on the same rows.

Rows of ten columns, one of which has the payload; a base file and ten log blocks. Two shapes: a tenth of the rows is
touched, as in a slice before its compaction; and all of them are. Overwrite-latest drops base rows inside the scan, a
payload must look at them: the bar is twice its cost. `join alone` is the payload without its polars expression, all
rows touched, a tenth as many. All of it decodes the files, as readers do.

    python benches/merge.py           # about two minutes
    python benches/merge.py --small
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from benches.suite.timing import seconds
from crdt_mor import Dot, Payload, payloads
from crdt_mor.columns.schema import TableSchema
from crdt_mor.format.base_file import repeating_columns, write_parquet
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.laws.merging import Merging, lift, merging_of
from crdt_mor.laws.resolve import reference
from crdt_mor.merge.blocks import DataBlock, Slice
from crdt_mor.merge.kernel import merge
from crdt_mor.merge.rule import Member, MergeRule
from crdt_mor.model.config import TableConfig
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.merge_spec import ColumnMerge, MergeSpec
from crdt_mor.write.log_files import stored_table

ROUNDS = 7
BLOCKS = 10
META = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_partition_path", "_hoodie_file_name")
CHANCE = np.random.default_rng(7)


def whole(count: int) -> pl.Series:
    return pl.Series(CHANCE.integers(-1000, 1000, count))


def text(count: int) -> pl.Series:
    return pl.Series(CHANCE.integers(0, 10**6, count)).cast(pl.String)


def tags(count: int) -> pl.Series:
    return pl.Series([[f"tag{x}" for x in row] for row in CHANCE.integers(0, 20, (count, 3)).tolist()])


def pairs(count: int) -> pl.Series:
    entries = [[(f"k{x}", x) for x in set(row)] for row in CHANCE.integers(0, 9, (count, 3)).tolist()]
    return pl.Series(pl.from_arrow(pa.array(entries, pa.map_(pa.string(), pa.int64()))))


LIST = pa.list_(pa.string())
OTHERS: dict[str, tuple[pa.DataType, Callable[[int], pl.Series]]] = {
    "a": (pa.int64(), whole), "b": (pa.int64(), whole), "c": (pa.int64(), whole),
    "d": (pa.float64(), lambda n: whole(n) / 7), "e": (pa.float64(), lambda n: whole(n) / 7),
    "f": (pa.string(), text), "g": (pa.string(), text), "h": (pa.string(), text),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A payload, the type of its column, and how values are made."""

    payload: Payload
    kind: pa.DataType
    make: Callable[[int], pl.Series]


CASES = [
    Case(payloads.Last(), pa.int64(), whole),
    Case(payloads.First(), pa.int64(), whole),
    Case(payloads.Max(), pa.int64(), whole),
    Case(payloads.Min(), pa.string(), text),
    Case(payloads.Any(), pa.bool_(), lambda n: whole(n) > 0),
    Case(payloads.All(), pa.bool_(), lambda n: whole(n) > 0),
    Case(payloads.Counter(), pa.int64(), whole),
    Case(payloads.Counter(), pa.decimal128(18, 2), lambda n: whole(n).cast(pl.Decimal(18, 2))),
    Case(payloads.GrowOnlySet(), LIST, tags),
    Case(payloads.ORSet(), LIST, tags),
    Case(payloads.MVRegister(), LIST, text),
    Case(payloads.MapLast(), pa.map_(pa.string(), pa.int64()), pairs),
    Case(payloads.EventList(), LIST, tags),
    Case(payloads.Distinct(), pa.int64(), text),
    Case(payloads.Quantiles(), pa.list_(pa.float64()), lambda n: whole(n).cast(pl.Float64)),
]


def encoded(table: pa.Table, *, log_block: bool = False) -> memoryview:
    """Parquet as tables have it."""
    repeating = repeating_columns(pl.DataFrame(pl.from_arrow(table)))
    return write_parquet(table, repeating=repeating, log_block=log_block)


def slice_of(case: Case, how: Merging, keys: int, touched: int, folder: Path) -> Slice:
    """A base with each key and ten blocks, in which each of the touched ones stands once."""
    name = case.payload.name.replace("/", "_") + str(case.kind).replace("[", "_")[:8]
    base = folder / f"{name}_{keys}.parquet"
    table = rows(case, how, np.arange(keys), 0)
    stateless = [c for c in table.column_names if c.startswith("_crdt_") and table[c].null_count == keys]
    base.write_bytes(encoded(table.drop_columns(stateless)))
    shuffled = CHANCE.permutation(keys)[:touched]
    parts = [np.sort(shuffled[i::BLOCKS]) for i in range(BLOCKS)]
    blocks = [
        DataBlock(instant(i), encoded(rows(case, how, part, i), log_block=True)) for i, part in enumerate(parts, 1)
    ]
    return Slice(ParquetSource.file(str(base)), instant(0), tuple(blocks))


def instant(number: int) -> str:
    return f"202601010000{number:05d}"


def rows(case: Case, how: Merging, keys: np.ndarray, number: int) -> pa.Table:
    """Rows as a file holds them: states beside what they show."""
    key = pl.Series("id", keys).cast(pl.String).str.zfill(10)
    dot = Dot(pl.lit(int(instant(number)), pl.Int64), pl.int_range(len(keys), dtype=pl.Int32), pl.lit(""))
    others = {name: make(len(keys)) for name, (_, make) in OTHERS.items()}
    written = pl.DataFrame({"id": key, "v": case.make(len(keys)), **others})
    shown = how.rule.show(lift(written, how, dot))
    if number == 0:
        shown = how.rule.settle(shown, seen=True)  # as a compaction does beside which nothing is pending
    meta = pl.DataFrame({c: pl.repeat(instant(number), len(keys), eager=True) for c in META})
    return stored_table(meta.with_columns(key.alias("_hoodie_record_key")).hstack(shown), how.schema)


def merging_of_case(case: Case) -> Merging:
    spec = MergeSpec(columns=(ColumnMerge(("v",), reference(case.payload)),))
    others = [(name, kind) for name, (kind, _) in OTHERS.items()]
    schema = TableSchema.of(pa.schema([("id", pa.string()), ("v", case.kind), *others]))
    return merging_of(TableConfig("bench", KeySpec(("id",)), spec, 1), schema.to_json())


def without_merge(payload: Payload) -> Payload:
    """The same payload, as it is where its author writes `join` alone."""
    cls = type(payload)
    slow = type(cls.__name__, (cls,), {"merge": Payload.merge})
    found: Payload = slow(**payload.parameters())
    return found


def measure(case: Case, keys: int, folder: Path) -> list[float]:
    """Seconds for a million rows of base and logs: overwrite-latest and payload, a tenth of `keys` touched; the same, a
    fifth as many keys and all of them touched; and `join` alone."""
    how = merging_of_case(case)
    member = how.rule.members[0]
    slow = replace(how.rule, members=(Member(("v",), without_merge(case.payload), member.kind, member.hidden),))

    def read(files: Slice, rule: MergeRule) -> Callable[[], object]:
        return lambda: merge(files, rule, how.columns, select=["id", "v", *OTHERS])

    tenth, every = slice_of(case, how, keys, keys // 10, folder), slice_of(case, how, keys // 5, keys // 5, folder)
    few = slice_of(case, how, keys // 50, keys // 50, folder)

    def each(*works: Callable[[], object], rows: float) -> list[float]:
        return [1e6 * taken / rows for taken in seconds(*works, rounds=ROUNDS, chance=CHANCE)]

    found = each(read(tenth, MergeRule()), read(tenth, how.rule), rows=1.1 * keys)
    found += each(read(every, MergeRule()), read(every, how.rule), rows=0.4 * keys)
    return found + each(read(few, slow), rows=0.04 * keys)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a size of seconds")
    keys = 25_000 if parser.parse_args().small else 1_000_000
    print("million rows a second, and what the payload costs, as a multiple of overwrite-latest\n")
    print(f"{'':33}  {f'a tenth of {keys:,} touched':^26}  {f'all of {keys // 5:,} touched':^26}")
    print(f"{'payload':14} {'column':18}" + f"  {'latest':>8} {'payload':>8} {'cost':>8}" * 2 + "  join alone")
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            *taken, joined = measure(case, keys, Path(folder))
            pairs = [
                f"{1 / latest:8.2f} {1 / payload:8.2f} {payload / latest:7.2f}x"
                for latest, payload in zip(taken[::2], taken[1::2], strict=True)
            ]
            print(f"{case.payload.name:14} {str(case.kind)[:18]:18}  {'  '.join(pairs)}  {1 / joined:10.3f}")


if __name__ == "__main__":
    main()
