"""What a table says about itself, ours and Hudi's."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_mor.columns import avro
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import FormatError, InvalidInputError, UnsupportedFeatureError, UnsupportedVersionError
from crdt_mor.format import properties
from crdt_mor.model.config import TableConfig
from crdt_mor.model.config_merge import MERGE_STRATEGY_ID
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.merge_spec import ColumnMerge, MergeSpec, PayloadRef
from tests.format.hudi_files import hudi_properties

SCHEMA = TableSchema.of(
    pa.schema(
        [
            pa.field("id", pa.int64(), False),
            ("at", pa.timestamp("ms")),
            ("price", pa.float64()),
            ("region", pa.string()),
        ]
    )
)
KEY = KeySpec(("id",), ("region",), hive_style=True)
LONGEST = PayloadRef("acme.longest/12", '{"by": "é = :"}', "f00d", "acme.text:Longest")
MERGES = [
    MergeSpec(),
    MergeSpec("ordering", ordering="at"),
    MergeSpec("partial", nulls="keep"),
    MergeSpec(columns=(ColumnMerge(("price",), LONGEST),)),
    MergeSpec("partial", columns=(ColumnMerge(("at", "price"), PayloadRef("latest_by/1", fingerprint="1")),)),
    MergeSpec("partial", unavailable=((None, '"é" = :'),)),
    MergeSpec("partial", nulls="keep", unavailable=(("price", 0.5),)),
    MergeSpec("partial", unavailable=((None, b"\0?"),)),
]
VIEWS = ColumnMerge(("views",), PayloadRef("counter/1"))
PAYLOADS = "org.apache.hudi.common.model."
HUDI = {
    "hoodie.table.name": "t",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.version": "9",
    "hoodie.table.recordkey.fields": "id",
}


@pytest.mark.parametrize("merge", MERGES, ids=str)
@pytest.mark.parametrize(
    "key", [KEY, KeySpec(("id",)), KeySpec(("id", "region")), KeySpec(("id",), ("region", "id"))], ids=str
)
def test_our_config_goes_through_properties(merge: MergeSpec, key: KeySpec) -> None:
    config = TableConfig("t", key, merge, 8)
    text = properties.encode_table(config.to_properties(SCHEMA, "an-id"))
    again = TableConfig.from_properties(properties.decode_table(text, "p"), "p")
    assert again == config
    assert again.ours
    assert again.table_id == "an-id"
    assert again.created_schema() == SCHEMA


@pytest.mark.parametrize("merge", MERGES, ids=str)
def test_properties_that_are_cut_are_refused_or_say_all_that_matters(merge: MergeSpec) -> None:
    """They were taken for those of a table of Hudi's, which merges otherwise."""
    config = TableConfig("t", KEY, merge, 8)
    text = properties.encode_table(config.to_properties(SCHEMA, "an-id"), ["saved today"])
    read = 0
    for size in range(len(text)):
        try:
            found = TableConfig.from_properties(properties.decode_table(text[:size], "p"), "p")
            found.created_schema()
        except (FormatError, UnsupportedFeatureError, UnsupportedVersionError):
            continue
        read += 1
        assert found == config, text[:size]
    assert read == 1, "that without the last line's end"


@pytest.mark.parametrize("key", ["crdt_mor.schema", "crdt_mor.merge", "crdt_mor.buckets"])
def test_a_property_of_ours_that_is_missing_is_named(key: str) -> None:
    said = TableConfig("t", KEY, MergeSpec(), 8).to_properties(SCHEMA, "an-id")
    del said[key]
    with pytest.raises(FormatError, match=f"missing={key}"):
        TableConfig.from_properties(said, "p")


