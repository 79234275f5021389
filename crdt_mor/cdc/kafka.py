"""Apply the change events of a Kafka topic.

The table's tokens decide where a consumer starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

from crdt_mor import InvalidInputError, Table
from crdt_mor.cdc.apply import Applied, apply
from crdt_mor.cdc.avro import Lookup, Schema
from crdt_mor.errors import StorageUnavailableError

EVENTS_MAX: Final = 10_000
_WAIT_S: Final = 0.5


def consume(
    servers: str,
    topic: str,
    uri: str,
    *,
    group: str | None = None,
    once: bool = False,
    avro_schema: Schema | Lookup | None = None,
    settings: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[Applied]:
    """Apply the events of a topic to a table; yield after each batch. See docs/cdc-postgres.md.

    Args:
        servers: "kafka:9092".
        uri: the table, which exists.
        group: the consumer group.
        once: end with the newest events.
        avro_schema: as for `apply`.
        settings: of librdkafka.
    """
    kafka = _driver()
    table = Table(uri, storage_options=storage_options)
    chosen = {
        "bootstrap.servers": servers,
        "group.id": group or f"crdt_mor_{topic}",
        "auto.offset.reset": "earliest",
        **(settings or {}),
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    with _failures_told(kafka), closing(kafka.Consumer(chosen)) as consumer:
        yield from _Consumption(kafka, consumer, table, avro_schema).run(topic, once)


def _driver() -> Any:
    try:
        import confluent_kafka
    except ImportError as error:
        raise InvalidInputError('Kafka needs confluent-kafka: run pip install "crdt-mor[kafka]"') from error
    return confluent_kafka


@contextmanager
def _failures_told(kafka: Any) -> Iterator[None]:
    try:
        yield
    except kafka.KafkaException as failed:
        error = failed.args[0]
        raise StorageUnavailableError(
            f"Kafka refused or did not answer: {error.str()}. Correct the cause and run it again: it continues after "
            f"the last commit. code={error.name()}"
        ) from failed


class _Consumption:
    def __init__(self, kafka: Any, consumer: Any, table: Table, avro_schema: Schema | Lookup | None) -> None:
        self._kafka, self._consumer, self._table, self._avro_schema = kafka, consumer, table, avro_schema
        self._partitions: set[int] = set()
        self._ended: set[int] = set()
        self._left: Sequence[Any] = ()

    def run(self, topic: str, once: bool) -> Iterator[Applied]:
        self._consumer.subscribe([topic], on_assign=self._assign)
        while True:
            events = self._events(self._consumer.consume(EVENTS_MAX, _WAIT_S))
            if events:
                done = apply(self._table, [*self._left, *events], avro_schema=self._avro_schema)
                self._left = done.left
                yield done
                self._commit(done.positions)
            elif once and self._partitions and self._partitions <= self._ended:
                return

    def _assign(self, consumer: Any, partitions: Sequence[Any]) -> None:
        tokens = self._table.inspect.tokens()
        last = dict(zip(tokens["application"].to_pylist(), tokens["number"].to_pylist(), strict=True))
        for partition in partitions:
            if (offset := last.get(f"{partition.topic}-{partition.partition}")) is not None:
                partition.offset = offset + 1
        self._left, self._ended = (), set()
        self._partitions = {partition.partition for partition in partitions}
        consumer.assign(partitions)

    def _events(self, messages: Sequence[Any]) -> list[Any]:
        events = []
        for message in messages:
            error = message.error()
            if error is None:
                self._ended.discard(message.partition())
                events.append(message)
            elif error.name() == "_PARTITION_EOF":
                self._ended.add(message.partition())
            elif not error.retriable():
                raise self._kafka.KafkaException(error)
        return events

    def _commit(self, positions: Mapping[str, int]) -> None:
        offsets = []
        for source, position in positions.items():
            topic, _, partition = source.rpartition("-")
            offsets.append(self._kafka.TopicPartition(topic, int(partition), position + 1))
        self._consumer.commit(offsets=offsets, asynchronous=True)
