"""Stores allow one change of a name in a second: no name is put by all processes, and a crowd meets no error."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from crdt_mor import Opening, Table
from tests.hot_names import HotBucket, VirtualEnvironment, VirtualTime
from tests.tiers import slow

SCHEMA = pa.schema([("id", pa.int64())])
OF_AN_EVENT = re.compile(
    r"table/\.hoodie/(\.crdt_mor/(timeline|segments)/[0-9]{20}[^/]*\.json|timeline/[0-9]{17}[0-9_]*\.deltacommit(\.[a-z]+)?)"
)
"""Objects of one version or one commit, which those put, if absent, that race for it or help it."""


@pytest.mark.parametrize("writers", [4, slow(90)])
def test_writers_at_once_in_a_store_with_hot_names_meet_no_error(writers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    time = VirtualTime()
    bucket, failures = HotBucket(time), list[BaseException]()

    def opened(number: int) -> Table:
        environment = VirtualEnvironment(time, f"writer {number}")
        return Table("s3://hot/table", opening=Opening(store=bucket.store(environment), environment=environment))

    def write(number: int) -> None:
        try:
            table = opened(number)
            table.upsert(pa.table({"id": [number]}, SCHEMA))
            if number % 4 == 0:
                with table.transaction() as tx:
                    tx.upsert(pa.table({"id": [-number]}, SCHEMA))
        except BaseException as error:  # noqa: BLE001  told below
            failures.append(error)

    with bucket.serving():
        environment = VirtualEnvironment(time, "creator")
        store = bucket.store(environment)
        monkeypatch.setattr(store, "probe", lambda: None)  # which races for names on purpose
        table = Table.create(
            "s3://hot/table", SCHEMA, key="id", buckets=1, opening=Opening(store=store, environment=environment)
        )
        time.run([lambda number=number: write(number) for number in range(1, writers + 1)])  # type: ignore[misc]
        assert failures == []
        written = [*range(1, writers + 1), *(-number for number in range(4, writers + 1, 4))]
        assert sorted(table.to_arrow()["id"].to_pylist()) == sorted(written)
    shared = {name for name, processes in bucket.changed.items() if len(processes) > 1}
    assert sorted(name for name in shared if not OF_AN_EVENT.fullmatch(name)) == []
    assert sum("/clock-" in name for name in bucket.changed) > 1
