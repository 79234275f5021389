"""Spark and a table in a bucket: batches, a sink and a source of streams, on workers with keys of their own."""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.payloads import Counter
from tests import servers
from tests.proxy import Proxy
from tests.spark.counting import SCHEMA, feed, ones, total
from tests.spark.helpers import listed, read
from tests.spark.sessions import CLUSTER, Sessions
from tests.store import vending

pytestmark = pytest.mark.spark

UNANSWERED = "the store did not answer correctly until the deadline"


@pytest.fixture(scope="module")
def server() -> servers.Server:
    return servers.s3()


@pytest.fixture
def table(server: servers.Server) -> Table:
    """A table in S3, in which a row that counted twice would show."""
    return Table.create(server.address(), SCHEMA, key="id", merge={"n": Counter()}, storage_options=server.options)


def stored(options: Mapping[str, str]) -> dict[str, str]:
    """The options of Spark that lead to a store: all but the keys, which are in the environment of the workers."""
    return {f"storage.{name}": value for name, value in options.items() if name not in servers.AWS_KEYS}


@pytest.fixture
def spark(sessions: Sessions) -> Any:
    """Workers in processes of their own. In their environment are the keys of S3, and all that leads to Azure."""
    variables = dict(servers.AWS_KEYS)
    with suppress(pytest.skip.Exception):  # no Azure here: the test that needs it is skipped
        variables |= {**servers.azure().options, "azure_allow_http": "true"}
    return sessions.on(CLUSTER, **{f"spark.executorEnv.{name.upper()}": value for name, value in variables.items()})


def test_batches_are_written_and_read(spark: Any, server: servers.Server, table: Table) -> None:
    options = stored(server.options)
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
        sink = stream.writeStream.format("crdt_mor").options(**stored(server.options))
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
        source = spark.readStream.format("crdt_mor").options(**stored(server.options)).load(table.uri)
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
    from crdt_mor.readers.spark import upsert

    options = {**server.options, "aws_session_token": "which-no-worker-has"}
    with pytest.raises(Exception, match=r"Set the variables in its environment.*AWS_SESSION_TOKEN") as raised:
        upsert(ones(spark), table.uri, storage_options=options)
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
    named = {**stored(reached), "storage.credential_provider": "tests.store.vending:of_polars"}
    ones(keyless).write.format("crdt_mor").options(**named).mode("append").save(table.uri)
    assert total(table) == 200
    assert listed(read(keyless, table.uri, **named)) == listed(table.scan())
    with pytest.raises(Exception, match="Set the variables in its environment"):
        upsert(ones(keyless), table.uri, storage_options=server.options)
    keyless.stop()
    logged = "".join(file.read_text() for file in (tmp_path / "events").rglob("*") if file.is_file())
    assert "SparkListenerJobEnd" in logged
    assert not [secret for secret in servers.AWS_KEYS.values() if secret in logged]


# --- a bucket that dies -----------------------------------------------------------------------------------------------


class Mortal(Proxy):
    """A way to the server that lives until a request is the one it `dies_at`, and from then on answers 503 to all."""

    dies_at: Callable[[str, str], bool] = staticmethod(lambda method, path: False)
    is_dead = False

    def fate(self, method: str, path: str) -> tuple[str, int]:
        """Left alone, or refused with the first of the answers, 503."""
        self.is_dead = self.is_dead or self.dies_at(method, path)
        return ("refused", 0) if self.is_dead else ("", 0)

    def mend(self) -> None:
        """Live for good."""
        self.dies_at, self.is_dead = (lambda method, path: False), False


@pytest.fixture
def mortal(server: servers.Server) -> Iterator[Mortal]:
    proxy = Mortal(server.port)
    with proxy.running():
        yield proxy


def impatient(server: servers.Server, mortal: Mortal) -> dict[str, str]:
    """The options of a store that is reached through a mortal way, and of which no request is repeated for long."""
    return {**server.through(mortal.port).options, "retry_timeout": "500ms"}