def test_hudi_is_told_the_rule_that_gives_our_rows() -> None:
    def told(merge: MergeSpec) -> dict[str, str]:
        wanted = ("hoodie.record.merge.mode", "hoodie.table.ordering.fields", "hoodie.record.merge.strategy.id")
        props = TableConfig("t", KEY, merge, 8).to_properties(SCHEMA, "an-id")
        return {key: value for key, value in props.items() if key in wanted}

    mode = "hoodie.record.merge.mode"
    ordering = "hoodie.table.ordering.fields"
    assert told(MERGES[0]) == {mode: "EVENT_TIME_ORDERING", ordering: "_hoodie_commit_time"}
    assert told(MERGES[1]) == {mode: "EVENT_TIME_ORDERING", ordering: "at"}
    assert told(MERGES[2]) == {mode: "CUSTOM", "hoodie.record.merge.strategy.id": MERGE_STRATEGY_ID}


def test_properties_are_what_hudi_needs_and_nothing_about_a_metadata_table() -> None:
    props = TableConfig("t", KEY, MergeSpec(), 8).to_properties(SCHEMA, "an-id")
    assert props["hoodie.table.version"] == "9"
    assert props["hoodie.timeline.layout.version"] == "2"
    assert props["hoodie.table.keygenerator.type"] == "SIMPLE"
    assert props["hoodie.table.timeline.timezone"] == "UTC"
    assert props["hoodie.index.type"] == "BUCKET"
    assert props["hoodie.bucket.index.num.buckets"] == props["crdt_mor.buckets"] == "8"
    assert not [key for key in props if "metadata" in key or "index.defs" in key]
    plain = TableConfig("t", KeySpec(("id",)), MergeSpec(), 1).to_properties(SCHEMA, "an-id")
    assert "hoodie.table.partition.fields" not in plain


@pytest.mark.parametrize(
    "config",
    [
        TableConfig("9t", KEY, MergeSpec(), 8),
        TableConfig("a-b", KEY, MergeSpec(), 8),
        TableConfig("t", KEY, MergeSpec(), 0),
        TableConfig("t", KEY, MergeSpec(), None),
        TableConfig("t", KEY, MergeSpec(), 8, version=8),
        TableConfig("t", KEY, MergeSpec(), 8, table_type="COPY_ON_WRITE"),
        TableConfig("t", KeySpec(("gone",)), MergeSpec(), 8),
        TableConfig("t", KeySpec(("price",)), MergeSpec(), 8),
        TableConfig("t", KEY, MergeSpec("ordering", ordering="gone"), 8),
        TableConfig("t", KEY, MergeSpec(hudi_commit_time=True), 8),
        TableConfig("t", KEY, MergeSpec(columns=(VIEWS,)), 8),
        TableConfig("t", KEY, MergeSpec(columns=(ColumnMerge(("region",), PayloadRef("max/1")),)), 8),
        TableConfig("t", KeySpec(("id",), generator="TIMESTAMP"), MergeSpec(), 8),
    ],
    ids=str,
)
def test_a_table_that_could_not_be_kept_is_not_made(config: TableConfig) -> None:
    with pytest.raises(InvalidInputError):
        config.to_properties(SCHEMA, "an-id")


# --- the merge's text -----------------------------------------------------------------------------------------------

_PARAMETERS = st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.integers() | st.booleans(), max_size=3)
_PAYLOADS = st.builds(
    lambda name, parameters, path: PayloadRef(name, json.dumps(parameters, sort_keys=True), "0123", path),
    st.sampled_from(["a/1", "x.y-z_2/10"]),
    _PARAMETERS,
    st.sampled_from(["", "acme.payloads:Longest"]),
)
_COLUMNS = st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=4, unique=True).flatmap(
    lambda names: st.builds(
        lambda one, two: (ColumnMerge(tuple(names[:1]), one), ColumnMerge(tuple(names[1:]), two))[: len(names)],
        _PAYLOADS,
        _PAYLOADS,
    )
)


