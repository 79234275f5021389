"""The timeline value and its segments: the clock's laws, exact round trips, and nothing lost however long it grows.

The life of a table is played here by one writer at a time over a store in memory, with the real protocols; what many
writers do to one another is the business of `tests/simulation`.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Collection
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor.errors import (
    FormatError,
    InvalidInputError,
    TokenOrderError,
    UnsupportedFeatureError,
    UnsupportedVersionError,
    WriterExpiredError,
)
from crdt_mor.events import plan as plans
from crdt_mor.events import rollback, sweep
from crdt_mor.events import write as events
from crdt_mor.format.commit import CommitMetadata, WriteStat, encode_commit
from crdt_mor.hudi import adoption
from crdt_mor.hudi.actions import COMPACT
from crdt_mor.hudi.adoption import foreign_completions
from crdt_mor.hudi.projection import Projector
from crdt_mor.log.outcome import find_completion
from crdt_mor.log.paths import version_path
from crdt_mor.log.projection import EventFile
from crdt_mor.log.publish import Publisher
from crdt_mor.log.segments import read_segment
from crdt_mor.log.steps import Put, Steps
from crdt_mor.model.authors import Author, author_json, author_of
from crdt_mor.model.file_ids import FileIds
from crdt_mor.model.instant import EPOCH, InstantTime, begin_after, from_ms, to_ms
from crdt_mor.model.invariants import require_invariants
from crdt_mor.model.names import (
    COMMIT,
    COMPACTION,
    WRITE_TOKEN,
    BaseFileName,
    LogFileName,
    bucket_file_id,
    replacing_file_id,
)
from crdt_mor.model.overwrite import Scope
from crdt_mor.model.posts import Member, PostName
from crdt_mor.model.restore import Restore
from crdt_mor.model.savepoint import Savepoint
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import FORMAT, decode_segment, encode_segment
from crdt_mor.model.timeline_parts import (
    Archive,
    Completion,
    DataFile,
    FileGroup,
    OpenPlan,
    Pending,
    Retention,
    RolledBack,
    Segment,
    Token,
    bytes_of,
    superseded_at,
)
from crdt_mor.model.tokens import Tokens
from crdt_mor.planners.compaction import CompactionPlan, GroupInput
from crdt_mor.planners.overwrite import StagedOverwrite, overwritten
from crdt_mor.planners.restore import RestorePlan, restored, save, unsave
from tests.model.scene import NEVER, PUBLISHER, SCHEMA, Scene, T, log
from tests.tiers import seeds


def small_history(seed: int, events: int = 40) -> list[Timeline]:
    """Random transitions under a random wall clock."""
    chance = random.Random(seed)
    values = [Timeline.genesis(SCHEMA)]
    for i in range(events):
        value, wall_ms, nonce = values[-1], chance.randrange(0, 4_000_000_000_000), f"n{i}"
        requested = chance.choice(value.pending).requested if value.pending else None
        barrier = chance.choice(value.plans).barrier if value.plans else None
        author = chance.choice([None, Author("app", "host", i), Author("", "", 0, (("message", f"\t{i}"),))])
        match chance.randrange(10):
            case 0 | 1 if requested:
                token = ("app", i) if chance.random() < 0.5 else None
                value = value.complete(nonce, wall_ms, requested, "UPSERT", [log(requested)], token)
            case 2 if requested:
                value = value.roll_back(nonce, wall_ms, requested)
            case 3 if not value.plans:
                value = value.schedule(nonce, wall_ms, chance.choice([COMPACTION, "clean"]), "plan")
            case 4 if barrier:
                value = value.complete_plan(nonce, wall_ms, barrier, COMMIT, "COMPACT", [], author)
            case 5 if barrier:
                value = value.cancel_plan(nonce, wall_ms, barrier)
            case 6 if value.rolled_back:
                forgotten = chance.sample(value.rolled_back, chance.randint(1, len(value.rolled_back)))
                value = value.sweep(nonce, wall_ms, wall_ms, [gone.requested for gone in forgotten])
            case 7:
                value = value.grow(nonce, wall_ms, f"{value.schema} ", author)
            case 8 if requested:
                value = value.hand_over(nonce, wall_ms, requested, f"d{i}", author)
            case _:
                value = value.begin(nonce, wall_ms, None, author)
        values.append(value)
    return values


@given(st.integers(0, 1 << 32))
@settings(max_examples=40)
def test_every_transition_keeps_every_invariant(seed: int) -> None:
    values = [replace(value, table_id="t") for value in small_history(seed)]
    for before, after in itertools.pairwise(values):
        require_invariants(before, after)


# --- the clock --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 1 << 32))
@settings(max_examples=40)
def test_the_clock_moves_on_by_two_milliseconds_or_more_whatever_wall_clocks_say(seed: int) -> None:
    values = small_history(seed)
    for before, after in itertools.pairwise(values):
        assert after.version == before.version + 1
        assert to_ms(after.clock) >= to_ms(before.clock) + 2
        assert to_ms(after.clock) % 2 == 0


@given(st.integers(0, 1 << 32))
@settings(max_examples=40)
def test_requested_and_completion_times_are_unique_and_barriers_alone_are_odd(seed: int) -> None:
    values = small_history(seed)
    last = values[-1]
    times = [t for c in last.completions for t in (c.requested, c.completed)]
    times += [p.requested for p in last.pending]
    barriers = {p.barrier for v in values for p in v.plans}
    assert len(times) == len(set(times))
    assert all((to_ms(t) % 2 == 1) == (t in barriers) for t in times)
    assert all(c.requested < c.completed for c in last.completions)
    assert [c.completed for c in last.completions] == sorted(c.completed for c in last.completions)


@given(st.integers(0, 1 << 32))
@settings(max_examples=40)
def test_json_gives_back_the_very_value(seed: int) -> None:
    for value in small_history(seed, 20):
        assert Timeline.decode(value.encode(), "") == value


WHO = Author("nightly", "höst", 5, (("message", "ü"), ("k", "")))

RESTORED = from_ms(10), 5, from_ms(8)
OPENED = "00000001-7c1e-4bbb-8ccc-1234567890ab-0"
"""The file group that Hudi has opened for a bucket."""

EVERYTHING = Timeline(
    version=12,
    nonce="n12",
    clock=from_ms(1_700_000_000_200),
    schema='[["id","string",false]]',
    swept=from_ms(1_700_000_000_001),
    pending=(
        Pending(from_ms(1_700_000_000_100), "n5", 5),
        Pending(from_ms(1_700_000_000_110), "n6", 6, 1_700_000_000_109, author=Author("loader.py", "host", 4)),
        Pending(from_ms(1_700_000_000_120), "job-20231114221320120", 7, 1_700_000_000_119, "driver", 2, WHO),
    ),
    plans=(
        OpenPlan(from_ms(1_700_000_000_131), "n8", 8, ".hoodie/.crdt_mor/plans/b-n8.json"),
        OpenPlan(from_ms(1_700_000_000_133), "n8", 8, ".hoodie/.crdt_mor/plans/c-n8.json", "clean"),
    ),
    rolled_back=(
        RolledBack(from_ms(1_700_000_000_020), "n2", 3),
        RolledBack(from_ms(1_700_000_000_031), "n4", 4, COMPACTION),
        RolledBack(from_ms(1_700_000_000_033), "n4", 4, "clean"),
    ),
    completions=(
        Completion(
            *(from_ms(1_700_000_000_140), from_ms(1_700_000_000_150), 9, "n9", "deltacommit", "UPSERT"),
            (DataFile(f"eu/{log(from_ms(1_700_000_000_140)).name}", 904, 3, 1),),
            driver="driver",
            author=WHO,
            token=("app", 7),
        ),
        Completion(
            *(from_ms(1_700_000_000_160), from_ms(1_700_000_000_170), 10, "", "replacecommit", "INSERT_OVERWRITE"),
            replaced=(("eu", "g"),),
            adopted=True,
        ),
        Completion(
            *(from_ms(1_700_000_000_180), from_ms(1_700_000_000_182), 11, "n11", "rollback", "ROLLBACK"),
            undone=from_ms(1_700_000_000_022),
        ),
        Completion(
            *(from_ms(1_700_000_000_186), from_ms(1_700_000_000_188), 12, "n12", "deltacommit", "UPSERT"),
            (DataFile(f"eu/{log(from_ms(1_700_000_000_186)).name}", 904, 3, 1),),
            members=(
                Member(WHO, 2, 0, ("app", 8), PostName(10, "p1")),
                Member(Author("loader.py", "host", 4), 1, 0),
                Member(WHO, 0, 1, None, PostName(11, "p2")),
            ),
        ),
    ),
    posts=((10, ("p1", "void")), (11, ("p2",))),
    segments=(
        Segment("s-0-live", 1, from_ms(1), from_ms(3), 2),
        Segment("s-0-past", 1, from_ms(5), from_ms(7), 4, from_ms(9)),
    ),
    tokens=Tokens((Token("app", 7, from_ms(1_700_000_000_140), from_ms(1_700_000_000_150), 9),)),
    foreign_group="f",
    table_id="t",
    added=("n",),
    retention=Retention(
        from_ms(1_700_000_000_010), from_ms(1_700_000_000_008), ((("eu", "g"), from_ms(1_700_000_000_012)),)
    ),
    archive=Archive(from_ms(5), from_ms(3), 11, 3, 2, ("a_0.parquet", "b_0.parquet")),
    tokens_since=from_ms(2),
    savepoints=(
        Savepoint("one", from_ms(1), from_ms(3), EPOCH, 4, "n4"),
        Savepoint("two", from_ms(5), from_ms(7), from_ms(4), 5, "n5", "why", WHO),
    ),
    restores=(Restore(from_ms(9), from_ms(12), 6, "n6", ".hoodie/.crdt_mor/plans/d-n6.json", *RESTORED, 1),),
    tokens_noted=from_ms(3),
    file_ids=FileIds((("eu", OPENED), ("eu", replacing_file_id(2, from_ms(9))), ("us", OPENED))),
)
"""A value with every kind of entry, and each of them with and without what may be left out."""

EVERYTHING_JSON = (
    rb'{"format":7,"version":12,"nonce":"n12","table_id":"t","clock":"20231114221320200",'
    rb'"swept":"20231114221320001","schema":"[[\"id\",\"string\",false]]",'
    rb'"pending":[["20231114221320100","n5",5,null,null],["20231114221320110","n6",6,1700000000109,["loader.py","host",4]],'
    rb'["20231114221320120","job-20231114221320120",7,1700000000119,["nightly","h\u00f6st",5,{"message":"\u00fc","k":""}],"driver",2]],'
    rb'"plans":[["20231114221320131","n8",8,".hoodie/.crdt_mor/plans/b-n8.json"],'
    rb'["20231114221320133","n8",8,".hoodie/.crdt_mor/plans/c-n8.json","clean"]],'
    rb'"rolled_back":[["20231114221320020","n2",3,false],["20231114221320031","n4",4,true],'
    rb'["20231114221320033","n4",4,"clean"]],'
    rb'"completions":[["20231114221320140","20231114221320150",9,"n9","deltacommit","UPSERT",'
    rb'[["eu/.00000000-0000-0000-0000-000000000000-0_20231114221320140.log.1_0-0-0",904,3,1]],[],0,["nightly","h\u00f6st",5,{"message":"\u00fc","k":""}],"driver",{"token":["app",7]}],'
    rb'["20231114221320160","20231114221320170",10,"","replacecommit","INSERT_OVERWRITE",[],[["eu","g"]],1,null],'
    rb'["20231114221320180","20231114221320182",11,"n11","rollback","ROLLBACK",[],[],0,null,"","20231114221320022"],'
    rb'["20231114221320186","20231114221320188",12,"n12","deltacommit","UPSERT",'
    rb'[["eu/.00000000-0000-0000-0000-000000000000-0_20231114221320186.log.1_0-0-0",904,3,1]],[],0,null,{"members":'
    rb'[[["nightly","h\u00f6st",5,{"message":"\u00fc","k":""}],["loader.py","host",4]],'
    rb'[[0,2,0,[10,"p1"],["app",8]],[1,1,0,null],[0,0,1,[11,"p2"]]]]}]],'
    rb'"segments":[["s-0-live",1,"19700101000000001","19700101000000003",2,null],'
    rb'["s-0-past",1,"19700101000000005","19700101000000007",4,"19700101000000009"]],'
    rb'"foreign_group":"f","added":["n"],"tokens":[["app",7,"20231114221320140","20231114221320150",9]],'
    rb'"retention":{"since":"20231114221320010","stable_since":"20231114221320008","groups":[["eu","g","20231114221320012"]]},'
    rb'"archive":{"watermark":"19700101000000005","since":"19700101000000003","version":11,"count":3,"manifest":2,'
    rb'"files":["a_0.parquet","b_0.parquet"]},"tokens_since":"19700101000000002",'
    rb'"savepoints":[["one","19700101000000001","19700101000000003","19700101000000000",4,"n4","",null],'
    rb'["two","19700101000000005","19700101000000007","19700101000000004",5,"n5","why",["nightly","h\u00f6st",5,{"message":"\u00fc","k":""}]]],'
    rb'"restores":[["19700101000000009","19700101000000012",6,"n6",".hoodie/.crdt_mor/plans/d-n6.json",'
    rb'"19700101000000010",5,"19700101000000008",1]],"tokens_noted":"19700101000000003",'
    rb'"posts":[[10,"p1 void"],[11,"p2"]],"file_ids":{"eu":["00000001-7c1e-4bbb-8ccc-1234567890ab-0",'
    rb'"00000002-0000-0001-9700-101000000009-0"],"us":["00000001-7c1e-4bbb-8ccc-1234567890ab-0"]}}'
)


def test_a_value_with_everything_in_it_has_these_very_bytes() -> None:
    """What is on disk stays byte for byte. Other bytes need the next `FORMAT`."""
    assert EVERYTHING.encode() == EVERYTHING_JSON
    assert Timeline.decode(EVERYTHING_JSON, "") == EVERYTHING
    assert encode_segment(EVERYTHING.completions) == (
        rb'{"format":7,"completions":' + EVERYTHING_JSON.split(b'"completions":')[1].split(b',"segments"')[0] + b"}"
    )


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b'{"format":1}', b"\xff", b'{"format":1,"version":0}'])
def test_bytes_that_are_no_timeline_are_named(data: bytes) -> None:
    with pytest.raises(FormatError, match="file=x/y"):
        Timeline.decode(data, "x/y")


def test_a_newer_format_is_refused_by_number() -> None:
    data = Timeline.genesis(SCHEMA).encode().replace(b'"format":7', b'"format":8')
    with pytest.raises(UnsupportedVersionError, match="format=8"):
        Timeline.decode(data, "x")


FORMAT_1 = (
    rb'{"format":1,"version":6,"nonce":"n6","clock":"20231114221320050","swept":"19700101000000000",'
    rb'"schema":"[[\"id\",\"string\",false]]","pending":[["20231114221320030","n4",4]],'
    rb'"plans":[["20231114221320041","n6",6,".hoodie/.crdt_mor/plans/b-n6.json",'
    rb'[["","00000000-0000-0000-0000-000000000000-0"]]]],"rolled_back":[["20231114221320020","n3",5,false]],'
    rb'"completions":[["20231114221320000","20231114221320010",2,"n2","deltacommit","UPSERT",'
    rb'[[".00000000-0000-0000-0000-000000000000-0_20231114221320000.log.1_0-0-0",904,3,1]],[],0]],'
    rb'"segments":[["00000000000000000016-n0-0-live",0,"20231114221320000","20231114221320000",1,null]],'
    rb'"foreign_group":"abc-0","tokens":[["app",7,"20231114221320000","20231114221320010",2]]}'
)
"""What the release wrote that knew of no ids."""


def test_a_value_of_format_1_is_read_whole_and_goes_on_in_the_newest_format() -> None:
    value = Timeline.decode(FORMAT_1, "x")
    requested = InstantTime("20231114221320000")
    assert value == Timeline(
        version=6,
        nonce="n6",
        clock=InstantTime("20231114221320050"),
        schema='[["id","string",false]]',
        pending=(Pending(InstantTime("20231114221320030"), "n4", 4),),
        plans=(
            OpenPlan(
                InstantTime("20231114221320041"),
                "n6",
                6,
                ".hoodie/.crdt_mor/plans/b-n6.json",
            ),
        ),
        rolled_back=(RolledBack(InstantTime("20231114221320020"), "n3", 5),),
        completions=(
            Completion(
                requested,
                InstantTime("20231114221320010"),
                2,
                "n2",
                "deltacommit",
                "UPSERT",
                (DataFile(str(LogFileName(bucket_file_id(0), requested)), 904, 3, 1),),
            ),
        ),
        segments=(Segment("00000000000000000016-n0-0-live", 0, requested, requested, 1),),
        tokens=Tokens((Token("app", 7, requested, InstantTime("20231114221320010"), 2),)),
        foreign_group="abc-0",
        table_id=None,
        tokens_noted=InstantTime("20231114221320050"),
    )
    assert value.is_in(FORMAT_1), "it still stands, so who remembers it may climb from it"
    assert not replace(value, nonce="n7").is_in(FORMAT_1)
    assert Timeline.decode(value.encode(), "x") == value


FORMAT_2 = (
    rb'{"format":2,"version":12,"nonce":"n12","table_id":"t","clock":"20231114221320200",'
    rb'"swept":"20231114221320001","schema":"[[\"id\",\"string\",false]]",'
    rb'"pending":[["20231114221320100","n5",5,null],["20231114221320110","n6",6,1700000000109],'
    rb'["20231114221320120","job-20231114221320120",7,1700000000119,"driver",2]],'
    rb'"plans":[["20231114221320131","n8",8,".hoodie/.crdt_mor/plans/b-n8.json"],'
    rb'["20231114221320133","n8",8,".hoodie/.crdt_mor/plans/c-n8.json","clean"]],'
    rb'"rolled_back":[["20231114221320020","n2",3,false],["20231114221320031","n4",4,true],'
    rb'["20231114221320033","n4",4,"clean"]],'
    rb'"completions":[["20231114221320140","20231114221320150",9,"n9","deltacommit","UPSERT",'
    rb'[["eu/.00000000-0000-0000-0000-000000000000-0_20231114221320140.log.1_0-0-0",904,3,1]],[],0,"driver"],'
    rb'["20231114221320160","20231114221320170",10,"","replacecommit","INSERT_OVERWRITE",[],[["eu","g"]],1]],'
    rb'"segments":[["s-0-live",1,"19700101000000001","19700101000000003",2,null],'
    rb'["s-0-past",1,"19700101000000005","19700101000000007",4,"19700101000000009"]],'
    rb'"foreign_group":"f","added":["n"],"tokens":[["app",7,"20231114221320140","20231114221320150",9]],'
    rb'"retention":{"since":"20231114221320010","stable_since":"20231114221320008","groups":[["eu","g","20231114221320012"]]},'
    rb'"archive":{"watermark":"19700101000000005","since":"19700101000000003","version":11,"count":3,"manifest":2,'
    rb'"files":["a_0.parquet","b_0.parquet"]},"tokens_since":"19700101000000002"}'
)
"""What the release wrote that did not note who made what."""


def test_a_value_of_format_2_is_read_whole_and_goes_on_in_the_newest_format() -> None:
    commits = EVERYTHING.completions[:2]  # it told nobody of rollbacks either
    nobody: list[Pending | Completion] = [replace(entry, author=None) for entry in EVERYTHING.pending]
    nobody += [replace(entry, author=None, token=None) for entry in commits]
    value = Timeline.decode(FORMAT_2, "x")
    assert [*value.pending, *value.completions] == nobody
    names = ("pending", "completions", "savepoints", "restores", "posts", "file_ids")
    later = {name: getattr(EVERYTHING, name) for name in names}
    assert value.tokens_noted == value.clock, "it did not note which token a commit carried"
    assert replace(value, **later, tokens_noted=EVERYTHING.tokens_noted) == EVERYTHING
    assert Timeline.decode(value.encode(), "x") == value
    segment = rb'{"format":2,"completions":' + FORMAT_2.split(b'"completions":')[1].split(b',"segments"')[0] + b"}"
    assert list(decode_segment(segment, "x")) == nobody[3:]


@pytest.mark.parametrize(
    "author",
    [
        b"5",
        b"[]",
        b'["a","h"]',
        b'["a","h","5"]',
        b'["a",4,5]',
        b'["a","h",5,[]]',
        b'["a","h",5,{"k":1}]',
        b'["a","h",5,{},0]',
        rb'["\ud800","h",5]',
    ],
)
def test_an_author_of_another_shape_is_an_error_that_names_the_file(author: bytes) -> None:
    data = EVERYTHING_JSON.replace(b'["loader.py","host",4]', author)
    assert data != EVERYTHING_JSON
    with pytest.raises(FormatError, match="file=x/y"):
        Timeline.decode(data, "x/y")


infos = st.dictionaries(st.text(min_size=1), st.text(), max_size=4).map(lambda info: tuple(info.items()))
authors = st.builds(Author, st.text(), st.text(), st.integers(0, 1 << 31), infos)


@given(st.none() | authors)
def test_an_author_comes_back_from_json(author: Author | None) -> None:
    assert author_of(json.loads(json.dumps(author_json(author)))) == author


def test_every_event_after_a_value_of_an_older_release_has_the_newest_format() -> None:
    """A value that looks older than it is would send the next small commits the long way."""
    old = replace(Timeline.decode(FORMAT_1, "x"), plans=(), foreign_group=None)
    now, write = to_ms(old.clock), old.pending[0]
    staged = StagedOverwrite("INSERT_OVERWRITE", Scope(), (), ("empty", 50))
    saved = save(old, "n7", now, "here", "", None, EPOCH)
    plan = RestorePlan(begin_after(old.clock, now), old.completions[0].completed, EPOCH, ())
    events = [
        saved,
        unsave(replace(saved, format=1), "n8", now, "here"),
        overwritten(old, "n7", now, write, staged, (), ()),
        restored(old, "n7", "n7", plan, "plan", old.completions, old.segments, None, 2, ()),
        old.begin("n7", now),
        old.complete("n7", now, write.requested, "UPSERT", ()),
    ]
    assert {event.format for event in events} == {FORMAT}


def test_what_is_said_of_a_commit_counts_towards_the_bytes_that_a_value_carries() -> None:
    done = EVERYTHING.completions[0]
    assert bytes_of([done]) == bytes_of([replace(done, author=None)]) + len("message" + "ü" + "k")


def test_a_compaction_is_told_as_by_the_releases_that_knew_of_no_other_plan() -> None:
    value = Timeline.genesis(SCHEMA).begin("write", 0)
    value = value.roll_back("gone", 0, value.pending[0].requested)
    value = value.schedule("first", 0, COMPACTION, "a.json")
    value = value.cancel_plan("cancelled", 0, value.plans[0].barrier)
    value = value.schedule("second", 0, COMPACTION, "b.json")
    told = json.loads(value.encode())
    assert [entry[1:] for entry in told["plans"]] == [["second", 5, "b.json"]]
    assert [entry[1:] for entry in told["rolled_back"]] == [["write", 2, False], ["first", 4, True]]
    again = Timeline.decode(value.encode(), "x")
    assert [plan.action for plan in again.plans] == [COMPACTION]
    assert [(gone.action, gone.is_plan) for gone in again.rolled_back] == [("deltacommit", False), (COMPACTION, True)]


@pytest.mark.parametrize("entry", [[True, "n", 1, "a.json"], ["20231114221320041", "n", 1, "a.json", True]])
def test_an_entry_of_a_plan_that_no_release_writes_is_refused(entry: list[object]) -> None:
    value = json.loads(Timeline.genesis(SCHEMA).encode()) | {"plans": [entry]}
    with pytest.raises(FormatError, match="file=x"):
        Timeline.decode(json.dumps(value, separators=(",", ":")).encode(), "x")


def test_the_first_event_gives_a_table_without_an_id_one_that_stays() -> None:
    scene = Scene()
    assert scene.tail().table_id is None
    value, begun = scene.begin()
    first = scene.version(1)
    assert first.table_id == first.nonce == value.table_id
    done = scene.run(events.complete(PUBLISHER, value, begun, "UPSERT", [], None)).value
    assert done.table_id == first.table_id


def test_two_that_race_to_give_a_table_its_id_hold_that_of_the_winner() -> None:
    scene = Scene()
    won: list[Timeline] = []

    def overtaken(steps: Steps[T]) -> Steps[T]:
        """Somebody else's begin comes just before the first put of a version."""
        reply = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Put) and step.path == version_path(1) and not won:
                won.append(scene.begin()[0])
            reply = yield step

    lost, _ = scene.run(overtaken(events.begin(PUBLISHER, scene.tail(), NEVER)))
    assert lost.table_id == won[0].table_id == scene.version(1).nonce
    assert len(lost.pending) == 2


