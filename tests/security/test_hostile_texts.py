"""JSON, names, numbers and paths that fuzzing has found, as `test_hostile_bytes` has bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer

import crdt_mor as mor
from crdt_mor.cli import inputs
from crdt_mor.columns.schema import TableSchema
from crdt_mor.format import archive, avro, commit, savepoint
from crdt_mor.log.paths import HEARTBEATS, VERSIONS, post_in
from crdt_mor.log.posts import decode_post
from crdt_mor.model import names
from crdt_mor.model.instant import LAST
from crdt_mor.model.timeline import Timeline
from crdt_mor.planners.archive import level_of, span_of
from crdt_mor.planners.clean import CleanPlan
from crdt_mor.planners.compaction import CompactionPlan
from crdt_mor.planners.erasure import Erasure
from crdt_mor.planners.restore import RestorePlan
from crdt_mor.read.sql_names import in_sql
from crdt_mor.store.memory import MemoryStore
from tests.simulated import Simulated

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
DIGITS = "9" * 5000


def table() -> tuple[Simulated, mor.Table]:
    place = Simulated()
    made = place.create(SCHEMA, key="id", buckets=1)
    made.upsert(pa.table({"id": ["a"], "n": [1]}, SCHEMA))
    return place, made


# --- JSON -------------------------------------------------------------------------------------------------------------

COMMITS: list[dict[str, Any]] = [
    {"partitionToWriteStats": {"p": [{"path": ["x"]}]}},
    {"partitionToWriteStats": {"p": [{"path": "x", "numWrites": "7"}]}},
    {"partitionToWriteStats": {"p": [{"path": "x", "fileSizeInBytes": 10**30}]}},
    {"operationType": []},
    {"partitionToWriteStats": {"p": [{"path": "x", "logFiles": [[]]}]}},
    {"partitionToReplaceFileIds": {"p": [["f"]]}},
    {"extraMetadata": {"schema": {}}},
]


@pytest.mark.parametrize("number", range(len(COMMITS)))
def test_commit_metadata_of_other_types_is_named(number: int) -> None:
    with pytest.raises(mor.errors.FormatError, match=r"its fields differ from Hudi.*path=p"):
        commit.decode_commit(json.dumps(COMMITS[number]).encode(), "p")


@pytest.mark.parametrize(
    "kind",
    [
        "fixed_size_binary[99999999999999999999]",
        ["fixed_size_list", "item", "int8", 2**70],
        "decimal128(999999999999, 1)",
    ],
)
def test_a_type_with_a_number_that_is_too_large_is_no_schema(kind: object) -> None:
    with pytest.raises(mor.errors.FormatError, match="not a table schema"):
        TableSchema.from_json(json.dumps([["a", kind]]))


def places_of_numbers(document: Any) -> Iterator[tuple[Any, Any]]:
    """Each number in a document, by what holds it and where in that."""
    for at, inner in document.items() if isinstance(document, dict) else enumerate(document):
        if isinstance(inner, dict | list):
            yield from places_of_numbers(inner)
        elif isinstance(inner, int) and not isinstance(inner, bool):
            yield document, at


def test_a_truth_value_in_the_place_of_a_number_is_none_or_that_number() -> None:
    """To Python true is the number 1, to the other readers of a table it is none."""
    place, made = table()
    made.delete(keys=["a"])
    made.maintenance.savepoint("kept")
    data = place.store.read(f"{VERSIONS}/{made.version:020d}.json")
    assert data is not None
    whole, meant, refused = json.loads(data), Timeline.decode(data, "v"), 0
    for holder, at in places_of_numbers(whole):
        number, holder[at] = holder[at], True
        try:
            found = Timeline.decode(json.dumps(whole, separators=(",", ":")).encode(), "v")
        except mor.CrdtMorError:
            refused += 1
        else:
            assert found.version == meant.version
            assert all(type(file.rows) is type(file.deletes) is int for c in found.completions for file in c.files)
        holder[at] = number
    assert refused > 10


T = "20260101000000000"
FILE = ["part=x/f-0_0-0-0_20260101000000000.parquet", 1, 2, 0]
RETENTION = {"since": T, "stable_since": T, "groups": []}
CLEAN = {
    "format": 1,
    "barrier": T,
    "retention": RETENTION,
    "deletion": T,
    "last_completed": T,
    "policy": "time",
    "table_id": "t",
    "files": {},
}
COMPACTION = {
    "format": 1,
    "barrier": T,
    "pending": [T],
    "schema": "[]",
    "merge": "latest",
    "table_id": "t",
    "groups": [["x", "f", FILE, []]],
}
RESTORE = {"format": 1, "requested": T, "to": T, "marks": T, "table_id": "t", "dropped": [[T, T, "commit", [FILE[0]]]]}
ERASURE = {"format": 1, "requested": T, "table_id": "t", "groups": [["x", "f"]]}
Decode = Callable[[bytes, str], object]
PLANS: list[tuple[Decode, dict[str, Any], dict[str, Any]]] = [
    (CompactionPlan.decode, COMPACTION, {"pending": [["x"]]}),
    (CompactionPlan.decode, COMPACTION, {"barrier": 7}),
    (CompactionPlan.decode, COMPACTION, {"schema": None}),
    (CompactionPlan.decode, COMPACTION, {"groups": [[7, "f", FILE, []]]}),
    (CleanPlan.decode, CLEAN, {"deletion": 7}),
    (CleanPlan.decode, CLEAN, {"policy": []}),
    (CleanPlan.decode, CLEAN, {"policy": "x"}),
    (RestorePlan.decode, RESTORE, {"to": 7}),
    (RestorePlan.decode, RESTORE, {"dropped": [[7, T, "commit", []]]}),
    (Erasure.decode, ERASURE, {"table_id": []}),
]


@pytest.mark.parametrize("number", range(len(PLANS)))
def test_a_plan_whose_parts_are_of_other_types_is_named(number: int) -> None:
    decode_plan, plan, change = PLANS[number]
    decode_plan(json.dumps(plan).encode(), "p")
    with pytest.raises(mor.errors.FormatError, match="file=p"):
        decode_plan(json.dumps(plan | change).encode(), "p")


def versions(change: Callable[[dict[str, Any]], None]) -> bytes:
    place, made = table()
    made.transaction().__enter__()
    path = place.store.list(VERSIONS)[-1].path
    document = json.loads(place.store.read(path) or b"")
    change(document)
    return json.dumps(document, separators=(",", ":")).encode()


def _late(document: dict[str, Any]) -> None:
    document["pending"][0][3] = 10**30


def _replaced(document: dict[str, Any]) -> None:
    document["completions"][0][7] = [[["x"], "f"]]


@pytest.mark.parametrize("change", [_late, _replaced])
def test_a_version_with_numbers_and_names_that_are_none_is_named(change: Callable[[dict[str, Any]], None]) -> None:
    Timeline.decode(versions(lambda _: None), "v")
    with pytest.raises(mor.errors.FormatError, match=r"not a timeline value.*file=v"):
        Timeline.decode(versions(change), "v")


def test_a_time_after_the_last_year_is_an_error_of_ours() -> None:
    place, made = table()
    made.transaction().__enter__()
    path = place.store.list(VERSIONS)[-1].path
    data = place.store.read(path) or b""
    for beat in place.store.list(HEARTBEATS):
        place.store.delete(beat.path)
    steps: list[tuple[str, object, Callable[[mor.Table], object]]] = [
        ("pending", 2**62, lambda table: table.inspect.pending()),
        ("clock", LAST, lambda table: table.upsert(pa.table({"id": ["b"], "n": [2]}, SCHEMA))),
    ]
    for field, value, step in steps:
        document = json.loads(data)
        if field == "pending":
            document["pending"][0][3] = value
        else:
            document[field] = value
        place.store.delete(path)
        place.store.put(path, json.dumps(document, separators=(",", ":")).encode())
        with pytest.raises(mor.errors.FormatError, match="beyond the year 9999"):
            step(mor.Table("simulated", opening=mor.Opening(store=place.store, environment=place.environment)))


def test_a_savepoint_of_another_schema_is_named() -> None:
    schema = {"type": "record", "name": "HoodieSavepointMetadata", "fields": []}
    container = avro.encode_container(avro.container_header(json.dumps(schema)), 1, b"")
    with pytest.raises(mor.errors.FormatError, match=r"unreadable savepoint: its fields differ from Hudi.*path=p"):
        savepoint.decode_savepoint_record(container, "p")


def test_a_post_with_numbers_that_no_version_has_room_for_is_nobodys() -> None:
    head = {
        "format": 7,
        "table_id": "t",
        "author": ["a", "h", 1],
        "token": ["app", 1],
        "statement": "UPSERT",
        "plain": False,
        "rows": 1,
        "deletes": 0,
        "crc32": 0,
    }
    path = "posts/7-abc"
    assert decode_post(json.dumps(head).encode() + b"\n", path, "t") is not None
    for change in ({"token": ["app", 2**63]}, {"rows": 2**63}, {"author": ["a", "h", 2**63]}):
        assert decode_post(json.dumps(head | change).encode() + b"\n", path, "t") is None


# --- tokens, names, texts ---------------------------------------------------------------------------------------------


def test_a_token_that_no_version_has_room_for_is_refused_and_the_table_can_be_read() -> None:
    place, made = table()
    rows = pa.table({"id": ["b"], "n": [2]}, SCHEMA)
    for number in (2**63, -(2**64)):
        with pytest.raises(mor.InvalidInputError, match="at most 63 bits"):
            made.upsert(rows, token=("app", number))
        with pytest.raises(mor.InvalidInputError, match="at most 63 bits"), made.transaction(token=("app", number)):
            pass
    made.upsert(rows, token=("app", 2**63 - 1))
    again = mor.Table("simulated", opening=mor.Opening(store=place.store, environment=place.environment))
    assert again.scan().to_arrow().num_rows == 2


@pytest.mark.parametrize("text", ["app:²", f"app:{DIGITS}", "app:٣", "app:", "app:-1"])
def test_a_token_on_the_command_line_is_in_plain_digits(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        inputs.token(text)


def test_names_with_numbers_that_are_none_are_names_of_nothing() -> None:
    assert post_in(f"posts/{DIGITS}-abc") is None
    assert post_in("posts/٣-abc") is None
    assert archive.manifest_number(f"manifest_{DIGITS}") is None
    assert names.LogFileName.parse(f".f-0_{T}.log.{DIGITS}_0-0-0") is None
    assert names.TimelineFileName.parse("٢٠٢٦٠١٠١٠٠٠٠٠٠٠٠٠.commit.requested") is None
    for odd in ("x.parquet", "1_2_x.parquet", f"1_2_{DIGITS}.parquet", "1_2.parquet"):
        for ask in (level_of, span_of):
            with pytest.raises(mor.errors.FormatError, match="contains an invalid history file name"):
                ask(odd)


@pytest.mark.parametrize("name", ["²", DIGITS[:200], "x"])
def test_strange_objects_beside_the_versions_are_an_error_of_ours(name: str) -> None:
    place, made = table()
    place.store.put(f"{VERSIONS}/{name}.json", b"{}")
    place.store.put(f".hoodie/.crdt_mor/segments/{name}-1.json", b"{}")
    steps: list[Callable[[], object]] = [
        lambda: mor.Table("simulated", opening=mor.Opening(store=place.store)).scan().to_arrow(),
        lambda: made.maintenance.archive(keep_commits=1),
    ]
    for step in steps:
        try:
            step()
        except mor.CrdtMorError:
            continue


@pytest.mark.parametrize("filter", ["n = 1 AND id = '\ud800'", "\ud800", "id IN ('a', '\udfff')"])
def test_sql_with_halves_of_characters_is_refused_by_a_word_of_ours(filter: str) -> None:
    _, made = table()
    with pytest.raises(mor.InvalidInputError, match="half of a character"):
        made.scan(filter=filter)
    with pytest.raises(mor.InvalidInputError, match="half of a character"):
        made.delete(where=filter)
    with pytest.raises(mor.InvalidInputError, match="half of a character"):
        made.add_rules(mor.Rules(check={"odd": filter}))


NESTED = {
    "a word that ends in the air": "CAST(" * 24,
    "brackets that are closed": "CAST(" * 24 + "n" + ")" * 24,
    "three times each": "POSITION((" * 20,
    "without brackets": "INTERVAL " * 40 + "n",
    "inside of lists": "[NOT" * 35 + " AND",
    "cases": "CASE WHEN n = 1 THEN " * 30,
    "words of several kinds": "n IN (SUBSTRING(CEIL(" * 10,
    "behind a condition": "n = 1 AND " + "LOCALTIME[" * 24,
    "below the comparisons": "n = 1 AND (n = 2 OR " + "NOT (n + ARRAY[" * 14,
    "quoted in no way that is known": "NOT (" * 24 + "$",
    "deeper than polars reads": "NOT (" * 60,
}


@pytest.mark.parametrize("text", NESTED.values(), ids=NESTED)
def test_sql_that_its_parser_would_read_for_hours_is_refused_at_once(text: str) -> None:
    """Of a failing text the parser reads what stands behind such words twice, and so in each other."""
    _, made = table()
    rows = pa.table({"id": ["a"]})
    attempts: list[Callable[[], object]] = [
        lambda: made.scan(filter=text),
        lambda: made.delete(where=text),
        lambda: made.update({"n": text}),
        lambda: made.update({"n": "1"}, text),
        lambda: made.merge(rows).when_matched_delete(text).execute(),
        lambda: made.add_rules(mor.Rules(check={"odd": text})),
    ]
    for attempt in attempts:
        with pytest.raises(mor.InvalidInputError):
            attempt()


def test_a_column_whose_name_is_such_a_text_is_named_in_quotes() -> None:
    name = "CAST(" * 24
    made = Simulated().create(pa.schema([("id", pa.string()), (name, pa.int64())]), key="id", buckets=1)
    assert made.scan(filter=f'"{name}" > 1').count() == 0
    assert in_sql(name) == f'"{name}"'


@pytest.mark.parametrize(
    "text",
    [
        "CASE WHEN n = 1 THEN 2 " + "ELSE CASE WHEN n = 2 THEN 3 " * 30 + "END" + " END" * 30 + " = 3",
        " + ".join(["CAST(n AS INT)"] * 30) + " = 30",
        "coalesce(" + ", ".join(["n IS NOT NULL AND NOT n = 2"] * 30) + ")",
        "NOT (" * 40 + "n = 1" + ")" * 40,
        "CAST(" * 10 + "n" + " AS BIGINT)" * 10 + " = 1",
    ],
    ids=["a list of cases", "beside each other", "arguments", "brackets around conditions", "ten"],
)
def test_sql_of_many_such_words_beside_each_other_is_read(text: str) -> None:
    _, made = table()
    assert made.scan(filter=text).count() in (0, 1)
    assert made.scan(filter=f"({text}) OR n = 1").count() == 1


@pytest.mark.parametrize("text", ["IS }DISTINCT", "n = 1 AND IS , DISTINCT", "IS ) NOT DISTINCT", "(IS NOT) DISTINCT"])
def test_sql_with_half_of_is_distinct_from_is_refused(text: str) -> None:
    _, made = table()
    with pytest.raises(mor.InvalidInputError):
        made.scan(filter=text)


# --- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["../out/x", "a/../../out/x", "../out/deep/x", "/out/x", "a\0b", "a/\ud800/x", "\ud800"]
)
def test_a_store_makes_nothing_outside_of_its_folder_whatever_it_is_told(fast_path: Path, path: str) -> None:
    store, before = mor.store.LocalStore(fast_path / "t"), sorted(fast_path.iterdir())
    store.put("a/there", b"x")
    calls: list[Callable[[], object]] = [
        lambda: store.put(path, b"x"),
        lambda: store.copy("a/there", path),
        lambda: store.copy(path, "b"),
        lambda: store.touch(path),
        lambda: store.delete(path),
        lambda: store.read(path),
        lambda: store.stat(path),
        lambda: store.list(path),
        lambda: store.walk(path),
    ]
    for call in calls:
        with pytest.raises(mor.InvalidInputError, match="relative path without empty"):
            call()
    assert sorted(fast_path.iterdir()) == [*before, fast_path / "t"]
    for call in (lambda: MemoryStore().put(path, b"x"), lambda: MemoryStore().read(path)):
        with pytest.raises(mor.InvalidInputError, match="relative path without empty"):
            call()


def test_names_that_a_disk_has_in_another_encoding_stay_usable(fast_path: Path) -> None:
    store = mor.store.LocalStore(fast_path)
    Path(fast_path, "part").mkdir()
    Path(fast_path, "part", "a\udcff").write_bytes(b"x")
    (found,) = store.list("part")
    assert store.read(found.path) == b"x"
    store.delete(found.path)
    assert not store.list("part")
