"""Tables of Spark's catalog that stand for a table: what a statement gave, and where the catalog says what is not so.

Spark fills in columns that an INSERT leaves out, with their defaults or with null, before a data source sees the rows;
and ALTER TABLE changes the catalog alone, of which no data source hears. All that a data source sees is the metadata of
columns: Spark hands on the catalog's with what is read, and with what is written as soon as it casts, renames, reorders
or fills in a column. So the columns of a table are marked as CREATE TABLE takes them into the catalog.

Where a table of the catalog was made anew from a frame, the marks are gone. What is left then is in the rows: a column
that Spark has filled in is null in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructField, StructType

from crdt_mor import InvalidInputError, KeySpec, Receipt, SchemaMismatchError
from crdt_mor.readers.spark.failing import message_first
from crdt_mor.readers.spark.types import NEVER_NULL, check_schema
from crdt_mor.readers.spark.writing import BatchWriter, Planned, Staged

DEFAULT = "CURRENT_DEFAULT"
"""The default value of a column in Spark's catalog, under the name that Spark keeps it by."""

NO_DEFAULT = "raise_error('name every column: Spark would write null to those left out, and erase them')"
"""Spark refuses a default that is no constant when it plans the INSERT, and its error shows the text of the default."""

CALLED = "crdt_mor.column"
"""In the metadata of a column: the format, a dot, and what it was called when the catalog took it in."""

ALL = "crdt_mor.columns"
"""In the metadata of the first column: what all of them were called then."""

MISSING = "missing"
"""The option of a write that says, by the value `null`, that nulls are meant where Spark may have filled them in."""


def marked(columns: StructType, name: str, key: KeySpec) -> StructType:
    """The columns of a table as CREATE TABLE USING name has them in Spark's catalog: no INSERT may leave one out.

    A key of one column is NOT NULL there, as it is, so that Spark has something to cast in every query whose key may be
    null, and hands on the marks, also where the query's columns have the names and types of the table's.
    """
    never_null = () if key.composite else key.fields
    fields: list[StructField] = []
    for field in columns:
        marks: dict[str, Any] = {CALLED: f"{name}.{field.name}", DEFAULT: NO_DEFAULT}
        if not fields:
            marks[ALL] = columns.names
        if field.name in never_null:
            marks[NEVER_NULL] = True
        fields.append(StructField(field.name, field.dataType, field.nullable and NEVER_NULL not in marks, marks))
    return StructType(fields)


