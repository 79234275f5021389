"""Serializable blocks: they read what comes before them and what they have written, as their commit will show it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, Scan, Table
from crdt_mor.payloads import Counter, GrowOnlySet, Max, MVRegister, ORSet, PartialUpdate
from crdt_mor.store import MemoryStore
from tests.inside import store_of
from tests.tiers import only, seeds

STRINGS: Final = pa.list_(pa.string())
SCHEMA: Final = pa.schema(
    [
        ("id", pa.string()),
        ("at", pa.int64()),
        ("n", pa.int64()),
        ("note", pa.string()),
        ("c", pa.int64()),
        ("m", pa.int64()),
        ("g", STRINGS),
        ("o", STRINGS),
        ("r", STRINGS),
    ]
)
PAYLOADS: Final[Mapping[Any, Any]] = {
    "c": Counter(),
    "m": Max(),
    "g": GrowOnlySet(),
    "o": ORSet(),
    "r": MVRegister(),
}
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "latest": {},
    "partitions": {"partition_by": ["note"]},
    "ordering": {"ordering": "at"},
    "payloads": {"merge": PAYLOADS},
    "partial": {"merge": PartialUpdate()},
    "partial, keep": {"merge": PartialUpdate(nulls="keep")},
    "partial, payloads": {"merge": PartialUpdate(columns=PAYLOADS)},
}


def make(settings: Mapping[str, Any]) -> Table:
    table = Table.create(
        "memory", SCHEMA, **{"opening": Opening(store=MemoryStore()), "key": "id", "buckets": 2, **settings}
    )
    table.upsert(rows_of(("a", 1, 1), ("b", 1, 2), ("c", 1, 3)))
    table.maintenance.compact()
    table.upsert(rows_of(("b", 2, 5), ("d", 2, 6)))
    return table


def rows_of(*rows: tuple[str, int, int | None], note: str = "x") -> pa.Table:
    """Rows of key, ordering value and number; the other columns follow from the number."""
    full = [
        {"id": key, "at": at, "n": n, "note": note, "c": n, "m": n, "g": [f"g{n}"], "o": [f"o{n}"], "r": [f"r{n}"]}
        for key, at, n in rows
    ]
    return pa.Table.from_pylist(full, SCHEMA)


Statement = Callable[[Any], object]
"""What a block does, or a table, in a commit of its own."""


def statement(random: Random, partial: bool) -> tuple[str, Statement]:
    """One statement, and what it is called."""
    keys = random.sample("abcde", 2)
    at, n, note = random.randint(1, 4), random.randint(0, 9), random.choice("xy")
    more = random.choice(["n = 5", "n > 3", "note = 'x'", "id < 'c'", None])
    rows = rows_of(*((key, at, n + i) for i, key in enumerate(keys)), note=note)
    choices: dict[str, Statement] = {
        f"upsert {keys} {at} {n} {note}": lambda target: target.upsert(rows),
        f"upsert {keys[0]} twice": lambda target: target.upsert(pa.concat_tables([rows, rows.slice(0, 1)])),
        f"update {more}": lambda target: target.update({"n": "n + 1", "c": "c + 2"}, more),
        f"move up {more}": lambda target: target.update({"n": "n * 2", "at": "at + 1"}, more),
        f"set {note} {more}": lambda target: target.update({"o": pl.lit([note]), "r": pl.lit([note])}, more),
        "delete": lambda target: target.delete(where="n > 6"),
    }
    if partial:
        few = rows.select(["id", "at", "n"])
        choices |= {f"upsert of n {keys} {n}": lambda target: target.upsert(few)}
    return random.choice([*choices.items()])


def shown(scan: Scan) -> list[dict[str, Any]]:
    """The rows of a scan by their keys, sets sorted."""
    rows = scan.to_polars().sort("note", "id", nulls_last=True).to_dicts()
    return [{k: sorted(v) if isinstance(v, list) else v for k, v in row.items()} for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(1), range(1, 3), range(3, 60)))
@pytest.mark.parametrize("name", only(["partial, payloads"], SETTINGS))
def test_a_block_sees_what_its_statements_make_one_after_another(name: str, seed: int) -> None:
    """So it does in the block, after its commit, and after the commits of one statement each."""
    random = Random(f"{name} {seed}")
    table, twin = make(SETTINGS[name]), make(SETTINGS[name])
    told = []
    with table.transaction(isolation="serializable") as tx:
        for _ in range(5 if seed else 2):
            text, do = statement(random, name.startswith("partial"))
            told.append(text)
            do(tx)
            do(twin)
            assert shown(tx.scan()) == shown(twin.scan()), told
            assert tx.scan(filter="n > 3").count() == twin.scan(filter="n > 3").count(), told
    assert shown(table.scan()) == shown(twin.scan()), told
    table.maintenance.compact()
    assert shown(table.scan()) == shown(twin.scan()), told


def plain(uri: str = "memory", **settings: Any) -> Table:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    table = Table.create(uri, schema, **{"opening": Opening(store=MemoryStore()), "key": "id", **settings})
    table.upsert(pa.table({"id": ["a", "b"], "n": [1, 2]}))
    return table


def numbers(scan: Scan) -> dict[str, Any]:
    return dict(scan.to_polars().select("id", "n").sort("id").rows())


def test_a_merge_sees_what_the_block_has_written() -> None:
    table = plain()
    with table.transaction(isolation="serializable") as tx:
        tx.delete(keys=["a"])
        tx.upsert(pa.table({"id": ["c"], "n": [5]}))
        source = pa.table({"id": ["a", "b", "c"], "n": [10, 20, 30]})
        merge = tx.merge(source).when_matched_update({"n": "target.n + source.n"}).when_not_matched_insert_all()
        assert merge.execute().clauses == (2, 1)
        tx.delete(where="n = 22")
        assert numbers(tx.scan()) == {"a": 10, "c": 35}
    assert numbers(table.scan()) == {"a": 10, "c": 35}


def test_a_block_sees_the_columns_that_it_brings() -> None:
    table = plain()
    with table.transaction(isolation="serializable") as tx:
        more = pa.table({"id": ["b", "c"], "n": [5, 6], "new": ["x", "y"]})
        tx.upsert(more, schema_mode="merge")
        assert tx.scan().to_polars().sort("id").rows() == [("a", 1, None), ("b", 5, "x"), ("c", 6, "y")]
        tx.update({"new": "'z'"}, where="new IS NULL")
        assert tx.scan(columns="id", filter="new = 'z'").to_polars()["id"].to_list() == ["a"]
    assert table.scan().to_polars().sort("id").rows() == [("a", 1, "z"), ("b", 5, "x"), ("c", 6, "y")]


def test_a_scan_of_a_block_shows_what_had_been_written_when_it_was_made(fast_path: Path) -> None:
    table = plain(str(fast_path / "t"), opening=Opening(store=None))
    with table.transaction(isolation="serializable") as tx:
        before = tx.scan()
        tx.upsert(pa.table({"id": ["c"], "n": [5]}))
        after = tx.scan(meta=True)
        tx.delete(keys=["a", "b", "c"])
        assert numbers(before) == {"a": 1, "b": 2}
        assert numbers(after) == {"a": 1, "b": 2, "c": 5}
        parts = [pickle.loads(pickle.dumps(part)) for part in after.parts()]
        assert sorted(row for part in parts for row in part.to_polars()["id"]) == ["a", "b", "c"]
        times = after.to_polars().sort("id")["_hoodie_commit_time"]
        assert before.checkpoint
        assert tx.scan().count() == 0
        for moment in (lambda: after.checkpoint, lambda: after.as_of, lambda: after.version):
            with pytest.raises(InvalidInputError, match="scan again after the block"):
                moment()
    assert tx.commit is not None
    assert times[2] == tx.commit.requested_at


def test_a_block_shows_nothing_after_an_overwrite() -> None:
    """Its place is its end, behind whatever comes before that."""
    table = plain()
    with table.transaction(isolation="serializable") as tx:
        tx.overwrite(pa.table({"id": ["z"], "n": [5]}))
        with pytest.raises(InvalidInputError, match="must be the only statement"):
            tx.scan()
    assert numbers(table.scan()) == {"z": 5}


def test_a_block_on_a_snapshot_reads_the_snapshot() -> None:
    table = plain()
    with table.transaction() as tx:
        tx.upsert(pa.table({"id": ["c"], "n": [5]}))
        assert numbers(tx.scan()) == {"a": 1, "b": 2}
        tx.delete(where="n > 1")
    assert numbers(table.scan()) == {"a": 1, "c": 5}


def test_nothing_of_what_a_block_has_read_is_stored() -> None:
    table = plain()

    def logs() -> list[str]:
        return [file.path for file in store_of(table).walk("") if ".log." in file.path]

    before = logs()
    tx = table.transaction(isolation="serializable")
    with tx:
        tx.upsert(pa.table({"id": ["c"], "n": [5]}))
        tx.update({"n": "n + 1"})
        assert numbers(tx.scan()) == {"a": 2, "b": 3, "c": 6}
        assert logs() == before
        tx.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert numbers(table.scan()) == {"a": 1, "b": 2}


# --- repr -------------------------------------------------------------------------------------------------------------

VIEWS: Final = pa.schema([("id", pa.string()), ("n", pa.int64())])


def test_repr_of_a_transaction_shows_table_application_and_statements() -> None:
    table = Table.create("views", VIEWS, key="id", opening=Opening(store=MemoryStore()))
    tx = table.transaction(token=("ingest", 1))
    assert repr(tx) == "Transaction('views', application='ingest', statements=0, new)"
    with tx:
        tx.upsert(pa.table({"id": ["a"], "n": [1]}, VIEWS))
        tx.delete(keys=["a"])
        assert repr(tx) == "Transaction('views', application='ingest', statements=2, open)"
    assert "over)" in repr(tx)


def test_repr_of_a_transaction_without_application_shows_the_program() -> None:
    table = Table.create("views", VIEWS, key="id", opening=Opening(store=MemoryStore()))
    assert f"application={table.environment.process().program!r}" in repr(table.transaction())


def test_repr_of_maintenance_and_inspect_shows_the_table() -> None:
    table = Table.create("views", VIEWS, key="id", opening=Opening(store=MemoryStore()))
    assert repr(table.maintenance) == "Maintenance('views')"
    assert repr(table.inspect) == "Inspect('views')"
