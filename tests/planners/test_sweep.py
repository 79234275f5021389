"""Which data files a sweep deletes, of all that a listing shows."""

from __future__ import annotations

import pytest

from crdt_mor.model.instant import InstantTime, from_ms
from crdt_mor.model.names import WRITE_TOKEN, BaseFileName, bucket_file_id
from crdt_mor.planners.sweep import Instants, garbage

ALIVE, DEAD, NAMED, UNKNOWN = (from_ms(1_700_000_000_000 + n) for n in range(4))
AFTER, BEFORE = from_ms(1_600_000_000_000), from_ms(1_800_000_000_000)
INSTANTS = Instants({ALIVE}, {DEAD}, {ALIVE, DEAD, NAMED}, AFTER, BEFORE)
HUDIS = "0-12-34"
RANDOM_ID = "0b9c2f43-1a8e-4b26-9a5c-7e1f0d3c5b2a-0"


def data_file(instant: InstantTime, token: str = WRITE_TOKEN, file_id: str = bucket_file_id(0)) -> str:
    return f"day=1/{BaseFileName(file_id, token, instant)}"


@pytest.mark.parametrize(
    ("path", "is_garbage"),
    [
        (data_file(ALIVE), False),
        (data_file(DEAD), True),
        (data_file(DEAD, HUDIS, RANDOM_ID), True),
        (data_file(NAMED), False),
        (data_file(UNKNOWN), True),
        (data_file(UNKNOWN, HUDIS), False),
        (data_file(UNKNOWN, WRITE_TOKEN, RANDOM_ID), False),
        (data_file(AFTER), False),
        (data_file(BEFORE), False),
        ("day=1/notes.txt", False),
    ],
)
def test_garbage_of_one_file_is_that_of_dead_instants_or_with_our_names(path: str, is_garbage: bool) -> None:
    assert [*garbage([path], INSTANTS).values()] == ([[path]] if is_garbage else [])


def test_garbage_of_an_orphans_instant_includes_later_files_of_others() -> None:
    paths = [data_file(UNKNOWN), data_file(UNKNOWN, HUDIS)]
    assert garbage(paths, INSTANTS) == {UNKNOWN: paths}
