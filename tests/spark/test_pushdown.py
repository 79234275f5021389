"""Conditions that Spark hands down hold for the rows for which Spark's own hold, and Spark no longer applies them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import datasource as sd
from pyspark.sql import functions as F  # noqa: N812

from crdt_mor import InvalidInputError, Scan, Table
from crdt_mor.readers.spark import register_path
from crdt_mor.readers.spark.filters import expression
from crdt_mor.readers.spark.options import ReadOptions
from crdt_mor.readers.spark.reading import Part, reader
from crdt_mor.readers.spark.types import spark_schema, spark_type
from tests.spark.helpers import listed, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CONF = "spark.sql.python.filterPushdown.enabled"
NAN, INF = float("nan"), float("inf")
MOMENT = datetime(2026, 3, 8, 2, 30, 0, 123456, tzinfo=UTC)

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False]),
    "tiny": (pa.int8(), [-128, 0, 127]),
    "whole": (pa.int32(), [-(2**31), 0, 7, 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), -1, 2**53 + 1, 2**63 - 1]),
    "single": (pa.float32(), [0.1, -0.0, 0.0, NAN, INF, -INF]),
    "real": (pa.float64(), [0.1, -0.0, 0.0, NAN, INF, -INF, 1e308]),
    "money": (pa.decimal128(12, 2), [Decimal("-0.01"), Decimal("0.00"), Decimal("9999999999.99")]),
    "huge": (pa.decimal128(38, 0), [Decimal(10**37 + 1), Decimal(-(10**37))]),
    "day": (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(2026, 3, 8)]),
    "at": (pa.timestamp("us", "UTC"), [MOMENT, MOMENT.replace(year=1901), MOMENT.replace(microsecond=0)]),
    "at_tokyo": (pa.timestamp("ms", "Asia/Tokyo"), [MOMENT.replace(microsecond=123000)]),
    "at_offset": (pa.timestamp("us", "+05:30"), [MOMENT]),
    "local": (pa.timestamp("us"), [MOMENT.replace(tzinfo=None)]),
    "local_s": (pa.timestamp("s"), [MOMENT.replace(tzinfo=None, microsecond=0)]),
    "name": (pa.string(), ["", "a", "ab%", "b_a", "Zoë", "\U0001f600", "zz"]),
    "kind": (pa.dictionary(pa.int32(), pa.string()), ["x", "y"]),
    "small": (pa.uint8(), [0, 255]),
    "blob": (pa.binary(), [b"", b"\x00", b"\xff"]),
    "tags": (pa.list_(pa.string()), [["a"], []]),
}
COMPARISONS = (
    sd.EqualTo, sd.EqualNullSafe, sd.GreaterThan, sd.GreaterThanOrEqual, sd.LessThan, sd.LessThanOrEqual,
)  # fmt: skip
SCHEMA = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in VALUES.items())])


def conditions() -> Iterator[sd.Filter]:
    """Every kind of filter, on every column, with every value: and its negation."""
    for name, (kind, values) in VALUES.items():
        path = (name,)
        yield sd.IsNull(path)
        yield sd.IsNotNull(path)
        if name == "tags":
            continue
        yield sd.EqualNullSafe(path, None)
        yield sd.In(path, tuple(values[:2]))
        yield sd.In(path, tuple(values))
        for value in values:
            yield from (one(path, value) for one in COMPARISONS)
            if kind == pa.string():
                yield from (one(path, value) for one in (sd.StringStartsWith, sd.StringEndsWith, sd.StringContains))


def in_spark(filter: sd.Filter) -> Column:
    """The same condition, as Spark applies it."""
    if isinstance(filter, sd.Not):
        return ~in_spark(filter.child)
    name: str = filter.attribute[0]  # type: ignore[attr-defined]
    column, kind = F.col(name), spark_type(VALUES[name][0])

    def literal(value: object) -> Column:
        return F.lit(value.isoformat() if isinstance(value, date) else value).cast(kind)

    match filter:
        case sd.IsNull():
            return column.isNull()
        case sd.IsNotNull():
            return column.isNotNull()
        case sd.In():
            return column.isin([literal(value) for value in filter.value])
        case sd.EqualNullSafe():
            return column.eqNullSafe(literal(filter.value))
        case sd.EqualTo():
            return column == literal(filter.value)
        case sd.GreaterThan():
            return column > literal(filter.value)
        case sd.GreaterThanOrEqual():
            return column >= literal(filter.value)
        case sd.LessThan():
            return column < literal(filter.value)
        case sd.LessThanOrEqual():
            return column <= literal(filter.value)
        case sd.StringStartsWith():
            return column.startswith(filter.value)
        case sd.StringEndsWith():
            return column.endswith(filter.value)
    assert isinstance(filter, sd.StringContains)
    return column.contains(filter.value)


@pytest.fixture
def table(fast_path: Path) -> Table:
    """Each value in a base file whose statistics say much: values alone, values with nulls; and the same in logs."""
    made = Table.create(fast_path / "values", SCHEMA, key="id", buckets=4)
    longest = max(len(values) for _, values in VALUES.values())
    rows = [[values[i % len(values)] for _, values in VALUES.values()] for i in range(longest)]
    rows.append([None] * len(VALUES))
    plain = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind, _ in VALUES.values()]

    def frame(first: int) -> pa.Table:
        columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(plain)]
        return pa.table([pa.array(range(first, first + len(rows))), *columns], names=SCHEMA.names)

    for first in range(0, 40, 20):
        made.upsert(frame(first))
    made.maintenance.compact()
    made.upsert(frame(30))
    return made


def test_a_condition_means_what_spark_means_by_it(spark: SparkSession, table: Table) -> None:
    asked = [each for one in conditions() for each in (one, sd.Not(one))]
    frame = read(spark, table.uri)
    truth = frame.select("id", *(in_spark(one).alias(f"f{i}") for i, one in enumerate(asked))).toArrow().to_pydict()
    schema, taken, wrong = table.schema, 0, []
    for i, one in enumerate(asked):
        condition = expression(one, schema)
        try:
            found = None if condition is None else table.scan(columns=["id"], filter=condition).to_arrow()["id"]
        except InvalidInputError:
            continue
        if found is not None:
            taken += 1
            wanted = sorted(key for key, holds in zip(truth["id"], truth[f"f{i}"], strict=True) if holds)
            if sorted(found.to_pylist()) != wanted:
                wrong.append((one, sorted(found.to_pylist()), wanted))
    assert not wrong, f"{len(wrong)}: {wrong[:5]}"
    assert taken > 0.75 * len(asked)


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(CONF, "true")
    yield spark
    spark.conf.unset(CONF)


CASES = {
    "id = 3": True,
    "id in (1, 2, 31) and name > 'a'": True,
    "real > 5": True,
    "not real <= 5": True,
    "name like 'a%' and whole is not null": True,
    "at = timestamp'2026-03-08T02:30:00.123456Z'": True,
    "money = 0 and day < date'2000-01-01'": True,
    "id = 3 or name = 'a'": False,
    "kind = 'x'": False,
    "length(name) = 2": False,
}


@pytest.mark.parametrize("condition", CASES)
def test_what_is_pushed_down_spark_does_not_apply_again(pushing: SparkSession, table: Table, condition: str) -> None:
    schema = "id long, name string, whole int, real double, at timestamp, money decimal(12,2), day date, kind string"
    frame = read(pushing, table.uri, schema, pushdown=True).where(condition)
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    assert ("Filter" not in plan) == CASES[condition], plan
    found = listed(frame)
    assert found
    wanted = read(pushing, table.uri, schema).where(condition)
    assert repr(found) == repr(listed(wanted))  # as text, in which NaN is itself


def test_a_pushed_condition_decides_which_files_are_read(pushing: SparkSession, table: Table) -> None:
    """Of other buckets' files none is opened, so that none is missed."""
    [file_group] = table.scan(filter="id = 3", meta=True).to_polars()["_hoodie_file_name"].str.head(36)
    for path in Path(table.uri).glob("*.parquet"):
        if not path.name.startswith(file_group):
            path.unlink()
    assert [row.id for row in read(pushing, table.uri, "id long", pushdown=True).where("id = 3").collect()] == [3]


