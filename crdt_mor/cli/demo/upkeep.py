"""The end of the demo: `maintain` removes what nobody needs, and the rest is counted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import crdt_mor as mor
from crdt_mor.cli.demo.check import Claim
from crdt_mor.cli.demo.place import Place
from crdt_mor.model.policies import words_of_bytes


@dataclass(frozen=True, slots=True)
class Tidied:
    done: tuple[str, ...]
    ok: bool
    live_bytes: int
    files_before: int
    bytes_before: int
    files_after: int
    bytes_after: int

    def claim(self, times_live: int) -> Claim:
        live, after = words_of_bytes(self.live_bytes), words_of_bytes(self.bytes_after)
        return Claim(
            f"what is left is at most {times_live} times the live rows",
            self.ok and self.bytes_after <= times_live * self.live_bytes,
            f"{live} live, {after} in {self.files_after:,} files; before maintain "
            f"{words_of_bytes(self.bytes_before)} in {self.files_before:,} files",
        )


def tidy(table: mor.Table, place: Place) -> Tidied:
    """Maintain without retention: the history was already checked, and no reader is left."""
    files_before, bytes_before = _measured(place)
    table.set_properties({"crdt_mor.readers": "0s", "crdt_mor.archive.commits": "1"})
    done = table.maintenance.maintain(keep=timedelta(0))
    live = sum(table.inspect.files()["bytes"].to_pylist())
    return Tidied(tuple(map(str, done.actions)), done.ok, live, files_before, bytes_before, *_measured(place))


def _measured(place: Place) -> tuple[int, int]:
    sizes = [stat.size for stat in place.objects()]
    return len(sizes), sum(sizes)
