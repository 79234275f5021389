"""The rows that differ between two moments, for the page: counts and the first rows of each change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

import pyarrow as pa

import crdt_mor as mor
from crdt_mor.cli import render
from crdt_mor.cli.keys import text_of
from crdt_mor.cli.python_values import records, values

READ_MAX: Final = 1_000_000
"""Images of changed rows to count."""

ROWS_MAX: Final = 100
"""Rows on the page, of each change."""

VALUES_MAX: Final = 50
"""Values of a row on the page."""

_TYPE, _BEFORE, _AFTER = "_change_type", "update_preimage", "update_postimage"

Row = dict[str, Any]


def differences_of(table: mor.Table, before: str, after: str) -> Row:
    """Return the number of rows by change, and the first rows of each change with values as text.

    is_all: all changed rows were counted.
    """
    first, last = mor.parse_point(before, name="before"), mor.parse_point(after, name="after")
    counts: Counter[str] = Counter()
    images: dict[str, list[Row]] = {"insert": [], _BEFORE: [], _AFTER: [], "delete": []}
    is_all = True
    with closing(table.diff(first, last).to_reader()) as reader:
        for batch in reader:
            is_all = counts.total() < READ_MAX
            if not is_all:
                break
            changes = values(batch[_TYPE])
            counts.update(changes)
            for change in dict.fromkeys(changes):
                found = images[change]
                places = [i for i, one in enumerate(changes) if one == change][: ROWS_MAX - len(found)]
                found += records(batch.take(pa.array(places, pa.int64())), maps_as_dicts=True)
    key = table.config.key
    updated = zip(images[_BEFORE], images[_AFTER], strict=False)  # both in the same order
    return {
        "counts": {"inserted": counts["insert"], "updated": counts[_AFTER], "deleted": counts["delete"]},
        "rows": [
            *(_shown("updated", earlier, row, key) for earlier, row in updated),
            *(_shown("inserted", None, row, key) for row in images["insert"]),
            *(_shown("deleted", row, None, key) for row in images["delete"]),
        ],
        "is_all": is_all,
    }


def _shown(change: str, earlier: Row | None, later: Row | None, key: Sequence[str]) -> Row:
    sides = {side: one for side, one in (("before", earlier), ("after", later)) if one is not None}
    row = [*sides.values()][-1]
    texts = {side: {name: render.plain_or_none(value) for name, value in one.items()} for side, one in sides.items()}
    names = [name for name in row if name not in key and name != _TYPE]
    if len(sides) > 1:
        names = [name for name in names if texts["before"][name] != texts["after"][name]]
    found = [{"name": name, **{side: of[name] for side, of in texts.items()}} for name in names]
    return {
        "change": change,
        "key": text_of([row[name] for name in key]),
        "values": found[:VALUES_MAX],
        "more": max(0, len(found) - VALUES_MAX),
    }