@pytest.mark.slow
@given(
    st.builds(lambda column: MergeSpec("ordering", ordering=column), st.text(min_size=1, max_size=8))
    | st.builds(lambda nulls: MergeSpec("partial", nulls=nulls), st.sampled_from(["value", "keep"]))
    | st.builds(lambda columns: MergeSpec(columns=columns), _COLUMNS)
    | st.builds(lambda columns: MergeSpec("partial", columns=columns), _COLUMNS)
)
def test_a_merge_prints_and_parses_itself(merge: MergeSpec) -> None:
    assert MergeSpec.parse(str(merge)) == merge


def test_merges_read_as_the_documents_write_them() -> None:
    assert str(MergeSpec()) == "latest"
    assert str(MERGES[1]) == "ordering:at"
    assert str(MERGES[2]) == "partial_update/1?nulls=keep"
    assert str(MERGES[4]) == (
        'partial_update/1?nulls=value [{"columns":["at","price"],"fingerprint":"1","payload":"latest_by/1"}]'
    )
    assert MERGES[4].summary == "partial_update/1?nulls=value ((at, price): latest_by/1)"


@pytest.mark.parametrize(
    "text",
    [
        "", "latest?x=1", "ordering:", "counter", "counter/1", "a b/1", "partial_update/1?x", "/1", "latest []x",
        'latest {"a":1}', 'latest [{"columns":["a"]}]',
        'latest [{"columns":["a"],"payload":"counter","fingerprint":""}]',
        'latest [{"columns":["a"],"payload":"a/1","fingerprint":"","parameters":[]}]',
        'ordering:x [{"columns":["a"],"payload":"a/1","fingerprint":""}]',
    ],
)  # fmt: skip
def test_a_merge_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        MergeSpec.parse(text)


def test_a_merge_has_what_its_kind_needs_and_no_more() -> None:
    builds: list[Callable[[], MergeSpec]] = [
        lambda: MergeSpec("ordering"),
        lambda: MergeSpec(columns=(VIEWS, VIEWS)),
        lambda: MergeSpec("latest", ordering="a"),
        lambda: MergeSpec("ordering", ordering="a", columns=(VIEWS,)),
    ]
    for build in builds:
        with pytest.raises(InvalidInputError):
            build()


# --- tables that Hudi made ------------------------------------------------------------------------------------------


def test_hudis_tables_are_read() -> None:
    for name, data in hudi_properties().items():
        props = properties.decode_table(data, name)
        config = TableConfig.from_properties(props, name)
        schema = config.created_schema()
        assert schema is not None
        # Hudi 1.2 puts null first, earlier releases and we put it last; both read either.
        assert avro.record_json(schema.stored, config.name, null_first=True) == props["hoodie.table.create.schema"]
        assert config.key.keygen_type == props["hoodie.table.keygenerator.type"]
        assert config.merge.kind == "ordering"
        assert config.buckets is None
        assert not config.ours
        assert str(config.version) == props["hoodie.table.version"]


