"""The readers of a snapshot: we, the floor, and the peers. Each gives rows in pieces that the caller keeps or drops.

    ours            `Table(uri)` and a scan
    floor           polars decoding the same columns and the key from the same bytes, and merging nothing
    hudi-rs         a reader of the same table
    DuckDB          the same merge in SQL over the same files; the faster of two queries
    polars, obvious everything concatenated, the last row of each key

Ours and the floor return the query's output: a polars frame, a pyarrow table with `string` columns, or a stream of such
batches. hudi-rs returns Arrow, DuckDB Arrow or a stream of it, the obvious polars a polars frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import polars as pl
import pyarrow as pa

import crdt_mor as mor
from benches.suite.sources import TIME, Sources
from crdt_mor.merge.kernel import to_arrow

KEY, GONE = "id", "_gone"
Pieces = Iterator[pl.DataFrame | pa.Table | pa.RecordBatch]
Read = Callable[[], Pieces]


@dataclass(frozen=True)
class Query:
    """What is asked of a snapshot: columns, a condition in SQL, and the type of the answer."""

    columns: tuple[str, ...]
    where: str | None = None
    output: Literal["polars", "arrow", "batches"] = "polars"

    @property
    def with_key(self) -> list[str]:
        """The columns and the key."""
        return list(dict.fromkeys([*self.columns, KEY]))


def rows_of(read: Read, query: Query) -> pl.DataFrame:
    """All rows of a peer, for comparing."""
    pieces = [piece if isinstance(piece, pl.DataFrame) else pl.DataFrame(pl.from_arrow(piece)) for piece in read()]
    return pl.concat([piece.select(sorted(query.columns)) for piece in pieces])


def fingerprint(rows: pl.DataFrame) -> tuple[int, int]:
    """Height and a hash that does not depend on the order of the rows."""
    return rows.height, int(rows.hash_rows().to_numpy().sum())


# --- ours and the floor -----------------------------------------------------------------------------------------------


def ours(sources: Sources, query: Query) -> Pieces:
    """The snapshot, the table opened for it."""
    scan = mor.Table(sources.table).scan(columns=list(query.columns), filter=query.where)
    if query.output == "polars":
        yield scan.to_polars()
    elif query.output == "arrow":
        yield scan.to_arrow()
    else:
        yield from scan.to_reader()


def floors(sources: Sources, query: Query) -> dict[str, Read]:
    """The floor in its several ways; the smallest counts."""
    found: dict[str, Read] = {}
    for kind in ("files", "buffers"):
        scans = partial(_scans, sources, query, kind == "buffers")
        if query.output == "polars":
            found[kind] = partial(_floor, scans, lambda frame: frame)
        elif query.output == "arrow":
            found[f"{kind}, as ours"] = partial(_floor, scans, to_arrow)
            found[f"{kind}, by pyarrow"] = partial(_floor, scans, _by_pyarrow)
        else:
            found[kind] = partial(_streamed, scans)
    return found


def _scans(sources: Sources, query: Query, buffers: bool) -> list[pl.LazyFrame]:
    """Unmerged scans: of all files in one where the columns allow it, or of bases and of buffers."""
    bases = list(sources.bases.values())
    inputs: list[list[Any]] = [bases] if bases else []
    by_columns: dict[tuple[str, ...], list[Any]] = {}
    for block in sources.blocks:
        by_columns.setdefault(block.columns, []).append(block.buffer if buffers else block.file)
    if bases and not buffers and len(by_columns) == 1:
        inputs = [[*bases, *next(iter(by_columns.values()))]]
    else:
        inputs += by_columns.values()
    scans = []
    for some in inputs:
        scan = pl.scan_parquet(some, glob=False)
        scan = scan if query.where is None else scan.filter(pl.sql_expr(query.where))
        names = query.with_key
        if len(by_columns) > 1:  # partial rows have not all columns
            names = [name for name in names if name in scan.collect_schema()]
        scans.append(scan.select(names))
    return scans


def _floor(scans: Callable[[], list[pl.LazyFrame]], convert: Callable[[pl.DataFrame], Any]) -> Pieces:
    frames = pl.collect_all(scans())
    yield convert(frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal", rechunk=False))


def _streamed(scans: Callable[[], list[pl.LazyFrame]]) -> Pieces:
    for scan in scans():
        for frame in scan.collect_batches(maintain_order=False):
            yield to_arrow(frame)


def _by_pyarrow(frame: pl.DataFrame) -> pa.Table:
    """View types cast by pyarrow, instead of what `to_arrow` does."""
    table = frame.to_arrow(compat_level=pl.CompatLevel.newest())
    text = [f.with_type(pa.string()) if pa.types.is_string_view(f.type) else f for f in table.schema]
    return table.cast(pa.schema(text))


# --- peers ------------------------------------------------------------------------------------------------------------


def hudi_rs(sources: Sources, query: Query) -> Pieces:
    """What hudi-rs reads of the table; it filters no rows."""
    from hudi import HudiReadOptions, HudiTableBuilder

    assert query.where is None
    options = HudiReadOptions().with_projection(list(query.columns))
    batches = HudiTableBuilder.from_base_uri(str(sources.table)).build().read(options)
    yield pa.Table.from_batches([pa.record_batch(batch) for batch in batches])


def polars_obvious(sources: Sources, query: Query) -> Pieces:
    """Concatenate what was written in the order of the commits; the last row of a key counts, unless it is a delete."""
    where = pl.lit(True) if query.where is None else pl.sql_expr(query.where)
    needed = [*query.with_key, *_needed(sources, query)]
    parts = [pl.scan_parquet(path, glob=False).select([*needed, TIME]) for path in sources.bases.values()]
    if not sources.timed:
        parts = [part.with_columns(pl.lit("").alias(TIME)) for part in parts]
    gone = sources.deletes.lazy().with_columns(pl.lit(True).alias(GONE))
    for instant in sorted({block.instant for block in sources.blocks} | set(sources.deletes[TIME].unique())):
        parts.append(gone.filter(pl.col(TIME) == instant))
        for block in sources.blocks:
            if block.instant == instant:
                scan = pl.scan_parquet(block.buffer)
                parts.append(scan.select([name for name in [*needed, TIME] if name in block.columns]))
    every = pl.concat(parts, how="diagonal")
    if sources.world.merge == "partial":
        spent = sources.deletes.lazy().group_by(KEY).agg(pl.col(TIME).max().alias("_deleted"))
        left = every.filter(pl.col(GONE).is_null()).join(spent, on=KEY, how="left", maintain_order="left")
        left = left.filter(pl.col("_deleted").is_null() | (pl.col(TIME) > pl.col("_deleted")))
        last = left.group_by(KEY).agg(pl.col([n for n in needed if n != KEY]).drop_nulls().last())
    else:
        by = ["stamp"] if sources.world.merge == "ordering" else [TIME] if sources.timed else []
        ordered = every.sort(by, maintain_order=True) if by else every
        last = ordered.unique(KEY, keep="last", maintain_order=False).filter(pl.col(GONE).is_null())
    yield last.filter(where).select(query.columns).collect()


def duckdb_sql(sources: Sources, query: Query) -> dict[str, Read]:
    """The merge in SQL, in the ways that are worth trying."""
    merge = sources.world.merge
    names = [*query.with_key, *_needed(sources, query)]
    text, rank = ", ".join(names), f"{'stamp DESC, ' if merge == 'ordering' else ''}{TIME} DESC"
    logs = f"read_parquet({[block.file for block in sources.blocks]}, union_by_name = {merge == 'partial'})"
    time = TIME if sources.timed else f"'' AS {TIME}"
    base = f"SELECT {text}, {time}, false AS {GONE} FROM read_parquet({list(sources.bases.values())})"
    late = f"""SELECT {text}, {TIME}, false AS {GONE} FROM {logs}
        UNION ALL BY NAME SELECT *, true AS {GONE} FROM '{sources.delete_file}'"""
    every = f"{base} UNION ALL BY NAME {late}" if sources.bases else late
    wanted = f"SELECT {', '.join(query.columns)}"
    last = f"QUALIFY row_number() OVER (PARTITION BY {KEY} ORDER BY {rank}) = 1"
    where = f"WHERE {query.where or 'true'}"
    ways = {}
    if merge == "partial":
        values = ", ".join(f"arg_max({name}, {TIME}) AS {name}" for name in names if name != KEY)
        spent = f"SELECT {KEY}, max({TIME}) AS t FROM '{sources.delete_file}' GROUP BY {KEY}"
        left = f"""SELECT e.* FROM ({every}) e LEFT JOIN ({spent}) s USING ({KEY})
            WHERE NOT {GONE} AND ({TIME} > t OR t IS NULL)"""
        ways["arg_max"] = f"{wanted} FROM (SELECT {KEY}, {values} FROM ({left}) GROUP BY {KEY}) {where}"
    else:
        ways["row_number"] = f"{wanted} FROM (SELECT * FROM ({every}) {last}) {where} AND NOT {GONE}"
    if merge == "latest" and sources.bases and not sources.timed:
        ways["anti join"] = f"""WITH won AS MATERIALIZED (SELECT * FROM ({late}) {last})
            {wanted} FROM won {where} AND NOT {GONE}
            UNION ALL {wanted} FROM ({base}) b ANTI JOIN won USING ({KEY}) {where}"""
    return {name: partial(_duckdb, sql, query.output == "batches") for name, sql in ways.items()}


def _duckdb(sql: str, streamed: bool) -> Pieces:
    if streamed:
        yield from _connection().sql(sql).to_arrow_reader()
    else:
        yield _connection().sql(sql).to_arrow_table()


@cache
def _connection() -> Any:
    """One for all calls, as somebody with many queries would have it."""
    import duckdb

    return duckdb.connect()


def _needed(sources: Sources, query: Query) -> list[str]:
    """Columns that the merge or the condition needs beside those asked for."""
    ordering = ["stamp"] if sources.world.merge == "ordering" else []
    named = pl.sql_expr(query.where).meta.root_names() if query.where else []
    return [name for name in dict.fromkeys([*ordering, *named]) if name not in query.with_key]
