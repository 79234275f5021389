"""What people try first: open by a bare call, create from what they have, read without a word about scans."""

from __future__ import annotations

import ast
import dataclasses
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

import crdt_mor
from crdt_mor import InvalidInputError, Opening, Scan, Table, store
from crdt_mor.api.near_names import METHODS
from crdt_mor.errors import InvalidUseError, TableNotFoundError
from crdt_mor.store import MemoryStore
from tests.inside import store_of
from tests.table.helpers import Make, Place, frame, rows

THREE = frame(("a", "eu", 1, 1.5), ("b", "eu", 2, None), ("c", "us", 3, 3.5))


@pytest.fixture(scope="module")
def events() -> Table:
    """Three rows, and one more in the version after."""
    table = Table.create("events", THREE.schema, key="id", opening=Opening(store=MemoryStore()))
    table.upsert(THREE)
    table.upsert(frame(("d", "us", 4, 4.5)))
    return table


def test_the_version_is_that_of_the_project() -> None:
    project = (Path(crdt_mor.__file__).parents[1] / "pyproject.toml").read_text()
    said = re.search(r'^version = "(.*)"', project, re.MULTILINE)
    assert said is not None
    assert crdt_mor.__version__ == said[1]


def imported_for_type_checkers(file: str) -> set[tuple[str, str]]:
    tree, test = ast.parse(Path(file).read_text()), "_typing.TYPE_CHECKING"
    (checked,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == test)
    imports = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    return {(alias.name, str(node.module)) for node in imports for alias in node.names}


def test_a_public_name_stands_in_three_places() -> None:
    """Type checkers see the imports, users the names of the table, `import *` what `__all__` lists."""
    imported = imported_for_type_checkers(crdt_mor.__file__)
    modules = {(name, "crdt_mor") for name in crdt_mor._PUBLIC_MODULES}
    assert modules <= imported
    imported -= modules
    late = {(name, f"crdt_mor.{module}") for module, names in crdt_mor._NAMES.items() for name in names}
    assert late == imported
    assert sorted(name for name, _ in late) == sorted(crdt_mor.__all__)


def test_every_public_name_is_there() -> None:
    everything: dict[str, object] = {}
    exec("from crdt_mor import *", everything)
    for name in crdt_mor.__all__:
        value = getattr(crdt_mor, name)
        assert everything[name] is value
        assert vars(crdt_mor)[name] is value, "found without a function the next time"
    assert {*crdt_mor.__all__, "__version__"} <= set(dir(crdt_mor))
    for name in ("Tabel", "payload", "_hidden"):
        with pytest.raises(AttributeError, match=f"module 'crdt_mor' has no attribute '{name}'"):
            getattr(crdt_mor, name)
    with pytest.raises(ImportError, match="cannot import name 'Tabel'"):
        exec("from crdt_mor import Tabel")


def test_public_names_of_the_store_stand_in_three_places() -> None:
    late = {(name, f"crdt_mor.{module}") for name, module in store._HOMES.items()}
    assert late == imported_for_type_checkers(store.__file__)
    assert sorted(store._HOMES) == store.__all__
    assert all(getattr(store, name) is vars(store)[name] for name in store.__all__)
    with pytest.raises(AttributeError, match=r"module 'crdt_mor\.store' has no attribute 'Sotre'"):
        store.Sotre  # type: ignore[attr-defined]  # noqa: B018
    assert modules_after("import crdt_mor.store") & {"crdt_mor.store.local", "polars"} == set()


def test_no_public_name_is_that_of_a_module() -> None:
    """Else it would depend on what was imported before which of the two one gets."""
    folder = Path(crdt_mor.__file__).parent
    assert not {path.stem for path in folder.iterdir()} & set(crdt_mor.__all__)