# --- segments ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(2), range(2, 6)))
def test_no_completion_is_lost_in_segments_and_the_value_stays_small(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 2)
    monkeypatch.setattr("crdt_mor.log.segments.SEGMENTS_MAX", 2)
    scene, chance = Scene(), random.Random(seed)
    done: list[Completion] = []
    begun: list[tuple[Timeline, Pending]] = []
    for _ in range(150):
        match chance.randrange(5):
            case 0 | 1:
                begun.append(scene.begin())
            case 2 | 3 if begun:
                value, pending = begun.pop(chance.randrange(len(begun)))
                committed = scene.complete(value, pending, [scene.stage(pending, chance.randrange(2))])
                assert isinstance(committed.completion, Completion)
                done.append(committed.completion)
            case _:
                value = scene.compact(chance.randrange(2))
                done.append(value.completions[-1])
        tail = scene.tail()
        assert scene.completions(tail) == done
        assert _commits(tail) == len(done)
        assert len(tail.completions) <= 3
        assert len(tail.segments) <= 4 * (1 + len(done).bit_length())
    for completion in done:
        assert scene.run(find_completion(completion.requested, scene.tail())) == completion
    check_superseded(scene, scene.tail(), done)


def wide(number: int, groups: int = 800) -> list[DataFile]:
    """The files of a commit that touched many file groups."""
    instant = from_ms(1_600_000_000_000 + 2 * number)
    return [DataFile(f"day={i:05d}/{LogFileName(bucket_file_id(0), instant)}", 4_000, 1) for i in range(groups)]


