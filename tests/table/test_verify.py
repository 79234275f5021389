"""`Table.verify`: sound tables are called so, also beside a clean, and each damage names its file and stops nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from crdt_mor import PartialUpdate, Table
from crdt_mor.errors import WriterExpiredError
from crdt_mor.log import publish
from crdt_mor.log.paths import version_path
from crdt_mor.payloads import Counter
from crdt_mor.planners.copy import bridge
from crdt_mor.read.snapshot import Snapshot
from tests.inside import tail_of
from tests.simulated import Simulated

pytestmark = pytest.mark.filterwarnings("ignore::crdt_mor.errors.PartitionNotInKeyWarning")

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("Total Sales", pa.int64())])


def rows(*places: tuple[str, str | None], n: int = 1) -> pa.Table:
    return pa.table(
        {"id": [i for i, _ in places], "p": [p for _, p in places], "Total Sales": [n] * len(places)}, SCHEMA
    )


def made(path: Path, **settings: Any) -> Table:
    """Base files in three partitions, and a log above two of them."""
    table = Table.create(path, SCHEMA, key="id", partition_by="p", buckets=2, **settings)
    table.upsert(rows(*((f"k{i}", "xy"[i % 2]) for i in range(8)), ("k9", None)))
    table.maintenance.compact()
    table.upsert(rows(("k0", "x"), ("k1", "y"), n=2))
    return table


@pytest.mark.parametrize(
    "settings",
    [{}, {"merge": PartialUpdate()}, {"merge": {"Total Sales": Counter()}}, {"ordering": "Total Sales"}],
    ids=["default", "partial", "payload", "ordering"],
)
def test_a_sound_table_is_called_so(fast_path: Path, settings: Any) -> None:
    found = made(fast_path / "t", **settings).verify()
    assert found.is_sound
    assert (found.rows, found.keys_in_several_partitions, found.some_keys) == (9, 0, ())


@pytest.mark.slow
def test_keys_in_several_partitions_are_counted(fast_path: Path) -> None:
    table = made(fast_path / "t")
    table.upsert(rows(*((f"k{i}", "z") for i in range(8)), ("k9", "x"), ("k9", "y"), ("new", "z")))
    found = table.verify()
    assert found.is_sound
    assert found.keys_in_several_partitions == 9
    assert sorted(found.some_keys) == ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k9"]
    for key in found.some_keys[:-1]:
        table.delete(where=f"id = '{key}' and p = 'z'")
    assert table.verify().keys_in_several_partitions < 9


def test_a_key_that_names_its_partition_is_in_one(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key=["id", "p"], partition_by="p", buckets=2)
    table.upsert(rows(("a", "x"), ("a", "y")))
    assert table.verify().keys_in_several_partitions == 0


def broken(file: Path) -> None:
    file.write_bytes(b"PAR1" + bytes(200))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def changed(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[8:48] = bytes(40)
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "check"),
    [(broken, "size"), (cut, "size"), (changed, "read"), (Path.unlink, "missing")],
    ids=["broken", "cut", "changed", "gone"],
)
@pytest.mark.parametrize("name", ["[!.]*.parquet", ".*.log.*"], ids=["base", "log"])
def test_each_damage_names_its_file_group_and_the_others_are_read(
    fast_path: Path, damage: Any, check: str, name: str
) -> None:
    made(fast_path / "t")
    file = max((fast_path / "t" / "p=x").glob(name))
    damage(file)
    found = Table(fast_path / "t").verify()
    assert not found.is_sound
    (finding,) = found.findings
    assert (finding.check, finding.partition, finding.rows) == (check, file.parent.name, None)
    assert finding.path == f"{file.parent.name}/{file.name}"
    assert finding.file_group in file.name
    assert file.name in finding.description
    assert 0 < found.rows < 9


def test_a_clean_beside_it_is_no_damage(fast_path: Path) -> None:
    """The files of the snapshot go before they are read: those of the newest one are read then."""
    table, other = made(fast_path / "t"), Table(fast_path / "t")
    seal, sealed = Snapshot.seal, list[Snapshot]()

    def once(session: Any, value: Any, cut: Any = None) -> Snapshot:
        snapshot = seal(session, value, cut)
        if not sealed:
            sealed.append(snapshot)
            other.maintenance.compact()
            other.maintenance.clean(commits=1, readers=timedelta(0))
        return snapshot

    with patch.object(Snapshot, "seal", once):
        found = table.verify()
    assert found.is_sound
    assert found.rows == 9


def test_a_version_that_a_writer_puts_after_a_restore_is_no_damage(simulated: Simulated) -> None:
    """The restore has deleted the versions before it, so that a writer that knows one of them puts the next one."""
    table = simulated.create(SCHEMA, key="id", buckets=1)
    table.upsert(rows(("a", "x")))
    before = table.version

    def restore_meanwhile() -> None:
        with table.transaction() as late:
            late.upsert(rows(("b", "x")))
            table.upsert(rows(("c", "x")))
            table.maintenance.restore(before)
            table.upsert(rows(("d", "x")))

    with pytest.raises(WriterExpiredError):
        restore_meanwhile()
    assert simulated.store.stat(version_path(before + 2)) is not None
    found = table.verify()
    assert (found.findings, found.rows) == ((), 2)


def test_a_version_that_is_put_where_an_old_one_was_deleted_is_no_damage(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 2)
    monkeypatch.setattr(publish, "EXPIRE_EVERY", 1)
    table = simulated.create(SCHEMA, key="id", buckets=1)
    known = tail_of(table)
    for key in "abcd":
        table.upsert(rows((key, "x")))
    for late in range(1, table.version - 2):
        path = version_path(late)
        assert simulated.store.put(path, bridge(replace(known, version=late - 1), f"late{late}").encode())
        assert table.verify().findings == ()


def test_an_empty_table_is_sound(fast_path: Path) -> None:
    found = Table.create(fast_path / "t", SCHEMA, key="id").verify()
    assert (found.is_sound, found.rows, found.file_groups) == (True, 0, 0)