def modules_after(program: str) -> set[str]:
    """The modules that a new process has when it has run a program."""
    command = [sys.executable, "-c", f"import sys\n{program}\nprint(*sys.modules, file=sys.stderr)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stderr.split())


def test_an_import_leaves_alone_what_only_some_calls_need() -> None:
    found = modules_after("import crdt_mor")
    assert {name for name in found if name.startswith("crdt_mor")} == {"crdt_mor"}
    assert not {"polars", "pyarrow"} & found
    modules_after("import crdt_mor; crdt_mor.errors.CrdtMorError")
    found = modules_after("import crdt_mor.api.table, crdt_mor.api.maintenance")
    assert not {"fastavro", "pyarrow.compute", "obstore", "typer", "pyspark", "crdt_mor.mirror"} & found


COMPACTION = """
import crdt_mor as mor, polars as pl
from crdt_mor.store import MemoryStore
rows = pl.DataFrame({"id": ["a", "b"], "n": [1.0, None]})
table = mor.Table.create("memory", rows, key="id", buckets=1, opening=mor.Opening(store=MemoryStore()))
table.upsert(rows)
assert table.maintenance.compact()
"""


@pytest.mark.slow
def test_a_first_compaction_loads_neither_mirrors_nor_pandas() -> None:
    """`ChunkedArray.to_numpy` of pyarrow imports pandas, which takes longer than the compaction."""
    assert not {"pandas", "crdt_mor.mirror"} & modules_after(COMPACTION)


@pytest.mark.slow
def test_a_read_and_a_write_leave_alone_what_they_do_not_need() -> None:
    """pandas among it, which takes longer to import than all of ours: pyarrow does so wherever it is given values."""
    found = modules_after("""
import crdt_mor as mor, polars as pl
rows = pl.DataFrame({"id": ["a", "b"], "day": ["1", "2"], "n": [1, 2]})
for settings in ({"key": "id"}, {"key": ["id", "day"], "partition_by": "day", "ordering": "n"}):
    table = mor.Table.create("t", rows.schema, opening=mor.Opening(store=mor.store.MemoryStore()), **settings)
    table.upsert(rows)
    assert table.scan(columns=["id"], filter=pl.col("n") > 1).to_polars().height == 1
""")
    assert "crdt_mor.api.transaction" in found
    assert not {"pandas", "obstore", "typer"} & found
    calls = "maintenance", "migration", "erasure", "load", "files", "changes", "history", "inspect", "why"
    assert not {f"crdt_mor.api.{name}" for name in calls} & found
    statements = "job", "overwrite", "update_parts", "merge_into", "merge_into_parts"
    assert not {f"crdt_mor.write.{name}" for name in statements} & found
    assert not {"configparser", "difflib", "html"} & found
    assert {name for name in found if name.startswith("crdt_mor.services.")} == {"crdt_mor.services.maintain_inline"}
    assert not {f"crdt_mor.laws.{name}" for name in ("check", "examine", "trial", "fingerprint")} & found


@pytest.mark.slow
@pytest.mark.parametrize(
    "by",
    [
        "'n'",
        "'at'",
        *(f"[mor.{name}('at')]" for name in ("year", "month", "day", "hour")),
        "[mor.bucket('s', 4), mor.truncate('s', 1), mor.bucket('n', 4), mor.truncate('n', 4)]",
    ],
)
def test_a_write_to_partitions_and_a_read_of_some_load_no_pandas(by: str) -> None:
    at = "date" if by == "'at'" else "datetime"
    found = modules_after(f"""
import crdt_mor as mor, polars as pl, warnings
from datetime import date, datetime
warnings.simplefilter("ignore", mor.errors.PartitionNotInKeyWarning)
at = [{at}(2026, 1, 1), {at}(2026, 5, 1), {"date(2026, 6, 1)" if at == "date" else None}]
rows = pl.DataFrame({{"id": [1, 2, 3], "s": ["a", "b", None], "n": [1, 2, 3], "at": at}})
opening = mor.Opening(store=mor.store.MemoryStore())
table = mor.Table.create("t", rows.schema, key="id", partition_by={by}, opening=opening)
table.upsert(rows)
assert table.scan(filter=(pl.col("n") < 3) & (pl.col("at") < date(2026, 2, 1))).to_polars().height == 1
assert table.scan(filter=pl.col("id") == 2).to_polars().height == 1
""")
    assert "pandas" not in found


@pytest.mark.slow
def test_reads_by_key_deletes_and_jobs_load_no_pandas() -> None:
    """Each step of a Spark job is such a process."""
    found = modules_after("""
import crdt_mor as mor, polars as pl
rows = pl.DataFrame({"id": ["a", "b"], "x": [0.5, 1.5], "n": [1, 2]})
for settings in ({}, {"ordering": "n"}, {"ordering": "x"}):
    table = mor.Table.create("t", rows.schema, key="id", opening=mor.Opening(store=mor.store.MemoryStore()), **settings)
    job = table.jobs.plan("upsert", rows.to_arrow().schema)
    table.jobs.complete(job, [job.stage(rows, task=0)])
    table.update({"n": "n + 1"}, where="id = 'a'")
    assert table.scan(filter="id = 'a'").to_polars()["n"].to_list() == [2]
    table.delete(rows.select("id") if not settings else rows.select("id", *settings.values()).head(1).clear())
    table.delete(where="id = 'b'")
""")
    assert "crdt_mor.write.job" in found
    assert "pandas" not in found


@pytest.mark.slow
def test_the_help_of_the_commands_needs_no_engine() -> None:
    program = "from typer.testing import CliRunner\nfrom crdt_mor.cli.main import app\nCliRunner().invoke(app, {})"
    for arguments in (["--help"], ["count", "--help"]):
        found = modules_after(program.replace("{}", repr(arguments)))
        assert "crdt_mor.cli.commands" in found
        assert not {"polars", "pyarrow", "numpy", "crdt_mor.api.table"} & found


def test_a_table_opens_by_a_bare_call(path: str, make: Make) -> None:
    make().upsert(THREE)
    for table in (Table(path), Table(Path(path)), Table(path, payloads=(), opening=Opening(store=None)), Table(path)):
        assert table.count() == 3
        assert table.uri == path
    with pytest.raises(TableNotFoundError, match=r"Table\.create"):
        Table(f"{path}/nothing")


def test_what_is_no_address_of_a_table_is_refused(events: Table) -> None:
    for wrong in (5, None, events, THREE):
        with pytest.raises(InvalidUseError, match=f"address as text or a path.*type={type(wrong).__name__}"):
            Table(wrong)  # type: ignore[arg-type]


# --- created from what people have ------------------------------------------------------------------------------------

PLAIN = pa.schema([("id", pa.string()), ("n", pa.int64()), ("tags", pa.list_(pa.string()))])
FRAME = pl.DataFrame({"id": ["a"], "n": [1], "tags": [["x"]]})
SCHEMAS: dict[str, Callable[[], Any]] = {
    "pyarrow schema": lambda: PLAIN,
    "pyarrow schema with metadata": lambda: PLAIN.with_metadata({"a": "b"}),
    "pyarrow table": PLAIN.empty_table,
    "pyarrow batch": lambda: pa.RecordBatch.from_pylist([], PLAIN),
    "pyarrow reader": lambda: PLAIN.empty_table().to_reader(),
    "pyarrow dataset": lambda: pa.dataset.dataset(PLAIN.empty_table()),
    "polars schema": lambda: FRAME.schema,
    "polars frame": lambda: FRAME,
    "polars lazy frame": FRAME.lazy,
    "polars types": lambda: {"id": pl.String, "n": pl.Int64(), "tags": pl.List(pl.String)},
    "python types": lambda: {"id": str, "n": int, "tags": pa.list_(pa.string())},
    "names of types": lambda: {"id": "string", "n": "int64", "tags": PLAIN.field("tags").type},
    "duckdb relation": lambda: duckdb.sql("select 'a' as id, 1::bigint as n, ['x'] as tags"),
    "a scan": lambda: Table.create("t", PLAIN, key="id", opening=Opening(store=MemoryStore())).scan(),
    "another table": lambda: Table.create("t", PLAIN, key="id", opening=Opening(store=MemoryStore())),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_table_is_created_with_the_columns_of_whatever_says_some_and_without_its_rows(name: str) -> None:
    table = Table.create("t", SCHEMAS[name](), key="id", opening=Opening(store=MemoryStore()))
    assert table.schema.names == PLAIN.names
    assert [table.schema.field("id").type, table.schema.field("n").type] == PLAIN.types[:2]
    assert pa.types.is_list(table.schema.field("tags").type)
    assert table.schema.field("tags").type.value_type == pa.string()
    assert table.count() == 0
    assert table.schema.metadata is None
    table.upsert(FRAME)
    assert table.to_polars().equals(FRAME)
    assert (
        Table.create("t", SCHEMAS[name](), key="id", opening=Opening(store=store_of(table)), exist_ok=True).count() == 1
    )


def test_a_table_is_created_with_the_columns_of_a_pandas_frame_but_its_nameless_index() -> None:
    data = pd.DataFrame({"id": ["a", "b"], "n": [1, 2], "at": pd.to_datetime(["2024-01-01", None])}, index=[5, 6])
    if pd.__version__ < "3":
        data = data.astype({"id": "string"})  # texts are objects there, and a frame without rows says no type of them
    for schema in (data, data.dtypes, data.iloc[:0]):
        table = Table.create("t", schema, key="id", opening=Opening(store=MemoryStore()))
        assert table.schema.names == ["id", "n", "at"]
        assert table.schema.types[:2] == [pa.string(), pa.int64()]
        table.upsert(data)
        assert table.to_pandas()["n"].sum() == 3
    named = data.set_index("id")
    assert "id" in Table.create("t", named, key="id", opening=Opening(store=MemoryStore())).schema.names


def test_a_pandas_column_without_a_type_is_asked_for_one() -> None:
    data = pd.DataFrame({"id": ["a"], "x": pd.Series([None], dtype=object)})
    with pytest.raises(InvalidInputError, match=r"no type.*astype\(\{'x': 'string'\}\).*columns=\['x'\]"):
        Table.create("t", data, key="id", opening=Opening(store=MemoryStore()))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (5, "pass the columns as.*type=int"),
        (None, "pass the columns as.*type=NoneType"),
        ("id", "pass the columns as.*type=str"),
        ([{"id": "a"}], "pass the columns as.*type=list"),
        ({"id": 5}, r"like pa\.string\(\) or pl\.String.*column='id' type=5"),
        ({"id": "strnig"}, r"'int64'.*column='id' type='strnig'"),
        ({5: pl.String}, "column=5"),
        ({}, "at least one column"),
        (pl.Schema({"id": pl.Object}), "column='id'"),
        (pl.LazyFrame({"id": [1]}).select("no"), "cannot be computed.*no"),
        (pd.Series([1]), "pass the columns as|frame or its dtypes|like pa.string"),
    ],
    ids=["int", "None", "text", "list", "dict of ints", "typo", "name", "nothing", "object", "lazy", "series"],
)
def test_what_says_no_columns_is_refused(wrong: Any, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why) as refused:
        Table.create("t", wrong, key="id", opening=Opening(store=MemoryStore()))
    assert "Resolved plan" not in str(refused.value)


