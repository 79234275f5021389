"""The one builder of small worlds: what has happened to a table before the search, and the actors that live there.

    place = Place.with_begun(2)                    # a table in which two writes have begun
    place.go_on([complete, finish])                # both go on, the first one has staged its file
    place.live(["cleaner", "reader"], letters=None)
    World(place.objects, place.actors, faults=1).search()

A test says what is its own: roles that no other test has, and promises, in a class of its own that is a `World`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

import pytest

from crdt_mor.log import segments, tail
from crdt_mor.log.paths import SEGMENTS, VERSIONS, segment_path, version_path
from crdt_mor.log.steps import Put, Steps
from crdt_mor.model.declared import Declared
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Pending
from tests.simulation.actors import (
    GENESIS,
    Run,
    all_given_up,
    begun_world,
    canceller,
    cleaner,
    data_path,
    finish,
    planner,
    reader,
    sweeper,
    with_begun,
    worker,
    writer,
)
from tests.simulation.landing import alone
from tests.simulation.local_states import Actor
from tests.simulation.playing import happened
from tests.simulation.small_store import LOG, Violation, decoded, settled, stood
from tests.simulation.small_world import World

T = TypeVar("T")

Start = Callable[[], Run]
Role = Callable[[Timeline], Run]
"""What an actor does that remembers a value of the table."""
WriteRole = Callable[[Timeline, Pending], Run]
"""What an actor does with a write that has begun."""
Plant = Callable[[pytest.MonkeyPatch], None]
"""A planted bug: it replaces a rule by a careless one."""

ROLES: Mapping[str, Role] = MappingProxyType(
    {
        "canceller": lambda value: canceller(),
        "cleaner": lambda value: cleaner(),
        "planner": planner,
        "reader": lambda value: reader(),
        "sweeper": sweeper,
        "worker": worker,
        "writer": lambda value: writer(),
    }
)
"""The roles that tests share; a test may have others under these names."""


class Place:
    """A table before the search begins: its store, with the search's notes, and the actors that will live there.

    Actors remember the value that is the newest when they are added.
    """

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects: dict[str, Any] = stood({version_path(0): GENESIS.encode()} if objects is None else objects)
        self.actors: list[Actor] = []

    @classmethod
    def with_begun(cls, count: int, declared: Sequence[Declared] = ()) -> Place:
        """A table in which `count` writes have begun, and all but the newest version are gone.

        declared: as of `begun_world`.
        """
        objects, _ = begun_world(count, declared)
        return cls(objects)

    @property
    def tail(self) -> Timeline:
        """The newest value."""
        return decoded(self.objects[LOG][-1])

    # --- what has happened --------------------------------------------------------------------------------------------

    def run(self, steps: Steps[T], who: str) -> T:
        """A protocol runs to its end; `who`: how its nonces start."""
        result, self.objects = alone(steps, self.objects, who)
        return result

    def play(self, history: str) -> list[Timeline]:
        """The events of a history, a letter each as `happened` has them; returns the value after each."""
        values = []
        for n, event in enumerate(history):
            self.objects = happened(event, n, self.objects)
            values.append(self.tail)
        return values

    def begin(self, count: int) -> None:
        """So many writes begin."""
        for n in range(count):
            self.objects = with_begun(self.objects, n)

    def commit(self, count: int) -> None:
        """So many writes begin and complete, one after the other."""
        for n in range(count):
            self.run(writer(), f"c{n}.")

    def stage(self, writes: Iterable[Pending]) -> None:
        """These writes have staged their file."""
        self.objects |= {data_path(own.requested): b"rows" for own in writes}

    def settle(self, standing: int = 1) -> None:
        """Only so many of the versions are left."""
        older = sorted(path for path in self.objects if path.startswith(VERSIONS))[:-standing]
        self.objects = stood({path: data for path, data in self.objects.items() if path not in older})

    # --- the actors ---------------------------------------------------------------------------------------------------

    def add(self, prefix: str, starts: Iterable[Start]) -> None:
        """Actors that have one name but for a number."""
        self.actors += [Actor(f"{prefix}{n}", start) for n, start in enumerate(starts)]

    def go_on(self, roles: Iterable[WriteRole], prefix: str = "w") -> None:
        """The oldest writes that have begun go on, one in each role; all but those that `finish` have staged."""
        value = self.tail
        mine = list(zip(roles, value.pending, strict=False))
        self.stage(own for role, own in mine if role is not finish)
        self.add(prefix, [partial(role, value, own) for role, own in mine])

    def complete_all(self, role: WriteRole) -> None:
        """Every write that has begun has staged its file, and goes on in this role."""
        self.go_on([role] * len(self.tail.pending), "p")

    def live(
        self,
        who: Sequence[str],
        roles: Mapping[str, Role] = ROLES,
        *,
        letters: int | None = 1,
        store_now: int | None = None,
        writes: Mapping[str, WriteRole] = MappingProxyType({}),
        begun: Sequence[Pending] | None = None,
    ) -> None:
        """Actors in these roles.

        writes: roles in which each goes on with the next of the writes that have `begun`, by default all that have.
        letters: how many of the role's name an actor's begins with, before a number; None: its name is the role's.
        store_now: what the store's clock says to the first of them, and to each other one more; None: as it goes.
        """
        value = self.tail
        own = iter(value.pending if begun is None else begun)
        for n, role in enumerate(who):
            name = role if letters is None else f"{role[:letters]}{n}"
            start = partial(writes[role], value, next(own)) if role in writes else partial(roles[role], value)
            self.actors.append(Actor(name, start, None if store_now is None else store_now + n))


class RecoveringWorld(World):
    """A world in which each store that can be reached is looked at once more after a recovery."""

    def __init__(self, objects: dict[str, bytes], actors: Sequence[Actor], **options: Any) -> None:
        self._recovered: set[frozenset[tuple[str, bytes]]] = set()
        super().__init__(objects, actors, **options)

    def recover(self, objects: dict[str, bytes]) -> None:
        """Raise `Violation` for what is left once the next process has done what there is to do."""
        raise NotImplementedError

    def check_recovery(self, objects: dict[str, Any]) -> None:
        """Ask `recover` about a store without the older versions, unless it was asked before."""
        plain = settled(objects)
        key = frozenset(plain.items())
        if key not in self._recovered:
            self._recovered.add(key)
            self.recover(plain)


def recovered(objects: dict[str, bytes]) -> dict[str, Any]:
    """The store once the next process has given up all writers, and has swept while old versions went."""
    after = all_given_up(objects)
    for n in range(4):
        if n % 2:  # of two versions the older one is the oldest that stands
            after = stood(settled(after))
        _, after = alone(sweeper(decoded(after[LOG][-1])), after, f"again{n}.", store_now=20 + n)
    return after


def check_recovered(objects: dict[str, Any]) -> None:
    """Nothing is left of attempts that died."""
    tail = decoded(objects[LOG][-1])
    named = {segment_path(name) for name in tail.objects}
    if left := [path for path in objects if path.startswith(SEGMENTS) and path not in named]:
        raise Violation(f"no sweep removes it: {left}")


def small_numbers(**limits: int) -> Any:
    """A fixture of a module: a version may go as soon as there is a newer one, far more often than in life.

    limits: of what a value carries itself, by their names in `segments`, so that it seals as often.
    """

    @pytest.fixture(autouse=True, name="small_numbers")
    def lowered(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tail, "KEPT_VERSIONS", 1)
        for name, limit in limits.items():
            monkeypatch.setattr(segments, name, limit)

    return lowered


def seals(put: Put) -> bool:
    """For `faulty` of a world in which puts of segments and of versions may be hit by a fault."""
    return put.path.startswith((SEGMENTS, VERSIONS))


def nothing(*_: object, **__: object) -> Steps[None]:
    """A protocol that does nothing, in place of a rule that a planted bug leaves out."""
    return
    yield