@pytest.mark.slow
def test_a_wide_commit_rides_in_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crdt_mor.log.segments.SEGMENTS_MAX", 3)
    scene = Scene()
    done: list[Completion] = []
    for number in range(13):
        value, begun = scene.begin()
        files = wide(number) if number % 3 == 0 else [scene.stage(begun)]
        committed = scene.complete(value, begun, files)
        assert isinstance(committed.completion, Completion)
        done.append(committed.completion)
        after, _ = scene.begin()
        assert len(committed.value.encode()) < 10_000, "however wide the commit is, its own version is small"
        assert len(after.encode()) < 10_000
    assert scene.completions(scene.tail()) == done
    assert {segment.level for segment in scene.tail().segments} == {0, 1}
    for completion in (done[0], done[6], done[-1]):
        assert scene.run(find_completion(completion.requested, scene.tail())) == completion
    check_superseded(scene, scene.tail(), done)


def test_what_is_weighed_is_about_what_is_written() -> None:
    value = Timeline.genesis(SCHEMA).begin("a", 0)
    empty = len(value.encode())
    done = value.complete("n" * 32, 0, value.pending[0].requested, "UPSERT", wide(0))
    assert 0.8 < bytes_of(done.completions) / (len(done.encode()) - empty) < 1.2


def check_superseded(scene: Scene, value: Timeline, done: list[Completion]) -> None:
    """A segment may be left out of every snapshot that it says it can be left out of."""
    truth = superseded_at(done)
    for segment in value.segments:
        content = scene.run(read_segment(segment))
        assert (segment.first, segment.last, segment.count) == (
            content[0].completed,
            content[-1].completed,
            len(content),
        )
        if segment.superseded is not None:
            for completion in content:
                until = truth[completion.requested]
                assert until is not None
                assert until <= segment.superseded


