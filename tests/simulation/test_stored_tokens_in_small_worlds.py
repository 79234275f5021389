"""A write with a token is committed once, wherever its application's last token is, in every interleaving.

Here a version carries one token at most: with a second one, all of them move to an object. Writers end a write each,
some with the token of another: the object is put before the version that names it, and discarded where the race is
lost. Other processes publish versions that name the same object, look for the newest version, and sweep. In each store
that can be reached, so whichever process dies and wherever, the promises are those of every world, and:

    - each version that stands has the last token of each application, in itself or in an object that stands
    - no token is that of two commits, and a process finds a value with the last tokens of its commits
    - the next process sweeps, and then no object stands that the tail does not name
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from crdt_mor.errors import CrdtMorError
from crdt_mor.events import write as writes
from crdt_mor.log import segments, tail
from crdt_mor.log.paths import segment_path, version_path
from crdt_mor.log.steps import Put, Steps
from crdt_mor.log.tail import find_tail
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, Token
from crdt_mor.model.tokens import Stored, Tokens, decode_tokens
from tests.driving import nonce_in_hex
from tests.simulation.actors import PUBLISHER, Run, data_path
from tests.simulation.small_store import Violation, completions_of
from tests.simulation.stored_parts import (
    StoredParts,
    a_lost_reply_is_taken_for_an_object,
    a_process_that_is_unsure_takes_it_for_lost,
    a_sweep_asks_the_newest_version_alone,
    a_sweep_knows_segments_alone,
    nobody_sweeps,
)
from tests.simulation.worlds import Place, Plant, small_numbers
from tests.tiers import long, slow

a_version_carries_one_token = small_numbers(TOKENS_MAX=1)

Number = tuple[str, int]

OLD = ("old0", 1)
"""The token of a commit before the search; it is in the object then."""
BACK, NEW, THIRD = ("old0", 2), ("new", 1), ("third", 1)


def ending(value: Timeline, at: int, token: Number) -> Run:
    """Ends a pending write."""
    begun = value.pending[at]
    file = DataFile(data_path(begun.requested), 1, 1)
    outcome = yield from writes.complete(PUBLISHER, value, begun, "UPSERT", [file], token)
    return ("acknowledged", begun.requested) if not outcome.repeated else ("repeated", token)


def latecomer(value: Timeline, at: int, token: Number) -> Run:
    """The same, but it stalls after its object is put, and dies after its version is put."""
    begun = value.pending[at]
    event = value.complete(
        nonce_in_hex("late"), 0, begun.requested, "UPSERT", [DataFile(data_path(begun.requested), 1, 1)], token
    )
    late = yield from segments.seal(value, event, {}, [])
    yield Put(version_path(late.version), late.encode())


class StoredTokens(StoredParts):
    """A table with two applications' tokens in an object, and one more in the version.

    ends, late: the tokens of the writes that `ending` and `latecomer` end. before: so many commits, each of its own
    application, and every second with an object. standing: so many versions stand at first.
    """

    def __init__(
        self,
        *,
        ends: Sequence[Number] = (),
        late: Sequence[Number] = (),
        others: Sequence[str] = (),
        before: int = 3,
        standing: int = 1,
        **options: Any,
    ) -> None:
        place = Place.with_begun(before + len(ends) + len(late))
        place.stage(place.tail.pending)
        for n in range(before):
            newest = place.run(find_tail(None), f"found{n}.")
            place.run(ending(newest, 0, (f"old{n}", 1)), f"before{n}.")
        roles = [*((ending, token) for token in ends), *((latecomer, token) for token in late)]
        changing = [partial(role, at=n, token=token) for n, (role, token) in enumerate(roles)]
        super().__init__(place, changing, others, standing, **options)

    def check_named(self, value: Timeline, objects: dict[str, Any]) -> None:
        _check_tokens(_read(value, objects), completions_of(value, objects))

    def check_result(self, result: object, objects: dict[str, Any]) -> None:
        match result:
            case ("found", Timeline() as value):
                _check_tokens(value.tokens, value.completions)
            case ("repeated", _):
                pass
            case _:
                super().check_result(result, objects)


def _read(value: Timeline, objects: dict[str, Any]) -> Tokens:
    name = value.tokens.object
    if name is None:
        return value.tokens
    path = segment_path(name)
    if path not in objects:
        raise Violation(f"version {value.version} names tokens that are not there: {path}")
    return replace(value.tokens, stored=decode_tokens(name, objects[path], path))


def _check_tokens(tokens: Tokens, commits: Iterable[Completion]) -> None:
    """The last tokens follow from the commits, and no two commits have the same token."""
    numbers = [c.token for c in sorted(commits, key=lambda c: c.completed) if c.token is not None]
    if len(numbers) != len(set(numbers)):
        raise Violation(f"two commits have one token: {numbers}")
    if {t.application: t.number for t in tokens} != dict(numbers):
        raise Violation(f"other tokens than the commits have: {tokens} {numbers}")


@pytest.mark.parametrize(
    ("options", "states"),
    [
        ({"ends": [BACK, BACK]}, 100),
        ({"before": 2, "ends": [BACK, BACK]}, 100),
        ({"ends": [OLD, NEW]}, 100),
        ({"ends": [NEW], "others": ["finder"], "faults": 1}, 100),
        ({"before": 5, "late": [NEW], "others": ["sweeper", "finder"], "standing": 3}, 100),
        slow({"ends": [BACK, BACK], "others": ["finder"]}, 1_000),
        slow({"ends": [NEW], "others": ["sweeper", "finder"]}, 1_000),
        slow({"ends": [BACK], "late": [NEW], "others": ["decider"]}, 200),
        slow({"ends": [BACK, BACK], "faults": 1}, 1_000),
        slow({"ends": [NEW, BACK], "faults": 1}, 1_000),
        long({"ends": [BACK, BACK, NEW]}, 1_000),
        long({"ends": [BACK, NEW], "others": ["sweeper"]}, 1_000),
    ],
    ids=str,
)
def test_a_write_with_a_token_is_committed_once(options: dict[str, Any], states: int) -> None:
    assert StoredTokens(**options).search() > states


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def all_attempts_share_a_name(patch: pytest.MonkeyPatch) -> None:
    name = segments.SegmentName
    patch.setattr(
        segments, "SegmentName", lambda version, nonce, level, kind, own=None: name(version, "0" * 32, level, kind, own)
    )


def a_process_keeps_the_tokens_that_it_has_read_first(patch: pytest.MonkeyPatch) -> None:
    read = segments.with_objects

    def careless(value: Timeline, known: Timeline | None = None) -> Steps[Timeline]:
        if value.tokens.object is not None and known is not None and known.tokens.stored is not None:
            kept = Stored(value.tokens.object, known.tokens.stored.entries)
            return replace(value, tokens=replace(value.tokens, stored=kept))
        return (yield from read(value, known))

    patch.setattr(tail, "with_objects", careless)


def an_object_has_the_tokens_of_the_version_alone(patch: pytest.MonkeyPatch) -> None:
    def recent(self: Tokens) -> Iterator[Token]:
        return iter(self.recent)

    patch.setattr(Tokens, "__iter__", recent)


def the_object_counts_more_than_the_version(patch: pytest.MonkeyPatch) -> None:
    find = Tokens.find

    def careless(self: Tokens, application: str) -> Token | None:
        older = self.stored.read.get(application) if self.stored is not None else None
        return older or find(self, application)

    patch.setattr(Tokens, "find", careless)


def an_application_in_the_object_counts_as_new(patch: pytest.MonkeyPatch) -> None:
    def careless(self: Tokens, application: str) -> Token | None:
        return next((t for t in self.recent if t.application == application), None)

    patch.setattr(Tokens, "find", careless)


@pytest.mark.parametrize(
    ("plant", "options", "found"),
    [
        (a_lost_reply_is_taken_for_an_object, {"ends": [NEW], "faults": 1}, "not there"),
        (all_attempts_share_a_name, {"ends": [NEW, THIRD]}, "other tokens"),
        (a_process_that_is_unsure_takes_it_for_lost, {"ends": [NEW], "faults": 1}, "not there"),
        (a_sweep_knows_segments_alone, {"before": 6, "others": ["sweeper"], "standing": 2}, "not there"),
        (a_sweep_asks_the_newest_version_alone, {"before": 6, "others": ["sweeper"], "standing": 2}, "not there"),
        (nobody_sweeps, {"ends": [NEW]}, "no sweep removes it"),
        (a_process_keeps_the_tokens_that_it_has_read_first, {"ends": [NEW], "others": ["finder"]}, "other tokens"),
        (an_object_has_the_tokens_of_the_version_alone, {"ends": [NEW]}, "tokens_are_carried_or_stored"),
        (the_object_counts_more_than_the_version, {"before": 2, "ends": [BACK, BACK]}, "tokens_grow"),
        (an_application_in_the_object_counts_as_new, {"ends": [OLD]}, "one token"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(plant: Plant, options: dict[str, Any], found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = StoredTokens(**options)
    plant(monkeypatch)
    with pytest.raises((Violation, CrdtMorError, AssertionError), match=found):
        world.search(depth_first=True)
