"""Bad input gets an error that names the thing and says what to do, and changes nothing: no file, no commit."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, SnapshotExpiredError, Table
from crdt_mor.errors import (
    ClockError,
    FormatError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
    UnsupportedVersionError,
)
from crdt_mor.format.commit import CommitMetadata, WriteStat, encode_commit
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.hudi import adoption
from crdt_mor.model.instant import from_ms, to_ms
from crdt_mor.model.timeline_json import FORMAT
from crdt_mor.payloads import Counter, PartialUpdate
from crdt_mor.store import MemoryStore
from tests.inside import session_of
from tests.table.helpers import SCHEMA, Make, data_files, files, frame, rows

GOOD = frame(("a", "eu", 1, 1.5), ("b", "us", 2, 2.5))


def without(name: str) -> pa.Table:
    return GOOD.drop_columns([name])


def replaced(name: str, values: list[object], kind: pa.DataType | None = None) -> pa.Table:
    return GOOD.set_column(GOOD.column_names.index(name), name, pa.array(values, kind))


def damaged() -> pa.Array:
    """Two texts, of which the second has bytes that are not UTF-8, as files of other writers may hold."""
    return pa.StringArray.from_buffers(2, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff"))


Write = Callable[[Table], object]
WRITES: dict[str, tuple[Write, type[Exception] | tuple[type[Exception], ...], str]] = {
    "missing key column": (lambda t: t.upsert(without("id")), SchemaMismatchError, r"missing=\['id'\]"),
    "null key": (lambda t: t.upsert(replaced("id", ["a", None])), InvalidInputError, r"cannot be null.*id.*row=1"),
    "empty key": (lambda t: t.upsert(replaced("id", ["", "b"])), InvalidInputError, "cannot be empty.*id.*row=0"),
    "absent column": (lambda t: t.upsert(without("price")), SchemaMismatchError, r"PartialUpdate.*missing=\['price'\]"),
    "absent column in an append": (lambda t: t.append(without("n")), SchemaMismatchError, r"missing=\['n'\]"),
    "wrong type": (lambda t: t.upsert(replaced("n", ["x", "y"])), SchemaMismatchError, r"n.*string"),
    "a value that is out of range": (lambda t: t.upsert(replaced("n", [1, 2**63], pa.uint64())), SchemaMismatchError,
                                     "n.*9223372036854775808"),
    "unknown column": (lambda t: t.upsert(GOOD.append_column("extra", pa.array([1, 2]))), SchemaMismatchError,
                       r'schema_mode="merge".*extra'),
    "a column twice": (lambda t: t.upsert(GOOD.append_column("n", pa.array([1, 2]))), InvalidInputError,
                       r"rename columns.*\['n'\]"),
    "a column of Hudi's": (lambda t: t.upsert(t.scan(meta=True)), SchemaMismatchError, "drop the table's own columns"),
    "types that do not join": (lambda t: t.upsert(replaced("n", ["x", "y"]), schema_mode="merge"),
                               SchemaMismatchError, r"n\b.*int64"),
    "a new column of a type that cannot be stored": (
        lambda t: t.upsert(GOOD.append_column("d", pa.nulls(2, pa.month_day_nano_interval())), schema_mode="merge"),
        SchemaMismatchError, r"\bd\b.*month_day_nano"),
    "an unknown schema mode": (lambda t: t.upsert(GOOD, schema_mode="grow"),  # type: ignore[arg-type]
                               InvalidInputError, "'grow'"),
    "a lazy frame that cannot be computed": (
        lambda t: t.upsert(pl.LazyFrame(GOOD.to_pydict()).select("no")), InvalidInputError, "cannot be computed.*no",
    ),
    "a text that is not UTF-8": (lambda t: t.upsert(GOOD.set_column(1, "region", damaged())), InvalidInputError,
                                 "region.*UTF8"),
    "a key that is not UTF-8": (lambda t: t.delete(GOOD.set_column(0, "id", damaged())), InvalidInputError, "id.*UTF8"),
    "a list of dicts": (lambda t: t.upsert(GOOD.to_pylist()), InvalidInputError, r"from_pylist.*type=list"),
    "nothing": (lambda t: t.upsert(None), InvalidInputError, "not a table"),  # type: ignore[arg-type]
    "a delete without its key": (lambda t: t.delete(without("id")), InvalidInputError, r"missing=\['id'\]"),
    "a delete of everything and nothing": (lambda t: t.delete(), InvalidInputError, "exactly one of"),
    "a delete in two ways": (lambda t: t.delete(GOOD, keys=["a"]), InvalidInputError, "exactly one of"),
    "a delete by a key of the wrong shape": (lambda t: t.delete(keys=[("a", "b")]), InvalidInputError, r"\('a', 'b'\)"),
    "a delete by a key of the wrong type": (lambda t: t.delete(keys=[7]), InvalidInputError, "id.*7|7.*id"),
    "a delete where an unknown column is": (lambda t: t.delete(where="nope = 1"), InvalidInputError, "nope"),
    "a filter that is no SQL": (lambda t: t.delete(where="n >>> 1 ,"), InvalidInputError, "filter"),
    "a filter that is no condition": (lambda t: t.delete(where=pl.col("n") + 1), InvalidInputError, "filter"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRITES)
def test_a_bad_write_is_refused_and_changes_nothing(make: Make, path: str, case: str) -> None:
    write, error, message = WRITES[case]
    table = make()
    table.upsert(GOOD)
    before, commits, schema = data_files(path), table.inspect.timeline().num_rows, table.schema
    with pytest.raises(error, match=f"(?s){message}"):
        write(table)
    assert data_files(path) == before
    states = table.inspect.timeline()["state"].to_pylist()
    assert states.count("completed") == commits
    assert "pending" not in states
    assert table.schema == schema
    assert rows(table) == [tuple(row.values()) for row in GOOD.to_pylist()]
    assert table.upsert(frame(("c", "eu", 3, 3.5))).rows == 1


@pytest.mark.parametrize(
    "case", ["nothing", "a list of dicts", "an unknown schema mode", "a delete of everything and nothing"]
)
def test_what_no_table_takes_is_refused_before_a_write_begins(make: Make, case: str) -> None:
    write, error, message = WRITES[case]
    table = make()
    version = table.version
    with pytest.raises(error, match=f"(?s){message}"):
        write(table)
    assert table.version == version, "nothing has begun, so that nothing was rolled back"


def test_a_null_ordering_value_is_refused_in_rows_and_deletes(make: Make, path: str) -> None:
    table = make(ordering="n")
    for write in (table.upsert, table.delete):
        with pytest.raises(InvalidInputError, match=r"must not be null.*column='n'"):
            write(replaced("n", [1, None]))
    assert not data_files(path)


def test_a_partial_update_still_needs_its_key(make: Make) -> None:
    table = make(merge=PartialUpdate(), partition_by="region")
    with pytest.raises(SchemaMismatchError, match=r"key and partition columns.*missing=\['region'\]"):
        table.upsert(without("region"))


def test_a_null_in_a_column_that_may_not_be_null_is_refused(fast_path: Path) -> None:
    schema = pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("v", pa.int64(), nullable=False)])
    table = Table.create(str(fast_path / "t"), schema, key="k")
    with pytest.raises(SchemaMismatchError, match=r"v\b"):
        table.upsert(pa.table({"k": ["a"], "v": pa.array([None], pa.int64())}))


EXTREMES: dict[pa.DataType, list[object]] = {
    pa.int64(): [2**63 - 1, -(2**63)],
    pa.uint64(): [2**64 - 1, 2**63, 0],
    **{pa.decimal128(*spec): [Decimal(sign + "9" * (spec[0] - spec[1]) + "." + "9" * spec[1]) for sign in ("", "-")]
       for spec in ((16, 0), (18, 2), (23, 0), (38, 15))},
}  # fmt: skip


@pytest.mark.costly
@pytest.mark.parametrize("kind", EXTREMES, ids=str)
def test_a_row_is_deleted_at_the_extremes_of_its_ordering(make: Make, kind: pa.DataType) -> None:
    table = make(schema=SCHEMA.set(2, pa.field("n", kind)), ordering="n", buckets=1)
    for edge in EXTREMES[kind]:
        extreme = GOOD.slice(0, 1).set_column(2, "n", pa.array([edge], kind))
        table.upsert(extreme)
        table.maintenance.compact()
        table.delete(extreme)
        assert rows(table) == []
        table.maintenance.compact()
        table.delete(keys=["a"], plain=True)


# --- create -----------------------------------------------------------------------------------------------------------

CREATES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no key": ({"key": []}, InvalidInputError, "name at least one column"),
    "a key that is not there": ({"key": "nope"}, InvalidInputError, "column=nope"),
    "a key of a type without one text": ({"key": "price"}, InvalidInputError, "column=price type=double"),
    "a partition that is not there": ({"partition_by": "nope"}, InvalidInputError, "column=nope"),
    "an ordering that is not there": ({"ordering": "nope"}, InvalidInputError, "column=nope"),
    "an ordering of too many digits before the point": (
        {"schema": SCHEMA.set(2, pa.field("n", pa.decimal128(26, 2))), "ordering": "n"}, InvalidInputError,
        r"23 digits before the point.*column=n type=decimal128\(26, 2\)"),
    "an ordering of too many digits after the point": (
        {"schema": SCHEMA.set(2, pa.field("n", pa.decimal128(20, 16))), "ordering": "n"}, InvalidInputError,
        r"15 after it.*column=n type=decimal128\(20, 16\)"),
    "an ordering and a payload": (
        {"ordering": "n", "merge": PartialUpdate(columns={"v": Counter()})}, InvalidInputError, "not both"),
    "a merge that is none": ({"merge": 3}, InvalidInputError, "merge"),
    "no buckets": ({"buckets": 0}, InvalidInputError, "buckets=0"),
    "a reserved name": ({"schema": pa.schema([("id", pa.string()), ("_hoodie_x", pa.string())])}, InvalidInputError,
                        "_hoodie_x"),
    "a type that cannot be stored": ({"schema": pa.schema([("id", pa.string()), ("t", pa.null())])}, Exception,
                                     "column=t type=null"),
}  # fmt: skip


@pytest.mark.parametrize("case", CREATES)
def test_a_bad_table_is_refused_and_nothing_is_made(make: Make, path: str, case: str) -> None:
    settings, error, message = CREATES[case]
    with pytest.raises(error, match=f"(?s){message}"):
        make(**settings)
    assert not Path(path).exists()


def test_a_table_that_is_there_is_not_made_again(make: Make, path: str) -> None:
    make().upsert(GOOD)
    before = files(path)
    with pytest.raises(TableExistsError, match="exist_ok=True"):
        make()
    assert files(path) == before


@pytest.mark.parametrize(
    ("settings", "error", "what"),
    [
        ({"buckets": 8}, TableExistsError, "another buckets.*asked=8 found=2"),
        ({"key": "region"}, TableExistsError, "another key"),
        ({"partition_by": "region"}, TableExistsError, "another key"),
        ({"ordering": "n"}, TableExistsError, "another merge.*ordering"),
        ({"schema": SCHEMA.append(pa.field("more", pa.int8()))}, SchemaMismatchError, "another schema.*more"),
    ],
)
def test_exist_ok_opens_the_same_table_only(
    make: Make, path: str, settings: dict[str, Any], error: type[Exception], what: str
) -> None:
    make().upsert(GOOD)
    before = files(path)
    with pytest.raises(error, match=what):
        make(exist_ok=True, **settings)
    assert files(path) == before


# --- open -------------------------------------------------------------------------------------------------------------


def test_a_path_that_is_no_table(fast_path: Path) -> None:
    (fast_path / "folder").mkdir()
    (fast_path / "file").write_text("x")
    for name in ("folder", "nowhere"):
        with pytest.raises(TableNotFoundError, match=rf"create it with Table.create.*path=.*{name}"):
            Table(str(fast_path / name))
    with pytest.raises(InvalidInputError, match="pass a folder as the table"):
        Table(str(fast_path / "file"))
    assert sorted(p.name for p in fast_path.rglob("*")) == ["file", "folder"], "looking leaves nothing"


def test_a_table_whose_properties_are_gone(fast_path: Path) -> None:
    Table.create(str(fast_path / "t"), SCHEMA, key="id")
    (fast_path / "t/.hoodie/hoodie.properties").unlink()
    with pytest.raises(
        TableNotFoundError, match=r"its timeline exists. Restore the file.*file=\.hoodie/hoodie\.properties"
    ):
        Table(str(fast_path / "t"))


@pytest.mark.parametrize("nulls", [{"n": Counter()}, "drop"], ids=["payloads", "another word"])
def test_what_partial_updates_make_of_nulls_is_one_of_two_words(fast_path: Path, nulls: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"'value' or 'keep'.*payloads as columns"):
        Table.create(str(fast_path / "t"), SCHEMA, key="id", merge=PartialUpdate(nulls))
    assert not (fast_path / "t").exists()


@pytest.mark.parametrize("exist_ok", [False, True])
def test_no_table_is_made_over_one_whose_properties_are_gone(fast_path: Path, exist_ok: bool) -> None:
    path = str(fast_path / "t")
    Table.create(path, {"id": pl.String}, key="id").upsert(pl.DataFrame({"id": ["a"]}))
    properties = fast_path / "t/.hoodie/hoodie.properties"
    kept = properties.read_bytes()
    properties.unlink()
    before = files(path)
    with pytest.raises(TableExistsError, match=r"lacks its properties: restore the file from a backup"):
        Table.create(path, {"id": pl.String}, key="id", exist_ok=exist_ok)
    assert files(path) == before
    properties.write_bytes(kept)
    assert Table(path).scan().count() == 1


@pytest.mark.parametrize("uri", ["hdfs://host/table", "dbfs:///mnt/table"])
def test_an_address_that_nobody_knows_is_refused_by_its_scheme(uri: str) -> None:
    scheme = uri.partition(":")[0]
    for make in (Table, lambda u: Table.create(u, SCHEMA, key="id")):
        with pytest.raises(UnsupportedFeatureError, match=f"tables cannot be at such addresses.*scheme={scheme}"):
            make(uri)


def edit_properties(path: str, old: str, new: str) -> None:
    file = Path(path) / ".hoodie/hoodie.properties"
    text = file.read_text()
    assert re.search(old, text, re.MULTILINE), text
    file.write_text(re.sub(old, new, text, flags=re.MULTILINE))


@pytest.mark.parametrize("version", ["6", "10"])
def test_a_table_of_an_unsupported_version(make: Make, path: str, version: str) -> None:
    make()
    edit_properties(path, r"^hoodie\.table\.version=9$", f"hoodie.table.version={version}")
    before = files(path)
    with pytest.raises(UnsupportedVersionError, match=rf"found={version} supported=\[8, 9\]"):
        Table(path)
    assert files(path) == before


def test_a_table_of_a_newer_engine(make: Make, path: str) -> None:
    make()
    edit_properties(path, r"^crdt_mor\.version=2$", "crdt_mor.version=3")
    with pytest.raises(UnsupportedVersionError, match="made by a newer crdt_mor: upgrade"):
        Table(path)


# --- files that are not what they should be ---------------------------------------------------------------------------


def one_log(path: str) -> Path:
    return next(Path(path).glob(".0*.log.*"))


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda data: data[: len(data) // 2],
    "cut by a byte": lambda data: data[:-1],
    "emptied": lambda data: b"",
    "other magic": lambda data: b"#HUDA#" + data[6:],
    "a length that is wrong": lambda data: data[:6] + (10**6).to_bytes(8, "big") + data[14:],
    "rubbish behind": lambda data: data + b"rubbish",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_corrupt_log_block_is_named_by_file_and_offset_never_skipped(make: Make, path: str, damage: str) -> None:
    table = make(buckets=1)
    table.upsert(GOOD)
    log = one_log(path)
    log.write_bytes(DAMAGE[damage](log.read_bytes()))
    for read in (lambda: table.scan().to_arrow(), lambda: table.scan().count(), table.maintenance.compact):
        with pytest.raises(FormatError, match=rf"(?s){re.escape(log.name)}.*offset=\d+|empty.*{re.escape(log.name)}"):
            read()


def test_damaged_parquet_inside_a_log_block_is_named(make: Make, path: str) -> None:
    table = make(buckets=1)
    table.upsert(GOOD)
    log = one_log(path)
    data = bytearray(log.read_bytes())
    at = data.rindex(b"PAR1") - 8
    data[at : at + 4] = b"\xff\xff\xff\x7f"
    log.write_bytes(bytes(data))
    with pytest.raises(FormatError, match=re.escape(log.name)):
        table.scan().to_arrow()


@pytest.mark.parametrize("damage", ["cut short", "emptied", "cut by a byte"])
def test_a_corrupt_base_file_is_named(make: Make, path: str, damage: str) -> None:
    table = make(buckets=1)
    table.upsert(GOOD)
    table.maintenance.compact()
    base = next(Path(path).glob("*.parquet"))
    base.write_bytes(DAMAGE[damage](base.read_bytes()))
    with pytest.raises(FormatError, match=re.escape(base.name)):
        table.scan().to_arrow()


@pytest.mark.parametrize("kind", ["*.parquet", ".0*.log.*"])
def test_a_missing_data_file_is_an_error_never_fewer_rows(make: Make, path: str, kind: str) -> None:
    table = make(buckets=1)
    table.upsert(GOOD)
    table.maintenance.compact()
    table.upsert(frame(("c", "eu", 3, 3.5)))
    missing = max(Path(path).glob(kind))
    missing.unlink()
    with pytest.raises(SnapshotExpiredError, match=rf"crdt-mor repair. file={re.escape(missing.name)}"):
        table.scan().to_arrow()


def test_a_timeline_of_a_newer_release_or_of_rubbish_is_named(make: Make, path: str) -> None:
    make().upsert(GOOD)
    newest = max((Path(path) / ".hoodie/.crdt_mor/timeline").iterdir())
    data = newest.read_bytes()
    for bad in (data.replace(b'"format":%d' % FORMAT, b'"format":%d' % (FORMAT + 1)), data[:50], b""):
        newest.write_bytes(bad)
        with pytest.raises(FormatError, match=re.escape(newest.name)):
            Table(path)


# --- other writers, other clocks --------------------------------------------------------------------------------------


def test_file_groups_that_the_bucket_index_did_not_make_are_refused_on_write(make: Make, path: str) -> None:
    """As Hudi leaves them that was not told of the index: its new keys go to file groups with ids of their own."""
    table = make(buckets=1)
    commit = table.upsert(GOOD)
    log = one_log(path)
    foreign = "1c2a7d4e-9f00-4c33-8a55-0123456789ab-0"
    requested, completed = (from_ms(to_ms(commit.completed_at) + ms) for ms in (101, 205))
    name = f".{foreign}_{requested}.log.1_0-1-0"
    data = log.read_bytes().replace(commit.requested_at.encode(), requested.encode())
    (Path(path) / name).write_bytes(data)
    stat = WriteStat(
        file_id=foreign, path=name, prev_commit=requested, partition_path="", num_writes=2, log_version=1, log_offset=0,
        base_file="", log_files=(name,), total_write_bytes=len(data), file_size_in_bytes=len(data),
    )  # fmt: skip
    timeline = Path(path) / ".hoodie/timeline"
    (timeline / f"{requested}.deltacommit.requested").write_bytes(b"")
    (timeline / f"{requested}.deltacommit.inflight").write_bytes(encode_commit(CommitMetadata({"": (stat,)})))
    commit_file = timeline / f"{requested}_{completed}.deltacommit"
    commit_file.write_bytes(encode_commit(CommitMetadata({"": (stat,)}, "UPSERT")))
    other = Table(path)
    session = session_of(other)
    session.remember(session.run(adoption.adopt(session.publisher, session.tail())))
    before = data_files(path)
    with pytest.raises(InvalidInputError, match=rf"hoodie.index.type=BUCKET.*file_id={foreign}"):
        other.upsert(frame(("c", "eu", 3, 3.5)))
    assert data_files(path) == before
    assert "pending" not in other.inspect.timeline()["state"].to_pylist()


class AheadEnvironment(SystemEnvironment):
    """A machine whose clock is an hour ahead of the file system's."""

    def now_ms(self) -> int:
        return super().now_ms() + 3_600_000


