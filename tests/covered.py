"""Prints the branches and lines that tests ran, by room: `python -m tests.covered build/coverage/report.json`.

`make coverage` and CI write the file. There is no threshold: the table shows rooms whose errors and rare ways no test
takes. `--files N` lists the N files with the most branches that were not taken.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FIELDS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def room_of(path: str) -> str:
    """The room of a file: its folder, and below `crdt_mor` two folders."""
    parts = Path(path).parts[:-1]
    return "/".join(parts[:2])


def by_room(files: Mapping[str, Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """Add up the numbers of the files of each room, and of all."""
    rooms: dict[str, Counter[str]] = {}
    for path, file in sorted(files.items()):
        numbers = Counter({field: file["summary"][field] for field in FIELDS})
        for room in (room_of(path), "all"):
            rooms.setdefault(room, Counter()).update(numbers)
    rooms["all"] = rooms.pop("all")
    return rooms


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def table(rooms: Mapping[str, Counter[str]]) -> str:
    """A line for each room: branches taken and lines run."""
    lines = [f"{'room':24} {'branches':>9} {'taken':>8} {'lines':>7} {'run':>8}"]
    for room, found in rooms.items():
        branches = share(found["covered_branches"], found["num_branches"])
        run = share(found["covered_lines"], found["num_statements"])
        lines.append(f"{room:24} {found['num_branches']:9} {branches:>8} {found['num_statements']:7} {run:>8}")
    return "\n".join(lines)


def least(files: Mapping[str, Mapping[str, Any]], count: int) -> list[str]:
    """The files with the most branches that were not taken."""
    missed = {
        path: file["summary"]["num_branches"] - file["summary"]["covered_branches"] for path, file in files.items()
    }
    return [f"{missed[path]:5} {path}" for path in sorted(missed, key=lambda path: -missed[path])[:count]]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.covered", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--files", type=int, default=0, metavar="N")
    given = parser.parse_args()
    files = json.loads(given.file.read_text(encoding="utf-8"))["files"]
    sys.stdout.write("\n".join([table(by_room(files)), *least(files, given.files)]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
