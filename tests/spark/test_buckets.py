"""Spark and a table in a bucket: batches, a sink and a source of streams, on workers with keys of their own."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.payloads import Counter
from tests import servers
from tests.spark.counting import SCHEMA, feed, ones, total
from tests.spark.helpers import listed, read
from tests.spark.sessions import CLUSTER, Sessions
from tests.store import vending

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server() -> servers.Server:
    return servers.s3()


@pytest.fixture
def table(server: servers.Server) -> Table:
    """A table in S3, in which a row that counted twice would show."""
    return Table.create(server.address(), SCHEMA, key="id", merge={"n": Counter()}, storage_options=server.options)


def stored(server: servers.Server) -> dict[str, str]:
    """The options of Spark that lead a driver to the store, with the keys."""
    return {f"storage.{name}": value for name, value in server.options.items()}


@pytest.fixture
def spark(sessions: Sessions) -> Any:
    """Workers in processes of their own. In their environment are the keys of S3, and all that leads to Azure."""
    variables = dict(servers.AWS_KEYS)
    with suppress(pytest.skip.Exception):  # no Azure here: the test that needs it is skipped
        variables |= {**servers.azure().options, "azure_allow_http": "true"}
    return sessions.on(CLUSTER, **{f"spark.executorEnv.{name.upper()}": value for name, value in variables.items()})


def test_batches_are_written_and_read(spark: Any, server: servers.Server, table: Table) -> None:
    options = stored(server)
    ones(spark).write.format("crdt_mor").options(**options).mode("append").save(table.uri)
    assert total(table) == 100
    assert listed(read(spark, table.uri, **options)) == listed(table.scan())
    table.maintenance.compact()
    ones(spark).write.format("crdt_mor").options(**options).mode("append").save(table.uri)
    assert listed(read(spark, table.uri, **options)) == listed(table.scan())
    few = read(spark, table.uri, filter="id < 3", columns="n", **options)
    assert listed(few) == [(10,), (10,), (10,)]


def test_functions_take_the_options_of_the_store(spark: Any, server: servers.Server, table: Table) -> None:
    from crdt_mor.readers.spark import compact, upsert

    upsert(ones(spark), table.uri, storage_options=server.options)
    upsert(ones(spark), table.uri, storage_options=server.options)
    before = listed(table.scan())
    compact(spark, table.uri, storage_options=server.options)
    assert total(table) == 200
    assert listed(table.scan()) == before
    assert set(table.inspect.files()["kind"].to_pylist()) == {"base"}


def test_each_batch_of_a_stream_is_a_commit_and_a_repeated_one_is_none(
    spark: Any, server: servers.Server, table: Table, tmp_path: Path
) -> None:
    def run() -> None:
        stream = spark.readStream.schema("id long, n long").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
        sink = stream.writeStream.format("crdt_mor").options(**stored(server))
        sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        sink.start(table.uri).awaitTermination()

    for number in range(2):
        feed(tmp_path, number)
    run()
    assert total(table) == 20
    # As if the driver had died after its commit, before Spark noted that the batch was done.
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink()
    feed(tmp_path, 2)
    run()
    assert total(table) == 30


def test_a_stream_follows_a_table(spark: Any, server: servers.Server, table: Table, tmp_path: Path) -> None:
    seen: list[tuple[object, ...]] = []

    def run() -> None:
        source = spark.readStream.format("crdt_mor").options(**stored(server)).load(table.uri)
        sink = source.writeStream.foreachBatch(lambda frame, _: seen.extend(listed(frame.select("id", "n"))))
        sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        sink.start().awaitTermination()

    table.upsert(pa.table({"id": [1, 2], "n": [1, 1]}, schema=SCHEMA))
    run()
    assert seen == [(1, 1), (2, 1)]
    table.upsert(pa.table({"id": [2], "n": [5]}, schema=SCHEMA))
    run()
    assert seen == [(1, 1), (2, 1), (2, 6)]


def test_all_that_leads_to_the_store_may_be_in_the_environment_of_the_workers(spark: Any) -> None:
    there = servers.azure()
    table = Table.create(there.address(), SCHEMA, key="id", merge={"n": Counter()}, storage_options=there.options)
    ones(spark).write.format("crdt_mor").mode("append").save(table.uri)
    assert listed(read(spark, table.uri)) == listed(table.scan())
    assert total(table) == 100


def test_a_worker_without_a_key_says_what_to_set(spark: Any, server: servers.Server, table: Table) -> None:
    table.upsert(pa.table({"id": [1], "n": [1]}, schema=SCHEMA))
    options = stored(server) | {"storage.aws_session_token": "which-no-worker-has"}
    with pytest.raises(Exception, match=r"set them where this process runs.*AWS_SESSION_TOKEN") as raised:
        read(spark, table.uri, **options).collect()
    said = str(raised.value)
    assert not [value for value in ("which-no-worker-has", *servers.AWS_KEYS.values()) if value in said]


@pytest.fixture
def keyless(sessions: Sessions, tmp_path: Path) -> Any:
    """Workers without a key in their environment, and Spark's log of its events in a folder."""
    (tmp_path / "events").mkdir()
    log: dict[str, Any] = {"spark.eventLog.enabled": True, "spark.eventLog.compress": False}
    # Spark keeps the variables of the session before.
    log |= {f"spark.executorEnv.{name.upper()}": "" for name in servers.AWS_KEYS}
    yield sessions.on(CLUSTER, **log, **{"spark.eventLog.dir": f"file://{tmp_path / 'events'}"})
    sessions.stop()


def test_workers_import_a_credential_provider_by_its_name(
    keyless: Any, server: servers.Server, table: Table, tmp_path: Path
) -> None:
    from crdt_mor.readers.spark import compact, upsert

    reached = {name: value for name, value in server.options.items() if name not in servers.AWS_KEYS}
    provided = {**reached, "credential_provider": vending.of_obstore}
    upsert(ones(keyless), table.uri, storage_options=provided)
    compact(keyless, table.uri, storage_options=provided)
    named = {f"storage.{name}": value for name, value in reached.items()}
    named["storage.credential_provider"] = "tests.store.vending:of_polars"
    ones(keyless).write.format("crdt_mor").options(**named).mode("append").save(table.uri)
    assert total(table) == 200
    assert listed(read(keyless, table.uri, **named)) == listed(table.scan())
    keyless.stop()
    logged = "".join(file.read_text() for file in (tmp_path / "events").rglob("*") if file.is_file())
    assert "SparkListenerJobEnd" in logged
    assert not [secret for secret in servers.AWS_KEYS.values() if secret in logged]
