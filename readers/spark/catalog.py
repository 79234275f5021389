"""Tables of Spark's catalog that stand for a crdt_mor table: detect omitted columns and stale catalog columns.

Spark fills the columns that an INSERT omits with their defaults or null, before a data source sees the rows. ALTER
TABLE changes only the catalog, and no data source is told. A data source sees only column metadata: Spark passes the
catalog's metadata with reads, and with writes if it casts, renames, reorders or fills in a column. So the columns are
marked when CREATE TABLE takes them into the catalog.

A catalog table made again from a frame lacks the marks. Then only the rows help: a filled-in column is null in every
row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructField, StructType

from crdt_mor import InvalidInputError
from crdt_mor.errors import SchemaMismatchError
from crdt_mor.parts import Receipt
from crdt_mor.readers.spark.failing import message_first
from crdt_mor.readers.spark.types import NEVER_NULL, check_schema
from crdt_mor.readers.spark.writing import BatchWriter, Planned, Staged

DEFAULT = "CURRENT_DEFAULT"
"""The metadata key under which Spark's catalog stores the default of a column."""

NO_DEFAULT = "raise_error('name every column: Spark would write null to those left out, and erase them')"
"""Spark refuses a default that is not constant when it plans the INSERT, and shows this text."""

STORED_COLUMN = "crdt_mor.column"
"""Column metadata: the format, a dot, and the column's name when the catalog took it in."""

ALL_COLUMNS = "crdt_mor.columns"
"""Metadata of the first column: the names of all columns at that time."""

MISSING = "missing"
"""The option of a write with the value `null`: nulls are intended where Spark may have filled them in."""


def marked(columns: StructType, name: str, key: tuple[str, ...]) -> StructType:
    """Mark the columns of a table for CREATE TABLE USING `name`, so that no INSERT may omit one.

    The key, if it is one column, is NOT NULL. Spark then casts it in every query with a nullable key and passes the
    marks on, also for queries with the same column names and types.
    """
    never_null = key if len(key) == 1 else ()
    fields: list[StructField] = []
    for field in columns:
        marks: dict[str, Any] = {STORED_COLUMN: f"{name}.{field.name}", DEFAULT: NO_DEFAULT}
        if not fields:
            marks[ALL_COLUMNS] = columns.names
        if field.name in never_null:
            marks[NEVER_NULL] = True
        fields.append(StructField(field.name, field.dataType, field.nullable and NEVER_NULL not in marks, marks))
    return StructType(fields)


