"""A rule that is proven holds for every row, in every interleaving of its adding with writes and with crashes.

Each writer here means to write a row that breaks the rule, and does so unless it is held to the rule by the value that
it goes by. In every store that can be reached whose table has the rule proven, no commit has such a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from crdt_mor.errors import WriterExpiredError
from crdt_mor.events import one_event
from crdt_mor.events import rules as events
from crdt_mor.events import write as writes
from crdt_mor.events.one_event import LoneCommit, LoneWrite
from crdt_mor.log.publish import Shortcuts
from crdt_mor.log.steps import Nonce, Put, Read
from crdt_mor.log.tail import find_tail
from crdt_mor.model import rules as model
from crdt_mor.model.instant import claim_after
from crdt_mor.model.names import LogFileName, bucket_file_id
from crdt_mor.model.rules import Rule, Rules
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import DataFile, Pending
from tests.simulation.actors import PUBLISHER, Run, data_path
from tests.simulation.promises import check_store
from tests.simulation.small_store import LOG, Violation, completions_of, decoded, is_version
from tests.simulation.small_world import World
from tests.simulation.worlds import ROLES, Place, Plant, Role, WriteRole, small_numbers
from tests.tiers import long, slow

small = small_numbers()

FOREVER = 1 << 60
RULE = Rule("check", "positive", "price > 0", ("price",))
BAD, GOOD = b"bad", b"rows"


def row(value: Timeline) -> bytes:
    """What a writer writes that goes by a value."""
    return GOOD if value.rules else BAD


def by(known: Timeline, begun: Timeline) -> Timeline:
    """Of the value that a writer remembers and the one that it begins in, the one that it goes by."""
    del known
    return begun


def write(value: Timeline, begun: Pending) -> Run:
    """A write that began before anybody added the rule."""
    requested = begun.requested
    try:
        if not (yield Put(data_path(requested), row(value))):
            return ("expired", requested)
        yield from writes.complete(PUBLISHER, value, begun, "UPSERT", [DataFile(data_path(requested), 1, 1)], None)
    except WriterExpiredError:
        return ("expired", requested)
    return ("acknowledged", requested)


def beginner(known: Timeline) -> Run:
    """A write that begins at any time, of a process that remembers the table as it was."""
    try:
        value, begun = yield from writes.begin(PUBLISHER, known, FOREVER)
    except WriterExpiredError:
        return ("expired", None)
    return (yield from write(by(known, value), begun))


def loner(known: Timeline) -> Run:
    """A write in one event, which follows the newest value."""
    value = yield from find_tail(known)
    requested = claim_after(value.clock, 0)
    file = DataFile(str(LogFileName(bucket_file_id(1), requested)), 1, 1)
    lone = LoneWrite(requested, "UPSERT", ((file, row(value)),))
    committed = yield from one_event.commit(PUBLISHER, value, lone, None, Shortcuts(helped=value.version))
    return ("acknowledged", requested) if isinstance(committed, LoneCommit) else ("expired", None)


def adder(known: Timeline) -> Run:
    """Adds the rule, and proves it or withdraws it."""
    nonce = yield Nonce()
    added = yield from events.add(PUBLISHER, known, nonce, [RULE], lambda tail: None, are_proven_next=True)
    settled = yield from events.wait_for_begun(PUBLISHER, added, FOREVER, FOREVER)
    for completion in settled.completions:
        for file in completion.files:
            if (yield Read(file.path)) == BAD:
                yield from events.withdraw(PUBLISHER, settled, nonce)
                return ("withdrawn",)
    yield from events.prove(PUBLISHER, settled, added.rules)
    return ("proven",)


def unproven(known: Timeline) -> Run:
    """Adds the rule for new rows alone."""
    yield from events.add(PUBLISHER, known, (yield Nonce()), [RULE], lambda tail: None, are_proven_next=False)
    return ("added",)


def changer(known: Timeline) -> Run:
    """Drops the rule, begins a write, and adds the rule again for new rows alone before the write ends."""
    dropped = yield from events.drop(PUBLISHER, known, [RULE.place])
    value, begun = yield from writes.begin(PUBLISHER, dropped, FOREVER)
    yield from unproven(value)
    return (yield from write(value, begun))


class RuledWorld(World):
    """A world in which every state is asked whether a proven rule holds. Nobody but a `changer` drops one."""

    def check(self, objects: dict[str, Any]) -> None:
        check_store(objects)
        tail = decoded(objects[LOG][-1])
        if any(rule.is_proven for rule in tail.rules):
            files = [file.path for c in completions_of(tail, objects) for file in c.files]
            if any(objects.get(path) == BAD for path in files):
                raise Violation("a proven rule is broken by a row that is there")

    def check_result(self, result: Any, objects: dict[str, Any]) -> None:
        super().check_result(result, objects)
        if result == ("added",) and not decoded(objects[LOG][-1]).rules:
            raise Violation("a rule that was added is gone")


WRITES: Mapping[str, WriteRole] = {"write": write}
OTHERS: Mapping[str, Role] = {
    **ROLES, "adder": adder, "unproven": unproven, "changer": changer, "beginner": beginner, "loner": loner
}  # fmt: skip


def world(who: Sequence[str], **options: Any) -> World:
    """Writes that have begun, and other actors. Where there is a `changer`, the table has the rule, for new rows."""
    place = Place.with_begun(who.count("write"))
    if "changer" in who:
        place.run(unproven(place.tail), "u")
        place.settle()
    place.live(who, OTHERS, writes=WRITES)
    return RuledWorld(place.objects, place.actors, **{"faulty": is_version, **options})


@pytest.mark.costly
@pytest.mark.parametrize(
    ("who", "options"),
    [
        (["write", "adder"], {"deletions": False}),
        slow(["write", "adder"], {"faults": 1}),
        (["beginner", "adder"], {"deletions": False}),
        (["loner", "adder"], {"deletions": False}),
        (["write", "adder", "unproven"], {"deletions": False}),
        long(["beginner", "adder"], {"faults": 1}),
        slow(["loner", "adder"], {"faults": 1}),
        slow(["write", "adder", "cleaner"], {"deletions": False}),
        slow(["write", "beginner", "adder"], {"deletions": False}),
        slow(["adder", "changer"], {"deletions": False}),
    ],
    ids=str,
)
def test_a_proven_rule_holds(who: Sequence[str], options: dict[str, Any]) -> None:
    assert world(who, **options).search() > 30


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def at_once(value: Timeline) -> Run:
    return value
    yield


def nobody_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(events, "wait_for_begun", lambda publisher, value, *rest: at_once(value))


def a_stale_handle_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(globals(), "by", lambda known, begun: known)


def the_rule_is_proven_whoever_added_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model, "proving", lambda rules, looked_for: tuple(_proven(rule) for rule in rules))


def _proven(rule: Rule) -> Rule:
    return Rule(rule.kind, rule.name, rule.text, rule.columns, rule.nonce, is_proven=True)


def a_rule_that_is_there_is_taken_over(patch: pytest.MonkeyPatch) -> None:
    def careless(rules: Rules, new: Sequence[Rule], nonce: str, *, are_proven_next: bool) -> Rules:
        return adding(rules, new, nonce, are_proven_next=False)

    adding = model.adding
    patch.setattr(model, "adding", careless)


def the_rule_is_withdrawn_whoever_added_it(patch: pytest.MonkeyPatch) -> None:
    def careless(rules: Rules, nonce: str) -> Rules:
        return ()

    patch.setattr(model, "withdrawing", careless)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("plant", "who", "found"),
    [
        (nobody_is_waited_for, ["write", "adder"], "broken"),
        (a_stale_handle_is_believed, ["beginner", "adder"], "broken"),
        (the_rule_is_proven_whoever_added_it, ["adder", "changer"], "broken"),
        (a_rule_that_is_there_is_taken_over, ["write", "adder", "unproven"], "gone"),
        (the_rule_is_withdrawn_whoever_added_it, ["write", "adder", "unproven"], "gone"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(plant: Plant, who: Sequence[str], found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation, match=found):
        world(who).search(depth_first=True)
