"""What users of Delta and Hudi type first works, or is answered in one line. docs/spark-writing.md has the ways."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StringType, StructField, StructType

from crdt_mor import InvalidInputError, Rules, Table
from crdt_mor.errors import ConstraintViolationError, SchemaMismatchError, TokenOrderError
from crdt_mor.readers.spark.failing import error_in
from crdt_mor.readers.spark.near_options import WAYS, instead
from crdt_mor.readers.spark.options import ReadOptions
from crdt_mor.readers.spark.reading import reader
from crdt_mor.readers.spark.tasks import TASK_BYTES, packed
from tests.spark.helpers import listed
from tests.spark.sessions import ROOT, fixture

pytestmark = pytest.mark.spark
spark = fixture()

PAGE = (ROOT / "docs" / "spark-writing.md").read_text().partition("\n## Coming from Delta or Hudi\n")[2]
ROW = re.compile(r"^\| (.+?) \| (.+?) \|$", re.MULTILINE)
CODE = re.compile(r"``(.+?) ``|`(.+?)`")
FIRST = "[PYTHON_DATA_SOURCE_ERROR] Failed to"


def section(title: str) -> list[tuple[str, str]]:
    """The rows of the first table below a title."""
    below = PAGE.partition(f"\n### {title}\n")[2].partition("\n### ")[0]
    return ROW.findall(below.partition("| you type |")[2].partition("\n\n")[0])


def codes(cell: str) -> list[str]:
    return [one or other for one, other in CODE.findall(cell)]


@pytest.fixture(scope="module")
def names(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the page's examples have made, below a folder of their own."""
    folder = tmp_path_factory.mktemp("lake")
    (block,) = re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL)
    found: dict[str, Any] = {"spark": spark, "lake": str(folder)}
    exec(placed(block, found), found)
    found["df"].createOrReplaceTempView("df")
    found["df"].write.parquet(f"{folder}/parquet")
    return found


def placed(code: str, names: dict[str, Any]) -> str:
    return code.replace("/lake/", f"{names['lake']}/")


def run(code: str, names: dict[str, Any]) -> Any:
    """A statement of SQL, or an expression of Python."""
    if re.match(r"[A-Z]{3,} ", code):
        return names["spark"].sql(placed(code, names)).collect()
    found = eval(placed(code, names), names)
    return found.collect() if hasattr(found, "collect") else found


@pytest.mark.parametrize("title", ["Statements", "Frames"])
def test_what_spark_refuses_has_a_way_that_works(names: dict[str, Any], title: str) -> None:
    rows = section(title)
    assert len(rows) > 8
    for typed, here in rows:
        (refused,) = codes(typed)
        with pytest.raises(PySparkException):
            run(refused, names)
        for way in codes(here):
            if "(" in way or "." in way:
                run(way, names)


def test_options_of_others_are_answered_with_the_name_here() -> None:
    assert instead({"versionasof": "7"}) == 'instead of versionAsOf say option("asOf", "7")'
    assert instead({"hoodie.clean.async": "true", "columns": "id"}).startswith(
        "instead of hoodie.clean.async say nothing"
    )
    assert instead({"colour": "red"}, ["columns", "consistency"]) == ""
    assert instead({"hoodie.table.name": "t"}).startswith(
        "instead of hoodie.table.name say nothing, as it is said once"
    )


@pytest.mark.parametrize(
    ("name", "value", "way"),
    [
        ("version_as_of", "1", 'say option("asOf", "1")'),
        ("readchangedfeed", "true", 'say option("changes", "images")'),
        ("startversion", "7", 'say option("since", …) with the version before 7, as since excludes its own commit'),
        ("as_of", "1", 'say option("asOf", "1")'),
        ("consistancy", "stable", 'say option("consistency", "stable")'),
        ("merge_schema", "true", 'say option("schemaMode", "merge")'),
    ],
)
def test_an_option_that_is_written_nearly_right_is_known(name: str, value: str, way: str) -> None:
    with pytest.raises(InvalidInputError, match=f"instead of {name} {re.escape(way)}.*: no such options of a read"):
        ReadOptions.of({"path": "/lake/none", name: value})


