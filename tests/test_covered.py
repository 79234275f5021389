"""The table of coverage adds up the files of each room."""

from __future__ import annotations

from typing import Any

from tests.covered import by_room, least, table


def file(statements: int, run: int, branches: int, taken: int) -> dict[str, Any]:
    numbers = {"num_statements": statements, "covered_lines": run, "num_branches": branches, "covered_branches": taken}
    return {"summary": numbers}


FILES = {
    "crdt_mor/__init__.py": file(10, 10, 0, 0),
    "crdt_mor/log/tail.py": file(10, 5, 4, 1),
    "crdt_mor/log/deep/steps.py": file(10, 10, 4, 4),
    "readers/polars.py": file(10, 10, 2, 1),
}


def test_by_room_adds_up_files_and_all() -> None:
    rooms = by_room(FILES)
    assert list(rooms) == ["crdt_mor", "crdt_mor/log", "readers", "all"]
    assert rooms["crdt_mor/log"] == {
        "num_statements": 20,
        "covered_lines": 15,
        "num_branches": 8,
        "covered_branches": 5,
    }
    assert rooms["all"]["num_branches"] == 10


def test_table_of_a_room_without_branches_has_no_share() -> None:
    lines = table(by_room(FILES)).splitlines()
    assert lines[1].split() == ["crdt_mor", "0", "-", "10", "100.0", "%"]
    assert lines[-1].split() == ["all", "10", "60.0", "%", "40", "87.5", "%"]


def test_least_lists_the_files_with_most_branches_not_taken() -> None:
    assert least(FILES, 2) == ["    3 crdt_mor/log/tail.py", "    1 readers/polars.py"]
