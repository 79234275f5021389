"""What each commit of a soak writes, and which rows a table shows after so many commits of each process.

A process makes its commits one after the other, each with its number. So every view, whenever it was taken, has the
first so many commits of each process, and says itself how many: `numbers_of` reads that from counters, and `rows_after`
says what all rows have to be then. A commit that is lost, counts twice or is there in part makes the two differ, and so
does a wrong sum: money that processes move between accounts of a bank is neither made nor lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

WRITERS: Final = [f"write{number}" for number in range(8)]
UPDATERS: Final = ["update0", "update1"]
DRIVER: Final = "distribute0"

SCHEMA: Final = pa.schema(
    [("id", pa.string()), ("kind", pa.string()), *((name, pa.int64()) for name in ("val", "n", "s", "q"))]
)
"""`n`, `s` and `q` are counters: how many commits, the sum of their numbers, and that of the squares of these."""

KEY: Final = ["kind", "id"]

Row = tuple[str, int | None, int | None, int | None, int | None]
"""A row without its key: kind, val, n, s, q."""

Rows = dict[str, Row]
Numbers = Mapping[str, int]
"""How many commits of each process there are."""

KEYS: Final = 7
"""How many rows of its own a writer writes, over and over."""
CYCLE: Final = 35
"""After so many commits of a writer each of its rows was written again."""
SHARED: Final = 4
TASKS: Final = 3
ACCOUNTS: Final = 10
OPENING: Final = 1000


# --- what a commit writes ---------------------------------------------------------------------------------------------


def is_delete(number: int) -> bool:
    """Whether this commit of a writer deletes a row, and does nothing else."""
    return number % 5 == 0


def deleted_by(name: str, number: int) -> str | None:
    """The row that a commit of a writer deletes, if any: alone, or beside what it upserts."""
    if is_delete(number):
        return f"{name}.{3 * number % KEYS}"
    return f"{name}.{(number + 3) % KEYS}" if number % 5 == 3 else None


def upserted_by(name: str, number: int) -> Rows:
    """What a commit of a writer upserts: a row of its own, its counters, and those of all."""
    own: Rows = {f"{name}.{number % KEYS}": ("own", number, None, None, None)}
    counters: Rows = {name: ("count", None, 1, number, number**2)}
    return own | counters | {f"all.{one}": ("count", None, 1, None, None) for one in range(SHARED)}


def staged_by(task: int, number: int) -> Rows:
    """What a task of a distributed write stages."""
    return {
        f"{DRIVER}.{task}": ("count", None, 1, number, number**2),
        f"{DRIVER}.row.{task}": ("own", number, None, None, None),
    }


def transfer(name: str, number: int) -> tuple[str, str, int]:
    """From which account an updater moves how much to which other one."""
    source = (7 * number + UPDATERS.index(name)) % ACCOUNTS
    target = (source + 1 + number % (ACCOUNTS - 1)) % ACCOUNTS
    return f"bank.{source}", f"bank.{target}", number % 50 + 1


def opening() -> Rows:
    """The rows with which a table begins: the accounts, and a row of each updater, which counts its transfers."""
    accounts: Rows = {f"bank.{number}": ("bank", OPENING, 0, None, None) for number in range(ACCOUNTS)}
    return accounts | dict.fromkeys(UPDATERS, ("bank", 0, 0, None, None))


def table_of(rows: Rows) -> pa.Table:
    """Rows as they are written."""
    columns = zip(*((key, *row) for key, row in rows.items()), strict=True)
    return pa.table([*map(list, columns)], schema=SCHEMA)


# --- what they mean ---------------------------------------------------------------------------------------------------


def rows_after(numbers: Numbers) -> Rows:
    """The rows of a table with so many commits of each process."""
    rows = _bank(numbers)
    for name in WRITERS:
        rows |= own_rows(name, numbers[name])
        counted = [number for number in range(1, numbers[name] + 1) if not is_delete(number)]
        if counted:
            rows[name] = ("count", None, len(counted), sum(counted), sum(number**2 for number in counted))
    everybody = sum(rows[name][2] or 0 for name in WRITERS if name in rows)
    if everybody:
        rows |= {f"all.{one}": ("count", None, everybody, None, None) for one in range(SHARED)}
    if done := numbers[DRIVER]:
        sums = (done, done * (done + 1) // 2, done * (done + 1) * (2 * done + 1) // 6)
        rows |= {f"{DRIVER}.{task}": ("count", None, *sums) for task in range(TASKS)}
        rows |= {f"{DRIVER}.row.{task}": ("own", done, None, None, None) for task in range(TASKS)}
    return rows


def own_rows(name: str, number: int) -> Rows:
    """The rows of its own that a writer has after so many commits."""
    rows: Rows = {}
    for one in range(max(1, number - CYCLE + 1), number + 1):
        rows.pop(deleted_by(name, one) or "", None)
        if not is_delete(one):
            rows[f"{name}.{one % KEYS}"] = ("own", one, None, None, None)
    return rows


def _bank(numbers: Numbers) -> Rows:
    balance = {key: row[1] or 0 for key, row in opening().items()}
    touched = dict.fromkeys(balance, 0)
    for name in UPDATERS:
        for number in range(1, numbers[name] + 1):
            source, target, amount = transfer(name, number)
            balance[source] -= amount
            balance[target] += amount
            for key in (source, target, name):
                touched[key] += 1
    return {key: ("bank", balance[key], touched[key], None, None) for key in balance}


def numbers_of(rows: Rows) -> dict[str, int]:
    """How many commits of each process a view has, as its counters say: of a writer the last that is no delete."""

    def counted(key: str) -> int:
        return rows[key][2] or 0 if key in rows else 0

    numbers = {name: last_counted(counted(name)) for name in WRITERS}
    return numbers | {name: counted(name) for name in UPDATERS} | {DRIVER: counted(f"{DRIVER}.0")}


def last_counted(count: int) -> int:
    """The number of a writer's commit that is the so many-th of those that are no deletes."""
    return count + max(0, count - 1) // 4


def wrong_in(rows: Rows, known: Numbers | None = None) -> list[str]:
    """What a view shows that no commits can have made, a text each; none if it is right.

    known: commits that it has to have at least, since somebody was told of them before it was taken.
    """
    numbers = numbers_of(rows)
    missing = [
        f"{name} was told of commit {number}, and the view ends with {numbers[name]}"
        for name, number in (known or {}).items()
        if numbers[name] < number - (name in WRITERS and is_delete(number))
    ]
    expected = rows_after({name: _with_delete(name, number, rows) for name, number in numbers.items()})
    return missing + list(_differences(expected, rows))


def _with_delete(name: str, number: int, rows: Rows) -> int:
    """A writer's last commit that a view has, a delete after the last that it counts among them."""
    if name not in WRITERS or not is_delete(number + 1):
        return number
    found = {key: row for key, row in rows.items() if key.startswith(f"{name}.")}
    return number if found == own_rows(name, number) else number + 1


def _differences(expected: Rows, found: Rows) -> Iterator[str]:
    for key in sorted(expected.keys() | found.keys()):
        if expected.get(key) != found.get(key):
            yield f"{key} is {found.get(key)}, and the view's commits make it {expected.get(key)}"
