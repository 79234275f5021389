"""CPU time of each verb on two rows, by the number of columns: no verb may take the square of it.

The ratio is the time at the most columns divided by the time at the fewest. `!` marks a ratio above 1.5 times the ratio
of the columns; at 20 times as many columns, the square is 400. All verbs run once on a narrow table first, so imports
do not count; threads of polars and pyarrow do. The tables have one bucket.

    python benches/wide.py
    python benches/wide.py --columns 250 1000 5000
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import crdt_mor as mor
from crdt_mor.payloads import Max

CHECKS = 100
"""A table may have 200 rules together."""

Calls = Iterator[tuple[str, Callable[[], object]]]
"""Names of verbs and their calls. Preparations in a generator do not count."""


def every(folder: Path, rows: pa.Table) -> Calls:
    for calls in (loads, writes, reads, upkeep, payloads, schemas):
        yield from calls(made_folder(folder / calls.__name__), rows)


def made_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def loads(folder: Path, rows: pa.Table) -> Calls:
    pq.write_table(rows, folder / "rows.parquet")
    pyarrow.csv.write_csv(rows, folder / "rows.csv")
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows.to_pylist())))
    yield "create", lambda: mor.Table.create(folder / "table", rows.schema, key="id", buckets=1)
    table = mor.Table(folder / "table")
    for form in ("parquet", "csv", "jsonl"):
        file = folder / f"rows.{form}"
        yield f"create_from, {form}", functools.partial(mor.Table.create_from, folder / form, file, key="id", buckets=1)
        yield f"upsert, {form}", functools.partial(lambda file: table.upsert(mor.read_files(file)), file)


def writes(folder: Path, rows: pa.Table) -> Calls:
    table, names = made(folder, rows), columns(rows)
    yield "upsert", lambda: table.upsert(rows)
    yield "append", lambda: table.append(rows.set_column(0, "id", pa.array(["c", "d"])))
    yield "update, 1 column", lambda: table.update({"c0": "c0 + 1"}, where="id = 'a'")
    yield "update, n columns", lambda: table.update({name: f"{name} + 1" for name in names})
    yield "update by n columns", lambda: table.update({"c0": "1"}, where=" AND ".join(f"{n} IS NULL" for n in names))
    yield "merge, all", lambda: all_set(table.merge(rows)).execute()
    given = {name: f"source.{name} + target.{name}" for name in names}
    yield "merge, n expressions", lambda: table.merge(rows).when_matched_update(given).execute()
    inserted = {name: f"source.{name}" for name in names} | {"id": "concat(source.id, 'x')"}
    yield "merge, n inserted", lambda: table.merge(rows).when_not_matched_insert(inserted).execute()
    yield "delete, a filter", lambda: table.delete(where="c1 > 1e9")
    yield "delete, a key", lambda: table.delete(keys=["d"])
    yield "transaction", lambda: in_transaction(table, rows)
    yield "overwrite", lambda: table.overwrite(rows)


def all_set(merge: mor.MergeInto) -> mor.MergeInto:
    return merge.when_matched_update_all().when_not_matched_insert_all()


def in_transaction(table: mor.Table, rows: pa.Table) -> None:
    with table.transaction(isolation="serializable") as changes:
        changes.upsert(rows)
        changes.update({"c0": "c0 + 1"})
        changes.delete(keys=["b"])


def reads(folder: Path, rows: pa.Table) -> Calls:
    table = made(folder, rows)
    first = table.version
    table.upsert(rows.set_column(1, "c0", pa.array([7.0, 8.0])))
    yield "open", lambda: mor.Table(folder / "table").schema
    yield "scan, all columns", lambda: table.scan().to_arrow()
    yield "scan, 1 column", lambda: table.scan(columns=["c0"], filter="c0 > 1").to_arrow()
    yield "explain", lambda: table.scan(filter="id = 'a'").explain()
    yield "changes", lambda: table.changes(since=first).to_arrow()
    yield "changes, images", lambda: table.changes(since=first, images=True).to_arrow()
    yield "changes, raw", lambda: table.changes(since=first, raw=True).to_arrow()
    yield "diff", lambda: table.diff(first, table.version).to_arrow()
    yield "why", lambda: table.why("a")
    yield "verify", table.verify
    yield "verify, deep", lambda: table.verify(deep=True)


def upkeep(folder: Path, rows: pa.Table) -> Calls:
    table = made(folder, rows)
    table.upsert(rows)
    yield "mirror, delta", lambda: table.mirror("delta")
    yield "mirror, iceberg", lambda: table.mirror("iceberg")
    yield "compact", table.maintenance.compact
    table.upsert(rows)
    yield "compact again", table.maintenance.compact
    table.delete(keys=["b"])
    yield "mirror, delta again", lambda: table.mirror("delta")
    yield "mirror, iceberg again", lambda: table.mirror("iceberg")
    yield "copy", lambda: table.copy(folder / "copy")
    yield "restore", lambda: table.maintenance.restore(table.version - 2)
    yield "erase, a row", lambda: table.maintenance.erase(keys=["a"])
    table.upsert(rows)
    yield "erase, n columns", lambda: table.maintenance.erase(keys=["a"], columns=columns(rows))
    yield "migrate", lambda: table.maintenance.migrate(folder / "migrated", buckets=2)


def payloads(folder: Path, rows: pa.Table) -> Calls:
    partial = made(folder, rows, merge=mor.PartialUpdate())
    yield "partial update, 1 column", lambda: partial.upsert(rows.select(["id", "c1"]))
    yield "partial update, n columns", lambda: partial.upsert(rows)
    yield "partial update, read", lambda: partial.scan().to_arrow()
    yield "partial update, compact", partial.maintenance.compact
    merge: Mapping[str, mor.Payload] = {name: Max() for name in columns(rows)}
    joined = made(made_folder(folder / "joined"), rows, merge=merge)
    yield "n payloads, upsert", lambda: joined.upsert(rows)
    yield "n payloads, read", lambda: joined.scan().to_arrow()
    yield "n payloads, compact", joined.maintenance.compact


def schemas(folder: Path, rows: pa.Table) -> Calls:
    table, names = made(folder, rows), columns(rows)
    few = names[:CHECKS]
    checks = {f"check {name}": f"{name} < 1e9" for name in few}
    yield "add_rules, checks", lambda: table.add_rules(mor.Rules(check=checks))
    yield "upsert under checks", lambda: table.upsert(rows)
    yield "add_rules, defaults", lambda: table.add_rules(mor.Rules(default=dict.fromkeys(few, 1.0)))
    yield "upsert of defaults", lambda: table.upsert(rows.drop(few))
    added = pa.table(dict(zip(rows.column_names, rows.columns, strict=True)) | {f"more {n}": rows[n] for n in names})
    yield "upsert of new columns", lambda: table.upsert(added, schema_mode="merge")
    plain = made(made_folder(folder / "plain"), rows)
    yield "alter, n renamed", lambda: plain.alter(rename={name: f"new {name}" for name in names})
    yield "alter, n comments", lambda: plain.alter(comment={f"new {name}": "a comment" for name in names})
    yield "scan, n renamed", lambda: plain.scan().to_arrow()
    renamed = rows.rename_columns(["id", *(f"new {name}" for name in names)])
    yield "upsert, n renamed", lambda: plain.upsert(renamed)
    yield "alter, n dropped", lambda: plain.alter(drop=[f"new {name}" for name in names])


def made(folder: Path, rows: pa.Table, merge: mor.Merge | None = None) -> mor.Table:
    table = mor.Table.create(folder / "table", rows.schema, key="id", buckets=1, merge=merge)
    table.upsert(rows)
    return table


def columns(rows: pa.Table) -> list[str]:
    return [name for name in rows.column_names if name != "id"]


def measured(folder: Path, counts: Sequence[int]) -> Iterator[tuple[str, list[float]]]:
    """Yield each verb and its CPU seconds on tables of so many columns."""
    for calls in zip(*(every(made_folder(folder / str(count)), rows_of(count)) for count in counts), strict=True):
        yield calls[0][0], [seconds(call) for _, call in calls]


def rows_of(count: int) -> pa.Table:
    return pa.table({"id": ["a", "b"]} | {f"c{number}": [float(number), None] for number in range(count)})


def seconds(call: Callable[[], object]) -> float:
    """Return the CPU seconds of a call.

    Python's garbage collector visits the objects of this call, and not those of earlier verbs.
    """
    gc.collect()
    gc.freeze()
    start = time.process_time()
    call()
    found = time.process_time() - start
    gc.unfreeze()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, nargs="+", default=[250, 5000])
    parser.add_argument("--small", action="store_true", help="10 and 50 columns: that it runs")
    args = parser.parse_args()
    counts = [10, 50] if args.small else args.columns
    with tempfile.TemporaryDirectory() as folder:
        list(measured(Path(folder, "warm"), [2]))
        print(f"{'CPU s by columns':28}" + "".join(f"{count:9,}" for count in counts) + f"{'ratio':>9}")
        for name, found in measured(Path(folder), counts):
            ratio = found[-1] / found[0]
            mark = " !" if ratio > 1.5 * counts[-1] / counts[0] else ""
            print(f"{name:28}" + "".join(f"{each:9.3f}" for each in found) + f"{ratio:9.1f}{mark}", flush=True)


if __name__ == "__main__":
    main()
