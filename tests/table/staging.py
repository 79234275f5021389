"""Writes that are staged in parts, and the tables that tests write them to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from crdt_mor import PartialUpdate
from crdt_mor.log import paths
from crdt_mor.parts import Receipt, WriteJob
from crdt_mor.payloads import Counter, Max
from tests.table.helpers import Place, files, frame, sent

STAGED = f"{paths.STAGED}/"

TABLES: dict[str, dict[str, object]] = {
    "latest": {},
    "partitioned": {"partition_by": "region"},
    "ordering": {"ordering": "n"},
    "partial": {"merge": PartialUpdate()},
    "payloads": {"merge": {"n": Counter(), "price": Max()}},
}
PARTS = [
    frame(("a", "eu", 1, 1.0), ("b", "eu", 5, 2.0), ("a", "eu", 2, 3.0), ("c", "us", 1, None)),
    frame(("b", "eu", 4, 4.0), ("d", "us", 7, 1.0), ("a", "eu", 2, 9.0)),
    frame(),
    frame(*((f"k{i}", "eu", i, float(i)) for i in range(40))),
]


def staged(job: WriteJob, parts: Sequence[pa.Table]) -> list[Receipt]:
    """Every part staged, the last first, each by a process of its own."""
    receipts = []
    for task in reversed(range(len(parts))):
        there = sent(job)
        assert isinstance(there, WriteJob)
        receipt = sent(there.stage(parts[task], task=task))
        assert isinstance(receipt, Receipt)
        receipts.append(receipt)
    return receipts


def leftovers(place: Place | str | Path) -> list[str]:
    return [name for name in files(place) if name.startswith((STAGED, ".hoodie/.heartbeat"))]
