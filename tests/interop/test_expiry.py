"""Hudi's Spark reader of a table whose rows expire: it shows them until a compaction, in logs and in base files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tests.interop.readers import HudiSpark, ours
from tests.interop.shapes import Maker

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("expires_at", pa.timestamp("us", "UTC"))])
PAST = datetime(2020, 1, 1, tzinfo=UTC)


def rows(**expiries: datetime | None) -> pa.Table:
    found = [{"id": key, "v": number, "expires_at": expiry} for number, (key, expiry) in enumerate(expiries.items())]
    return pa.Table.from_pylist(found, SCHEMA)


@pytest.mark.spark
@pytest.mark.parametrize("ordering", [None, "v"])
def test_expired_rows_are_shown_until_a_compaction(make: Maker, spark: HudiSpark, ordering: str | None) -> None:
    table = make.create(SCHEMA, ordering=ordering, ttl="expires_at")
    coming = datetime.now(UTC) + timedelta(days=1)
    table.upsert(rows(forever=None, gone=PAST, coming=coming))

    def read() -> set[str]:
        found = spark.read(make.root)
        shown = ours(table)
        assert {key: found[key] for key in shown} == shown
        return {key for _, key in found} - {key for _, key in shown}

    assert read() == {"gone"}
    table.maintenance.compact()
    assert read() == set()
    table.upsert(rows(forever=PAST, late=PAST))
    assert read() == {"forever", "late"}
    table.maintenance.compact()
    assert read() == set()
    assert {key for _, key in spark.read(make.root)} == {"coming"}
