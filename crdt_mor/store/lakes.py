"""Recognise tables of other formats, so that nobody writes into them by mistake.

Delta Lake       _delta_log/00000000000000000000.json, or a checkpoint
Apache Iceberg   metadata/….metadata.json
Lance            _versions/….manifest
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from crdt_mor.store.protocol import Store, side_by_side


@dataclass(frozen=True, slots=True)
class Lake:
    """Another table format.

    folder, endings: its tables contain such files. rows: Python expression for a first load.
    """

    name: str
    folder: str
    endings: tuple[str, ...]
    rows: str

    def advice(self, uri: str) -> str:
        """Return how to copy the rows. The other table stays as it is."""
        return (
            "copy its rows into a table in another folder: Table.create_from(elsewhere, "
            f"{self.rows.format(uri=uri)}, key=...)"
        )


LAKES: Final = (
    Lake("Delta Lake", "_delta_log", (".json", ".parquet"), "{uri!r}"),
    Lake("Apache Iceberg", "metadata", (".metadata.json",), "{uri!r}"),
    Lake("Lance", "_versions", (".manifest",), "lance.dataset({uri!r}).to_table()"),
)


def lake_in(store: Store) -> Lake | None:
    listings = side_by_side(store, [partial(store.list, lake.folder) for lake in LAKES])
    for lake, listed in zip(LAKES, listings, strict=True):
        if any(stat.path.endswith(lake.endings) for stat in listed):
            return lake
    return None