def test_a_commit_is_needed_until_a_later_compaction_of_each_of_its_groups_completes() -> None:
    def commit(requested: int, completed: int, *files: DataFile, action: str = "deltacommit") -> Completion:
        return Completion(from_ms(requested), from_ms(completed), 1, "", action, "", files)

    def base(bucket: int, barrier: int) -> DataFile:
        return DataFile(str(BaseFileName(bucket_file_id(bucket), WRITE_TOKEN, from_ms(barrier))), 1, 1)

    both = commit(2, 4, log(from_ms(2), 0), log(from_ms(2), 1))
    first = commit(5, 8, base(0, 5), action="commit")
    late = commit(6, 10, log(from_ms(6), 0))
    second = commit(11, 14, base(1, 11), action="commit")
    third = commit(15, 18, base(0, 15), action="commit")
    nothing = commit(20, 22)
    found = superseded_at([both, first, late, second, third, nothing])
    assert found[both.requested] == from_ms(14)
    assert found[first.requested] == from_ms(18)
    assert found[late.requested] == from_ms(18)
    assert found[second.requested] is found[third.requested] is None
    assert found[nothing.requested] == EPOCH


def test_a_commit_that_replaced_file_groups_is_needed_for_ever() -> None:
    done = Completion(from_ms(2), from_ms(4), 1, "", "replacecommit", "DELETE_PARTITION", (), (("p", "g"),))
    assert superseded_at([done]) == {from_ms(2): None}


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_a_repeated_token_gives_the_earlier_commit_and_leaves_nothing_behind() -> None:
    scene = Scene()
    first = scene.commit(token=("app", 7))
    again = scene.commit(token=("app", 7))
    assert again.repeated
    assert again.completion.requested == first.completion.requested
    assert _commits(scene.tail()) == 1
    assert len(scene.store.walk("")) == 1


