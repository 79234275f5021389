"""A merge function of one's own: first a wrong one, and what the laws say against it, then the right one.

    python examples/own_payload.py FOLDER

A compaction merges some values first and the rest later, so how values are grouped must not matter. A mean of means is
not the mean, and `Table.create` refuses it with a counterexample. A sum and a count can be merged, and show the mean.
film_payloads.py has both.
"""

import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
from film_payloads import Average, Mean

import crdt_mor as mor


def main(folder: str) -> None:
    schema = pa.schema([("film", pa.string()), ("stars", pa.float64())])
    try:
        mor.Table.create(str(Path(folder, "wrong")), schema, key="film", merge={"stars": Mean()})
    except mor.errors.LawError as error:
        print(error)
        assert "associative" in error.laws
        assert "regrouping" in error.laws

    mor.check_laws(Average())  # for tests of your own; Table.create asks the same
    table = mor.Table.create(str(Path(folder, "films")), schema, key="film", merge={"stars": Average()})
    for stars in (5, 4, None, 3):  # None: nothing was said
        table.upsert(pl.DataFrame({"film": ["M"], "stars": pl.Series([stars], dtype=pl.Int64)}))
        table.maintenance.compact()
    print(table.scan().to_polars())
    assert table.scan().to_polars().rows() == [("M", 4.0)]


if __name__ == "__main__":
    main(sys.argv[1])
