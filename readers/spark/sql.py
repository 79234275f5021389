"""Names for tables in Spark's SQL, and the check of Java.

Options of a catalog table do not reach a Python data source. The catalog can therefore refer to a table only through a
format that knows the address; `register_path` makes such a format.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from crdt_mor import InvalidInputError, Table, store
from crdt_mor.errors import SchemaMismatchError, UnsupportedVersionError
from crdt_mor.readers.spark import catalog, reading, writing
from crdt_mor.readers.spark.failing import message_first
from crdt_mor.readers.spark.options import STORAGE, ReadOptions, payloads
from crdt_mor.readers.spark.sessions import active, know
from crdt_mor.readers.spark.source import CrdtMorSource
from crdt_mor.readers.spark.types import check_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceReader, DataSourceWriter

JAVA_MIN = 17
MODULE = "jdk.incubator.vector"


def register_path(
    spark: SparkSession,
    name: str,
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Make `name` a format for the table at `path`: `CREATE TABLE events USING events`.

    The format is known in this session. A table created with it lasts as long as its catalog.

    Args:
        name: letters, digits and `_`.
        storage_options: options of the object store, as for `Table`.

    Raises:
        InvalidInputError: the name is invalid, or a catalog table with rows of its own has it.
    """
    source = named_source(name, path, storage_options=storage_options)
    Table(path, storage_options=storage_options)  # which raises if there is none
    with active(spark):
        know(spark, CrdtMorSource, source)
        _refuse_another_format(spark, name)


def named_source(
    name: str, path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> type[CrdtMorSource]:
    """Return the format of `register_path`, as the `DefaultSource` of a module `pyspark_….py`.

    Spark imports such modules from its Python path, and all sessions know their formats. Opens no table.
    """
    if not (name.isascii() and name.isidentifier()) or name.lower() == CrdtMorSource.name():
        raise InvalidInputError(f"a name is of letters, digits and _, and not crdt_mor itself. name={name!r}")
    text = os.fspath(path)
    address = text if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", text) else os.path.abspath(os.path.expanduser(text))
    options_here = store.storage_options(address, storage_options)
    said = catalog.Catalog(name, address)

    class BoundSource(CrdtMorSource):
        """The data source of one table."""

        @message_first
        def __init__(self, options: Mapping[str, str]) -> None:
            if "path" in options:
                raise InvalidInputError(f"{name} stands for a table already: leave out the path. table={address}")
            stored = {STORAGE + option: value for option, value in options_here.items()}
            super().__init__(type(options)({**options, **stored, "path": address}))  # type: ignore[call-arg, arg-type]

        @message_first
        def schema(self) -> StructType:
            columns = super().schema()
            if "provider" not in self.options:
                return columns
            return catalog.marked(columns, name, Table(address, storage_options=options_here).config.key)

        @message_first
        def reader(self, schema: StructType) -> DataSourceReader:
            options = ReadOptions.of(self.options).for_batch()
            of_table = options.columns is None and options.names == "now"
            return reading.reader(options, schema, said.check_read if of_table else check_schema)

        @message_first
        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            options, nulls_meant = catalog.nulls_meant(self.options)
            try:
                planned = writing.plan_batch(options, schema, overwrite)
            except SchemaMismatchError:
                here = Table(address, payloads=payloads(self.options), storage_options=options_here)
                said.explain_write(schema, spark_schema(here.schema))
                raise
            return writing.BatchWriter(planned) if nulls_meant else said.writer(planned, schema)

        @classmethod
        def name(cls) -> str:
            return name

    return BoundSource


def _refuse_another_format(spark: SparkSession, name: str) -> None:
    if not spark.catalog.tableExists(name):
        return
    described = spark.sql(f"DESCRIBE EXTENDED `{name}`").collect()
    formats = [row["data_type"] for row in described if row["col_name"] == "Provider"]
    if formats and formats != [name]:
        raise InvalidInputError(
            f"Spark's catalog has a table of this name that keeps its rows by itself, such as saveAsTable, replace and "
            f"CREATE OR REPLACE TABLE make where they name no format: save its rows if there are any, and DROP TABLE "
            f"{name}, or take another name. name={name} format={formats[0]}"
        )


def require_java() -> int:
    """Return the version of the Java that Spark will start; raise `UnsupportedVersionError` if it would fail.

    Call it before making a session: pyspark only reports that the gateway exited.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    version = "none" if java is None else _version(java)
    major = re.match(r"(?:1\.)?(\d+)", version)
    problem = ""
    if java is None or major is None or int(major[1]) < JAVA_MIN:
        problem = f"Spark 4 runs on Java {JAVA_MIN} or later"
    elif not _version(java, f"--add-modules={MODULE}"):
        problem = f"Spark starts Java with the module {MODULE}, which this one lacks"
    if problem:
        raise UnsupportedVersionError(
            f"{problem}: install one, such as openjdk-17-jre-headless, and let JAVA_HOME name its folder. "
            f"found={version} java={java} JAVA_HOME={home}"
        )
    assert major is not None
    return int(major[1])


def _version(java: str, *options: str) -> str:
    done = subprocess.run([java, *options, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "([^"]*)"', done.stderr)
    return "" if done.returncode or version is None else version[1]
