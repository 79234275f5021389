"""CSV and JSON have no types of their own: the table gives them, or a guess is exact. No value changes."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor import InvalidInputError, Opening, Table
from crdt_mor.columns.text_types import is_exact
from crdt_mor.payloads import MVRegister
from crdt_mor.store import MemoryStore
from tests.table.helpers import rows as rows_of

BERLIN = "Europe/Berlin"
BIG = 2**53 + 1
"""The least whole number that is no double."""


def table_of(kind: pa.DataType, **settings: Any) -> Table:
    return Table.create(
        "t", pa.schema([("id", pa.int64()), ("v", kind)]), key="id", opening=Opening(store=MemoryStore()), **settings
    )


def written(folder: Path, name: str, *values: str) -> Path:
    """A file of rows with the ids 1, 2, …: of fields of CSV, or of JSON values."""
    if name.endswith(".csv"):
        lines = ["id,v", *(f"{number},{value}" for number, value in enumerate(values, 1))]
    else:
        lines = [f'{{"id": {number}, "v": {value}}}' for number, value in enumerate(values, 1)]
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def values_of(table: Table) -> list[Any]:
    return [value for _, value in rows_of(table, "id", "v")]


# --- the types of the table -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["n.csv", "n.jsonl"])
@pytest.mark.parametrize(("kind", "texts", "values"), [
    (pa.uint64(), (f"{2**64 - 1}", "5"), [2**64 - 1, 5]),
    (pa.int64(), (f"{BIG}", f"{-BIG}"), [BIG, -BIG]),
    (pa.decimal128(38, 2), ("12345678901234567891.25", "5"), [Decimal("12345678901234567891.25"), Decimal(5)]),
    (pa.decimal128(4, 2), ("0.10", "5.25"), [Decimal("0.10"), Decimal("5.25")]),
    (pa.float32(), ("0.5", "3"), [0.5, 3.0]),
], ids=str)  # fmt: skip
def test_write_of_text_files_without_schema_reads_the_types_of_the_table(
    fast_path: Path, name: str, kind: pa.DataType, texts: tuple[str, ...], values: list[Any]
) -> None:
    path = written(fast_path, name, *texts)
    for verb in ("append", "upsert", "overwrite"):
        table = table_of(kind)
        getattr(table, verb)(mor.read_files(path))
        assert values_of(table) == values
    table = table_of(kind)
    with table.transaction() as tx:
        tx.upsert(mor.read_files(path))
    job = table.jobs.plan("upsert", mor.read_files(path))
    table.jobs.complete(job, [job.stage(mor.read_files(path), task=0)])
    table.merge(mor.read_files(path)).when_matched_update_all().execute()
    assert values_of(table) == values
    table.delete(mor.read_files(path))
    assert table.count() == 0
    loaded = Table.create_from(
        "u", mor.read_files(path), key="id", schema=table.schema, opening=Opening(store=MemoryStore())
    )
    assert values_of(loaded) == values


@pytest.mark.parametrize("name", ["n.csv", "n.jsonl"])
def test_write_of_text_files_where_a_value_is_not_of_the_type_is_refused(fast_path: Path, name: str) -> None:
    table = table_of(pa.int64())
    for text in ("5.0", f"{2**63}", "true"):
        with pytest.raises(InvalidInputError, match=rf"cannot be read.*file=.*{name}"):
            table.upsert(mor.read_files(written(fast_path, name, f"{BIG}", text)))
    assert table.count() == 0


def test_write_of_text_files_with_schema_takes_its_types_first(fast_path: Path) -> None:
    path = written(fast_path, "n.csv", "10%")
    table = table_of(pa.int64())
    merge = table.merge(mor.read_files(path, schema={"v": pa.string()}))
    merge.when_not_matched_insert({"id": "source.id", "v": "CAST(REPLACE(source.v, '%', '') AS BIGINT)"}).execute()
    assert values_of(table) == [10]


def test_write_of_text_files_under_new_names_reads_the_types_of_those(fast_path: Path) -> None:
    (fast_path / "n.csv").write_text("id,v,V\n1,x,9007199254740993\n2,y,5\n")
    table = table_of(pa.decimal128(20, 0))
    names = {"V": "v", "v": "w"}
    assert mor.read_files(fast_path / "n.csv", rename=names, schema=table.schema).schema.field("w").type == pa.string()
    table.upsert(mor.read_files(fast_path / "n.csv", rename=names), schema_mode="merge")
    assert values_of(table) == [Decimal(BIG), Decimal(5)]


def test_write_of_text_files_where_a_payload_takes_several_types_reads_those_of_the_values(fast_path: Path) -> None:
    table = table_of(pa.list_(pa.int64()), merge={"v": MVRegister()})
    for name in ("a.csv", "b.jsonl"):
        table.upsert(mor.read_files(written(fast_path, name, f"{BIG}")))
        assert values_of(table) == [[BIG]]


# --- every type -------------------------------------------------------------------------------------------------------


HALF = time(12, 30, 0, 500_000)
ENTRIES = [("k", BIG), ("l", None)]


@pytest.mark.parametrize(("kind", "text", "value"), [
    (pa.map_(pa.string(), pa.int64()), f'{{"k": {BIG}, "l": null}}', ENTRIES),
    (pa.map_(pa.string(), pa.int64()), f'[["k", {BIG}], ["l", null]]', ENTRIES),
    (pa.map_(pa.string(), pa.int64()), f'[{{"key": "k", "value": {BIG}}}, {{"key": "l", "value": null}}]', ENTRIES),
    (pa.list_(pa.map_(pa.string(), pa.date32())), '[{"k": "2026-01-31"}, null]', [[("k", date(2026, 1, 31))], None]),
    (pa.float16(), "1.5", 1.5),
    (pa.list_(pa.int64(), 2), f"[1, {BIG}]", [1, BIG]),
    (pa.large_list(pa.int8()), "[1, null]", [1, None]),
    (pa.struct([("t", pa.time64("us")), ("n", pa.uint64())]), f'{{"t": "12:30:00.5", "n": {2**64 - 1}}}',
        {"t": HALF, "n": 2**64 - 1}),
    (pa.list_(pa.time64("us")), '["12:30:00.5", null]', [HALF, None]),
    (pa.decimal32(7, 2), "1.25", Decimal("1.25")),
    (pa.decimal64(9, 2), "1.25", Decimal("1.25")),
    (pa.decimal256(38, 2), "12345678901234567891.25", Decimal("12345678901234567891.25")),
    (pa.string_view(), '"x"', "x"),
    (pa.dictionary(pa.int32(), pa.string()), '"x"', "x"),
    (pa.dictionary(pa.int32(), pa.int64()), f"{BIG}", BIG),
    (pa.time32("s"), '"12:30:00"', time(12, 30)),
    (pa.timestamp("us", BERLIN), '"2026-01-31T12:00:00+05:00"', datetime(2026, 1, 31, 8, tzinfo=ZoneInfo(BERLIN))),
], ids=str)  # fmt: skip
def test_each_type_of_a_table_comes_from_json_and_from_csv(
    fast_path: Path, kind: pa.DataType, text: str, value: object
) -> None:
    table = table_of(kind)
    for name, field in (("a.jsonl", text), ("a.csv", '"' + text.strip('"').replace('"', '""') + '"')):
        null = "null" if name == "a.jsonl" else ""
        path = written(fast_path, name, field, null, field)
        table.overwrite(mor.read_files(path))
        assert values_of(table) == [value, None, value], name
        assert mor.read_files(path, schema=table.schema).schema == table.schema


@pytest.mark.parametrize("kind", [pa.binary(4), pa.binary_view()], ids=str)
def test_bytes_are_base64_in_json_and_plain_in_csv(fast_path: Path, kind: pa.DataType) -> None:
    table = table_of(kind)
    for name, field in (("a.jsonl", '"YWJjZA=="'), ("a.csv", "abcd")):
        table.overwrite(mor.read_files(written(fast_path, name, field)))
        assert values_of(table) == [b"abcd"], name


@pytest.mark.parametrize(("kind", "text", "why"), [
    (pa.map_(pa.string(), pa.int64()), '{"k": 1, "k": 2}', "a key stands twice"),
    (pa.map_(pa.string(), pa.int64()), "[1]", "an object, or a list of pairs"),
    (pa.map_(pa.string(), pa.int64()), '{"k": 1.5}', "couldn't parse"),
    (pa.map_(pa.string(), pa.struct([("x", pa.int64())])), '{"k": {"x": 1, "y": 2}}', r"fields=\['y'\]"),
    (pa.float16(), "70000", "beyond those of halffloat"),
    (pa.list_(pa.int64(), 2), "[1]", "size"),
    (pa.binary(4), '"YWJj"', "width"),
], ids=str)  # fmt: skip
def test_json_that_is_not_of_a_type_is_refused(fast_path: Path, kind: pa.DataType, text: str, why: str) -> None:
    path = written(fast_path, "a.jsonl", text)
    with pytest.raises(InvalidInputError, match=why):
        table_of(kind).upsert(mor.read_files(path))


def test_json_in_csv_that_is_nested_too_deep_is_refused(fast_path: Path) -> None:
    for depth in (500, 5000):
        path = written(fast_path, "a.csv", "[" * depth + "]" * depth)
        with pytest.raises(InvalidInputError, match="levels deep"):
            table_of(pa.list_(pa.int64())).upsert(mor.read_files(path))


# --- times ------------------------------------------------------------------------------------------------------------


NAIVE, OFFSET = "2026-01-31T12:00:00", "2026-01-31T12:00:00+05:00"


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
@pytest.mark.parametrize("shape", ["plain", "nested"])
@pytest.mark.parametrize(("zone", "text"), [(None, OFFSET), (BERLIN, NAIVE), ("UTC", NAIVE)])
def test_time_whose_offset_does_not_fit_its_column_is_refused_in_csv_and_json(
    fast_path: Path, name: str, shape: str, zone: str | None, text: str
) -> None:
    """JSON took a text without offset for UTC, and shifted one with an offset into a column without a zone."""
    kind, value = pa.timestamp("us", zone), f'"{text}"'
    if shape == "nested":
        kind, value = pa.struct([("at", kind)]), f'{{"at": {value}}}'
        value = '"' + value.replace('"', '""') + '"' if name == "t.csv" else value
    path = written(fast_path, name, value)
    for schema in (None, {"v": kind}):
        with pytest.raises(InvalidInputError, match="zone offset"):
            table_of(kind).upsert(mor.read_files(path, schema=schema))


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_guessed_times_keep_their_moments(fast_path: Path, name: str) -> None:
    moment = datetime(2026, 1, 31, 7, tzinfo=UTC)
    for texts, kind, values in (
        ((NAIVE,), pa.timestamp("s"), [moment.replace(tzinfo=None) + timedelta(hours=5)]),
        ((OFFSET,), pa.timestamp("s", "UTC"), [moment]),
        ((NAIVE, OFFSET), pa.string(), [NAIVE, OFFSET]),
    ):
        found = mor.read_files(written(fast_path, name, *(f'"{text}"' for text in texts)))
        assert found.schema.field("v").type == kind
        assert found.to_arrow()["v"].to_pylist() == values


# --- guesses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "texts"), [
    ("n.csv", (f"{BIG}", "5.0")), ("n.csv", ("12345678901234567891",)), ("n.csv", ("0.1234567890123456789012",)),
    ("n.jsonl", (f"{BIG}", "5.0")), ("n.jsonl", ("12345678901234567891",)), ("n.jsonl", (f"[{BIG}, 1.0]",)),
    ("n.jsonl", (f'{{"a": [{{"b": {BIG}}}]}}', '{"a": [{"b": 1.5}]}')), ("n.csv", ("1e400",)),
], ids=str)  # fmt: skip
def test_guessed_number_that_is_no_double_is_refused(fast_path: Path, name: str, texts: tuple[str, ...]) -> None:
    path = written(fast_path, name, *texts)
    with pytest.raises(InvalidInputError, match=rf"schema=.*file=.*{name}.*not exact as a double.*column=v"):
        mor.read_files(path).to_arrow()
    with pytest.raises(InvalidInputError, match=r"not exact as a double.*column=v"):
        Table.create_from("t", path, key="id", opening=Opening(store=MemoryStore()))


@pytest.mark.parametrize("name", ["n.csv", "n.jsonl"])
def test_guessed_numbers_that_are_exact_are_taken(fast_path: Path, name: str) -> None:
    path = written(fast_path, name, f"{2**53}", "0.30000000000000004", "1.000000000000000056e-01", "5", "-1e300")
    assert mor.read_files(path).to_arrow()["v"].to_pylist() == [2.0**53, 0.1 + 0.2, 0.1, 5.0, -1e300]
    assert mor.read_files(written(fast_path, name, f"{BIG}")).to_arrow()["v"].to_pylist() == [BIG]


@pytest.mark.parametrize(("text", "exact"), [
    ("0.1", True), ("9007199254740993", False), ("9007199254740992.000", True), ("1e22", True), ("1e400", False),
    ("1e-400", False), ("0", True), ("0.000", True), ("-inf", True), ("nan", True), ("12345678901234567168", True),
    ("12345678901234567891", False), ("0." + "1" * 900, False), ("1_0", False), ("5.", True),
])  # fmt: skip
def test_is_exact_of_a_number_compares_it_with_its_double(text: str, exact: bool) -> None:
    assert is_exact(text) == exact


@pytest.mark.parametrize("field", ["{}", '"{}"', " {}"])
def test_digits_with_a_leading_zero_are_guessed_as_text(fast_path: Path, field: str) -> None:
    """Keys 007, 7 and 0007 became one row."""
    lines = [f"{field.format(key)},{key}" for key in ("007", "7", "0007")]
    (fast_path / "skus.csv").write_text("\n".join(["sku,zip", *lines]))
    rows = mor.read_files(fast_path / "skus.csv")
    assert rows.schema.field("sku").type == pa.string()
    table = Table.create("t", rows, key="sku", opening=Opening(store=MemoryStore()))
    assert table.upsert(rows).rows == table.count() == 3
    for number in ("0x1F", "-01", "00.5"):
        assert mor.read_files(written(fast_path, "n.csv", number)).schema.field("v").type == pa.string()
    for number, kind in (("0", pa.int64()), ("0.5", pa.float64()), ("-0", pa.int64())):
        assert mor.read_files(written(fast_path, "n.csv", number)).schema.field("v").type == kind


def test_leading_zero_behind_the_first_block_is_refused_by_its_line(fast_path: Path) -> None:
    (fast_path / "a.csv").write_text("id,v\n" + f"{'a' * 1000},7\n" * 1_100 + "b,007\n")
    with pytest.raises(InvalidInputError, match=r"cause=line 1102: .*leading zero.*column=v value=007"):
        mor.read_files(fast_path / "a.csv").to_arrow()
    (fast_path / "b.csv").write_text("id,v\n1,007\n")
    with pytest.raises(InvalidInputError, match=r"b\.csv cause=line 2: .*leading zero"):
        mor.read_files([written(fast_path, "n.csv", "7"), fast_path / "b.csv"]).to_arrow()


# --- CSV of others ----------------------------------------------------------------------------------------------------


def test_csv_of_another_delimiter_and_encoding_is_read_as_it_is_said(fast_path: Path) -> None:
    text = 'id;v\n1;"größer; als"\n2;ß\n'
    for encoding in ("latin-1", "cp1252", "utf-16", "UTF8"):
        (fast_path / "a.csv").write_bytes(text.encode(encoding))
        found = mor.read_files(fast_path / "a.csv", delimiter=";", encoding=encoding)
        assert found.to_arrow().to_pylist() == [{"id": 1, "v": "größer; als"}, {"id": 2, "v": "ß"}]
    (fast_path / "b.jsonl").write_text("{}")
    for options, why in (
        ({"delimiter": ";;"}, "an ASCII character"),
        ({"delimiter": 5}, "an ASCII character"),
        ({"encoding": "latin-99"}, "unknown encoding"),
        ({"encoding": None}, "unknown encoding"),
    ):
        with pytest.raises(InvalidInputError, match=why):
            mor.read_files(fast_path / "a.csv", **options)
    with pytest.raises(InvalidInputError, match=r"only for CSV.*file=.*b\.jsonl"):
        mor.read_files(fast_path / "b.jsonl", delimiter=";")


def test_csv_with_line_ends_in_quotes_is_read_across_blocks(fast_path: Path) -> None:
    (fast_path / "a.csv").write_text("id,v\n" + '1,"a\nb"\n' * 150_000)
    assert set(mor.read_files(fast_path / "a.csv").to_arrow()["v"].to_pylist()) == {"a\nb"}
