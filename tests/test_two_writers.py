"""What docs/comparison.md says of two writers who have both read a table before either writes: each engine does so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

import crdt_mor as mor

PAGE = (Path(__file__).parents[1] / "docs/comparison.md").read_text()
FIRST = pl.DataFrame({"id": [1, 2], "n": [10, 20]})
CASES = {
    "two writers change one row": (1, 1),
    "two writers change two rows of one file": (1, 2),
    "two writers insert one key": (3, 3),
}
"""The rows of the page's table, each with the keys that the two writers upsert."""

Upsert = Callable[[pl.DataFrame], object]


class Made(NamedTuple):
    """A table of the first rows in the current folder: what opens it for a writer, what reads it, how it refuses."""

    writer: Callable[[], Upsert]
    read: Callable[[], pl.DataFrame]
    refusals: tuple[type[Exception], ...] = ()


def ours() -> Made:
    mor.Table.create("t", FIRST, key="id", buckets=1).upsert(FIRST)
    return Made(lambda: mor.Table("t").upsert, mor.Table("t").to_polars)


def delta_rs() -> Made:
    from deltalake import DeltaTable, write_deltalake
    from deltalake.exceptions import CommitFailedError

    def writer() -> Upsert:
        table = DeltaTable("t")

        def upsert(rows: pl.DataFrame) -> None:
            merge = table.merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()

        return upsert

    write_deltalake("t", FIRST)
    return Made(writer, lambda: pl.DataFrame(DeltaTable("t").to_pyarrow_table()), (CommitFailedError,))


def pyiceberg() -> Made:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import CommitFailedException, ValidationException

    catalog = load_catalog("lake", type="sql", uri="sqlite:///catalog.db", warehouse="warehouse")
    catalog.create_namespace("shop")
    catalog.create_table("shop.t", schema=FIRST.to_arrow().schema).append(FIRST.to_arrow())

    def writer() -> Upsert:
        table = catalog.load_table("shop.t")
        return lambda rows: table.upsert(rows.to_arrow(), join_cols=["id"])

    refusals = (CommitFailedException, ValidationException)
    return Made(writer, lambda: pl.DataFrame(catalog.load_table("shop.t").scan().to_arrow()), refusals)


def lance_of(metadata: dict[str, str]) -> Made:
    import lance
    import pyarrow as pa

    schema = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=metadata), ("n", pa.int64())])
    lance.write_dataset(FIRST.to_arrow().cast(schema), "t")

    def writer() -> Upsert:
        merge = lance.dataset("t").merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        return lambda rows: merge.execute(rows.to_arrow().cast(schema))

    return Made(writer, lambda: pl.DataFrame(lance.dataset("t").to_table()))


def lance() -> Made:
    return lance_of({"lance-schema:unenforced-primary-key": "true"})


def lance_without_key() -> Made:
    return lance_of({})


ENGINES: dict[str, tuple[str, str, Callable[[], Made]]] = {
    "crdt_mor": ("crdt_mor", "crdt_mor", ours),
    "delta-rs": ("Delta, by delta-rs", "deltalake", delta_rs),
    "pyiceberg": ("Iceberg, by pyiceberg", "pyiceberg", pyiceberg),
    "Lance": ("Lance", "lance", lance),
    "Lance without a key": ("Lance", "lance", lance_without_key),
}
"""Each with its column of the page's table, and its package."""


def said(case: str, column: str) -> str:
    """A cell of the table."""
    below = PAGE.partition("## Property by property")[2].partition("\n## ")[0]
    lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in below.splitlines() if line[:1] == "|"]
    (row,) = (line for line in lines if line[0] == case)
    return row[[head.strip("| ") for head in lines[0]].index(column)]


def outcome(case: str, table: Made) -> str:
    """What becomes of the second of two writers, in the words of the page."""
    one, other = table.writer(), table.writer()
    first, second = CASES[case]
    one(pl.DataFrame({"id": [first], "n": [1]}))
    try:
        other(pl.DataFrame({"id": [second], "n": [2]}))
    except table.refusals:
        return "the second is refused"
    found = table.read().filter(pl.col("id") == second)["n"].to_list()
    assert 2 in found
    if case == "two writers insert one key":
        return "two rows" if len(found) == 2 else "one row"
    return "both succeed"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_the_page_says_of_two_writers_is_so(
    case: str, engine: str, fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    column, package, makes = ENGINES[engine]
    pytest.importorskip(package, reason=f"{package}, which the extra `peers` has, is not installed")
    monkeypatch.chdir(fast_path)
    found, cell = outcome(case, makes()), said(case, column)
    with_key, _, without = cell.partition(" where the table names its key, else ")
    assert (without or cell if engine == "Lance without a key" else with_key).startswith(found)
