"""pandas alone, in and out: no other library of dataframes is imported here.

    python examples/pandas_only.py FOLDER

`Table.create` takes the columns of a frame and writes none of its rows. A named index is a column like any other.
"""

import sys
from pathlib import Path

import pandas as pd

import crdt_mor as mor


def main(folder: str) -> None:
    books = pd.DataFrame(
        {"title": ["Emma", "Ulysses"], "pages": [474, 730], "bought": pd.to_datetime(["2026-01-30", "2026-01-31"])},
        index=pd.Index([1, 2], name="book_id"),
    )
    table = mor.Table.create(str(Path(folder, "books")), books, key="book_id")
    commit = table.upsert(books)
    table.upsert(books.assign(pages=books["pages"] + 1).loc[[2]])
    table.delete(pd.DataFrame({"book_id": [1]}))

    left = table.scan().to_pandas().set_index("book_id")
    print(left)
    print(table.changes(since=commit).to_pandas())
    assert left["pages"].to_dict() == {2: 731}
    assert left.loc[2, "bought"] == pd.Timestamp("2026-01-31")

    before = table.scan(as_of=commit, columns=["book_id", "pages"], filter="pages < 500").to_pandas()
    assert before.to_dict("records") == [{"book_id": 1, "pages": 474}]


if __name__ == "__main__":
    main(sys.argv[1])
