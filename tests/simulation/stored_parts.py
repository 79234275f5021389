"""Worlds in which a part of each version is in an object of its own, and the bugs that their searches find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from crdt_mor.events import leftovers
from crdt_mor.log import publish, segments
from crdt_mor.log.paths import version_path
from crdt_mor.log.steps import Put, Steps
from crdt_mor.log.tail import find_tail
from crdt_mor.model.file_ids import FIXED
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.tokens import NO_TOKENS
from tests.simulation.actors import Run, clock_mover
from tests.simulation.local_states import Actor
from tests.simulation.small_store import LOG, decoded
from tests.simulation.worlds import ROLES, Place, RecoveringWorld, check_recovered, nothing, recovered, seals


def finder(value: Timeline) -> Run:
    return ("found", (yield from find_tail(value)))


class StoredParts(RecoveringWorld):
    """A table with some versions, and processes that change the part.

    changing: each gets the newest version. others: roles by name. standing: so many versions stand at first.
    """

    def __init__(
        self,
        place: Place,
        changing: Sequence[Callable[[Timeline], Run]],
        others: Sequence[str],
        standing: int,
        **options: Any,
    ) -> None:
        place.settle(standing)
        newest = place.run(find_tail(None), "first.")
        place.actors += [Actor(f"a{n}", partial(role, newest)) for n, role in enumerate(changing)]
        roles = {**ROLES, "decider": clock_mover, "finder": finder}
        place.actors += [Actor(f"{name}{n}", partial(roles[name], newest), 10 + n) for n, name in enumerate(others)]
        super().__init__(place.objects, place.actors, faulty=seals, **options)

    def check(self, objects: dict[str, Any]) -> None:
        super().check(objects)
        for data in objects[LOG]:
            value = decoded(data)
            if objects.get(version_path(value.version)) == data:
                self.check_named(value, objects)
        self.check_recovery(objects)

    def check_named(self, value: Timeline, objects: dict[str, Any]) -> None:
        """Raise `Violation` if the object of a version that stands is missing or wrong."""
        raise NotImplementedError

    def recover(self, objects: dict[str, bytes]) -> None:
        check_recovered(recovered(objects))


# --- planted bugs -----------------------------------------------------------------------------------------------------


def a_lost_reply_is_taken_for_an_object(patch: pytest.MonkeyPatch) -> None:
    def careless(put: Put) -> Steps[None]:
        yield put

    patch.setattr(segments, "put_surely", careless)


def a_process_that_is_unsure_takes_it_for_lost(patch: pytest.MonkeyPatch) -> None:
    def careless(tail: Timeline, value: Timeline) -> Steps[bool]:
        return True
        yield

    patch.setattr(publish, "_has_lost", careless)


def a_sweep_knows_segments_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timeline, "objects", property(lambda self: {segment.name for segment in self.segments}))


def a_sweep_asks_the_newest_version_alone(patch: pytest.MonkeyPatch) -> None:
    oldest = leftovers._oldest_version

    def careless() -> Steps[Timeline | None]:
        found = yield from oldest()
        return replace(found, schema_object=None, file_ids=FIXED, tokens=NO_TOKENS) if found is not None else None

    patch.setattr(leftovers, "_oldest_version", careless)


def nobody_sweeps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("crdt_mor.events.sweep.sweep_leftovers", nothing)
