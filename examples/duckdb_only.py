"""DuckDB alone, in and out: relations are written, and tables and scans are queried by their names in SQL.

    python examples/duckdb_only.py FOLDER

A table is an Arrow stream of its rows as they are now, a scan one of its columns and rows alone: what it leaves out is
not even read from the files. No other library of dataframes is imported here.
"""

import sys
from pathlib import Path

import duckdb

import crdt_mor as mor


def main(folder: str) -> None:
    made = duckdb.sql(
        "select i as trip, ['Oslo', 'Bern', 'Rome'][i % 3 + 1] as city, i * 0.5 as km from range(300) as t(i)"
    )
    trips = mor.Table.create(str(Path(folder, "trips")), made, key="trip")
    trips.upsert(made)
    trips.upsert(duckdb.sql("select i as trip, 'Lyon' as city, 1.0 as km from range(10) as t(i)"))
    trips.delete(duckdb.sql("select i as trip from range(290, 300) as t(i)"))

    scan = trips.scan(columns=["city", "km"], filter="km >= 1")
    by_city = duckdb.sql("select city, count(*) as trips, sum(km)::double as km from scan group by city order by city")
    print(by_city)
    found = by_city.fetchall()
    assert [city for city, *_ in found] == ["Bern", "Lyon", "Oslo", "Rome"]
    assert found[1] == ("Lyon", 10, 10.0)
    assert sum(trips for _, trips, _ in found) == 290

    largest = duckdb.sql("select trip from trips order by km desc limit 1").fetchall()
    assert largest == [(289,)]
    assert duckdb.sql("select count(*) from trips").fetchall() == [(290,)]


if __name__ == "__main__":
    main(sys.argv[1])
