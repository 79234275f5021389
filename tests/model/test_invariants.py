"""Each invariant of the timeline is broken by a pair of values that shows what it forbids."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from crdt_mor.log import publish
from crdt_mor.log.paths import VERSIONS
from crdt_mor.model import (
    invariants,
    invariants_history,
    invariants_sealing,
)
from crdt_mor.model.alteration import Alteration
from crdt_mor.model.authors import Author
from crdt_mor.model.declared import Declared
from crdt_mor.model.file_ids import FIXED, FileIds
from crdt_mor.model.instant import EPOCH, InstantTime, from_ms
from crdt_mor.model.invariants import (
    INVARIANTS,
    SEALING_INVARIANTS,
    BrokenInvariantError,
    require_invariants,
    require_sealed,
)
from crdt_mor.model.invariants_fields import CONCERNS, Invariant
from crdt_mor.model.migration import Moving, Origin, Step
from crdt_mor.model.names import COMPACTION, DELTA_COMMIT, REPLACE_COMMIT, ROLLBACK, LogFileName, bucket_file_id
from crdt_mor.model.overwrite import DELETE_PARTITION, EVERYTHING, Overwrite, Scope
from crdt_mor.model.posts import WINDOW, Member, PostName
from crdt_mor.model.restore import Restore
from crdt_mor.model.savepoint import Savepoint
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import (
    Archive,
    Completion,
    DataFile,
    OpenPlan,
    Pending,
    Retention,
    RolledBack,
    Segment,
    Token,
)
from crdt_mor.model.tokens import NO_TOKENS, Tokens, stored_tokens
from tests.model.scene import PUBLISHER, Scene


def at(ms: int) -> InstantTime:
    return from_ms(1_700_000_000_000 + ms)


OPENED = "00000001-7c1e-4bbb-8ccc-1234567890ab-0"
"""The file group that Hudi has opened for a bucket."""


def commit(requested: int, completed: int, version: int) -> Completion:
    file = DataFile(str(LogFileName(bucket_file_id(0), at(requested))), 1, 1)
    return Completion(at(requested), at(completed), version, f"n{requested}", DELTA_COMMIT, "UPSERT", (file,))


BEFORE = Timeline(
    version=9,
    nonce="n9",
    clock=at(90),
    schema='[["id","string",false]]',
    pending=(
        Pending(at(10), "n1", 1, 0, "driver", 1, Author("a", "h", 1)),
        Pending(at(20), "n2", 2, declared=Declared(("",))),
    ),
    plans=(OpenPlan(at(31), "n3", 3, "plan", COMPACTION),),
    rolled_back=(RolledBack(at(40), "n4", 5),),
    completions=(commit(50, 60, 6), commit(70, 80, 8)),
    segments=(Segment("a", 0, at(2), at(4), 3),),
    tokens=Tokens((Token("app", 7, at(70), at(80), 8),)),
    foreign_group="theirs",
    table_id="t",
    added=("n",),
    retention=Retention(at(8), at(6), ((("", "g"), at(9)),)),
    archive=Archive(at(1), at(0), 7, 2, 3, ("a",)),
    tokens_since=at(5),
    overwrites=(Overwrite(at(15), EVERYTHING),),
    moving=Moving("there", "t2", at(34), at(33)),
    origin=Origin("t0", "before", Step(at(1), at(2), 3, 4)),
    posts=((9, ("taken",)),),
    file_ids=FileIds((("", OPENED),)),
)
"""A value with something of everything."""

AFTER = replace(
    BEFORE,
    version=10,
    nonce="n10",
    clock=at(100),
    pending=(BEFORE.pending[0],),
    completions=(*BEFORE.completions, commit(20, 100, 10)),
    tokens=Tokens((Token("app", 8, at(20), at(100), 10),)),
)
"""What follows it when the second pending write completes, with a token."""

RESTORE = Restore(at(60), at(100), 10, "r", "plan", at(80), 8, at(70), 1)
RESTORED = replace(
    BEFORE,
    version=10,
    nonce="n10",
    clock=at(100),
    pending=(),
    plans=(),
    rolled_back=(
        *BEFORE.rolled_back,
        *(RolledBack(p.requested, p.nonce, 10) for p in BEFORE.pending),
        RolledBack(at(31), "n3", 10, COMPACTION),
    ),
    completions=(BEFORE.completions[0], Completion(at(92), at(100), 10, "r", "restore", "RESTORE")),
    tokens=NO_TOKENS,
    restores=(RESTORE,),
)
"""What follows it when the table is restored to what it showed before its last commit."""

SAVED = Savepoint("one", at(90), at(100), at(70), 10, "n10")

CLOSED, ARRIVING = BEFORE.moving, BEFORE.origin
assert CLOSED is not None
assert ARRIVING is not None


def taking(*names: str, version: int = 9) -> Completion:
    """The new completion, of posts with these names."""
    members = [Member(Author("app", "host", 1), 1, 0, None, PostName(version, name)) for name in names]
    return replace(AFTER.completions[-1], members=tuple(members))


DONE, NEW = BEFORE.completions, AFTER.completions[-1]


DROPPED = Completion(
    at(72), at(92), 10, "", REPLACE_COMMIT, DELETE_PARTITION, replaced=(("", OPENED),), adopted=True
)  # fmt: skip
"""Hudi has replaced a file group, at a time that the clock has passed."""

ADOPTED = replace(
    BEFORE, version=10, nonce="n10", clock=at(100), completions=(*DONE, DROPPED), file_ids=FIXED, foreign_group=None,
    overwrites=(*BEFORE.overwrites, Overwrite(at(72), Scope(("",)))),
)  # fmt: skip


BROKEN: dict[Invariant, Timeline] = {
    invariants.a_write_keeps_to_what_it_has_declared: replace(
        AFTER,
        completions=(*DONE, replace(NEW, files=(DataFile(f"day=mon/{LogFileName(bucket_file_id(0), at(20))}", 1, 1),))),
    ),
    invariants.a_post_is_taken_once_and_in_time: replace(
        AFTER, completions=(*DONE, taking("late", version=9 - WINDOW))
    ),
    invariants.posts_are_noted_while_they_are_open: replace(AFTER, posts=((9, ("new",)),)),
    invariants.overwrites_are_noted_while_they_void_something: replace(AFTER, overwrites=()),
    invariants.what_is_void_is_not_committed: replace(
        AFTER, completions=(*DONE, replace(NEW, requested=at(10))), pending=(BEFORE.pending[1],)
    ),
    invariants_history.a_restore_keeps_what_came_before: replace(AFTER, restores=(RESTORE,)),
    invariants_history.savepoints_never_change: replace(AFTER, savepoints=(replace(SAVED, version=9),)),
    invariants_history.names_are_only_altered_by_later_events: replace(AFTER, alterations=(Alteration(at(98)),)),
    invariants.nothing_begins_in_a_closed_table: replace(AFTER, plans=(*BEFORE.plans, OpenPlan(at(93), "n10", 10, ""))),
    invariants.a_migration_ends_once: replace(AFTER, origin=None),
    invariants.nothing_begins_in_a_table_that_is_handed_over: replace(AFTER, handed_over=at(100)),
    invariants.versions_are_consecutive: replace(AFTER, version=11),
    invariants.nonces_differ: replace(AFTER, nonce="n9"),
    invariants.the_table_keeps_its_id: replace(AFTER, table_id="another"),
    invariants.the_clock_moves_on: replace(AFTER, clock=at(90)),
    invariants.new_instants_are_later_than_the_previous_clock: replace(
        AFTER, pending=(*AFTER.pending, Pending(at(88), "n10", 10))
    ),
    invariants.only_commits_that_are_alone_have_claimed_times: replace(
        AFTER, pending=(*AFTER.pending, Pending(at(94), "n10", 10))
    ),
    invariants.new_completions_are_later_than_the_previous_clock: replace(
        AFTER, completions=(*DONE, replace(NEW, completed=at(88)))
    ),
    invariants.an_instant_has_one_state: replace(AFTER, pending=BEFORE.pending),
    invariants.nothing_pending_is_lost: replace(AFTER, pending=()),
    invariants.only_what_was_open_ends: replace(AFTER, completions=(*AFTER.completions, commit(42, 100, 10))),
    invariants.what_is_pending_is_only_handed_over: replace(
        AFTER, pending=(replace(BEFORE.pending[0], driver="another"),)
    ),
    invariants.open_plans_never_change: replace(AFTER, plans=(replace(BEFORE.plans[0], path="another"),)),
    invariants.what_was_given_up_never_changes: replace(
        AFTER, rolled_back=(), completions=(*AFTER.completions, commit(40, 100, 10))
    ),
    invariants.rollbacks_are_of_writes_that_are_forgotten: replace(AFTER, rolled_back=()),
    invariants.completions_bear_the_version_that_published_them: replace(
        AFTER, completions=(*DONE, replace(NEW, version=9))
    ),
    invariants.an_event_only_adds_completions: replace(AFTER, completions=(DONE[1], NEW)),
    invariants.tokens_grow: replace(AFTER, tokens=Tokens((Token("app", 6, at(20), at(100), 10),))),
    invariants.the_schema_loses_no_column: replace(AFTER, schema='[["other","string",false]]'),
    invariants_history.a_field_keeps_its_id: replace(AFTER, schema='[["id","string",0,[2]]]'),
    invariants.foreign_file_groups_are_not_forgotten: replace(AFTER, foreign_group=None),
    invariants.file_ids_change_with_hudis_commits: replace(AFTER, file_ids=FIXED),
    invariants.rows_are_written_to_live_file_groups: replace(
        AFTER, completions=(*DONE, replace(NEW, files=(DataFile(str(LogFileName(bucket_file_id(1), at(20))), 1, 1),)))
    ),
    invariants_history.history_is_only_given_up: replace(AFTER, retention=Retention(at(8), at(6))),
    invariants_history.the_watermark_moves_only_forward: replace(
        AFTER, archive=replace(BEFORE.archive, watermark=at(0))
    ),
    invariants_history.nothing_unfinished_is_archived: replace(
        AFTER, archive=Archive(at(10), at(1), 10, 3, 4, ("a", "b"))
    ),
    invariants_history.only_what_is_in_segments_is_archived: replace(AFTER, archive=replace(BEFORE.archive, count=9)),
}
"""For each invariant a value that must not follow `BEFORE`."""

UNDONE = Completion(at(92), at(94), 10, "n10", ROLLBACK, "ROLLBACK", undone=at(40))

OTHERS: list[tuple[Invariant, Timeline]] = [
    (
        invariants.overwrites_are_noted_while_they_void_something,
        replace(AFTER, overwrites=(Overwrite(at(15), Scope(("p",))),)),
    ),
    (
        invariants.overwrites_are_noted_while_they_void_something,
        replace(AFTER, overwrites=(*BEFORE.overwrites, Overwrite(at(89), Scope(("p",))))),
    ),
    (invariants.a_post_is_taken_once_and_in_time, replace(AFTER, completions=(*DONE, taking("taken")))),
    (invariants.a_post_is_taken_once_and_in_time, replace(AFTER, completions=(*DONE, taking("new")))),
    (
        invariants.a_post_is_taken_once_and_in_time,
        replace(AFTER, posts=((9, ("taken", "new")),), completions=(*DONE, taking("new", "new"))),
    ),
    (invariants.the_table_keeps_its_id, replace(AFTER, table_id=None)),
    (invariants.the_clock_moves_on, replace(AFTER, clock=at(101))),
    (invariants.new_instants_are_later_than_the_previous_clock, replace(AFTER, plans=(OpenPlan(at(94), "", 10, ""),))),
    (invariants.new_completions_are_later_than_the_previous_clock, replace(AFTER, clock=at(98))),
    (invariants.nothing_pending_is_lost, replace(AFTER, plans=())),
    (invariants.only_what_was_open_ends, replace(AFTER, rolled_back=(RolledBack(at(52), "n", 10),))),
    (invariants.what_is_pending_is_only_handed_over, replace(AFTER, pending=(replace(BEFORE.pending[0], version=9),))),
    (
        invariants.what_is_pending_is_only_handed_over,
        replace(AFTER, pending=(replace(BEFORE.pending[0], author=Author("a", "h", 2)),)),
    ),
    (invariants.rollbacks_are_of_writes_that_are_forgotten, replace(AFTER, completions=(*DONE, UNDONE))),
    (
        invariants.rollbacks_are_of_writes_that_are_forgotten,
        replace(AFTER, rolled_back=(), completions=(*DONE, UNDONE, replace(UNDONE, requested=at(96)))),
    ),
    (
        invariants.an_event_only_adds_completions,
        replace(AFTER, completions=(replace(DONE[0], files=()), *AFTER.completions[1:])),
    ),
    (
        invariants.an_event_only_adds_completions,
        replace(RESTORED, completions=(replace(DONE[0], files=()), *RESTORED.completions[1:])),
    ),
    (invariants.an_event_only_adds_completions, replace(AFTER, completions=(NEW,))),
    (invariants.an_event_only_adds_completions, replace(AFTER, segments=())),
    (
        invariants_history.history_is_only_given_up,
        replace(AFTER, retention=replace(BEFORE.retention, dropped=at(7))),
    ),
    (invariants_history.history_is_only_given_up, replace(AFTER, retention=replace(BEFORE.retention, dropped_count=1))),
    (invariants.tokens_grow, replace(AFTER, tokens=NO_TOKENS)),
    (invariants.tokens_grow, replace(AFTER, tokens=Tokens((Token("app", 8, at(20), at(100), 9),)))),
    (invariants.tokens_grow, replace(AFTER, tokens_since=at(4))),
    (
        invariants.what_is_pending_is_only_handed_over,
        replace(AFTER, pending=(replace(BEFORE.pending[0], declared=Declared(())),)),
    ),
    (invariants.tokens_grow, replace(AFTER, tokens_since=at(101))),
    (invariants.tokens_grow, replace(AFTER, tokens=NO_TOKENS, tokens_since=at(80))),
    (invariants.tokens_grow, replace(AFTER, tokens=BEFORE.tokens, tokens_since=at(82))),
    (invariants.the_schema_loses_no_column, replace(AFTER, added=())),
    (invariants.tokens_grow, replace(RESTORED, tokens=AFTER.tokens)),
    (invariants_history.a_restore_keeps_what_came_before, replace(RESTORED, completions=())),
    (invariants_history.a_restore_keeps_what_came_before, replace(RESTORED, pending=BEFORE.pending)),
    (invariants_history.a_restore_keeps_what_came_before, replace(RESTORED, restores=(replace(RESTORE, to=at(92)),))),
    (invariants_history.a_restore_keeps_what_came_before, replace(RESTORED, savepoints=(replace(SAVED, at=at(80)),))),
    (invariants.nothing_begins_in_a_closed_table, replace(AFTER, moving=replace(CLOSED, uri="elsewhere"))),
    (invariants.nothing_begins_in_a_closed_table, replace(AFTER, moving=replace(CLOSED, closed=EPOCH))),
    (invariants.nothing_begins_in_a_closed_table, replace(AFTER, pending=(*BEFORE.pending, Pending(at(92), "", 10)))),
    (invariants.a_migration_ends_once, replace(AFTER, origin=replace(ARRIVING, opened=at(100), given_up=True))),
    (invariants.a_migration_ends_once, replace(AFTER, origin=replace(ARRIVING, uri="elsewhere"))),
    (invariants.a_migration_ends_once, replace(AFTER, origin=replace(ARRIVING, step=Step(at(2), at(90), 6, 1)))),
    (invariants_history.savepoints_never_change, replace(AFTER, savepoints=(replace(SAVED, at=at(80)),))),
    (invariants_history.savepoints_never_change, replace(AFTER, savepoints=(SAVED, SAVED))),
    (invariants_history.the_watermark_moves_only_forward, replace(AFTER, archive=replace(BEFORE.archive, manifest=4))),
    (
        invariants_history.the_watermark_moves_only_forward,
        replace(AFTER, archive=Archive(at(2), at(1), 9, 3, 4, ("a", "b"))),
    ),
    (
        invariants_history.the_watermark_moves_only_forward,
        replace(AFTER, archive=Archive(at(2), at(0), 10, 3, 4, ("a", "b"))),
    ),
    (
        invariants_history.the_watermark_moves_only_forward,
        replace(AFTER, archive=Archive(at(2), at(1), 10, 3, 3, ("a", "b"))),
    ),
    (
        invariants_history.the_watermark_moves_only_forward,
        replace(AFTER, archive=Archive(at(2), at(1), 10, 2, 4, ("a", "b"))),
    ),
]


def test_the_list_holds_every_predicate_of_the_module_and_each_is_broken_here() -> None:
    predicates = [
        function
        for module in (
            invariants,
            invariants_history,
            invariants_sealing,
        )
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
        and not name.startswith("_")
        and inspect.signature(function).return_annotation == "bool"
    ]
    assert set(predicates) == {*INVARIANTS, *SEALING_INVARIANTS}
    assert set(INVARIANTS) == set(BROKEN)
    assert set(SEALING_INVARIANTS) == {invariant for invariant, _ in BROKEN_SEALING}
    assert len(set(INVARIANTS)) == len(INVARIANTS)
    assert all(inspect.getdoc(function) for function in predicates)


@pytest.mark.parametrize(
    "after",
    [
        AFTER,
        replace(AFTER, posts=((9, ("taken", "new", "voided")),), completions=(*DONE, taking("new"))),
        replace(AFTER, retention=replace(BEFORE.retention, dropped=at(6))),
        replace(AFTER, pending=(replace(BEFORE.pending[0], driver="another", drivers=2),)),
        replace(AFTER, rolled_back=(), completions=(*DONE, UNDONE, NEW)),
        replace(AFTER, schema='[["id","string",false],["new","string",true]]', added=("n", "new")),
        RESTORED,
        replace(AFTER, savepoints=(SAVED,)),
        replace(AFTER, moving=None),
        replace(AFTER, origin=replace(ARRIVING, step=Step(at(2), at(90), 7, 1))),
        replace(AFTER, origin=replace(ARRIVING, opened=at(100))),
        ADOPTED,
        replace(RESTORED, file_ids=FIXED, foreign_group=None),
    ],
    ids=[
        "complete",
        "group",
        "droppable",
        "hand-over",
        "forget",
        "grow",
        "restore",
        "save",
        "reopen",
        "aim",
        "open",
        "adopt",
        "restore-of-hudis",
    ],
)
def test_what_may_follow_breaks_none(after: Timeline) -> None:
    require_invariants(BEFORE, after)


@pytest.mark.parametrize(("invariant", "after"), [*BROKEN.items(), *OTHERS])
def test_each_invariant_is_broken_by_what_it_forbids(invariant: Invariant, after: Timeline) -> None:
    assert invariant(BEFORE, AFTER)
    assert not invariant(BEFORE, after)
    with pytest.raises(BrokenInvariantError, match=r"report it\. invariant=\w+ previous=9 following="):
        require_invariants(BEFORE, after)


SUCCESSORS = [AFTER, RESTORED, ADOPTED, *BROKEN.values(), *(after for _, after in OTHERS)]


@pytest.mark.parametrize("invariant", CONCERNS, ids=lambda invariant: invariant.__name__)
def test_no_other_field_breaks_an_invariant(invariant: Invariant) -> None:
    """An event with the previous version's declared fields is not asked, whatever else it changes."""
    chance = random.Random(f"{invariant.__name__} 7")
    others = [
        name for name in Timeline.__dataclass_fields__ if name not in {"version", "clock", *CONCERNS[invariant].fields}
    ]
    given_away = replace(BEFORE, handed_over=at(88), pending=(), plans=())
    for previous in (BEFORE, AFTER, RESTORED, ADOPTED, given_away):
        base = replace(previous, version=previous.version + 1, clock=at(200))
        for _ in range(100):
            fields = {name: getattr(chance.choice([previous, *SUCCESSORS]), name) for name in others}
            assert invariant(previous, replace(base, **fields)), fields


