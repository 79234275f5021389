"""The bytes of Iceberg mirrors, as pyiceberg reads them, and the rules of their metadata and manifests."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor.columns.schema import META_COLUMNS
from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.mirror import iceberg_metadata
from crdt_mor.mirror.columns import MirrorColumn
from crdt_mor.mirror.files import Blob
from crdt_mor.mirror.iceberg_bounds import bounds_of
from crdt_mor.mirror.iceberg_manifests import (
    ENTRIES_MAX,
    Entry,
    Manifest,
    Name,
    Spec,
    list_bytes,
    manifest_bytes,
    read_list,
    read_manifest,
)
from crdt_mor.mirror.iceberg_metadata import (
    NewSnapshot,
    Shape,
    following,
    kept,
    number_of,
    own_snapshots,
    specs_of,
)
from crdt_mor.mirror.iceberg_plan import keys_shown, plan
from crdt_mor.mirror.iceberg_types import HIGHEST_ID, iceberg_type, name_mapping, schema_fields
from crdt_mor.mirror.slices import SliceKey
from tests.mirror.iceberg_reading import require_pyiceberg

ROOT = "file:///lake/table"
UUID = "0d1a5cbe-38e5-44a5-9b8b-2d2b7c2b1e11"

LEAF = MirrorColumn(4, "leaf", "leaf", pa.int32())
NESTED = MirrorColumn(2, "s", "s", pa.struct([("leaf", pa.int32())]), (LEAF,))
ITEM = MirrorColumn(7, "element", "element", pa.string())
LIST = MirrorColumn(3, "l", "l", pa.list_(pa.string()), (ITEM,))
MAP = MirrorColumn(
    8, "m", "m", pa.map_(pa.string(), pa.int64()),
    (MirrorColumn(9, "key", "key", pa.string()), MirrorColumn(10, "value", "value", pa.int64())),
)  # fmt: skip
ID = MirrorColumn(1, "Größe", "id", pa.int64())


def shape_of(*columns: MirrorColumn, partition: tuple[tuple[int, str, str, str], ...] = ()) -> Shape:
    return Shape(schema_fields(columns), name_mapping(columns, []), partition)


def snapshot(number: int, at_ms: int) -> NewSnapshot:
    return NewSnapshot(number, f"{ROOT}/metadata/snap-{number}.avro", number, "2" * 17, at_ms, "t", {})


def line(*shapes: Shape, at_ms: Sequence[int] | None = None, now_ms: int = 0) -> list[dict[str, Any]]:
    """The metadata after each snapshot."""
    found: list[dict[str, Any]] = []
    for number, shape in enumerate(shapes, 1):
        moment = number * 1000 if at_ms is None else at_ms[number - 1]
        new = snapshot(number, moment)
        before = found[-1] if found else None
        old = [] if before is None else own_snapshots(before, "t", ROOT)
        found.append(following(number, ROOT, UUID, before, shape, new, old, now_ms))
    return found


# --- types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.bool_(), "boolean"),
        (pa.int32(), "int"),
        (pa.int64(), "long"),
        (pa.decimal128(20, 0), "decimal(20, 0)"),
        (pa.float32(), "float"),
        (pa.float64(), "double"),
        (pa.string(), "string"),
        (pa.binary(), "binary"),
        (pa.binary(4), "fixed[4]"),
        (pa.date32(), "date"),
        (pa.timestamp("us", "UTC"), "timestamptz"),
        (pa.timestamp("us"), "timestamp"),
    ],
)
def test_type_of_a_column_has_an_iceberg_type(kind: pa.DataType, expected: str) -> None:
    assert iceberg_type(MirrorColumn(1, "c", "c", kind)) == expected


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns", "UTC"), pa.timestamp("us", "Europe/Berlin"), pa.duration("us"), pa.int8()]
)
def test_type_that_iceberg_lacks_is_refused_by_name(kind: pa.DataType) -> None:
    inner = MirrorColumn(2, "deep", "deep", kind)
    outer = MirrorColumn(1, "top", "top", pa.struct([("deep", kind)]), (inner,))

    with pytest.raises(UnsupportedFeatureError, match=r"column=top\.deep"):
        schema_fields([outer])


def test_columns_whose_names_join_to_one_are_refused() -> None:
    dotted = MirrorColumn(9, "s.leaf", "c9", pa.string())

    with pytest.raises(UnsupportedFeatureError, match=r"s\.leaf"):
        schema_fields([NESTED, dotted])


def test_name_mapping_gives_every_name_an_id_of_its_own() -> None:
    mapping = name_mapping([ID, NESTED, LIST], [pa.field("id", pa.int64()), pa.field("gone", pa.list_(pa.int64()))])
    again = name_mapping([ID, LIST], [pa.field("other", pa.string())], mapping)

    for found in (mapping, again):
        names = [name for entry in found for name in entry["names"]]
        ids = [entry["field-id"] for top in found for entry in (top, *top.get("fields", ()))]
        assert {*META_COLUMNS, "id", "s", "l", "gone"} <= {*names}
        assert len({*names}) == len(names)
        assert len({*ids}) == len(ids)
    assert {entry["names"][0]: entry["field-id"] for entry in again}["s"] == NESTED.id


# --- metadata ---------------------------------------------------------------------------------------------------------


def test_metadata_is_read_by_pyiceberg() -> None:
    require_pyiceberg()
    from pyiceberg.table.metadata import TableMetadataUtil, TableMetadataV2

    shape = shape_of(ID, NESTED, LIST, MAP, partition=((1, "Größe", "long", "identity"),))
    *_, last = line(shape, shape_of(ID, NESTED), shape)

    found = TableMetadataUtil.parse_raw(json.dumps(last))

    assert isinstance(found, TableMetadataV2)
    assert [one.schema_id for one in found.snapshots] == [0, 1, 0]
    assert found.current_schema_id == 0
    assert found.last_column_id == HIGHEST_ID
    assert found.spec().fields[0].name == "Größe"
    mapped: Any = found.name_mapping()
    fields = {field.names[0]: {inner.names[0]: inner.field_id for inner in field.fields} for field in mapped.root}
    assert (fields["s"], fields["m"]) == ({"leaf": 4}, {"key": 9, "value": 10})


def test_metadata_after_a_rename_keeps_ids_and_the_schemas_of_snapshots() -> None:
    renamed = MirrorColumn(1, "size", "id", pa.int64())
    first, second = line(shape_of(ID), shape_of(renamed))

    assert [schema["fields"][0]["name"] for schema in second["schemas"]] == ["Größe", "size"]
    assert {schema["fields"][0]["id"] for schema in second["schemas"]} == {1}
    assert [one["schema-id"] for one in second["snapshots"]] == [0, 1]
    assert second["last-sequence-number"] == first["last-sequence-number"] + 1


def test_partition_field_keeps_its_name_until_another_column_has_it() -> None:
    part = MirrorColumn(1, "region", "part", pa.string())
    other = MirrorColumn(5, "part", "part2", pa.string())
    before = line(
        shape_of(MirrorColumn(1, "part", "part", pa.string()), partition=((1, "part", "string", "identity"),))
    )[-1]

    kept_name, _ = specs_of(before, shape_of(part, partition=((1, "region", "string", "identity"),)))
    new_name, _ = specs_of(before, shape_of(part, other, partition=((1, "region", "string", "identity"),)))

    assert kept_name.fields == ((1, 1000, "part", "string", "identity"),)
    assert new_name.fields == ((1, 1000, "part_1", "string", "identity"),)


@pytest.mark.parametrize(
    ("ages_h", "expected"),
    [(range(30), 19), ([100] * 30, 9), ([30, 20, 10], 3), ([50] * 15 + [1] * 12, 12)],
)
def test_kept_snapshots_are_the_newest_or_those_of_a_day(ages_h: Sequence[int], expected: int) -> None:
    now = 10**12
    snapshots = [{"timestamp-ms": now - age * 3_600_000} for age in sorted(ages_h, reverse=True)]

    assert kept(snapshots, now) == snapshots[len(snapshots) - expected :]


def test_dropped_snapshots_leave_both_logs() -> None:
    *_, last = line(*[shape_of(ID)] * 15, now_ms=10**12)

    ids = [one["snapshot-id"] for one in last["snapshots"]]
    assert ids == [*range(6, 16)]
    assert [one["snapshot-id"] for one in last["snapshot-log"]] == ids
    assert last["metadata-log"][0]["metadata-file"].endswith("/v6.metadata.json")
    assert "parent-snapshot-id" not in last["snapshots"][0] or last["snapshots"][0]["parent-snapshot-id"] == 5


def test_times_of_snapshots_grow_also_if_the_table_was_restored() -> None:
    _, last = line(shape_of(ID), shape_of(ID), at_ms=[5000, 4000])

    assert [one["timestamp-ms"] for one in last["snapshots"]] == [5000, 5001]


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("metadata/v12.metadata.json", 12),
        ("metadata/00001-0d1a5cbe.metadata.json", None),
        ("metadata/v1.gz.metadata.json", None),
        ("metadata/v.metadata.json", None),
        ("metadata/version-hint.text", None),
    ],
)
def test_number_of_a_metadata_file_is_read_from_our_names_alone(path: str, number: int | None) -> None:
    assert number_of(path) == number


def test_metadata_of_another_engine_is_not_ours() -> None:
    (own,) = line(shape_of(ID))

    assert iceberg_metadata.is_ours(own, 1)
    assert not iceberg_metadata.is_ours(own, 2)
    assert not iceberg_metadata.is_ours(own | {"snapshots": [], "current-snapshot-id": -1}, 1)


# --- bounds -----------------------------------------------------------------------------------------------------------


def footer_of(values: pa.Array, groups: int = 2) -> pq.FileMetaData:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"c": values}), sink, row_group_size=max(1, len(values) // groups))
    return pq.read_metadata(pa.BufferReader(sink.getvalue()))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([3, -4, None, 2**40], pa.int64()),
        ([-(2**31), 5], pa.int32()),
        ([False, True], pa.bool_()),
        ([Decimal("-123.45"), Decimal("0.01"), Decimal("999.99")], pa.decimal128(9, 2)),
        ([Decimal(-(10**37)), Decimal(10**37)], pa.decimal128(38, 0)),
        ([dt.date(1, 1, 1), dt.date(9999, 12, 31)], pa.date32()),
        ([dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
        (["a", "ü", None], pa.string()),
        ([b"\x00", b"\xff"], pa.binary()),
    ],
)
def test_bounds_are_the_values_that_pyiceberg_reads(values: list[Any], kind: pa.DataType) -> None:
    require_pyiceberg()
    from pyiceberg.conversions import from_bytes, to_bytes
    from pyiceberg.types import NestedField
    from pyiceberg.utils.datetime import date_to_days, datetime_to_micros

    column = MirrorColumn(7, "c", "c", kind)
    ((id_, low, high),) = bounds_of(footer_of(pa.array(values, kind)), [column])

    own: Any = NestedField.model_validate(
        {"id": 7, "name": "c", "required": False, "type": iceberg_type(column)}
    ).field_type

    def as_stored(value: Any) -> Any:
        if isinstance(value, dt.datetime):
            return datetime_to_micros(value)
        return date_to_days(value) if isinstance(value, dt.date) else value

    given_values = [value for value in values if value is not None]
    assert id_ == 7
    assert from_bytes(own, low) == as_stored(min(given_values))
    assert from_bytes(own, high) == as_stored(max(given_values))
    assert to_bytes(own, from_bytes(own, low)) == low
    assert to_bytes(own, from_bytes(own, high)) == high


@pytest.mark.parametrize(
    ("values", "kind"),
    [([1.0, float("nan")], pa.float64()), ([None, None], pa.int64()), ([], pa.int64())],
)
def test_columns_without_sound_statistics_have_no_bounds(values: list[Any], kind: pa.DataType) -> None:
    from crdt_mor.mirror.iceberg_bounds import bounded

    column = MirrorColumn(7, "c", "c", kind)

    assert bounds_of(footer_of(pa.array(values, kind)), bounded([column], [])) == ()


def test_column_of_another_type_in_the_file_has_no_bounds() -> None:
    footer = footer_of(pa.array([1, 2], pa.int32()))

    assert bounds_of(footer, [MirrorColumn(7, "c", "c", pa.string())]) == ()
    ((_, low, high),) = bounds_of(footer, [MirrorColumn(7, "c", "c", pa.int64())])
    assert (low, high) == ((1).to_bytes(8, "little"), (2).to_bytes(8, "little"))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(min_size=0, max_size=40), min_size=1, max_size=5))
def test_bounds_of_text_enclose_all_values(texts: list[str]) -> None:
    encoded = [text.encode() for text in texts if text.isprintable() or text.isascii()] or [b""]
    found = bounds_of(
        footer_of(pa.array([text.decode() for text in encoded]), 1), [MirrorColumn(7, "c", "c", pa.string())]
    )

    assert all(low <= value <= high for value in encoded for _, low, high in found)
    assert all(len(low.decode()) <= 16 and len(high.decode()) <= 16 for _, low, high in found)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5))
def test_bounds_of_bytes_enclose_all_values(values: list[bytes]) -> None:
    found = bounds_of(footer_of(pa.array(values, pa.binary()), 1), [MirrorColumn(7, "c", "c", pa.binary())])

    assert all(low <= value <= high for value in values for _, low, high in found)


# --- manifests --------------------------------------------------------------------------------------------------------


def base_entry(place: int, files: str | None = "k") -> Entry:
    return Entry("base", f"p/{place}.parquet", ("p", f"g{place:04}", files), place + 1, 100)


@pytest.mark.parametrize("values", [("ü p", 3, dt.date(1969, 12, 31)), (None, None, None)])
def test_manifest_is_read_back_and_by_pyiceberg(tmp_path: Path, values: tuple[Any, ...]) -> None:
    require_pyiceberg()
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.manifest import read_manifest_list

    levels = (1, 1000, "Größe", "string"), (2, 1001, "n", "int"), (3, 1002, "day", "date")
    spec = Spec(1, tuple((*level, "identity") for level in levels))
    size, n = MirrorColumn(1, "Größe", "id", pa.string()), MirrorColumn(2, "n", "n", pa.int32())
    fields = schema_fields([size, n, MirrorColumn(3, "day", "day", pa.date32())])
    schema = {"type": "struct", "schema-id": 0, "fields": fields}
    root = f"file://{tmp_path}"
    entries = (
        Entry("base", "b", ("p", "g", None), 5, 50, 1, values, ((2, b"\1\0\0\0", b"\2\0\0\0"),), None, 3, 30),
        Entry("base", "c", ("p", "h", "k"), 6, 60, 1, values),
    )
    data = manifest_bytes(root, entries, spec, schema, 40, 2)
    Path(tmp_path, "m.avro").write_bytes(data)
    settled = tuple(entry.settled(4, 40) for entry in entries)
    manifest = Manifest("m.avro", len(data), "base", 1, 4, 40, settled)
    listed = list_bytes(root, [manifest], 40, 30, 4, 2)
    Path(tmp_path, "l.avro").write_bytes(listed)

    (record,) = read_list(listed)
    assert read_manifest(root, record, data) == manifest

    io = PyArrowFileIO()
    (found,) = read_manifest_list(io.new_input(f"{root}/l.avro"))
    assert (found.added_files_count, found.existing_files_count, found.existing_rows_count) == (1, 1, 5)
    assert found.min_sequence_number == 3
    read = found.fetch_manifest_entry(io)
    assert [(one.sequence_number, one.snapshot_id) for one in read] == [(3, 30), (4, 40)]
    assert read[0].data_file.lower_bounds == {2: b"\1\0\0\0"}
    for one in read:
        text, number, day = (one.data_file.partition[place] for place in range(3))
        assert (text, number) == values[:2]
        assert day in (values[2], None if values[2] is None else -1)


def manifests_of(entries: Sequence[Entry]) -> list[Manifest]:
    chunks = [entries[at : at + ENTRIES_MAX] for at in range(0, len(entries), ENTRIES_MAX)]
    return [
        Manifest(f"m{place}", 1, "base", 0, 1, 1, tuple(entry.settled(1, 1) for entry in chunk))
        for place, chunk in enumerate(chunks)
    ]


def test_plan_of_one_changed_slice_of_a_thousand_keeps_all_base_manifests() -> None:
    bases = [base_entry(place) for place in range(1000)]
    manifests = manifests_of(bases)
    rows = Entry("rows", ".mirror/p/m-5", ("p", "g0005", "k2"), 1, 10)

    made = plan(
        manifests, {("p", "g0005"): [base_entry(5, None), rows]}, {("p", f"g{n:04}") for n in range(1000)}, lambda e: e
    )

    assert made.kept == tuple(manifests)
    assert [batch.entries for batch in made.made] == [(rows,)]


GROUPS = [("p", f"g{place:04}") for place in range(6)]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_plan_states_each_file_of_the_live_slices_once(data: st.DataObject) -> None:
    manifests: list[Manifest] = []
    expected: dict[tuple[str, str], frozenset[Name]] = {}
    are_vectors = data.draw(st.booleans())
    keys: dict[tuple[str, str], str] = {}
    for step in range(data.draw(st.integers(1, 5))):
        changed: dict[tuple[str, str], list[Entry]] = {}
        for group in data.draw(st.sets(st.sampled_from(GROUPS))):
            key, base = f"k{step}", data.draw(st.sampled_from(["b1", "b2", None]))
            streams: list[Any] = data.draw(st.sampled_from([[], ["rows"], ["deletes"], ["rows", "deletes"]]))
            files: list[tuple[Any, Name]] = [(stream, (f"{group[1]}-{stream}-{step}", None)) for stream in streams]
            files += [] if base is None else [("base", (f"{group[1]}-{base}", None))]
            vector: Name = (f"v{step}", Blob(GROUPS.index(group), 1))  # all vectors of a refresh are in one file
            files = [(stream, vector if are_vectors and stream == "deletes" else name) for stream, name in files]
            changed[group] = [
                Entry(stream, path, (*group, key if place == 0 else None), 1, 1, blob=blob)
                for place, (stream, (path, blob)) in enumerate(files)
            ]
        live = data.draw(st.sets(st.sampled_from(GROUPS))) | changed.keys()
        made = plan(manifests, changed, live, lambda entry: entry)
        fresh = [
            Manifest(
                f"{step}-{place}",
                1,
                batch.stream,
                batch.spec_id,
                step,
                step,
                tuple(e.settled(step, step) for e in batch.entries),
            )
            for place, batch in enumerate(made.made)
        ]
        manifests = [*made.kept, *fresh]
        old = {group: paths for group, paths in expected.items() if group in live}
        expected = old | {group: frozenset(entry.name for entry in entries) for group, entries in changed.items()}
        old_keys = {group: key for group, key in keys.items() if group in live}
        keys = old_keys | dict.fromkeys(changed, f"k{step}")

        stated = [entry for manifest in manifests for entry in manifest.entries]
        assert Counter(entry.name for entry in stated) == Counter(name for names in expected.values() for name in names)
        shown = {group: key for group, key in keys.items() if expected[group]}
        assert keys_shown(manifests) == {SliceKey(*group, key) for group, key in shown.items()}
        sequences: Mapping[Name, int | None] = {entry.name: entry.sequence for entry in stated}
        for entry in stated:  # deletes reach the base file of their slice
            if entry.stream == "deletes":
                bases = [name for name in expected[(entry.of[0], entry.of[1])] if "-b" in name[0]]
                assert all((sequences[name] or 0) <= (entry.sequence or 0) for name in bases)