def test_a_wall_clock_far_ahead_of_the_stores_is_refused_rather_than_poisoning_the_future(
    make: Make, path: str
) -> None:
    table = make()
    table.upsert(GOOD)
    before = files(path)
    ahead = Table(path, opening=Opening(environment=AheadEnvironment()))
    for write in (lambda: ahead.upsert(GOOD), lambda: ahead.delete(keys=["a"]), ahead.maintenance.compact):
        with pytest.raises(ClockError, match=r"far ahead of the store's.*wall_clock=\d{17} store_clock=\d{17}"):
            write()
    assert files(path) == before
    assert rows(ahead) == rows(table)
    later = table.upsert(frame(("c", "eu", 3, 3.5)))
    assert to_ms(later.completed_at) < SystemEnvironment().now_ms() + 60_000


def test_a_wall_clock_that_is_behind_does_no_harm(make: Make, path: str) -> None:
    class Behind(SystemEnvironment):
        def now_ms(self) -> int:
            return super().now_ms() - 3_600_000

    first = make().upsert(GOOD)
    second = Table(path, opening=Opening(environment=Behind())).upsert(frame(("a", "late", 9, 9.0)))
    assert second.requested_at > first.completed_at
    assert rows(Table(path), "region", filter="id = 'a'") == [("late",)]