# --- what the catalog says that is not so -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Catalog:
    """What Spark's catalog says of a table. name: of the format that stands for it; address: where the table is."""

    name: str
    address: str

    def check_read(self, asked: StructType, table: StructType) -> None:
        """Raise `SchemaMismatchError`, with the way to mend it, unless the catalog's columns are the table's."""
        called = self._called(asked)
        if called:
            self._check_names(called, asked, table)
            self._check_types(asked, table)
        check_schema(asked, table)

    def explain_write(self, written: StructType, table: StructType) -> None:
        """Raise `SchemaMismatchError` where a write was refused because the catalog's columns are not the table's."""
        called = self._called(written)
        if called:
            self._check_names(called, written, table)

    def _called(self, columns: StructType) -> dict[str, str]:
        """What columns were called when the catalog took them in. A frame may bring marks of other tables along."""
        prefix = f"{self.name}."
        marks = ((field.name, field.metadata.get(CALLED, "")) for field in columns)
        return {name: mark.removeprefix(prefix) for name, mark in marks if mark.startswith(prefix)}

    def _check_names(self, called: Mapping[str, str], asked: StructType, table: StructType) -> None:
        there = set(table.names)
        renamed = {was: name for name, was in called.items() if was != name and was in there}
        if renamed:
            raise SchemaMismatchError(
                "Spark's catalog has other names for columns than the table, as ALTER TABLE … RENAME COLUMN changes "
                f"the catalog alone: {self._made_anew}; or rename them in the table, "
                f"crdt_mor.Table.open({self.address!r}).alter(rename={renamed}). "
                f"catalog={asked.names} table={table.names}"
            )
        unknown = [name for name in asked.names if name not in there]
        if unknown:
            raise SchemaMismatchError(
                "Spark's catalog has columns that the table does not have, or has under another name by now: "
                f"{self._made_anew}. unknown={unknown} table={table.names}"
            )
        listed = [field.metadata[ALL] for field in asked if ALL in field.metadata and field.name in called]
        dropped = [name for name in (listed[0] if listed else table.names) if name in there - {*called.values()}]
        if dropped:
            raise SchemaMismatchError(
                "Spark's catalog lacks columns of the table, as ALTER TABLE … DROP COLUMN changes the catalog alone: "
                f"{self._made_anew}; or drop them from the table, "
                f"crdt_mor.Table.open({self.address!r}).alter(drop={dropped}). "
                f"catalog={asked.names} table={table.names}"
            )

    def _check_types(self, asked: StructType, table: StructType) -> None:
        types = {field.name: field.dataType for field in table}
        for field in asked:
            if field.dataType != types[field.name]:
                raise SchemaMismatchError(
                    "a column has another type in Spark's catalog than in the table, as ALTER TABLE … TYPE changes the "
                    f"catalog alone, and writes may widen the table's: {self._made_anew}; to widen the table's, write "
                    'a frame that has the other type, with the option schemaMode "merge". '
                    f"column={field.name} catalog={field.dataType.simpleString()} "
                    f"table={types[field.name].simpleString()}"
                )

    @property
    def _made_anew(self) -> str:
        return f"let the catalog take the table's columns anew, CREATE OR REPLACE TABLE {self.name} USING {self.name}"

    # --- what a statement gave ----------------------------------------------------------------------------------------

    def writer(self, planned: Planned, written: StructType) -> BatchWriter:
        """The writer of rows in some columns of which Spark may have filled in null."""
        if planned.job.job.operation == "DELETE":
            return BatchWriter(planned)
        doubtful = frozenset(field.name for field in written if field.nullable and DEFAULT not in field.metadata)
        return GivenWriter(planned, self, doubtful)

    def refusal(self, columns: Iterable[str]) -> InvalidInputError:
        """Of a write with columns that its statement may have left out."""
        return InvalidInputError(
            "these columns are null in every row, and Spark does not say whether the statement gave them or left them "
            "out, which would erase what is there; its catalog does not, as it should, refuse to have them left out. "
            f"If they were left out, {self._made_anew}, and name every column; or write some columns with "
            f'df.write.format("crdt_mor").mode("append").save({self.address!r}). If null is meant, say so: '
            f"INSERT INTO {self.name} WITH ('{MISSING}' = 'null') …, or the option {MISSING}. columns={sorted(columns)}"
        )


def nulls_meant(options: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """The options of a write without `missing`, and whether it says that nulls are meant."""
    said = {name.lower(): value for name, value in options.items()}.get(MISSING)
    if said not in (None, "null"):
        raise InvalidInputError(f"{MISSING} is null, for columns that may be null in every row. {MISSING}={said!r}")
    return {name: value for name, value in options.items() if name.lower() != MISSING}, said is not None


class StagedWithNulls(Staged):
    """What a task tells the driver. nulls: the doubtful columns that are null in all of its rows; None: no rows."""

    def __init__(self, receipt: Receipt, nulls: frozenset[str] | None) -> None:
        super().__init__(receipt)
        self.nulls = nulls


class GivenWriter(BatchWriter):
    """Commits a batch where each doubtful column has a value in some row."""

    def __init__(self, planned: Planned, catalog: Catalog, doubtful: frozenset[str]) -> None:
        super().__init__(planned)
        self._catalog = catalog
        self._doubtful = doubtful

    @message_first
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedWithNulls:
        """Called in a task: stage its rows, and note which columns have no value."""
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
        """Called on the driver when every task has succeeded."""
        noted = [message.nulls for message in messages if isinstance(message, StagedWithNulls)]
        with_rows = [nulls for nulls in noted if nulls is not None]
        if with_rows and (missing := frozenset.intersection(*with_rows)):
            raise self._catalog.refusal(missing)
        super().commit(messages)