@pytest.mark.parametrize("ordering", [{"n": 1}, 5, ["n"]], ids=str)
def test_an_ordering_is_one_name(ordering: Any) -> None:
    with pytest.raises(InvalidInputError, match="ordering is the name of one column"):
        Table.create("t", {"a b": int, "n": int}, key="a b", ordering=ordering, opening=Opening(store=MemoryStore()))


def test_a_write_of_many_processes_is_planned_with_the_columns_of_a_frame(events: Table) -> None:
    job = events.jobs.plan("upsert", pl.DataFrame(schema={"id": pl.String, "region": str, "n": int, "price": float}))
    events.jobs.abandon(job)
    with pytest.raises(InvalidInputError, match="type=int"):
        events.jobs.plan("upsert", 5)  # type: ignore[arg-type]


# --- what a table says of itself --------------------------------------------------------------------------------------


def test_config_of_a_table_is_a_frozen_value_with_current_names_that_pickles() -> None:
    schema = pa.schema([("id", pa.string()), ("land", pa.string()), ("n", pa.int64()), ("at", pa.int64())])
    table = Table.create(
        "t", schema, key=["id", "land"], partition_by="land", buckets=2, merge={("n", "at"): "latest_by/1?by=at"},
        opening=Opening(store=MemoryStore()), name="visits",
    )  # fmt: skip
    table.alter(rename={"id": "user"})
    config = table.config
    assert (config.name, config.key, config.partition_by, config.buckets) == ("visits", ("user", "land"), ("land",), 2)
    assert config.payloads == {"n": "latest_by/1(by=at)", "at": "latest_by/1(by=at)"}
    assert (config.ordering, config.hudi_version, config.table_type) == (None, 9, "MERGE_ON_READ")
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(config) == hash(table.config)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.buckets = 3  # type: ignore[misc]