def test_a_pushed_condition_on_a_partition_leaves_its_file_slices_alone_to_tasks(
    pushing: SparkSession, fast_path: Path
) -> None:
    columns = pa.schema([("id", pa.int64()), ("day", pa.string())])
    made = Table.create(fast_path / "days", columns, key="id", partition_by="day", buckets=1)
    made.upsert(pa.table({"id": range(6), "day": [f"d{i % 3}" for i in range(6)]}))
    planned = reader(ReadOptions.of({"path": made.uri, "pushdown": "true"}), spark_schema(made.schema))
    assert list(planned.pushFilters([sd.EqualTo(("day",), "d1")])) == []
    scans = [cast(Part, part).rows for part in planned.partitions()]
    assert [cast(Scan, scan).explain().total.slices for scan in scans] == [1]  # of three
    for path in Path(made.uri).glob("d[02]/*"):
        path.unlink()
    register_path(pushing, "days", made.uri)
    pushing.sql("CREATE TABLE days USING days")
    try:
        assert listed(read(pushing, made.uri, pushdown=True).where("day = 'd1'")) == [(1, "d1"), (4, "d1")]
        query = "SELECT id FROM days WITH (pushdown = 'true') WHERE day IN ('d1', 'd9')"
        assert listed(pushing.sql(query)) == [(1,), (4,)]
        assert pushing.sql(query.replace("id", "count(*)")).collect()[0][0] == 2
    finally:
        pushing.sql("DROP TABLE days")


def test_what_spark_pushes_for_one_use_of_a_frame_it_keeps_for_all_so_nothing_is_taken_unless_asked(
    pushing: SparkSession, table: Table
) -> None:
    frame = read(pushing, table.uri, "id long")
    assert frame.where("id = 3").count() == 1
    assert frame.count() == table.scan().count()
    pushed = read(pushing, table.uri, "id long", pushdown=True)
    assert pushed.where("id = 3").count() == 1
    assert pushed.count() == 1, "Spark is right again: then take filters always"


def test_pushing_needs_spark_to_allow_it(spark: SparkSession, table: Table) -> None:
    with pytest.raises(AnalysisException, match=CONF):
        read(spark, table.uri, pushdown=True).collect()


def test_changes_are_filtered_by_spark(pushing: SparkSession, table: Table) -> None:
    found = read(pushing, table.uri, "id long, _change_type string", changes="merged").where("id = 3")
    assert listed(found) == [(3, "upsert")]