def staging(method: str, path: str) -> bool:
    return method == "PUT" and "/staged/" in path


def committing(method: str, path: str) -> bool:
    """What the driver puts when all tasks have staged their files: first the log files, under their own names."""
    return method == "PUT" and ".log." in path and "/staged/" not in path


def saves(frame: Any, table: Table, options: dict[str, str]) -> None:
    named = stored(options) | {"txnAppId": "load", "txnVersion": "1"}
    frame.write.format("crdt_mor").options(**named).mode("append").save(table.uri)


def upserts(frame: Any, table: Table, options: dict[str, str]) -> None:
    from crdt_mor.readers.spark import upsert

    upsert(frame, table.uri, token=("load", 1), storage_options=options)


@pytest.mark.parametrize(
    ("write", "dies_at"),
    [(saves, lambda method, path: True), (saves, staging), (upserts, committing)],
    ids=["before all", "while tasks stage", "before the commit"],
)
def test_a_write_to_a_bucket_that_dies_fails_with_our_words_and_counts_once_when_it_is_repeated(
    spark: Any, server: servers.Server, table: Table, mortal: Mortal, write: Any, dies_at: Callable[[str, str], bool]
) -> None:
    options, before = impatient(server, mortal), table.history().num_rows
    mortal.dies_at = dies_at
    with pytest.raises(Exception, match=UNANSWERED):
        write(ones(spark), table, options)
    assert mortal.is_dead
    assert (total(table), table.history().num_rows) == (0, before), "nothing is published"
    mortal.mend()
    for _ in range(2):
        write(ones(spark), table, options)
        assert total(table) == 100


@pytest.mark.parametrize("reads", [1, 2], ids=["before the driver has looked", "while tasks read"])
def test_a_read_of_a_bucket_that_dies_fails_with_our_words(
    spark: Any, server: servers.Server, table: Table, mortal: Mortal, reads: int
) -> None:
    """reads: the bucket dies when a data file is read for the first time, by the driver, or again, by a task."""
    table.upsert(pa.table({"id": [1, 2], "n": [1, 1]}, schema=SCHEMA))
    options = stored(impatient(server, mortal))
    frame, seen = read(spark, table.uri, **options), Counted[str]()

    def dies_at(method: str, path: str) -> bool:
        seen[path] += 1
        return ".log." in path and seen[path] == reads

    mortal.dies_at = dies_at
    with pytest.raises(Exception, match=UNANSWERED):
        frame.collect()
    assert mortal.is_dead
    mortal.mend()
    assert listed(read(spark, table.uri, **options)) == [(1, 1), (2, 1)]


# --- a bucket that no table may be in ---------------------------------------------------------------------------------


def test_nothing_is_written_to_a_table_of_hudis_where_several_puts_win(spark: Any, server: servers.Server) -> None:
    """Spark makes no table here, but its first write to a table of Hudi's is as the making of one."""
    uri = server.address()
    store = server.store(uri)
    properties = (
        "hoodie.table.name=t\nhoodie.table.type=MERGE_ON_READ\nhoodie.table.version=9\n"
        "hoodie.table.recordkey.fields=id\nhoodie.timeline.layout.version=2\nhoodie.bucket.index.num.buckets=2\n"
        "hoodie.table.timeline.timezone=UTC\n"
    )
    store.put(".hoodie/hoodie.properties", properties.encode())
    deaf = Proxy(server.port, unheard=frozenset({"if-none-match"}))
    said = r"let several of 16 simultaneous conditional puts of one object succeed.*If-None-Match"
    with deaf.running():
        writer = (
            ones(spark).write.format("crdt_mor").options(**stored(server.through(deaf.port).options)).mode("append")
        )
        with pytest.raises(Exception, match=said):
            writer.save(uri)
    assert [stat.path for stat in (*store.walk(""), *store.walk(".hoodie"))] == [".hoodie/hoodie.properties"]