def test_a_token_below_the_last_one_raises_and_other_applications_do_not_mind() -> None:
    scene = Scene()
    scene.commit(token=("app", 7))
    with pytest.raises(TokenOrderError, match="last=7"):
        scene.commit(token=("app", 6))
    assert not scene.commit(token=("other", 1)).repeated
    assert not scene.commit(token=("app", 8)).repeated
    assert [(t.application, t.number) for t in scene.tail().tokens] == [("other", 1), ("app", 8)]


def test_a_writer_that_was_given_up_hears_of_it_and_cannot_commit() -> None:
    scene = Scene()
    value, begun = scene.begin()
    file = scene.stage(begun)
    scene.ms += 100_000
    scene.begin(expiry_ms=50_000)
    with pytest.raises(WriterExpiredError):
        scene.complete(value, begun, [file])
    assert scene.store.read(file.path) is None
    assert begun.requested not in "".join(scene.hudi())


# --- sweeping ---------------------------------------------------------------------------------------------------------


def test_a_given_up_instant_is_forgotten_only_once_a_listing_shows_nothing_of_it() -> None:
    scene = Scene()
    value, begun = scene.begin()
    scene.run(rollback.give_up(PUBLISHER, value, begun.requested, None))
    file = scene.stage(begun)  # a writer that wakes up too late
    swept = scene.run(sweep.sweep(PUBLISHER, scene.tail()))
    assert [r.requested for r in swept.rolled_back] == [begun.requested]
    assert scene.store.read(file.path) is None
    swept = scene.run(sweep.sweep(PUBLISHER, swept))
    assert swept.rolled_back == ()
    scene.stage(begun)  # later still: nobody knows the instant any more, and by that it is recognised
    scene.run(sweep.sweep(PUBLISHER, swept))
    assert scene.store.read(file.path) is None


