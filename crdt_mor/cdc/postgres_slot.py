"""Read a replication slot: its snapshot, then whole transactions.

psycopg 3 lacks the replication protocol, but gives libpq's calls. psycopg 2 confirms some positions by itself.
"""

from __future__ import annotations

import json
import re
import select
import struct
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from crdt_mor import InvalidInputError
from crdt_mor.cdc.wal2json import lsn
from crdt_mor.errors import StorageUnavailableError

EVENTS_MAX: Final = 10_000
_IDLE_S: Final = 0.5
_SESSION: Final = "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=postgres -c extra_float_digits=1"
_OPTIONS: Final = {
    "format-version": "2", "include-lsn": "true", "include-xids": "true", "include-column-positions": "true",
}  # fmt: skip
_DATA: Final = struct.Struct("!cQQQ")
_KEEPALIVE: Final = struct.Struct("!cQQ?")
_STATUS: Final = struct.Struct("!cQQQQ?")


def driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise InvalidInputError('PostgreSQL needs psycopg: run pip install "crdt-mor[postgres]"') from error
    return psycopg


@contextmanager
def failures_told() -> Iterator[None]:
    try:
        yield
    except driver().Error as error:
        text = " ".join(str(error).split()).rstrip(".")
        raise StorageUnavailableError(
            f"PostgreSQL refused or did not answer: {text}. Correct the cause and run it again: it continues after "
            "the last commit"
        ) from error


@contextmanager
def connected(dsn: str, **options: Any) -> Iterator[Any]:
    with closing(driver().connect(dsn, options=_SESSION, autocommit=True, **options)) as connection:
        yield connection


def rows_of(connection: Any, statement: str, *values: object) -> list[tuple[Any, ...]]:
    return list(connection.execute(statement, values or None).fetchall())


def flushed(connection: Any) -> int:
    [(position,)] = rows_of(connection, "select pg_current_wal_flush_lsn()::text")
    return lsn(position)


def wait_for_turn(connection: Any, slot: str) -> None:
    """Wait for the slot's turn, which ends with the connection."""
    rows_of(connection, "select set_config('lock_timeout', '1s', false)")
    while True:  # Ctrl-C cannot end one long statement
        with suppress(driver().errors.LockNotAvailable):
            rows_of(connection, "select pg_advisory_lock(hashtext('crdt_mor'), hashtext(%s))", slot)
            return


def confirmed(connection: Any, slot: str) -> int | None:
    """Return the confirmed position; None without a slot or its log."""
    found = rows_of(
        connection,
        "select plugin, database = current_database(), confirmed_flush_lsn::text, wal_status "
        "from pg_replication_slots where slot_name = %s",
        slot,
    )
    if not found:
        return None
    [(plugin, is_here, position, status)] = found
    if plugin != "wal2json" or not is_here:
        raise InvalidInputError(
            f"the slot belongs to another plugin or database: choose another slot. slot={slot!r} plugin={plugin}"
        )
    return None if position is None or status == "lost" else lsn(position)


def drop(connection: Any, slot: str) -> None:
    statement = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s"
    rows_of(connection, statement, slot)


@contextmanager
def created(dsn: str, slot: str) -> Iterator[tuple[Any, int]]:
    """Create the slot; give a connection that sees the snapshot at its position."""
    with connected(dsn) as connection:
        with connected(dsn, replication="database") as maker:
            statement = f"CREATE_REPLICATION_SLOT {quoted(slot)} LOGICAL wal2json EXPORT_SNAPSHOT"
            [(_, position, snapshot, _)] = rows_of(maker, statement)
            connection.execute("begin isolation level repeatable read, read only")
            connection.execute(f"set transaction snapshot '{snapshot}'")
        yield connection, lsn(position)


@dataclass(frozen=True, slots=True)
class Batch:
    """Whole transactions, and the position up to which all were received."""

    events: list[dict[str, Any]]
    position: int


class Stream:
    def __init__(self, libpq: Any, position: int) -> None:
        self._libpq = libpq
        self._position = self._confirmed = position
        self._open: list[dict[str, Any]] | None = None
        self._whole: list[dict[str, Any]] = []

    def take(self) -> Batch:
        """Return the arrived transactions; none after a silent moment."""
        asked = False
        while len(self._whole) < EVENTS_MAX:
            message = self._message()
            if message[:1] == b"w":
                self._add(json.loads(message[_DATA.size :], parse_float=Decimal))
            elif message[:1] == b"k":
                _, end, _, is_asked = _KEEPALIVE.unpack(message)
                self._heard(end, is_asked)
            elif self._whole or (asked and not message):
                break
            elif not self._waited():
                self._answer(is_asking=True)
                asked = self._waited()
        events, self._whole = self._whole, []
        return Batch(events, self._position)

    def _message(self) -> bytes:
        size, message = self._libpq.get_copy_data(1)
        if size == 0:
            self._libpq.consume_input()
            size, message = self._libpq.get_copy_data(1)
        if size < 0:
            raise driver().OperationalError(self._libpq.get_error_message() or "the server has ended the stream")
        return bytes(message)

    def _waited(self) -> bool:
        return bool(select.select([self._libpq.socket], [], [], _IDLE_S)[0])

    def _heard(self, end: int, is_asked: bool) -> None:
        if self._open is None:
            self._position = max(self._position, end)
        if is_asked:
            self._answer()

    def _add(self, event: dict[str, Any]) -> None:
        if event["action"] == "B":
            self._open = []
        assert self._open is not None
        self._open.append(event)
        if event["action"] == "C":
            self._position = lsn(event["nextlsn"])
            if len(self._open) > 2:
                self._whole += self._open
            self._open = None

    def confirm(self, position: int) -> None:
        self._confirmed = position
        self._answer()

    def _answer(self, *, is_asking: bool = False) -> None:
        places = (self._confirmed, self._confirmed, self._confirmed)
        self._libpq.put_copy_data(_STATUS.pack(b"r", *places, 0, is_asking))
        self._libpq.flush()


@contextmanager
def streamed(dsn: str, slot: str, schema: str, table: str, position: int) -> Iterator[Stream]:
    options: Mapping[str, str] = {**_OPTIONS, "add-tables": f"{_escaped(schema)}.{_escaped(table)}"}
    words = ", ".join(f"{quoted(name)} {_literal(value)}" for name, value in options.items())
    with connected(dsn, replication="database") as connection:
        libpq = connection.pgconn
        result = libpq.exec_(f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {place_of(position)} ({words})".encode())
        if result.status != driver().pq.ExecStatus.COPY_BOTH:
            raise driver().errors.error_from_result(result)
        yield Stream(libpq, position)


def _escaped(name: str) -> str:
    return re.sub(r"(\W)", r"\\\1", name)


def _literal(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def quoted(*names: str) -> str:
    return ".".join('"{}"'.format(name.replace('"', '""')) for name in names)


def place_of(position: int) -> str:
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
