"""Entries in Glue of tables in a bucket, on a server of moto."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pytest
from typer.testing import CliRunner

from crdt_mor import Table
from crdt_mor.cli.main import app
from tests.serving import OneAtATime

pytestmark = pytest.mark.slow

OPTIONS = {"aws_allow_http": "true"}


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket. pyiceberg knows its server by the options of the catalog `glue`."""
    moto = pytest.importorskip("moto.moto_server.threaded_moto_server")
    dispatcher = moto.DomainDispatcherApplication
    monkeypatch.setattr(moto, "DomainDispatcherApplication", lambda make: OneAtATime(dispatcher(make)))
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    boto3 = pytest.importorskip("boto3")
    config = pytest.importorskip("pyiceberg.utils.config").Config
    server.start()
    try:
        host, port = server.get_host_and_port()
        address = f"http://{host}:{port}"
        for name in ("AWS_ENDPOINT_URL", "PYICEBERG_CATALOG__GLUE__S3__ENDPOINT"):
            monkeypatch.setenv(name, address)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "x")
        for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
            monkeypatch.setenv(name, "us-east-1")
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", config())
        boto3.client("s3").create_bucket(Bucket="lake")
        yield "s3://lake"
    finally:
        server.stop()


def command(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--storage", "aws_allow_http=true"])
    assert result.exit_code == 0, result.output
    return result.stdout + result.stderr


def test_a_table_in_a_bucket_is_found_by_both_entries(bucket: str) -> None:
    uri = f"{bucket}/events"
    table = Table.create(uri, {"id": pl.String, "n": pl.Int64}, key="id", buckets=1, storage_options=OPTIONS)
    for key, action in (("a", "registered"), ("b", "moved")):
        table.upsert(pl.DataFrame({"id": [key], "n": [1]}))
        assert action in command("register", uri, "lake.events", "--glue")
    assert "registered" in command("register", uri, "lake.hudi", "--glue", "--as", "hudi")
    for name in ("events", "hudi"):
        opened = Table(f"glue://lake/{name}", storage_options=OPTIONS)
        assert (opened.uri, opened.count()) == (uri, 2)
        assert command("count", f"glue://lake/{name}").split()[0] == "2"
