"""What a process of a soak notes in a file beside the table, a line each: `try 7`, `ack 7 …`, `again …`.

What it was told is fsynced before it goes on. One that is started again tries the commit after the last one that it was
told of, under the same token.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from crdt_mor import Commit

_TAIL: Final = 4096


class Journal:
    """The file of one process, `NAME.journal` in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = os.open(folder / f"{name}.journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def say(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())

    def acknowledge(self, number: int, done: Commit) -> None:
        """Note, to last, that the process was told of a commit."""
        self.say("ack", number, done.requested_at, done.completed_at, done.repeated)
        os.fsync(self._file)


def read(folder: Path, name: str) -> list[list[str]]:
    """The lines of a process, as words; a torn last one left out."""
    path = folder / f"{name}.journal"
    return [line.split() for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def last_acknowledged(folder: Path, name: str) -> int:
    """The last commit that a process was told of; 0: of none."""
    path = folder / f"{name}.journal"
    if not path.exists():
        return 0
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL))
        lines = file.read().decode().split("\n")[:-1]
    acknowledged = [int(line.split()[1]) for line in lines if line.startswith("ack ")]
    if acknowledged or size <= _TAIL:
        return acknowledged[-1] if acknowledged else 0
    return max((int(words[1]) for words in read(folder, name) if words[0] == "ack"), default=0)
