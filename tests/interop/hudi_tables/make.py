"""Makes the tables of this folder with Hudi's own Spark writer, and notes the rows that its Spark reader returns.

    python -m tests.interop.hudi_tables.make           writes a .tar.xz and a .json of each table beside this script
    python -m tests.interop.hudi_tables.make FOLDER    writes them there

It needs Java 17 and Maven. Run it for a new release of Hudi; the tests read the kept files, without Spark. Between them
the tables hold inserts, updates and deletes in log files, an overwritten partition, a compaction, a clustering, and in
version 8 Hudi's metadata table with a secondary index.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.interop.readers import FILE_NAME, HudiSpark

HERE = Path(__file__).parent
REGIONS = ("us", "eu", "apac")

TRANSACTIONS = (
    "txn_id string, account_id string, txn_ts bigint, txn_datetime timestamp, txn_date date, amount decimal(15,2), "
    "currency string, is_international boolean, merchant_name string, fee_amount decimal(10,2), rate double, "
    "details string"
)
COMMON = {
    "type": "mor",
    "hoodie.write.concurrency.mode": "SINGLE_WRITER",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.compact.inline": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.datasource.write.hive_style_partitioning": "true",
}
"""Inserts make file groups of their own, so that updates alone make log files."""


def created(name: str, columns: str, partition: str, folder: Path, properties: Mapping[str, str]) -> str:
    """The statement that makes a table."""
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in {**COMMON, **properties}.items())
    parted = f"partitioned by ({partition}) " if partition else ""
    return f"create table {name} ({columns}) using hudi tblproperties ({listed}) {parted}location '{folder / name}'"


def transaction(number: int, region: str | None) -> str:
    """The values of a row, some of them null, with letters beyond ASCII."""
    merchant = "null" if number % 5 == 3 else f"'Merchant {number} – ünïcode'"
    details = f"'{json.dumps({'mcc': 5000 + number, 'risk': number / 100})}'"
    values = [
        f"'TXN-{number:03}'", f"'ACC-{number % 3}'", f"{1_700_000_000_000 + number}",
        f"timestamp '2024-01-{number:02} 10:{number:02}:00.{number:06}'", f"date '2024-01-{number:02}'",
        f"{number * 1234.25 - 9000:.2f}", "'EUR'" if number % 2 else "'USD'", str(number % 4 == 0).lower(), merchant,
        "null" if number % 7 == 0 else f"{number / 4:.2f}", f"{number / 3!r}d", details,
    ]  # fmt: skip
    return f"({', '.join([*values, repr(region)] if region else values)})"


def life(name: str, parted: bool) -> Iterator[str]:
    """The statements of a table of transactions, in order."""

    def rows(*numbers: int, region: str | None = None) -> str:
        placed = (region or REGIONS[number % 3] if parted else None for number in numbers)
        return ", ".join(map(transaction, numbers, placed))

    yield f"insert into {name} values {rows(*range(1, 9))}"
    yield f"update {name} set currency = 'CHF', txn_ts = txn_ts + 100 where txn_id = 'TXN-001'"
    yield f"delete from {name} where txn_id = 'TXN-002'"
    changed = "amount = amount + 400.00, merchant_name = null, txn_ts = txn_ts + 200"
    yield f"update {name} set {changed} where txn_id = 'TXN-005'"
    yield f"delete from {name} where txn_id = 'TXN-005'"
    yield f"update {name} set is_international = true, txn_ts = txn_ts + 300 where txn_id = 'TXN-007'"
    yield f"insert into {name} values {rows(9, 10, region='eu')}"
    if parted:
        values = rows(11, 12, region="eu").replace(", 'eu')", ")")
        yield f"insert overwrite {name} partition (region = 'eu') values {values}"
    yield f"insert into {name} values {rows(13, 14, region='us')}"
    yield f"insert into {name} values {rows(15, 16, region='apac')}"
    yield f"call run_compaction(op => 'scheduleAndExecute', table => '{name}', options => '{AT_ONCE}')"
    yield f"call run_clustering(table => '{name}', options => 'hoodie.clustering.inline.max.commits=1')"
    yield f"insert into {name} values {rows(17, 18)}"


AT_ONCE = "hoodie.compact.inline.max.delta.commits=1"


def trips(name: str) -> Iterator[str]:
    """The statements of a table of version 8 with record and secondary indexes in Hudi's metadata table."""
    cities = ("san_francisco", "sao_paulo", "chennai")
    rows = (f"({n}, 'trip-{n}', 'rider-{n}', 'driver-{n % 4}', {n * 7.25!r}d, '{cities[n % 3]}')" for n in range(1, 9))
    yield f"insert into {name} values {', '.join(rows)}"
    yield f"create index rider_idx on {name} (rider)"
    yield f"update {name} set fare = 0.0 where uuid = 'trip-3'"
    yield f"delete from {name} where uuid = 'trip-4'"
    yield f"update {name} set fare = -1.5, rider = 'rider-x' where uuid = 'trip-5'"
    yield f"delete from {name} where uuid = 'trip-5'"
    yield f"call run_compaction(op => 'scheduleAndExecute', table => '{name}', options => '{AT_ONCE}')"
    yield f"update {name} set fare = 12.125 where uuid = 'trip-7'"


def statements(folder: Path) -> dict[str, list[str]]:
    """The statements of each table."""
    v9 = {"preCombineField": "txn_ts", "hoodie.metadata.enable": "false"}
    v8 = {
        "preCombineField": "ts", "primaryKey": "uuid", "hoodie.write.table.version": "8",
        "hoodie.metadata.enable": "true", "hoodie.metadata.record.index.enable": "true",
        "hoodie.metadata.index.column.stats.enable": "false",
    }  # fmt: skip
    of_trips = "ts bigint, uuid string, rider string, driver string, fare double, city string"
    made = {"v8_trips": [created("v8_trips", of_trips, "city", folder, v8), *trips("v8_trips")]}
    for name, key, partition in (
        ("v9_simple", "txn_id", "region"),
        ("v9_complex", "txn_id,account_id", "region"),
        ("v9_nonpart", "txn_id", ""),
    ):
        columns = TRANSACTIONS + (", region string" if partition else "")
        made[name] = [
            created(name, columns, partition, folder, {**v9, "primaryKey": key}),
            *life(name, bool(partition)),
        ]
    return made


def packed(table: Path, archive: Path) -> None:
    """Write a table into an archive, without Hadoop's checksums, and without owners."""

    def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return None if entry.name.endswith(".crc") else entry

    with tarfile.open(archive, "w:xz") as tar:
        tar.add(table, table.name, filter=kept)


def main(target: Path) -> None:
    """Make every table."""
    with tempfile.TemporaryDirectory(prefix="crdt-mor-hudi-") as work:
        folder = Path(work) / "tables"
        spark = HudiSpark(Path(work))
        spark.sql("set hoodie.write.lock.provider=org.apache.hudi.client.transaction.lock.InProcessLockProvider")
        for name, said in statements(folder).items():
            for statement in said:
                spark.sql(statement)
            found = spark.ask(read=str(folder / name))
            rows = [{k: v for k, v in row.items() if k != FILE_NAME} for row in found if isinstance(row, dict)]
            rows.sort(key=lambda row: (row["_hoodie_partition_path"], row["_hoodie_record_key"]))
            (target / f"{name}.json").write_text(json.dumps(rows, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
            packed(folder / name, target / f"{name}.tar.xz")
            sys.stdout.write(f"{name}: {len(rows)} rows\n")
        spark.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