def test_plan_of_a_compaction_names_its_file_groups_and_size_and_pickles(events: Table) -> None:
    plan = events.maintenance.plans.schedule()
    assert plan is not None
    parts = plan.parts()
    assert [group for part in parts for group in part.file_groups] == [*plan.file_groups]
    assert plan.bytes == sum(part.bytes for part in parts) > 0
    assert {part.barrier for part in parts} == {plan.barrier}
    assert pickle.loads(pickle.dumps(parts)) == parts
    assert str(plan).startswith(f"compaction {plan.barrier}: {len(parts)} file groups")
    assert events.maintenance.plans.cancel(plan.barrier)


# --- read without a word about scans ----------------------------------------------------------------------------------


def test_a_table_is_read_whole_or_in_part(events: Table) -> None:
    assert events.to_arrow().schema == events.schema
    assert sorted(events.to_polars()["id"]) == sorted(events.to_pandas()["id"]) == ["a", "b", "c", "d"]
    assert events.scan(columns="id", filter="n > 3").to_polars().rows() == [("d",)]
    assert events.scan(columns=["n"], filter=pl.col("id") == "a").to_arrow().to_pylist() == [{"n": 1}]
    assert sorted(events.scan(columns=["id"], as_of=1).to_pandas()["id"]) == ["a", "b", "c"] or events.version != 2
    assert events.scan(limit=2).to_polars().height == 2
    assert events.scan(limit=2**70).to_arrow() == events.to_arrow()
    assert events.scan(columns=["n", "id"], limit=2).to_polars().columns == ["n", "id"]


