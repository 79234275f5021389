"""Tables of other formats, known by the files that each of them begins with, so that nobody writes into one by mistake.

Delta Lake       _delta_log/00000000000000000000.json, or a checkpoint
Apache Iceberg   metadata/….metadata.json
Lance            _versions/….manifest
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from crdt_mor.store.protocol import Store


@dataclass(frozen=True, slots=True)
class Lake:
    """A format that is not ours.

    folder, endings: where its tables have files that end like this. rows: Python that a first load takes the rows from.
    """

    name: str
    folder: str
    endings: tuple[str, ...]
    rows: str

    def advice(self, uri: str) -> str:
        """How to bring the rows over. The other table stays as it is."""
        return (
            "make a table in another folder with its rows, Table.create_from(elsewhere, "
            f"{self.rows.format(uri=uri)}, key=...)"
        )


LAKES: Final = (
    Lake("Delta Lake", "_delta_log", (".json", ".parquet"), "{uri!r}"),
    Lake("Apache Iceberg", "metadata", (".metadata.json",), "{uri!r}"),
    Lake("Lance", "_versions", (".manifest",), "lance.dataset({uri!r}).to_table()"),
)


def lake_in(store: Store) -> Lake | None:
    """The format of the table that another engine keeps in a store; None where there is none that is known here."""
    for lake in LAKES:
        if any(stat.path.endswith(lake.endings) for stat in store.list(lake.folder)):
            return lake
    return None
