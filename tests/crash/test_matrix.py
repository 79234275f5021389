"""Every service and statement x everything that may go wrong, at each of its operations: the matrix of crashes.

    python -m pytest -m "" tests/crash/test_matrix.py        # every cell, at every operation

A cell is a verb and a fault; `places.py` makes, copies and drops tables. The verb is done once for each of its
operations, and at that one the fault happens. Then the table opens, and is as it was before or as it is after; after,
if the call returned. Of a statement that says that nothing was published, nothing is there. At every second operation
another process makes the same call again, under the same token, and the table is as after. Somebody else writes, and
the power goes off; once the dead have expired `maintain` does all that is due, nothing that anybody sees changes,
`verify` finds nothing wrong, and hudi-rs reads what we read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from crdt_mor.log.paths import VERSIONS
from crdt_mor.log.publish import Publisher
from crdt_mor.read import snapshot
from crdt_mor.store.protocol import Content, Durable
from tests.crash.cells import cells, outcomes, small_numbers
from tests.crash.media import FAULTS, Disk
from tests.crash.places import PLACES
from tests.crash.verbs import VERBS
from tests.simulation.worlds import nothing
from tests.tiers import long, slow

OPERATIONS_MAX = 400


@pytest.fixture(autouse=True)
def _small_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    small_numbers(monkeypatch)


def run(row: str, fault: str, every: int) -> int:
    """A cell at every so many of its operations; at how many the fault happened."""
    for looked, at in enumerate(range(1, OPERATIONS_MAX, every)):
        if not all(cell.run() for cell in cells(row, fault, at)):
            return looked
    raise AssertionError(f"{row} has no end")


FAST = [
    ("upsert", "kill after"),
    ("update", "pause past expiry"),
    ("compact", "power cut before"),
    ("create", "kill before fsync of a folder"),
    ("first copy", "kill before"),
    ("drop", "kill before"),
]
ROWS = (*VERBS, *PLACES)


@pytest.mark.costly
@pytest.mark.parametrize(("row", "fault"), FAST)
def test_some_cells(row: str, fault: str) -> None:
    assert run(row, fault, every=8)


@pytest.mark.parametrize(("row", "every"), [*(slow(row, 24) for row in ROWS), *(long(row, 1) for row in ROWS)])
def test_the_matrix(row: str, every: int) -> None:
    without = (PLACES | VERBS)[row].without
    for fault in FAULTS:
        looked = run(row, fault, every)
        assert bool(looked) == (fault not in without), f"{row}, {fault}: {looked} operations"


def _nobody_helps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publisher, "help_project", lambda self, tail: nothing())


def _versions_are_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    put = Disk.put

    def hasty(disk: Disk, path: str, data: Content, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:
        others = [earlier for earlier in after if not earlier.startswith(VERSIONS)]
        return put(disk, path, data, durable="content" if path.startswith(VERSIONS) else durable, after=others)

    patch.setattr(Disk, "put", hasty)


def _the_past_expires(patch: pytest.MonkeyPatch) -> None:
    now = property(lambda view: snapshot.moment_now(view.session, view.value))
    patch.setattr(snapshot.Snapshot, "expiry_time", now)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "verb", "fault", "said"),
    [
        (_nobody_helps, "compact", "kill before", "Hudi is not told of a commit"),
        (_the_past_expires, "compact rows that expire", "kill before", "as of the savepoint"),
        (_versions_are_not_waited_for, "upsert", "power cut after", r"is none of \{State"),
    ],
)
def test_the_matrix_finds(
    plant: Callable[[pytest.MonkeyPatch], None], verb: str, fault: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes(verb)
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=said):
        run(verb, fault, every=1)