@pytest.mark.parametrize(
    "invariant", [i for i, concern in CONCERNS.items() if concern.about], ids=lambda invariant: invariant.__name__
)
def test_an_invariant_holds_between_versions_without_the_field_that_it_is_about(invariant: Invariant) -> None:
    chance = random.Random(f"{invariant.__name__} 7")
    about = CONCERNS[invariant].about
    assert about is not None
    absent = {about: getattr(Timeline, about)}
    for previous in (BEFORE, AFTER, RESTORED, ADOPTED):
        base = replace(previous, version=previous.version + 1, clock=at(200), **absent)
        others = [name for name in Timeline.__dataclass_fields__ if name not in {"version", "clock", about}]
        for _ in range(100):
            fields = {name: getattr(chance.choice([previous, *SUCCESSORS]), name) for name in others}
            assert invariant(replace(previous, **absent), replace(base, **fields)), fields


DROPPABLE = replace(AFTER, retention=replace(BEFORE.retention, dropped=at(6)))
"""An event that lets commits go which completed by then."""

OLD, SEALED = BEFORE.segments[0], Segment("b", 0, at(60), at(80), 2)

BROKEN_SEALING: list[tuple[Invariant, Timeline]] = [
    (invariants_sealing.sealing_changes_nothing_else, replace(DROPPABLE, clock=at(102))),
    (
        invariants_sealing.sealing_changes_nothing_else,
        replace(DROPPABLE, retention=replace(DROPPABLE.retention, since=at(9))),
    ),
    (invariants_sealing.completions_are_carried_or_sealed, replace(DROPPABLE, completions=(NEW,))),
    (invariants_sealing.completions_are_carried_or_sealed, replace(DROPPABLE, segments=(OLD, SEALED))),
    (invariants_sealing.completions_are_carried_or_sealed, replace(DROPPABLE, segments=())),
    (invariants_sealing.completions_are_carried_or_sealed, replace(DROPPABLE, completions=AFTER.completions[::-1])),
    (invariants_sealing.segments_never_change, replace(DROPPABLE, segments=(replace(OLD, last=at(6)),))),
    (
        invariants_sealing.only_what_may_go_is_dropped,
        replace(DROPPABLE, segments=(), retention=replace(DROPPABLE.retention, dropped=at(7), dropped_count=3)),
    ),
    (invariants_sealing.tokens_are_carried_or_stored, replace(DROPPABLE, tokens=NO_TOKENS)),
    (
        invariants_sealing.tokens_are_carried_or_stored,
        replace(DROPPABLE, tokens=Tokens((), stored_tokens("name", [Token("app", 7, at(20), at(100), 10)]))),
    ),
]


