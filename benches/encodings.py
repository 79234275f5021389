"""What encodings of a Parquet file cost: which columns are worth a dictionary, and which codec is worth its bytes.

Of 1,000,000 rows in row groups of 131,072: processor time to encode with pyarrow and to decode with polars, the least
of some rounds in random order, and kilobytes.

    dictionaries   single columns, with zstd, with and without a dictionary
    codecs         the ten columns of the suite's tables, as a compaction encodes them, but for the codec
    integers       single columns of integers, as base files and blocks of logs have them, and as DELTA_BINARY_PACKED
                   without a codec, which is what they are not written in: Flink does not read it

    python benches/encodings.py          # three minutes
    python benches/encodings.py --small
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from benches.suite.worlds import World
from crdt_mor.format.base_file import ROW_GROUP_ROWS, incompressible_columns, repeating_columns

CODECS: Mapping[str, tuple[str, int | None]] = {
    "zstd, level 1": ("zstd", 1), "zstd, level 3": ("zstd", 3), "lz4": ("lz4", None), "snappy": ("snappy", None),
    "none": ("none", None),
}  # fmt: skip
CHANCE = np.random.default_rng(7)

Figures = tuple[float, float, float]
"""Milliseconds to encode and to decode, and kilobytes."""


def columns(rows: int) -> dict[str, pa.Array]:
    """Columns that repeat their values more and less often."""
    texts = {f"{count:,} texts": [f"value {i:05d}" for i in CHANCE.integers(0, count, rows)] for count in (500, 5_000)}
    return {
        **{name: pa.array(values) for name, values in texts.items()},
        "100 integers": pa.array(CHANCE.integers(0, 100, rows)),
        "10,000 prices": pa.array(CHANCE.integers(0, 10_000, rows) / 100),
        "20,000 integers": pa.array(CHANCE.integers(0, 20_000, rows)),
        "random floats": pa.array(CHANCE.random(rows)),
    }


def columns_of_integers(rows: int) -> dict[str, pa.Array]:
    """Integers of many and of few bits, in some order and in none."""
    moment = 1_700_000_000_000_000
    return {
        "ids, ascending": pa.array(np.arange(rows)),
        "ids in any order": pa.array(CHANCE.permutation(rows)),
        "ids in any order, of 32 bits": pa.array(CHANCE.permutation(rows).astype(np.int32)),
        "moments, ascending": pa.array(moment + np.cumsum(CHANCE.integers(0, 2_000_000, rows)), pa.timestamp("us")),
        "moments of a year, to the second": pa.array(moment + 10**6 * CHANCE.integers(0, 31_536_000, rows)),
        "numbers of 40 bits": pa.array(CHANCE.integers(0, 1 << 40, rows)),
        "numbers of 40 bits, 30 % null": pa.array(CHANCE.integers(0, 1 << 40, rows), mask=CHANCE.random(rows) < 0.3),
        "numbers of 64 bits": pa.array(CHANCE.integers(-(1 << 63), (1 << 63) - 1, rows)),
        "100 integers": pa.array(CHANCE.integers(0, 100, rows)),
        "days of ten years": pa.array(CHANCE.integers(16_000, 19_650, rows).astype(np.int32), pa.date32()),
        "small, one in 100 large": pa.array(CHANCE.integers(0, 1 << np.where(CHANCE.random(rows) < 0.01, 62, 12))),
    }


def measured(ways: Mapping[str, Callable[[], bytes]], rounds: int) -> dict[str, Figures]:
    """What each way of encoding costs, in rounds in which each is tried once."""
    files = {name: way() for name, way in ways.items()}
    encoded: dict[str, list[float]] = {name: [] for name in ways}
    decoded: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name in CHANCE.permutation(list(ways)):
            encoded[name].append(milliseconds(ways[name]))
            decoded[name].append(milliseconds(partial(decode, files[name])))
    return {name: (min(encoded[name]), min(decoded[name]), len(files[name]) / 1000) for name in ways}


def milliseconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1e3


def encode(
    table: pa.Table, codec: str, level: int | None, repeating: list[str], plain: list[str], *, packed: bool = False
) -> bytes:
    """The bytes of a Parquet file; the columns `plain` are not compressed. packed: all are DELTA_BINARY_PACKED."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table, sink, row_group_size=ROW_GROUP_ROWS, use_dictionary=repeating,
        compression={name: "none" if name in plain else codec for name in table.column_names},
        compression_level={name: level for name in table.column_names if name not in plain} if level else None,
        column_encoding=dict.fromkeys(table.column_names, "DELTA_BINARY_PACKED") if packed else None,
    )  # fmt: skip
    return bytes(sink.getvalue())


def decode(data: bytes) -> pl.DataFrame:
    return pl.scan_parquet(io.BytesIO(data)).collect()


def dictionaries(rows: int, rounds: int) -> None:
    print("| column | plain: encode, decode, kB | dictionary: encode, decode, kB | is given one |\n|---|---|---|---|")
    for name, values in columns(rows).items():
        table = pa.table({name: values})
        found = measured(
            {
                "plain": partial(encode, table, "zstd", 1, [], []),
                "dictionary": partial(encode, table, "zstd", 1, [name], []),
            },
            rounds,
        )
        given = "yes" if repeating_columns(pl.DataFrame(table)) else "no"
        print(f"| {name} | {said(found['plain'])} | {said(found['dictionary'])} | {given} |", flush=True)


def codecs(rows: int, rounds: int) -> None:
    table = World(rows=rows).data(np.arange(rows), 7)
    frame = pl.DataFrame(table)
    repeating = list(repeating_columns(frame))
    plain = list(incompressible_columns(frame, repeating))
    ways: dict[str, Callable[[], bytes]] = {
        name: partial(encode, table, codec, level, repeating, plain) for name, (codec, level) in CODECS.items()
    }
    ways["zstd, level 1, of every column"] = lambda: encode(table, "zstd", 1, repeating, [])
    print(f"\nnot compressed but where it says so: {', '.join(plain)}\n")
    print("| codec | encode, decode, kB |\n|---|---|")
    for name, figures in measured(ways, rounds).items():
        print(f"| {name} | {said(figures)} |", flush=True)


def integers(rows: int, rounds: int) -> None:
    print("\n| column | base file: encode, decode, kB | block of a log | DELTA_BINARY_PACKED |\n|---|---|---|---|")
    for name, values in columns_of_integers(rows).items():
        table = pa.table({name: values})
        frame = pl.DataFrame(table)
        repeating = list(repeating_columns(frame))
        plain = list(incompressible_columns(frame, repeating))
        found = measured(
            {
                "base": partial(encode, table, "zstd", 1, repeating, plain),
                "log": partial(encode, table, "lz4", None, repeating, []),
                "packed": partial(encode, table, "none", None, [], [], packed=True),
            },
            rounds,
        )
        print(f"| {name} | {' | '.join(said(found[way]) for way in ('base', 'log', 'packed'))} |", flush=True)


def said(figures: Figures) -> str:
    encoding, decoding, size = figures
    return f"{encoding:.1f} ms, {decoding:.1f} ms, {size:,.0f} kB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="seconds, to see that it runs")
    args = parser.parse_args()
    rows, rounds = (20_000, 1) if args.small else (1_000_000, 7)
    dictionaries(rows, rounds)
    codecs(rows, rounds)
    integers(rows, rounds)


if __name__ == "__main__":
    main()
