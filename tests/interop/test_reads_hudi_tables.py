"""Tables that Hudi itself wrote (Spark, versions 8 and 9) are read with the rows that Hudi's reader returned."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from crdt_mor import Table
from crdt_mor.errors import CrdtMorError
from tests.format.hudi_files import MADE_BY_HUDI, rows_of
from tests.inside import look_for_hudi
from tests.interop.readers import by_key, hudi_rs, ours
from tests.tiers import one_in


def contents(root: Path) -> dict[str, str]:
    """Every file and folder, by name and content."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in root.rglob("*")
    }


def test_the_rows_are_those_beside_the_table(made_by_hudi: Path) -> None:
    table = Table(made_by_hudi)
    expected = by_key(rows_of(made_by_hudi.name))
    assert len(expected) > 5
    assert ours(table) == expected
    assert table.scan().count() == len(expected)


def test_hudi_rs_agrees_in_every_column(made_by_hudi: Path) -> None:
    assert ours(Table(made_by_hudi)) == hudi_rs(made_by_hudi)


def test_reading_writes_nothing_into_the_table(made_by_hudi: Path) -> None:
    before = contents(made_by_hudi)
    table = Table(made_by_hudi)
    table.scan().to_polars()
    table.scan(filter="1 = 1").count()
    table.inspect.timeline()
    table.inspect.files()
    look_for_hudi(table)
    assert contents(made_by_hudi) == before


@pytest.mark.costly
@pytest.mark.parametrize("made_by_hudi", one_in(2, MADE_BY_HUDI), indirect=True)
def test_every_moment_is_answered_as_it_was(made_by_hudi: Path) -> None:
    """Hudi wrote these tables one commit after another, so that its time travel and ours mean the same."""
    table = Table(made_by_hudi)
    timeline = table.inspect.timeline().to_pylist()
    assert {instant["state"] for instant in timeline} == {"completed"}
    moments = sorted(instant["completed_at"] for instant in timeline)
    assert ours(table, as_of=moments[-1]) == ours(table)
    assert ours(table, as_of="20000101000000000") == {}
    for moment in moments:
        at = ours(table, as_of=moment)
        assert all(str(row["_hoodie_commit_time"]) <= moment for row in at.values())
        assert table.scan(as_of=moment).count() == len(at)
        assert at == hudi_rs(made_by_hudi, as_of=moment)


def test_what_cannot_be_written_is_refused_and_leaves_the_table_as_it_was(made_by_hudi: Path) -> None:
    """They have no bucket index, so that a new key could be put where no other writer looks."""
    before = contents(made_by_hudi)
    table = Table(made_by_hudi)
    with pytest.raises(CrdtMorError):
        table.append(table.scan().to_arrow())
    assert contents(made_by_hudi) == before


@pytest.mark.costly
def test_the_life_of_a_key_ends_with_its_row(made_by_hudi: Path) -> None:
    """Hudi rewrote base files, overwrote partitions and clustered: `why` follows a key through all of it."""
    table = Table(made_by_hudi)
    fields, rows = table.config.key, table.scan().to_arrow().to_pylist()
    keys = sorted({tuple(row[name] for name in fields) for row in rows}, key=repr)
    assert keys
    for key in keys:
        life = table.why(key if len(fields) > 1 else key[0]).to_pylist()
        ends = {line["partition"]: line["result"] for line in life}
        shown = [row for row in rows if tuple(row[name] for name in fields) == key]
        assert sorted(repr(row) for row in ends.values() if row is not None) == sorted(map(repr, shown)), life