@pytest.mark.parametrize(
    "sealed",
    [
        DROPPABLE,
        replace(DROPPABLE, tokens=Tokens((), stored_tokens("name", DROPPABLE.tokens))),
        replace(DROPPABLE, completions=(NEW,), segments=(OLD, SEALED)),
        replace(DROPPABLE, completions=(NEW,), segments=(Segment("c", 1, at(2), at(80), 5),)),
        replace(DROPPABLE, completions=DONE, segments=(OLD, Segment("w", 0, at(100), at(100), 1))),
        replace(DROPPABLE, segments=(), retention=replace(DROPPABLE.retention, dropped=at(4), dropped_count=3)),
    ],
    ids=["nothing", "tokens", "seal", "roll-up", "wide", "drop"],
)
def test_what_sealing_may_do_breaks_none(sealed: Timeline) -> None:
    require_sealed(DROPPABLE, sealed)


@pytest.mark.parametrize(("invariant", "sealed"), BROKEN_SEALING)
def test_each_invariant_of_sealing_is_broken_by_what_it_forbids(invariant: Invariant, sealed: Timeline) -> None:
    assert not invariant(DROPPABLE, sealed)
    with pytest.raises(BrokenInvariantError, match=r"report it\. invariant="):
        require_sealed(DROPPABLE, sealed)


