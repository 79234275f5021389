"""Files, folders and other formats' tables in a bucket are sources of rows, through each door with the same options."""

from __future__ import annotations

import datetime as dt
import gzip
import io
from pathlib import Path
from typing import Any

import obstore
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import crdt_mor as mor
from crdt_mor.api.files_places import Places, iceberg_properties, providers_of
from crdt_mor.cli.main import app
from crdt_mor.store.options import shared
from tests import servers
from tests.store import vending
from tests.tiers import only

ROWS = pl.DataFrame({"id": [1, 2, 3], "v": ["a", "b", "c"]})


def written(frame: pl.DataFrame, ending: str) -> bytes:
    """The bytes of a file with these rows."""
    sink = io.BytesIO()
    match ending.removesuffix(".gz"):
        case ".parquet":
            frame.write_parquet(sink)
        case ".arrow":
            frame.write_ipc(sink, compat_level=pl.CompatLevel.oldest())
        case ".csv":
            frame.write_csv(sink)
        case ".jsonl":
            frame.write_ndjson(sink)
    return gzip.compress(sink.getvalue()) if ending.endswith(".gz") else sink.getvalue()


def put(server: servers.Server, address: str, data: bytes) -> None:
    folder, _, name = address.rpartition("/")
    assert server.store(folder).put(name, data)


@pytest.fixture
def landing(server: servers.Server) -> str:
    """A folder in a bucket with a file of each day, and what writers leave beside them."""
    folder = server.address("landing zone")
    for day, part in (("2026-01-01", ROWS.head(1)), ("2026-01-02", ROWS.slice(1))):
        put(server, f"{folder}/day={day}/part.parquet", written(part, ".parquet"))
    put(server, f"{folder}/_SUCCESS", b"")
    put(server, f"{folder}/_temporary/0.parquet", b"half a file")
    return folder


@pytest.mark.costly
@pytest.mark.parametrize(
    "ending", only([".parquet", ".csv.gz"], [".parquet", ".arrow", ".csv", ".csv.gz", ".jsonl", ".jsonl.gz"])
)
def test_a_file_in_a_bucket_is_read_as_one_on_a_disk(server: servers.Server, ending: str) -> None:
    address = f"{server.address('files')}/a file{ending}"
    put(server, address, written(ROWS, ending))
    rows = mor.read_files(address, storage_options=server.options)
    assert pl.DataFrame(rows).rows() == ROWS.rows() == pl.DataFrame(rows).rows(), "as often as it is asked"
    table = mor.Table.create_from(
        server.address(), address, key="id", schema={"id": pl.Int64, "v": pl.String}, storage_options=server.options
    )
    assert sorted(table.to_polars().rows()) == ROWS.rows()


def test_patterns_fit_objects_as_they_fit_files(server: servers.Server, tmp_path: Path) -> None:
    root = server.address("in")
    names = ["a.csv", "b.csv", "c.txt", "sub/d.csv", "sub/deep/e.csv", ".hidden.csv", "[x].csv"]
    for name in names:
        put(server, f"{root}/{name}", b"id\n1\n")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("id\n1\n")
    places = Places(server.options)
    patterns = "*.csv [ab].csv **/*.csv */*.csv sub/**/*.csv sub/** [[]x].csv none*.csv .*.csv"
    for pattern in patterns.split():
        here = [path.removeprefix(f"{tmp_path}/") for path in places.matching(f"{tmp_path}/{pattern}")]
        there = [path.removeprefix(f"{root}/") for path in places.matching(f"{root}/{pattern}")]
        assert sorted(there) == sorted(here), pattern


@pytest.mark.slow
def test_a_folder_or_a_pattern_in_a_bucket_is_loaded_with_the_columns_of_its_levels(
    server: servers.Server, landing: str
) -> None:
    expected = [(1, "a", dt.date(2026, 1, 1)), (2, "b", dt.date(2026, 1, 2)), (3, "c", dt.date(2026, 1, 2))]
    for source in (landing, f"{landing}/", f"{landing}/day=*/*.parquet"):
        table = mor.Table.create_from(
            server.address(), source, key="id", partition_by="day", storage_options=server.options
        )
        assert sorted(table.to_polars().select("id", "v", "day").rows()) == expected


def test_a_table_on_a_disk_is_loaded_from_a_bucket(server: servers.Server, landing: str, tmp_path: Path) -> None:
    source = f"{landing}/day=2026-01-01/part.parquet"
    table = mor.Table.create_from(tmp_path / "t", source, key="id", storage_options=server.options)
    assert table.to_polars().rows() == [(1, "a")]