def test_what_hudi_is_told_is_not_made_again_where_it_is_in_place() -> None:
    """The file of a commit of 10,000 files takes half a second to make, and the next publisher looks for it."""
    scene = Scene()
    value, begun = scene.begin()
    done = scene.complete(value, begun, [scene.stage(begun)]).value
    asked: list[str] = []

    def noted(file: EventFile) -> bytes:
        asked.append(file.path)
        return file.make()

    class Watching(Projector):
        def files(self, value: Timeline) -> Steps[list[EventFile]]:
            files = yield from super().files(value)
            return [replace(file, make=partial(noted, file)) for file in files]

    publisher = Publisher(Watching(PUBLISHER.projector.config))
    scene.run(publisher.project(done))
    assert asked == []
    (told,) = [file for file in scene.run(PUBLISHER.projector.files(done)) if file.path.endswith(".deltacommit")]
    scene.store.delete(told.path)
    scene.run(publisher.project(done))
    assert asked == [told.path]
    assert scene.store.read(told.path) == told.make()


def test_what_a_stalled_helper_put_is_swept_though_the_instant_is_forgotten() -> None:
    scene = Scene()
    value, begun = scene.begin()
    scene.run(rollback.give_up(PUBLISHER, value, begun.requested, None))
    for _ in range(2):
        scene.run(sweep.sweep(PUBLISHER, scene.tail()))
    told = scene.hudi()
    assert all(".rollback" in name for name in told)
    for put in scene.run(PUBLISHER.projector.files(value)):
        scene.store.put(put.path, put.make())
    assert set(scene.hudi()) > set(told)
    scene.run(sweep.sweep(PUBLISHER, scene.tail()))
    assert scene.hudi() == told