@pytest.mark.parametrize(
    ("before", "after", "may_follow"),
    [(("a", "b"), None, True), (("a", "b"), ("a", "b"), True), (("a", "b"), ("a",), False), (None, ("a",), False)],
)
def test_declared_keys_only_go_whole(
    before: tuple[str, ...] | None, after: tuple[str, ...] | None, may_follow: bool
) -> None:
    """A release that does not know keys publishes the write without them."""
    first, second = BEFORE.pending
    declared = replace(BEFORE, pending=(replace(first, declared=Declared(keys=before)), second))
    following = replace(AFTER, pending=(replace(first, declared=Declared(keys=after)),))
    assert invariants.what_is_pending_is_only_handed_over(declared, following) == may_follow


def test_of_a_version_that_breaks_an_invariant_nothing_is_put() -> None:
    scene = Scene()

    def derive(tail: Timeline, wall_ms: int) -> Timeline:
        return replace(tail.begin("nonce", wall_ms), clock=tail.clock)

    before = scene.store.list(VERSIONS)
    with pytest.raises(BrokenInvariantError, match="invariant=the_clock_moves_on"):
        scene.run(PUBLISHER.publish(derive, scene.tail()))
    assert scene.store.list(VERSIONS) == before


def test_invariants_are_asked_of_every_version_that_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    require: Callable[[Timeline, Timeline], None] = require_invariants

    def noted(previous: Timeline, following: Timeline) -> None:
        require(previous, following)
        asked.append(following.version)

    monkeypatch.setattr(publish, "require_invariants", noted)
    scene = Scene()
    for _ in range(3):
        scene.commit()
    assert asked == list(range(1, scene.tail().version + 1))