@pytest.mark.parametrize("option", ["startingVersion", "startingTimestamp"])
def test_what_delta_includes_and_since_excludes_is_said(option: str) -> None:
    assert re.search(
        "before 7, as since excludes (its own commit|the commit of its own moment)", instead({option.lower(): "7"})
    )
    assert "endingVersion" in WAYS, "which both include"


def test_an_append_refuses_a_wrong_partition_overwrite_mode(names: dict[str, Any]) -> None:
    append = names["df"].write.format("crdt_mor").mode("append")
    with pytest.raises(PySparkException, match="partitionOverwriteMode is static, which"):
        append.option("partitionOverwriteMode", "dynamc").save(names["path"])


def test_columns_of_spark_and_schemas_of_others_are_refused_with_what_is_taken(names: dict[str, Any]) -> None:
    from pyspark.sql.functions import col

    from crdt_mor.readers.spark import create, delete_where, update

    attempts: tuple[Callable[[], object], ...] = (
        lambda: update(names["spark"], names["path"], {"n": col("n") + 1}),
        lambda: update(names["spark"], names["path"], {"n": "n + 1"}, col("n") > 1),  # type: ignore[arg-type]
        lambda: delete_where(names["spark"], names["path"], col("n") > 1),  # type: ignore[arg-type]
    )
    for attempt in attempts:
        with pytest.raises(InvalidInputError, match=r"SQL text.*Column"):
            attempt()
    for columns in (pa.schema([("id", pa.string())]), {"id": pa.string()}):
        with pytest.raises(InvalidInputError, match="columns are those of a frame of Spark or of a StructType"):
            create(columns, "/lake/never", key="id")  # type: ignore[arg-type]


READS = {"versionAsOf": "0", "as.of.instant": "20260101000000000", "readChangeFeed": "true"}
WRITES = {"mergeSchema": "true", "replaceWhere": "day = 'mon'", "hoodie.datasource.write.recordkey.field": "id"}


def test_the_first_line_of_an_error_is_ours(names: dict[str, Any], tmp_path: Path) -> None:
    """It names the way, and no traceback stands before it or behind."""
    spark, df, path = names["spark"], names["df"], names["path"]
    append = df.write.format("crdt_mor").mode("append")

    def reads(name: str, value: str) -> Callable[[], object]:
        return lambda: spark.read.format("crdt_mor").option(name, value).load(path)

    def writes(name: str, value: str) -> Callable[[], object]:
        return lambda: df.write.format("crdt_mor").mode("append").option(name, value).save(path)

    attempts: dict[Callable[[], object], str] = {
        **{reads(*given): f"instead of {given[0]} say" for given in READS.items()},
        **{writes(*given): f"instead of {given[0]} say" for given in WRITES.items()},
        lambda: spark.read.format("crdt_mor").load(): "say where the table is",
        lambda: spark.read.format("crdt_mor").load(f"{path}/*"): "there is no table here",
        lambda: spark.read.format("crdt_mor").load("hdfs://h/x"): "tables cannot be at such addresses",
        lambda: append.save(str(tmp_path / "none")): "there is no table here",
        lambda: spark.range(1).selectExpr("id x").write.format("crdt_mor").mode("append").save(path): "no such columns",
        lambda: df.selectExpr("id", "day", "array() n").write.format("crdt_mor").mode("append").save(path): (
            "no value says what type this holds"
        ),
    }
    for attempt, says in attempts.items():
        with pytest.raises(Exception, match=re.escape(says)) as raised:
            attempt()
        assert str(raised.value).startswith(FIRST)
        assert says in str(raised.value).splitlines()[0]
        assert "Traceback" not in str(raised.value)