@pytest.mark.parametrize("file", range(3), ids=["inflight", "requested", "compaction-requested"])
def test_each_file_that_a_stalled_helper_puts_is_swept_though_it_is_alone(file: int) -> None:
    """The helper looked for the first file, stalled until the instant was forgotten, put one file, and died."""
    scene = Scene()
    value, begun = scene.begin()
    planned = scene.schedule()
    scene.run(rollback.give_up(PUBLISHER, value, begun.requested, None))
    scene.run(plans.cancel(PUBLISHER, planned, planned.plans[0].barrier))
    for _ in range(2):
        scene.run(sweep.sweep(PUBLISHER, scene.tail()))
    assert scene.tail().rolled_back == ()
    told = scene.hudi()
    assert all(".rollback" in name for name in told)
    files = [*scene.run(PUBLISHER.projector.files(value)), *scene.run(PUBLISHER.projector.files(planned))]
    assert len(files) == 3
    scene.store.put(files[file].path, files[file].make())
    scene.run(sweep.sweep(PUBLISHER, scene.tail()))
    assert scene.hudi() == told


@pytest.mark.parametrize("name", ["deltacommit.requested", "deltacommit.inflight", "compaction.inflight"])
def test_a_single_file_of_hudis_is_never_swept(name: str) -> None:
    scene = Scene()
    scene.commit()
    path = f"{PUBLISHER.projector.folder}/{from_ms(scene.ms - 1_001)}.{name}"
    scene.store.put(path, b"")
    scene.ms += 70_000
    scene.run(sweep.sweep(PUBLISHER, scene.tail()))
    assert scene.store.read(path) == b""


@pytest.mark.parametrize("sealed", [False, True])
def test_nothing_of_a_commit_a_pending_write_or_hudi_is_swept(sealed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if sealed:
        monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 1)
    scene = Scene()
    for bucket in range(3):
        scene.commit(bucket)
    _, begun = scene.begin()
    scene.stage(begun)
    hudis = from_ms(scene.ms - 1_001)  # before the table's clock, and unknown to it
    put_hudi(scene, hudis, completed=False)
    before = {s.path for s in scene.store.walk("")}, scene.hudi()
    for _ in range(2):
        scene.ms += 70_000
        scene.run(sweep.sweep(PUBLISHER, scene.tail()))
    assert ({s.path for s in scene.store.walk("")}, scene.hudi()) == before


# --- plans ------------------------------------------------------------------------------------------------------------


def output(planned: Timeline, bucket: int = 0) -> DataFile:
    """The base file of the newest plan."""
    return DataFile(str(BaseFileName(bucket_file_id(bucket), WRITE_TOKEN, planned.plans[-1].barrier)), 1, 1)


def test_a_cancelled_plan_leaves_nothing_in_hudis_timeline_and_its_outputs_go_first() -> None:
    scene = Scene()
    planned = scene.schedule()
    scene.store.put(output(planned).path, b"base")
    barrier = planned.plans[0].barrier
    assert scene.hudi() == [f"{barrier}.compaction.requested"]
    deleted = scene.deletions(plans.cancel(PUBLISHER, planned, barrier))
    assert [path.rpartition("/")[2] for path in deleted] == [
        output(planned).path, f"{barrier}.compaction.requested"
    ]  # fmt: skip
    assert (scene.hudi(), scene.store.walk("")) == ([], [])


def test_a_plan_on_the_same_group_removes_first_what_a_dead_canceller_left() -> None:
    """Hudi's readers refuse a table with two pending compactions of one file group."""
    scene = Scene()
    planned = scene.schedule()
    scene.store.put(output(planned).path, b"base")
    scene.run_until_put(plans.cancel(PUBLISHER, planned, planned.plans[0].barrier), version_path(2))
    assert len(scene.hudi()) == 1, "it died before it could remove anything"
    again = scene.schedule(watch=lambda: sum(name.endswith("compaction.requested") for name in scene.hudi()) < 2)
    (plan,) = again.plans
    assert scene.hudi() == [f"{plan.barrier}.compaction.requested"]
    assert scene.store.walk("") == []


def test_an_output_that_came_after_the_cancel_is_removed_by_its_executor() -> None:
    """Beside a base file whose instant Hudi's timeline does not have, its readers would miss later commits."""
    scene = Scene()
    planned = scene.schedule()
    file, barrier = output(planned), planned.plans[0].barrier
    scene.run(plans.cancel(PUBLISHER, planned, barrier))
    scene.store.put(file.path, b"base")
    assert not scene.run(plans.keep_outputs(planned, barrier, [file.path]))
    assert scene.store.walk("") == []


@pytest.mark.parametrize("done", [False, True])
def test_an_output_of_an_open_or_a_completed_plan_stays(done: bool) -> None:
    scene = Scene()
    planned = scene.schedule()
    file, barrier = output(planned), planned.plans[0].barrier
    scene.store.put(file.path, b"base")
    if done:
        scene.run(plans.complete(PUBLISHER, planned, barrier, [file]))
    assert scene.run(plans.keep_outputs(planned, barrier, [file.path]))
    assert [stat.path for stat in scene.store.walk("")] == [file.path]


