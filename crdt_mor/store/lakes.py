"""Tables of other formats, known by the files that each of them begins with, so that nobody writes into one by mistake.

    Delta Lake       _delta_log/00000000000000000000.json, or a checkpoint
    Apache Iceberg   metadata/….metadata.json
    Lance            _versions/….manifest
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from crdt_mor.store.base import Store


@dataclass(frozen=True, slots=True)
class Lake:
    """A format that is not ours.

    folder, endings: where its tables have files that end like this. rows: Python that reads the rows of one, as Arrow.
    """

    name: str
    folder: str
    endings: tuple[str, ...]
    rows: str

    def advice(self, uri: str) -> str:
        """How to bring the rows over. The other table stays as it is."""
        return (
            f"make a table in another folder and bring its rows over: rows = {self.rows.format(uri=uri)}; "
            "table = Table.create(elsewhere, rows, key=...); table.upsert(rows)"
        )


LAKES: Final = (
    Lake("Delta Lake", "_delta_log", (".json", ".parquet"), "deltalake.DeltaTable({uri!r}).to_pyarrow_table()"),
    Lake(
        "Apache Iceberg", "metadata", (".metadata.json",),
        "pyiceberg.table.StaticTable.from_metadata(the newest file of metadata/*.metadata.json).scan().to_arrow()",
    ),
    Lake("Lance", "_versions", (".manifest",), "lance.dataset({uri!r}).to_table()"),
)  # fmt: skip


def lake_in(store: Store) -> Lake | None:
    """The format of the table that another engine keeps in a store; None where there is none that is known here."""
    for lake in LAKES:
        if any(stat.path.endswith(lake.endings) for stat in store.list(lake.folder)):
            return lake
    return None