def test_an_error_of_a_task_or_a_commit_is_raised_as_ours(spark: Any, tmp_path: Path) -> None:
    """By the functions, and told by `df.write` without a traceback, in its first two lines."""
    from crdt_mor.readers.spark import append, create, delete, upsert

    columns = "id string, day string, n int"
    df = spark.createDataFrame([("a", "mon", 1), ("b", "tue", 2)], columns)
    path = str(tmp_path / "t")
    create(df, path, key="id", partition_by="day", rules=Rules(check={"positive": "n > 0"}), buckets=1)
    negative = df.selectExpr("id", "day", "-n n").where("id = 'a'")
    null = df.selectExpr("cast(null as string) id", "day")
    twice = df.limit(1).union(df.limit(1))
    with pytest.raises(ConstraintViolationError, match="rows break a rule of the table") as violation:
        upsert(negative, path)
    assert (violation.value.constraint, violation.value.rows) == ("check positive", 1)
    assert violation.value.key == {"day": "mon", "id": "a"}
    assert "\n" not in str(violation.value)
    with pytest.raises(InvalidInputError, match=r"^a record key cannot be null.*row=0$"):
        delete(null, path)
    with pytest.raises(InvalidInputError, match=r"^a key occurs twice in an append.*key='a'$"):
        append(twice, path)
    for rows, operation, says in (
        (negative, "upsert", "ConstraintViolationError: rows break a rule"),
        (twice, "append", "InvalidInputError: a key occurs twice in an append"),
    ):
        with pytest.raises(PySparkException, match=says) as shown:
            rows.write.format("crdt_mor").mode("append").option("operation", operation).save(path)
        lines = [line for line in str(shown.value).splitlines() if line.strip()]  # Spark 4.0 begins with an empty one
        assert says in "".join(lines[:2])
        assert "Traceback" not in str(shown.value)


def test_the_error_that_spark_tells_of_is_the_last_one_of_ours() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback\ncrdt_mor.errors.InvalidInputError: the cause\n\nThe above\n"
        "crdt_mor.errors.TokenOrderError: said, over\ntwo lines. token=7\n SQLSTATE: 38000"
    )
    found = error_in(text)
    assert (type(found), str(found)) == (TokenOrderError, "said, over\ntwo lines. token=7")
    facts = "constraint='not_null n' key={'d': datetime.date(2026, 1, 1)} values={} rows=3"
    broken = error_in(f"crdt_mor.errors.ConstraintViolationError: no. {facts}")
    assert isinstance(broken, ConstraintViolationError)
    assert (broken.constraint, broken.key, broken.rows) == ("not_null n", {}, 3)
    assert error_in("crdt_mor.errors.NoSuchError: x") is None
    assert error_in("ValueError: crdt_mor") is None


def test_what_works_without_a_word(names: dict[str, Any]) -> None:
    spark, path = names["spark"], names["path"]
    names["df"].write.format("crdt_mor").mode("append").save(f"file://{path}")
    names["df"].selectExpr("id", "day", "int(n) n").write.format("crdt_mor").mode("append").save(path)
    for address in (path, f"file://{path}", f"file:{path}"):
        assert listed(spark.read.format("crdt_mor").load(address)) == [("a", "mon", 10), ("c", "wed", 3)]
    assert [column.name for column in spark.catalog.listColumns("pages")] == ["id", "day", "n"]