def test_rows_are_counted_with_and_without_a_filter_and_at_a_moment(place: Place, make: Make) -> None:
    first = make().upsert(THREE)
    table = place.open()
    table.delete(keys=["a"])
    filters = None, "n > 2", pl.col("region") == "eu"
    assert [table.scan(filter=filter_).count() for filter_ in filters] == [table.count(), 1, 1]
    assert table.count() == 2
    assert (table.scan(as_of=first).count(), table.scan(filter="n < 2", as_of=first).count()) == (3, 1)


@pytest.mark.parametrize("of", ["table", "scan"])
def test_other_libraries_take_a_table_as_it_is(events: Table, of: str) -> None:
    found: Any = events if of == "table" else events.scan()
    assert pl.DataFrame(found).height == pl.LazyFrame(found).collect().height == 4
    assert pa.table(found).num_rows == pa.RecordBatchReader.from_stream(found).read_all().num_rows == 4
    if pd.__version__ >= "3":  # from_arrow is new there
        assert pd.DataFrame.from_arrow(found).shape == (4, 4)
    summed, filtered = duckdb.sql("select sum(n) from found"), duckdb.sql("from found where n > 3")
    assert summed is not None
    assert summed.fetchall() == [(10,)]
    assert filtered is not None
    assert filtered.fetchall() == [("d", "us", 4, 4.5)]
    other = Table.create("t", found, key="id", opening=Opening(store=MemoryStore()))
    assert other.upsert(found).rows == 4
    assert rows(other) == rows(events)


def test_a_table_shows_its_newest_rows_each_time_that_it_is_taken() -> None:
    table = Table.create("t", THREE.schema, key="id", opening=Opening(store=MemoryStore()))
    assert pl.DataFrame(table).height == 0
    table.upsert(THREE)
    assert pl.DataFrame(table).height == 3