def test_a_source_and_a_table_at_two_providers_share_the_options() -> None:
    both = {"aws_region": "eu-west-1", "azure_storage_account_name": "acc", "retry_timeout": "2m"}
    assert shared(both, "s3", ["azure"]) == {"aws_region": "eu-west-1", "retry_timeout": "2m"}
    assert shared(both, "azure", ["s3"]) == {"azure_storage_account_name": "acc", "retry_timeout": "2m"}
    assert shared(both, "s3", []) == both, "an option of nobody is refused by its name"
    assert providers_of(["s3://lake/a", "az://c/b", "/local"]) == {"s3", "azure"}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{root}/nothing.parquet", "there is no such file"),
        ("{root}/none*.parquet", "there is no such file"),
        ("{root}", "folder of its own|no such file"),
        ("hdfs://n/x.parquet", "unknown kind of address"),
        ("s3://key:hidden@lake/x.parquet", "remove user"),
    ],
)
def test_a_source_that_is_not_there_is_told(server: servers.Server, source: str, words: str) -> None:
    root = server.address()
    with pytest.raises(mor.InvalidInputError, match=words) as raised:
        mor.Table.create_from(root, source.format(root=root), key="id", storage_options=server.options)
    assert "hidden" not in str(raised.value)
    with pytest.raises(mor.InvalidInputError):
        mor.read_files(source.format(root=root), storage_options=server.options)


def test_what_is_wrong_with_a_bucket_is_told_as_of_a_table(server: servers.Server) -> None:
    with pytest.raises(mor.errors.StorageRefusedError, match="there is no such"):
        mor.read_files(f"{server.address().split('://')[0]}://no-such-place/x.csv", storage_options=server.options)


def test_only_what_is_read_of_a_file_is_fetched(server: servers.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"{server.address()}/large.parquet"
    frame = pl.DataFrame({"id": range(200_000)}).with_columns(v=pl.col("id").hash().cast(pl.String))
    put(server, address, written(frame, ".parquet"))
    fetched, get_ranges = list[int](), obstore.get_ranges

    def counted(*arguments: Any, **keywords: Any) -> Any:
        fetched.extend(keywords["lengths"])
        return get_ranges(*arguments, **keywords)

    monkeypatch.setattr(obstore, "get_ranges", counted)
    assert mor.read_files(address, storage_options=server.options).schema.names == ["id", "v"]
    assert sum(fetched) < 100_000, "the columns of a file are in its footer"


# --- the command line -------------------------------------------------------------------------------------------------


def run(server: servers.Server, *arguments: str, code: int = 0) -> Result:
    words = [word for name, value in server.options.items() for word in ("--storage", f"{name}={value}")]
    done = CliRunner().invoke(app, [*arguments, *words])
    assert done.exit_code == code, done.output
    return done


@pytest.mark.slow
def test_commands_take_addresses(server: servers.Server, landing: str, tmp_path: Path) -> None:
    uri = server.address()
    run(server, "create-from", uri, landing, "--key", "id")
    put(server, f"{landing}/more.csv", b"id,v,day\n4,d,2026-01-03\n")
    run(server, "upsert", uri, f"{landing}/*.csv")
    (tmp_path / "five.csv").write_text("id,v,day\n5,e,2026-01-04\n")
    run(server, "append", uri, str(tmp_path / "five.csv"))
    run(server, "upsert", uri, landing)
    table = mor.Table(uri, storage_options=server.options)
    assert sorted(table.to_polars()["id"]) == [1, 2, 3, 4, 5]
    assert "there is no such file" in run(server, "upsert", uri, f"{landing}/none.csv", code=1).stderr
    refused = run(server, "upsert", uri, f"{landing}/more.csv", "--input-format", "csv", code=2).output
    assert "omit --input-format" in " ".join(refused.replace("│", " ").split())


# --- other formats ----------------------------------------------------------------------------------------------------


def with_a_provider(server: servers.Server) -> dict[str, Any]:
    """The options of a server, whose keys a provider gives."""
    kept = {name: value for name, value in server.options.items() if name not in servers.AWS_KEYS}
    return {**kept, "credential_provider": vending.of_obstore}


def test_a_delta_table_in_a_bucket_is_loaded() -> None:
    deltalake = pytest.importorskip("deltalake", reason="the extra `delta` is not installed")
    server = servers.s3()
    address = server.address("delta")
    options = {**server.options, "aws_conditional_put": "etag"}
    deltalake.write_deltalake(address, ROWS.to_arrow(), storage_options=options)
    for given in (server.options, with_a_provider(server)):
        table = mor.Table.create_from(server.address(), address, key="id", storage_options=given)
        assert sorted(table.to_polars().rows()) == ROWS.rows()
    run(server, "upsert", table.uri, address)
    assert table.count() == 3


def test_an_iceberg_table_in_a_bucket_is_loaded(tmp_path: Path) -> None:
    sql = pytest.importorskip("pyiceberg.catalog.sql", reason="the extra `iceberg` is not installed")
    server = servers.s3()
    address = server.address("iceberg")
    properties = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": address}
    catalog = sql.SqlCatalog("c", **properties, **iceberg_properties(server.options))
    catalog.create_namespace("n")
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "v": ["a", "b", "c"]})
    catalog.create_table("n.t", rows.schema, location=address).append(rows)
    for given in (server.options, with_a_provider(server)):
        table = mor.Table.create_from(server.address(), address, key="id", storage_options=given)
        assert sorted(table.to_polars().rows()) == ROWS.rows()
    run(server, "upsert", table.uri, address)
    assert table.count() == 3
