"""A table of a real PostgreSQL is replicated: skipped without PostgreSQL, wal2json or psycopg."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import crdt_mor as mor
from crdt_mor.cdc.postgres import replicate
from crdt_mor.errors import StorageUnavailableError
from tests.cdc import check_postgres, postgres
from tests.cdc.record import LONG

COLUMNS = """id bigint primary key, note text, price numeric(6,2), free numeric, placed timestamptz, day date,
    seen timestamp, at time, paid boolean, small smallint, number integer, double float8, raw bytea, ref uuid,
    code char(4), name varchar(10), tags text[], numbers integer[]"""
ROW = f"""{LONG}, 12.50, 1e-30, '2026-01-02 03:04:05.678901+02', '2026-01-02', '0001-01-01', '03:04', true, -1, 2, 0.1,
    '\\xdead', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'ab', 'é, "x"', array['a', 'b"c', null, ''], array[1, null]"""
SOURCE = 'public."O\'rders, all"'


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Cluster]:
    if (lack := postgres.missing()) is not None:
        pytest.skip(lack)
    with postgres.cluster() as found:
        yield found


class Pair:
    """A table of the server, and ours."""

    def __init__(self, server: postgres.Cluster, folder: Path) -> None:
        self.server, self.uri = server, str(folder / "orders")
        server.run(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots",
            f"drop table if exists {SOURCE}, other",
            f"create table {SOURCE} ({COLUMNS})",
            f"alter table {SOURCE} alter note set storage external",
            f"insert into {SOURCE} values (1, {ROW}), (2, {ROW})",
            f"insert into {SOURCE} (id) values (3)",
        )

    def run(self, *statements: str) -> None:
        self.server.run(*(statement.replace("orders", SOURCE) for statement in statements))

    def replicated(self) -> set[str]:
        """Replicate all changes, compare the tables, and return the kinds of commits."""
        kinds: set[str] = {done.kind for done in replicate(self.server.dsn, SOURCE, self.uri, once=True)}
        with self.server.connected() as cursor:
            cursor.execute(f"select * from {SOURCE} order by id")
            names = [column.name for column in cursor.description]
            want = [tuple(map(plain, names, row)) for row in cursor.fetchall()]
        rows = mor.Table(self.uri).scan().to_arrow().sort_by("id").to_pylist()
        have = [tuple(row[name] for name in names) for row in rows]
        assert have == want
        return kinds


def plain(name: str, value: Any) -> Any:
    """Return a value of psycopg as we have it: ids, and numbers of any scale, are texts."""
    if isinstance(value, uuid.UUID):
        return str(value)
    return f"{value:f}" if name == "free" and value is not None else value


@pytest.fixture
def pair(server: postgres.Cluster, tmp_path: Path) -> Pair:
    return Pair(server, tmp_path)


@pytest.mark.slow
def test_values_of_all_types_arrive_by_snapshot_and_by_changes(pair: Pair) -> None:
    assert pair.replicated() == {"snapshot"}
    pair.run(
        f"insert into orders values (4, {ROW}), (5, {ROW})",
        "update orders set price = -13 where id in (1, 4)",
        "update orders set id = id + 10 where id in (2, 4)",
        "delete from orders where id = 3",
        "begin; insert into orders (id) values (20); savepoint a; delete from orders; rollback to a; commit",
    )
    assert pair.replicated() == {"changes"}
    assert pair.replicated() == set()
    pair.run("insert into orders (id) values (6)", "create table other (id integer)", "insert into other values (1)")
    assert pair.replicated() == {"changes"}
    assert pair.replicated() == set()  # also after transactions of other tables
    pair.run("begin; insert into orders (id) values (30); truncate orders; insert into orders (id) values (31); commit")
    assert pair.replicated() == {"changes"}


@pytest.mark.slow
def test_columns_follow_the_source_with_and_without_events(pair: Pair) -> None:
    pair.replicated()
    pair.run("alter table orders add extra integer default 7")
    assert pair.replicated() == set()
    pair.run(
        "insert into orders (id) values (4)",
        "alter table orders add other date default '2026-05-06'",
        "insert into orders (id, extra) values (5, 1)",
        "alter table orders rename note to memo",
        "delete from orders where id = 2",
    )
    assert pair.replicated() == {"changes"}
    pair.run(
        "alter table orders alter number type bigint",  # PostgreSQL rewrites the table
        "update orders set number = 5000000000 where id = 1",
    )
    assert pair.replicated() == {"changes"}
    pair.run("alter table orders drop extra", "alter table orders add extra text", "update orders set extra = 'x'")
    assert pair.replicated() == {"changes"}
    pair.run("alter table orders add made uuid default gen_random_uuid()", "insert into orders (id) values (6)")
    assert pair.replicated() == {"snapshot"}


@pytest.mark.slow
def test_a_lost_slot_or_table_starts_with_a_snapshot_and_another_server_is_refused(pair: Pair) -> None:
    pair.replicated()
    pair.run("select pg_drop_replication_slot('crdt_mor_public_o_rders__all')", "delete from orders where id = 2")
    assert pair.replicated() == {"snapshot"}
    pair.run("drop table orders", "create table orders (price numeric(6,2), id bigint primary key)")
    pair.run("insert into orders values (1.5, 1)")
    assert pair.replicated() == {"snapshot"}
    pair.uri += "-2"
    assert pair.replicated() == {"snapshot"}
    table = mor.Table(pair.uri)
    table.upsert(table.schema.empty_table(), token=("crdt_mor_public_o_rders__all", 1 << 60))
    with pytest.raises(mor.InvalidInputError, match="another slot"):
        pair.replicated()


@pytest.mark.slow
def test_a_source_that_cannot_be_replicated_is_refused(server: postgres.Cluster, tmp_path: Path) -> None:
    server.run("create table keyless (id integer)")
    for source, message in (("public.keyless", "primary key"), ("nothing", "ordinary table")):
        with pytest.raises(mor.InvalidInputError, match=message):
            next(replicate(server.dsn, source, str(tmp_path / "t")))
    with pytest.raises(StorageUnavailableError, match="did not answer"):
        next(replicate(f"{server.dsn} port=1", "public.keyless", str(tmp_path / "t")))


@pytest.mark.slow
def test_killed_consumers_keep_the_table_equal(tmp_path: Path) -> None:
    if (lack := postgres.missing()) is not None:
        pytest.skip(lack)
    assert "are equal" in check_postgres.check(tmp_path, seconds=8, rate=50, accounts=2000, seed=1)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(mor.InvalidInputError, match=r"crdt-mor\[postgres\]"):
        next(replicate("", "public.orders", "orders"))
