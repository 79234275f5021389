"""A column is added while another process keeps writing rows without it: nobody stops, nothing is rewritten.

    python examples/add_column.py FOLDER

`schema_mode="merge"` adds the columns that a table lacks. Writers that do not know them may leave them out; in their
rows, and in all rows from before, the new column is null.
"""

import multiprocessing
import sys
from multiprocessing.synchronize import Event
from pathlib import Path

import polars as pl
import pyarrow as pa

import crdt_mor as mor

SCHEMA = pa.schema([("sensor", pa.int64()), ("celsius", pa.float64())])


def old_writer(uri: str, started: Event, stop: Event) -> None:
    """A program that was written before there was the column `humidity`."""
    table, sensor = mor.Table(uri), 0
    while not stop.is_set():
        table.upsert(pl.DataFrame({"sensor": [sensor], "celsius": [20.0]}))
        sensor += 1
        started.set()


def main(folder: str) -> None:
    uri = str(Path(folder, "sensors"))
    table = mor.Table.create(uri, SCHEMA, key="sensor")

    spawn = multiprocessing.get_context("spawn")
    started, stop = spawn.Event(), spawn.Event()
    process = spawn.Process(target=old_writer, args=(uri, started, stop))
    process.start()
    try:
        assert started.wait(120)
        new = pl.DataFrame({"sensor": range(1_000_000, 1_000_010), "celsius": [21.5] * 10, "humidity": [0.4] * 10})
        try:
            table.upsert(new)  # a column that nobody announced is refused
        except mor.errors.SchemaMismatchError as error:
            print(error)
        table.upsert(new, schema_mode="merge")
        for _row in range(2):  # the second of these rows began after the column was there
            started.clear()
            assert started.wait(120)
    finally:
        stop.set()
        process.join()

    sensors = table.scan().to_polars()
    print(table.schema.names, sensors.height, "rows,", sensors["humidity"].count(), "with humidity")
    assert process.exitcode == 0
    assert table.schema.names == ["sensor", "celsius", "humidity"]
    assert sensors["humidity"].count() == 10
    assert sensors["celsius"].null_count() == 0


if __name__ == "__main__":
    main(sys.argv[1])