def test_a_sweep_removes_the_outputs_of_a_plan_before_the_plan() -> None:
    scene = Scene()
    planned = scene.schedule()
    scene.run(plans.cancel(PUBLISHER, planned, planned.plans[0].barrier))
    for put in scene.run(PUBLISHER.projector.files(planned)):
        scene.store.put(put.path, put.make())
    scene.store.put(output(planned).path, b"late")
    deleted = [path.rpartition("/")[2] for path in scene.deletions(sweep.sweep(PUBLISHER, scene.tail()))]
    barrier = planned.plans[0].barrier
    assert deleted == [output(planned).path, f"{barrier}.compaction.requested"]


def test_a_plan_of_many_file_groups_adds_nothing_to_a_value_but_its_name() -> None:
    scene = Scene()
    before = len(scene.commit().value.encode())
    groups = tuple(GroupInput(f"day={i:05d}", bucket_file_id(0), None, (log(EPOCH),)) for i in range(2_000))
    seen: list[Collection[FileGroup]] = []

    def plan_from(tail: Timeline, taken: Collection[FileGroup]) -> CompactionPlan | None:
        seen.append(taken)
        return None if taken else CompactionPlan(tail.next_barrier, (), SCHEMA, "latest", groups)

    value, plan = scene.run(plans.schedule(PUBLISHER, scene.tail(), COMPACT, plan_from))
    assert plan is not None
    assert len(value.encode()) < before + 300
    assert scene.run(plans.schedule(PUBLISHER, value, COMPACT, plan_from)) == (value, None)
    assert seen == [set(), set(plan.file_groups)], "its file groups are taken all the same"
    with pytest.raises(InvalidInputError, match="all the plan's file groups"):
        scene.run(plans.complete(PUBLISHER, value, plan.barrier, [output(value)]))


def test_who_executes_open_plans_first_tells_hudi_of_them() -> None:
    scene = Scene()
    value = scene.commit().value
    scene.run_until_put(scene.scheduling(), version_path(value.version + 1))
    assert not any("compaction" in name for name in scene.hudi()), "it died before it could tell"
    _, (plan,) = scene.run(plans.open_plans(PUBLISHER, value, COMPACT))
    assert [name for name in scene.hudi() if "compaction" in name] == [f"{plan.barrier}.compaction.requested"]


# --- adoption ---------------------------------------------------------------------------------------------------------


def put_hudi(scene: Scene, requested: InstantTime, *, completed: bool) -> DataFile:
    """What Hudi leaves of a write, complete or under way."""
    file = log(requested)
    folder = PUBLISHER.projector.folder
    stat = WriteStat(file_id=bucket_file_id(0), path=file.path, num_writes=1, file_size_in_bytes=4)
    scene.store.put(f"{folder}/{requested}.deltacommit.requested", b"")
    scene.store.put(f"{folder}/{requested}.deltacommit.inflight", encode_commit(CommitMetadata({}, "UPSERT", {})))
    scene.store.put(file.path, b"rows")
    if completed:
        done = from_ms(to_ms(requested) + 10)
        scene.store.put(
            f"{folder}/{requested}_{done}.deltacommit", encode_commit(CommitMetadata({"": [stat]}, "UPSERT", {}))
        )
    return file


def test_what_hudi_wrote_is_adopted_once_and_the_clock_moves_past_it() -> None:
    scene = Scene()
    scene.commit()
    ahead = from_ms(scene.ms + 500_000)
    file = put_hudi(scene, ahead, completed=True)
    value = scene.run(adoption.adopt(PUBLISHER, scene.tail()))
    (adopted,) = [c for c in value.completions if c.adopted]
    assert (adopted.requested, [f.path for f in adopted.files], adopted.version) == (ahead, [file.path], value.version)
    assert value.clock > adopted.completed
    assert scene.run(adoption.adopt(PUBLISHER, value)) == value
    scene.run(sweep.sweep(PUBLISHER, value))
    assert scene.store.read(file.path) is not None


def test_our_own_files_pending_ones_and_given_up_ones_are_never_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 2)
    scene = Scene()
    values = [scene.commit().value for _ in range(5)]
    put_hudi(scene, from_ms(scene.ms + 9_001), completed=False)
    # An older value sees commits in the directory that it does not know; they bear our key.
    assert scene.run(foreign_completions(PUBLISHER.projector, values[2])).completions == ()
    value, begun = scene.begin()
    value = scene.run(rollback.give_up(PUBLISHER, value, begun.requested, None))
    put_hudi(scene, begun.requested, completed=True)
    assert value.find_rolled_back(begun.requested) == RolledBack(begun.requested, begun.nonce, value.version)
    with pytest.raises(UnsupportedFeatureError, match="same requested time"):  # Hudi's own: its rows must not be lost
        scene.run(adoption.adopt(PUBLISHER, value))
    assert scene.tail() == value


def test_adopted_instants_in_segments_are_not_adopted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 1)
    scene = Scene()
    put_hudi(scene, from_ms(scene.ms - 5_000), completed=True)
    value = scene.run(adoption.adopt(PUBLISHER, scene.tail()))
    for _ in range(3):
        value = scene.commit().value
    assert scene.run(adoption.adopt(PUBLISHER, value)) == value
    assert sum(c.adopted for c in scene.completions(value)) == 1


def _commits(value: Timeline) -> int:
    """Completed instants, those in segments included."""
    return len(value.completions) + sum(segment.count for segment in value.segments)