def test_a_table_is_made_of_a_frames_columns_and_tells_its_history(spark: Any, tmp_path: Path) -> None:
    from crdt_mor.readers.spark import append, create, delete, delete_where, history, merge, overwrite, update, upsert

    path = str(tmp_path / "t")
    df = spark.range(4).selectExpr("id", "id % 2 as n", "timestamp_ntz'2026-01-31' as at")
    assert not df.schema["id"].nullable, "Spark says so of what range gives"
    table = create(df, path, key="id", rules=Rules(not_null="n"))
    assert (table.count(), table.schema.field("at").type) == (0, pa.timestamp("us"))
    named: Any = {"commit_info": {"message": "said"}}
    upsert(df, path, **named)
    append(df.selectExpr("id + 10 id", "n", "at"), path, **named)
    update(spark, path, {"n": "n + 1"}, **named)
    merge(spark, path, df, on="id", **named).when_matched_update_all().execute()
    delete(df.where("id = 1").select("id"), path, **named)
    delete_where(spark, path, "id = 2", **named)
    overwrite(df, path, **named)
    rows = history(spark, path).where("kind = 'write'").select("message", "commit_info.message").collect()
    assert [tuple(row) for row in rows] == [("said", "said")] * 7
    assert history(spark, path, 2).count() == 2
    assert listed(table.scan(columns=["id", "n"])) == [(0, 0), (1, 1), (2, 0), (3, 1)]
    with pytest.raises(TypeError, match="partitions"):
        create(df, str(tmp_path / "other"), key="id", partitions=4)


def test_upkeep_that_is_due_runs_in_tasks(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crdt_mor.readers.spark import compacting, create, maintain, upsert

    table = create(spark.range(1), str(tmp_path / "t"), key="id", buckets=5)
    table.set_properties({"crdt_mor.compaction.log_files": "1"})
    upsert(spark.range(20), table.uri)
    whole, parts = compacting._execute, list[int]()

    def seen(spark: Any, table: Any, found: Any) -> Any:
        parts.append(len(found))
        return whole(spark, table, found)

    monkeypatch.setattr(compacting, "_execute", seen)
    assert [action.service for action in maintain(spark, table.uri).actions if action.state == "done"] == ["compaction"]
    assert (parts, table.count()) == ([5], 20)
    assert {file["kind"] for file in table.inspect.files().to_pylist()} == {"base"}


def test_small_parts_share_a_task_and_large_ones_have_one() -> None:
    assert packed([1] * 10, 4) == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]
    assert packed([1, 2, 3], 200) == [[2], [1], [0]]
    assert packed([9, 1, 1, 1, 1], 2) == [[0], [1, 2, 3, 4]]
    assert len(packed([TASK_BYTES // 2] * 6, 2)) == 3
    sizes = [size * size % 97 for size in range(1000)]
    tasks = packed(sizes, 8)
    assert sorted(part for task in tasks for part in task) == list(range(1000))
    loads = [sum(sizes[part] for part in task) for task in tasks]
    assert max(loads) - min(loads) <= 97


TYPES = {
    "YEAR TO MONTH": ("interval 1 year", "make it a number of months"),
    "CALENDAR": ("make_interval(1)", "make it an interval of days to seconds"),
    "array<void>": ("array()", "cast the column, as to array<string>"),
    "map<void,void>": ("map()", "cast the column, as to array<string>"),
    "a collation": ("'a' collate unicode_ci", "cast the column to string"),
    "a collation inside": ("named_struct('x', array('a' collate unicode_ci))", "cast the column to string. column=v.x"),
}


@pytest.mark.parametrize("kind", TYPES)
def test_a_type_that_no_table_holds_is_named_with_what_does(spark: Any, tmp_path: Path, kind: str) -> None:
    from crdt_mor.readers.spark import create

    value, says = TYPES[kind]
    with pytest.raises(SchemaMismatchError, match=f"{re.escape(says)}.*type="):
        create(spark.range(1).selectExpr("id", f"{value} as v"), str(tmp_path / "t"), key="id")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("options", [{}, {"changes": "merged"}], ids=["rows", "changes"])
def test_a_column_that_is_asked_for_by_its_former_name_is_said_to_be_renamed(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table = Table.create(tmp_path / "t", pa.schema([("id", pa.string()), ("Total Sales", pa.int64())]), key="id")
    table.alter(rename={"Total Sales": "net"})
    asked = StructType([StructField("id", StringType()), StructField("Total Sales", LongType())])
    with pytest.raises(SchemaMismatchError, match=r"that are not there: .*; 'Total Sales' was renamed to 'net'\."):
        reader(ReadOptions.of({"path": table.uri, **options}), asked)