@pytest.mark.parametrize(
    "store", ["s3://lake/events", 5, object(), MemoryStore], ids=lambda store: type(store).__name__
)
def test_what_is_no_store_is_refused_with_what_is_one(store: Any) -> None:
    for call in (Table, lambda uri, **given: Table.create(uri, SCHEMA, key="id", **given)):
        with pytest.raises(
            InvalidInputError, match=r"pass as store an object with the methods of crdt_mor\.store\.Store"
        ):
            call("t", opening=Opening(store=store))


SPARSE = pd.DataFrame({"id": ["a", "b"], "n": pd.arrays.SparseArray([0, 1])})
WIDE = pl.DataFrame({"id": ["a"], "n": pl.Series([1], dtype=pl.Int128)})


@pytest.mark.parametrize(
    ("rows", "says"),
    [(WIDE, "128-bit integers"), (WIDE.lazy(), "128-bit integers"), (SPARSE, "is sparse.* column=n")],
    ids=["int128", "lazy", "sparse"],
)
def test_columns_that_arrow_does_not_have_are_named(rows: Any, says: str) -> None:
    table = Table.create("t", SCHEMA, key="id", opening=Opening(store=MemoryStore()))
    for call in (table.upsert, lambda rows: Table.create("u", rows, key="id", opening=Opening(store=MemoryStore()))):
        with pytest.raises(InvalidInputError, match=says):
            call(rows)