NAMED = Alteration(at(8), renamed=(("k", "key"),), dropped=("old",))
RENAMING = Alteration(at(100), renamed=(("n", "m"),), comments=(("k", "text"),))


@pytest.mark.parametrize(
    ("alterations", "may_follow"),
    [
        ((NAMED,), True),
        ((NAMED, RENAMING), True),
        ((NAMED, replace(RENAMING, renamed=(("n", "key"), ("k", "n")))), True),
        ((NAMED, RENAMING, replace(RENAMING, renamed=())), False),
        ((NAMED, replace(RENAMING, at=at(98))), False),
        ((NAMED, replace(RENAMING, renamed=(("n", "KEY"),))), False),
        ((NAMED, replace(RENAMING, renamed=(("unknown", "m"),))), False),
        ((NAMED, replace(RENAMING, renamed=(("old", "m"),))), False),
        ((replace(NAMED, dropped=()), RENAMING), False),
        ((), False),
    ],
)
def test_names_of_columns_change_by_one_event_at_a_time(alterations: tuple[Alteration, ...], may_follow: bool) -> None:
    schema = '[["k","string",0],["n","string"],["old","string"]]'
    before = replace(BEFORE, schema=schema, alterations=(NAMED,))
    after = replace(AFTER, schema=schema, alterations=alterations)
    assert invariants_history.names_are_only_altered_by_later_events(before, after) == may_follow