# --- the catalog's columns --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Catalog:
    name: str
    address: str

    def check_read(self, asked: StructType, table: StructType) -> None:
        called = self._called(asked)
        if called:
            self._check_names(called, asked, table)
            self._check_types(asked, table)
        check_schema(asked, table)

    def explain_write(self, written: StructType, table: StructType) -> None:
        """Raise `SchemaMismatchError` if a write failed because the catalog's columns are not the table's."""
        called = self._called(written)
        if called:
            self._check_names(called, written, table)

    def _called(self, columns: StructType) -> dict[str, str]:
        """Return the columns' names when the catalog took them in. A frame may carry marks of other tables."""
        prefix = f"{self.name}."
        marks = ((field.name, field.metadata.get(STORED_COLUMN, "")) for field in columns)
        return {name: mark.removeprefix(prefix) for name, mark in marks if mark.startswith(prefix)}

    def _check_names(self, called: Mapping[str, str], asked: StructType, table: StructType) -> None:
        there = set(table.names)
        renamed = {was: name for name, was in called.items() if was != name and was in there}
        if renamed:
            raise SchemaMismatchError(
                "Spark's catalog has other names for columns than the table, as ALTER TABLE … RENAME COLUMN changes "
                f"the catalog alone: {self._made_anew}; or rename them in the table, "
                f"crdt_mor.Table({self.address!r}).alter(rename={renamed}). "
                f"catalog={asked.names} table={table.names}"
            )
        unknown = [name for name in asked.names if name not in there]
        if unknown:
            raise SchemaMismatchError(
                "Spark's catalog has columns that the table does not have, or has under another name by now: "
                f"{self._made_anew}. unknown={unknown} table={table.names}"
            )
        listed = [
            field.metadata[ALL_COLUMNS] for field in asked if ALL_COLUMNS in field.metadata and field.name in called
        ]
        kept = there - {*called.values()}
        dropped = [name for name in (listed[0] if listed else table.names) if name in kept]
        if dropped:
            raise SchemaMismatchError(
                "Spark's catalog lacks columns of the table, as ALTER TABLE … DROP COLUMN changes the catalog alone: "
                f"{self._made_anew}; or drop them from the table, "
                f"crdt_mor.Table({self.address!r}).alter(drop={dropped}). "
                f"catalog={asked.names} table={table.names}"
            )

    def _check_types(self, asked: StructType, table: StructType) -> None:
        types = {field.name: field.dataType for field in table}
        for field in asked:
            if field.dataType != types[field.name]:
                raise SchemaMismatchError(
                    "a column has another type in Spark's catalog than in the table, as ALTER TABLE … TYPE changes the "
                    f"catalog alone, and writes may widen the table's: {self._made_anew}; to widen the table's, call "
                    f"crdt_mor.Table({self.address!r}).alter(widen=...). "
                    f"column={field.name} catalog={field.dataType.simpleString()} "
                    f"table={types[field.name].simpleString()}"
                )

    @property
    def _made_anew(self) -> str:
        return f"let the catalog take the table's columns anew, CREATE OR REPLACE TABLE {self.name} USING {self.name}"

    # --- omitted columns ----------------------------------------------------------------------------------------------

    def writer(self, planned: Planned, written: StructType) -> BatchWriter:
        """Return a writer for rows with columns that Spark may have filled with null."""
        if planned.job.job.operation == "DELETE":
            return BatchWriter(planned)
        doubtful = frozenset(field.name for field in written if field.nullable and DEFAULT not in field.metadata)
        return GivenWriter(planned, self, doubtful)

    def refusal(self, columns: Iterable[str]) -> InvalidInputError:
        return InvalidInputError(
            "these columns are null in every row, and Spark hides whether the statement omitted them. Null would "
            f"erase stored values. If they were omitted, {self._made_anew}, and name every column; or write some "
            f'columns with df.write.format("crdt_mor").mode("append").save({self.address!r}). If null is intended, use '
            f"INSERT INTO {self.name} WITH ('{MISSING}' = 'null') …, or the option {MISSING}. columns={sorted(columns)}"
        )


def nulls_meant(options: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    said = {name.lower(): value for name, value in options.items()}.get(MISSING)
    if said not in (None, "null"):
        raise InvalidInputError(f"{MISSING} is null, for columns that may be null in every row. {MISSING}={said!r}")
    return {name: value for name, value in options.items() if name.lower() != MISSING}, said is not None


class StagedWithNulls(Staged):
    """A task's result. nulls: the doubtful columns that are null in all of its rows; None if it has no rows."""

    def __init__(self, receipt: Receipt, nulls: frozenset[str] | None) -> None:
        super().__init__(receipt)
        self.nulls = nulls


class GivenWriter(BatchWriter):
    """Commits a batch in which each doubtful column has a value in some row."""

    def __init__(self, planned: Planned, catalog: Catalog, doubtful: frozenset[str]) -> None:
        super().__init__(planned)
        self._catalog = catalog
        self._doubtful = doubtful

    @message_first
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedWithNulls:
        """Stage a task's rows, and note the columns without a value."""
        nulls: list[frozenset[str]] = []

        def looked_at() -> Iterator[pa.RecordBatch]:
            for batch in iterator:
                if batch.num_rows:
                    nulls.append(frozenset(n for n in self._doubtful if batch.column(n).null_count == batch.num_rows))
                yield batch

        receipt = self._planned.stage(looked_at())
        return StagedWithNulls(receipt, frozenset.intersection(*nulls) if nulls else None)

    @message_first
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the batch, on the driver."""
        noted = [message.nulls for message in messages if isinstance(message, StagedWithNulls)]
        with_rows = [nulls for nulls in noted if nulls is not None]
        if with_rows and (missing := frozenset.intersection(*with_rows)):
            raise self._catalog.refusal(missing)
        super().commit(messages)