@pytest.mark.parametrize("of", ["table", "scan", "changes"])
def test_what_is_no_sequence_says_what_to_call(events: Table, of: str) -> None:
    found: Any = {"table": events, "scan": events.scan(), "changes": events.changes()}[of]
    attempts: dict[str, Callable[[], object]] = {
        r"iterable: use to_polars\(\)": lambda: [row for row in found],  # noqa: C416
        r"iterable: use to_polars\(\) ": lambda: list(found) and None,
        r"length.*count\(\)|length.*num_rows": lambda: len(found),
        r"items: use to_polars\(\)\[\.\.\.\].*item='n'": lambda: found["n"],
        r"items: .*item=0": lambda: found[0],
        "schema.names": lambda: "n" in found,
    }
    for why, attempt in attempts.items():
        with pytest.raises(InvalidUseError, match=why.strip()) as refused:
            attempt()
        assert isinstance(refused.value, TypeError)
        assert isinstance(refused.value, InvalidInputError)
    assert bool(found) is True


# --- notebooks --------------------------------------------------------------------------------------------------------


def test_a_notebook_shows_columns_of_a_table_and_rows_of_a_scan_with_every_text_escaped() -> None:
    data = frame(*[(f"<b>{n}", "R&D" * 50, n, None) for n in range(20)])
    table = Table.create(
        "<script>", data.schema, key=["id"], ordering="n", opening=Opening(store=MemoryStore()), name="t"
    )
    table.upsert(data)
    shown = table._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<td>id</td><td>string</td><td>key</td>" in shown
    assert "<td>n</td><td>int64</td><td>ordering</td>" in shown
    for found in (table.scan(filter="n >= 0"), table.changes(), table.scan(limit=12)):
        shown = found._repr_html_()
        assert shown.count("&lt;b&gt;") == 10
        assert "the first 10 rows" in shown
        assert "<em>null</em>" in shown
        assert "…" in shown
        assert not re.search(r"<(?!/?(table|thead|tbody|tr|th|td|p|em)>)", shown)
    few = table.scan(columns=["id"], filter="n < 2", meta=True)
    assert isinstance(few, Scan)
    assert "the first" not in few._repr_html_()
    assert few._repr_html_().count("<tr>") == 3


# --- what goes in -----------------------------------------------------------------------------------------------------


def test_a_lazy_frame_and_a_dataset_are_written_as_any_frame(fast_path: Path) -> None:
    folder = fast_path / "files"
    folder.mkdir()
    for number, row in enumerate(THREE.to_batches(max_chunksize=1)):
        pl.DataFrame(pl.from_arrow(row)).write_parquet(folder / f"{number}.parquet")
    sources: list[Any] = [
        pl.scan_parquet(folder), pyarrow.dataset.dataset(folder), pyarrow.dataset.dataset(folder).scanner(),
    ]  # fmt: skip
    for source in sources:
        table = Table.create("t", THREE.schema, key="id", opening=Opening(store=MemoryStore()))
        assert table.upsert(source).rows == 3
        with table.transaction() as tx:
            tx.delete(source)
        assert table.count() == 0


@pytest.mark.parametrize("paths", ["a.csv", Path("a.parquet"), ["a.csv", Path("b.csv")]], ids=["text", "path", "list"])
def test_paths_are_told_how_files_are_read(paths: Any) -> None:
    table = Table.create("t", THREE.schema, key="id", opening=Opening(store=MemoryStore()))
    with pytest.raises(InvalidInputError, match=r"crdt_mor\.read_files\(paths\).*a\."):
        table.upsert(paths)
    assert table.count() == 0


@pytest.mark.parametrize("name", METHODS)
def test_table_with_a_name_of_another_system_names_the_method_to_use(events: Table, name: str) -> None:
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'\. Use table\.") as refused:
        getattr(events, name)
    assert refused.value.name == name
    for instead in re.findall(r"(\w[\w.]*)\(", str(refused.value)):
        found: object = events
        for part in instead.removeprefix("table.").split("."):
            found = getattr(found, part)
        assert callable(found)


def test_table_with_an_unknown_name_raises_a_plain_attribute_error(events: Table) -> None:
    with pytest.raises(AttributeError, match=r"^'Table' object has no attribute 'no_such_thing'$"):
        getattr(events, "no_such_thing")  # noqa: B009
    assert not hasattr(events, "__iter_rows__")