@pytest.mark.parametrize(
    ("changes", "merge"),
    [
        ({}, MergeSpec(hudi_commit_time=True)),
        ({"hoodie.table.precombine.field": "ts"}, MergeSpec("ordering", ordering="ts")),
        ({"hoodie.table.ordering.fields": "ts"}, MergeSpec("ordering", ordering="ts")),
        (
            {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING", "hoodie.table.ordering.fields": "a,b"},
            MergeSpec(hudi_commit_time=True),
        ),
        (
            {"hoodie.record.merge.mode": "EVENT_TIME_ORDERING", "hoodie.table.ordering.fields": "_hoodie_commit_time"},
            MergeSpec(),
        ),
        (
            {"hoodie.compaction.payload.class": "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"},
            MergeSpec(hudi_commit_time=True),
        ),
    ],
)
def test_the_merge_of_hudis_tables_is_hudis_own(changes: dict[str, str], merge: MergeSpec) -> None:
    assert TableConfig.from_properties(HUDI | changes, "here").merge == merge


@pytest.mark.parametrize(
    ("changes", "feature"),
    [
        ({"hoodie.record.merge.mode": "CUSTOM", "hoodie.record.merge.strategy.id": "0badcafe"}, "strategy_id=0badcafe"),
        ({"hoodie.record.merge.strategy.id": "0badcafe"}, "strategy_id=0badcafe"),
        ({"hoodie.compaction.payload.class": "com.acme.Own"}, "payload_class=com.acme.Own"),
        ({"hoodie.table.base.file.format": "ORC"}, "format=ORC"),
        ({"hoodie.populate.meta.fields": "false", "hoodie.table.recordkey.fields": ""}, "key_generator=AUTO"),
        ({"hoodie.populate.meta.fields": "false", "hoodie.table.keygenerator.type": "CUSTOM"}, "key_generator=CUSTOM"),
        ({"hoodie.table.ordering.fields": "a,b"}, "several ordering fields"),
        ({"hoodie.index.bucket.engine": "CONSISTENT_HASHING"}, "engine=CONSISTENT_HASHING"),
        ({"hoodie.table.partial.update.mode": "KEEP_VALUES"}, "mode=KEEP_VALUES"),
        ({"hoodie.table.partial.update.mode": "FILL_UNAVAILABLE"}, "mode=FILL_UNAVAILABLE"),
        ({"hoodie.compaction.payload.class": f"{PAYLOADS}AWSDmsAvroPayload"}, "payload_class=.*AWSDms"),
        ({"hoodie.table.legacy.payload.class": f"{PAYLOADS}AWSDmsAvroPayload"}, "payload_class=.*AWSDms"),
        (
            {"hoodie.table.legacy.payload.class": "com.acme.Own", "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"},
            "payload_class=com.acme.Own",
        ),
        ({"hoodie.datasource.write.drop.partition.columns": "true"}, "partition columns"),
        ({"hoodie.bootstrap.base.path": "/x"}, "bootstrapped"),
        ({"hoodie.table.type": "OTHER"}, "type=OTHER"),
        ({"hoodie.table.format": "iceberg"}, "format=iceberg"),
        ({"hoodie.record.merge.property.acme": "1"}, "settings=.*acme"),
    ],
)
def test_features_that_we_lack_are_named(changes: dict[str, str], feature: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=feature) as error:
        TableConfig.from_properties(HUDI | changes, "here")
    assert "table=here" in str(error.value)


@pytest.mark.parametrize(
    ("payload", "mode", "changes", "unset"),
    [
        ("AWSDmsAvroPayload", "COMMIT_TIME_ORDERING", {}, ()),
        ("PartialUpdateAvroPayload", "EVENT_TIME_ORDERING", {"mode": "IGNORE_DEFAULTS"}, (None,)),
        ("OverwriteNonDefaultsWithLatestAvroPayload", "COMMIT_TIME_ORDERING", {"mode": "IGNORE_DEFAULTS"}, (None,)),
        (
            "PostgresDebeziumAvroPayload",
            "EVENT_TIME_ORDERING",
            {"mode": "FILL_UNAVAILABLE", "value": "__un"},
            ("__un",),
        ),
    ],
)
def test_a_payload_that_hudi_has_turned_into_properties_is_only_remembered(
    payload: str, mode: str, changes: dict[str, str], unset: tuple[str | None, ...]
) -> None:
    names = {
        "mode": "hoodie.table.partial.update.mode",
        "value": "hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value",
    }
    props = {
        "hoodie.table.legacy.payload.class": PAYLOADS + payload,
        "hoodie.record.merge.mode": mode,
        "hoodie.table.ordering.fields": "ts",
        **{names[name]: value for name, value in changes.items()},
    }
    config = TableConfig.from_properties(HUDI | props, "here")
    assert config.unset_values == unset
    assert config.merge.kind == ("ordering" if mode == "EVENT_TIME_ORDERING" else "latest")


def test_other_versions_are_refused_with_what_is_supported() -> None:
    for version in ("0", "5", "7", "10"):
        advice = r"Downgrade .*auto\.upgrade=false .*table\.version=9 " if version == "10" else r"Upgrade the table"
        with pytest.raises(UnsupportedVersionError, match=rf"{advice}.*found={version} supported=\[6, 8, 9\]"):
            TableConfig.from_properties(HUDI | {"hoodie.table.version": version}, "here")
    for version, layout in (("6", "2"), ("8", "1"), ("9", "0")):
        props = {"hoodie.table.version": version, "hoodie.timeline.layout.version": layout}
        with pytest.raises(UnsupportedVersionError, match=f"another layout.*version={version}.*={layout} table=here"):
            TableConfig.from_properties(HUDI | props, "here")
    with pytest.raises(UnsupportedVersionError, match="found=3 supported=2"):
        TableConfig.from_properties(HUDI | {"crdt_mor.version": "3"}, "here")


def test_a_table_that_the_first_engine_made_is_read_and_has_no_id() -> None:
    ours = {"crdt_mor.version": "1", "crdt_mor.merge": "latest", "crdt_mor.buckets": "4"}
    config = TableConfig.from_properties(HUDI | ours, "here")
    assert config.ours
    assert config.table_id is None


@pytest.mark.parametrize(
    "changes",
    [
        {"hoodie.table.version": "nine"},
        {"hoodie.table.version": ""},
        {"hoodie.table.name": ""},
        {"hoodie.table.type": ""},
        {"hoodie.record.merge.mode": "EVENT_TIME_ORDERING"},
        {"crdt_mor.version": "1"},
        {"crdt_mor.version": "1", "crdt_mor.merge": "nonsense", "crdt_mor.buckets": "4"},
        {"crdt_mor.version": "1", "crdt_mor.merge": "latest"},
        {"hoodie.bucket.index.num.buckets": "0"},
        {"crdt_mor.buckets": "4", "hoodie.bucket.index.num.buckets": "5"},
        {"hoodie.table.recordkey.fields": "a,a"},
    ],
)
def test_damaged_properties_are_a_format_error(changes: dict[str, str]) -> None:
    with pytest.raises(FormatError):
        TableConfig.from_properties(HUDI | changes, "here")


def test_hudis_key_generators_are_kept() -> None:
    def spec(**props: str) -> KeySpec:
        return TableConfig.from_properties(
            HUDI | {f"hoodie.table.{key.replace('_', '.')}": v for key, v in props.items()}, "x"
        ).key

    assert spec(partition_fields="p", keygenerator_type="SIMPLE") == KeySpec(("id",), ("p",))
    explicit = spec(partition_fields="p", keygenerator_type="COMPLEX")
    assert (explicit.keygen_type, explicit.composite) == ("COMPLEX", True)
    assert spec(partition_fields="p", keygenerator_class="org.apache.hudi.keygen.ComplexAvroKeyGenerator") == explicit
    assert spec(partition_fields="p:SIMPLE,ts:TIMESTAMP", keygenerator_type="CUSTOM").partition_fields == ("p", "ts")
    bare = spec(partition_fields="p,q", complex_keygenerator_encoding="VALUE_ONLY")
    assert (bare.keygen_type, bare.composite) == ("COMPLEX", False)
    assert spec(partition_fields="p", keygenerator_type="TIMESTAMP").keygen_type == "TIMESTAMP"


def test_buckets_of_hudis_tables_are_known_only_if_they_say() -> None:
    assert TableConfig.from_properties(HUDI, "x").buckets is None
    assert TableConfig.from_properties(HUDI | {"hoodie.bucket.index.num.buckets": "6"}, "x").buckets == 6


def test_a_local_timeline_is_read() -> None:
    assert TableConfig.from_properties(HUDI | {"hoodie.table.timeline.timezone": "LOCAL"}, "x").name == "t"
