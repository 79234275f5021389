"""A topic of Kafka is applied: on the broker that the client brings for tests, in this process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor.cdc.kafka import consume
from crdt_mor.cli.main import app
from crdt_mor.errors import StorageUnavailableError

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
TOPIC = "shop.public.orders"


class Broker:
    """A mock of librdkafka with two partitions, which the producer holds."""

    def __init__(self) -> None:
        kafka = pytest.importorskip("confluent_kafka", reason="pip install confluent-kafka")
        settings = {"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "test.mock.broker.rtt": 0}
        self._producer = kafka.Producer(settings)
        [broker] = self._producer.list_topics(timeout=10).brokers.values()
        self.address = f"{broker.host}:{broker.port}"

    def send(self, partition: int, *events: dict[str, Any] | None) -> None:
        for event in events:
            value = None if event is None else json.dumps(event)
            self._producer.produce(TOPIC, value, key=b"null", partition=partition)
        assert self._producer.flush(10) == 0


def event(op: str, id: int, name: str = "") -> dict[str, Any]:
    row = {"id": id, "name": name}
    return {"op": op, "before": row if op == "d" else None, "after": None if op == "d" else row, "source": {}}


@pytest.fixture(scope="module")
def broker() -> Broker:
    return Broker()


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return mor.Table.create(tmp_path / "orders", SCHEMA, key="id", merge=mor.PartialUpdate(), buckets=1).uri


def rows(uri: str) -> list[tuple[Any, ...]]:
    return sorted(mor.Table(uri).to_polars().rows())


@pytest.mark.slow
def test_each_event_of_each_partition_counts_once(broker: Broker, uri: str) -> None:
    broker.send(0, event("c", 1, "a"), event("c", 3, "c"), event("u", 1, "b"))
    broker.send(1, event("c", 2, "x"), event("d", 2), None, event("c", 4, "d"))
    done = [*consume(broker.address, TOPIC, uri, once=True)]
    assert {source: position for one in done for source, position in one.positions.items()} == {
        f"{TOPIC}-0": 2,
        f"{TOPIC}-1": 3,
    }
    assert rows(uri) == [(1, "b"), (3, "c"), (4, "d")]
    version = mor.Table(uri).version
    assert [*consume(broker.address, TOPIC, uri, once=True, group="another")] == []
    assert mor.Table(uri).version == version
    broker.send(1, event("u", 4, "e"))
    words = ["cdc", "kafka", broker.address, uri, "--topic", TOPIC, "--once", "--output", "json"]
    result = CliRunner().invoke(app, words)
    want = {"rows": 1, "deletes": 0, "truncations": 0, "skipped": 0, "positions": {f"{TOPIC}-1": 4}}
    assert json.loads(result.stdout) == want
    assert rows(uri) == [(1, "b"), (3, "c"), (4, "e")]


@pytest.mark.slow
def test_a_broker_that_refuses_is_an_error(uri: str) -> None:
    pytest.importorskip("confluent_kafka", reason="pip install confluent-kafka")
    settings = {"security.protocol": "nonsense"}
    with pytest.raises(StorageUnavailableError, match="nonsense"):
        next(consume("localhost:1", TOPIC, uri, settings=settings))


def test_a_missing_client_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(mor.InvalidInputError, match=r"crdt-mor\[kafka\]"):
        next(consume("kafka:9092", TOPIC, "orders"))
