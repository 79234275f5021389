"""Increments beside those of hudi-rs: equal where the definitions agree; else as docs/changes.md says."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import Commit, Table
from tests.table.helpers import SCHEMA, frame
from tests.tiers import seeds, slow

Rows = dict[str, dict[str, Any]]


def hudi_rs(table: Table, start: str, end: str) -> Rows:
    """What hudi-rs takes for the rows that changed after `start`, until `end`, by key."""
    from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

    options = HudiReadOptions().with_query_type(HudiQueryType.Incremental)
    options = options.with_start_timestamp(start).with_end_timestamp(end)
    batches = [pa.record_batch(batch) for batch in HudiTableBuilder.from_base_uri(table.uri).build().read(options)]
    rows = pa.Table.from_batches(batches).to_pylist() if batches else []
    found = {row["id"]: {name: row[name] for name in SCHEMA.names} for row in rows}
    assert len(found) == len(rows), "a key twice"
    return found


def ours(table: Table, start: str) -> tuple[Rows, set[str]]:
    """Upserted rows by key, and deleted keys."""
    rows = table.changes(start).to_arrow().to_pylist()
    upserts = {row["id"]: {n: row[n] for n in SCHEMA.names} for row in rows if row["_change_type"] == "upsert"}
    deleted = {row["id"] for row in rows if row["_change_type"] == "delete"}
    assert len(upserts) + len(deleted) == len(rows), "a key twice"
    return upserts, deleted


@pytest.mark.costly
@pytest.mark.parametrize("seed", seeds(range(2), range(2, 6)))
def test_upserts_after_any_commit_are_the_same(seed: int, fast_path: Path) -> None:
    """Slow commits and compactions among them, as long as none comes late to a key that another has written since."""
    random = Random(seed)
    table = Table.create(str(fast_path / "t"), SCHEMA, key="id", buckets=random.choice([1, 3]))
    commits: list[Commit] = []
    for step in range(8):
        with table.transaction() as slow:
            slow.upsert(frame((f"slow{step}", "x", step)))
            keys = random.sample(range(6), random.randint(1, 4))
            commits.append(table.upsert(frame(*((f"k{key}", "x", step) for key in keys))))
        if random.random() < 0.3:
            table.maintenance.compact()
    for commit in commits:
        end = table.scan().as_of
        upserts, deleted = ours(table, commit.completed_at)
        assert (upserts, deleted) == (hudi_rs(table, commit.completed_at, end), set())


def test_deletes_are_ours_alone(fast_path: Path) -> None:
    table = Table.create(str(fast_path / "t"), SCHEMA, key="id", buckets=1)
    first = table.upsert(frame(("a", "x", 1), ("b", "x", 2)))
    last = table.delete(keys=["a"])
    assert ours(table, first.completed_at) == ({}, {"a"})
    assert hudi_rs(table, first.completed_at, last.completed_at) == {}


def test_of_a_late_row_that_loses_hudi_rs_does_not_show_what_won(fast_path: Path) -> None:
    table = Table.create(str(fast_path / "t"), SCHEMA, key="id", buckets=1)
    with table.transaction() as late:
        late.upsert(frame(("a", "lost", 1)))
        winner = table.upsert(frame(("a", "won", 2)))
    assert late.commit is not None
    upserts, _ = ours(table, winner.completed_at)
    assert upserts["a"]["region"] == "won"
    assert hudi_rs(table, winner.completed_at, late.commit.completed_at).get("a") != upserts["a"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "made_by_hudi",
    ["v8_trips", slow("v9_nonpart"), slow("v9_complex"), slow("v9_simple")],
    indirect=True,
)
def test_images_of_a_table_that_hudi_wrote_lead_from_nothing_to_its_rows(made_by_hudi: Path) -> None:
    table = Table(made_by_hudi)
    key = [*table.config.partition_by, *table.config.key]
    copy: dict[tuple[object, ...], dict[str, object]] = {}
    timeline = table.inspect.timeline().sort_by("completed_at").to_pylist()
    before = "20000101000000000"
    for instant in timeline:
        for row in table.diff(before, instant["completed_at"]).to_arrow().to_pylist():
            kind, name = row.pop("_change_type"), tuple(row[n] for n in key)
            if kind in ("delete", "update_preimage"):
                assert copy.pop(name) == row
            else:
                assert name not in copy
                copy[name] = row
        before = instant["completed_at"]
        now = {tuple(row[n] for n in key): row for row in table.scan(as_of=before).to_arrow().to_pylist()}
        assert copy == now
    # Each commit's own images, and the increments after every moment, say the same.
    again: dict[tuple[object, ...], dict[str, object]] = {}
    for row in table.changes(images=True).to_arrow().drop(["_commit_version", "_commit_timestamp"]).to_pylist():
        kind, name = row.pop("_change_type"), tuple(row[n] for n in key)
        if kind in ("delete", "update_preimage"):
            assert again.pop(name) == row
        else:
            again[name] = row
    assert again == copy
    for instant in timeline:
        then = {tuple(r[n] for n in key): r for r in table.scan(as_of=instant["completed_at"]).to_arrow().to_pylist()}
        for row in table.changes(instant["completed_at"]).to_arrow().to_pylist():
            kind, name = row.pop("_change_type"), tuple(row[n] for n in key)
            if kind == "delete":
                then.pop(name, None)
            else:
                then[name] = row
        assert then == copy
