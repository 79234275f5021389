"""Records `wal2json.jsonl`: events that wal2json writes for a small history, an event a line.

    python -m tests.cdc.record

README.md lists the facts that the events show.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.cdc import postgres

RECORDED: Final = Path(__file__).with_name("wal2json.jsonl")
OPTIONS: Final = {
    "format-version": "2",
    "include-lsn": "true",
    "include-xids": "true",
    "include-pk": "true",
    "include-column-positions": "true",
    "add-tables": "public.orders,public.logged,public.keyless",
}
LONG: Final = "(select string_agg(md5(n::text), '') from generate_series(1, 70) n)"
ORDERS: Final = """create table orders (
    id bigint primary key, note text, price numeric(6,2), placed timestamptz, day date, seen timestamp, paid boolean,
    small smallint, number integer, single real, double float8, raw bytea, ref uuid, doc json, docb jsonb,
    code char(4), name varchar(10), free numeric, tags text[], took interval, host inet)"""
VALUES: Final = f"""insert into orders values (1, {LONG}, 12.50, '2026-01-02 03:04:05.678901+02', '2026-01-02',
    '2026-01-02 03:04:05', true, -1, 2, 1.1, 0.1, '\\xdead', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{{"a":  1}}',
    '{{"a":  1}}', 'ab', 'é', 1e30, array['a', 'b"c'], '1 day', '10.0.0.1')"""

HISTORY: Final = (  # each a transaction
    (VALUES, "insert into orders (id, price) values (2, null)"),
    ("update orders set price = 13 where id = 1",),  # an unchanged TOAST value
    ("update orders set id = 10 where id = 1",),  # another key
    ("delete from orders where id = 2",),
    ("insert into logged values (1, 'a')", "update logged set text = 'b'", "delete from logged"),
    ("insert into keyless values (1, 'a')",),
    ("insert into other values (1)",),  # a table that is not asked for
    ("insert into orders (id) values (4)", "truncate orders", "insert into orders (id) values (5)"),
    ("insert into orders (id) values (20)", "savepoint a", "insert into orders (id) values (21)", "rollback to a"),
    ("insert into orders (id, single, double, free) values (6, 'NaN', '-Infinity', 'NaN')",),  # they become null
    ("insert into orders (id, day, seen, placed) values (7, 'infinity', '-infinity', '0044-03-15 00:00+00 BC')",),
    ("alter table orders add extra integer default 7",),  # no event
    ("insert into orders (id) values (8)", "alter table orders rename note to memo", "update orders set paid = true"),
    ("alter table orders alter price type numeric(12,2)", "insert into orders (id, price) values (9, 1234567.89)"),
    ("alter table orders drop extra", "insert into orders (id) values (11)"),
)


def history(cursor: Any) -> None:
    for statements in HISTORY:
        cursor.execute("; ".join(("begin", *statements, "commit")))


def interleaved(first: Any, second: Any) -> None:
    """Two transactions, of which the later one commits first."""
    first.execute("begin; insert into orders (id) values (30)")
    second.execute("begin; insert into orders (id) values (31); commit")
    first.execute("insert into orders (id) values (32); commit")


def main() -> None:
    if (lack := postgres.missing()) is not None:
        raise SystemExit(lack)
    with postgres.cluster() as server, server.connected() as cursor, server.connected() as other:
        cursor.execute(f"{ORDERS}; alter table orders alter note set storage external")
        cursor.execute(
            "create table logged (id integer primary key, text text); create table keyless (id int, text text)"
        )
        cursor.execute("alter table logged replica identity full; create table other (id integer primary key)")
        cursor.execute("select pg_create_logical_replication_slot('recorded', 'wal2json')")
        history(cursor)
        interleaved(cursor, other)
        options = [word for pair in OPTIONS.items() for word in pair]
        cursor.execute("select data from pg_logical_slot_get_changes('recorded', null, null, variadic %s)", [options])
        events = [data for (data,) in cursor.fetchall()]  # as text: numbers keep all digits
    RECORDED.write_text("".join(f"{event}\n" for event in events))


if __name__ == "__main__":
    main()
