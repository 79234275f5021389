"""Names for tables in Spark's SQL, and the Java that Spark runs on.

The options of a table in Spark's catalog do not reach a Python data source, so the catalog can hold a table only under
a format that knows by itself where the table is. `register_path` makes one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructField, StructType

from crdt_mor import InvalidInputError, Table, UnsupportedVersionError
from crdt_mor.readers.spark.options import STORAGE
from crdt_mor.readers.spark.sessions import active
from crdt_mor.readers.spark.source import CrdtMorSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
MODULE = "jdk.incubator.vector"

_NO_DEFAULT = {
    "CURRENT_DEFAULT": "raise_error('name every column: Spark would write null to those left out, and erase them')"
}
"""The default value of a column in Spark's catalog, under the name that Spark keeps it by.

For columns that an INSERT leaves out, Spark fills in their defaults, or null, before a data source sees the rows. Spark
refuses a default that is no constant when it plans the INSERT, and its error shows the text of the default.
"""


def register_path(
    spark: SparkSession,
    name: str,
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Make `name` a format that stands for the table at `path`: `CREATE TABLE events USING events`.

    The name holds for this session, and the table that is created for as long as its catalog keeps it.
    """
    if not (name.isascii() and name.isidentifier()) or name.lower() == CrdtMorSource.name():
        raise InvalidInputError(f"a name is of letters, digits and _, and not crdt_mor itself. name={name!r}")
    text = os.fspath(path)
    address = text if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", text) else os.path.abspath(os.path.expanduser(text))
    options_here = Table.open(address, storage_options=storage_options).storage_options

    class BoundSource(CrdtMorSource):
        """The data source of one table."""

        def __init__(self, options: Mapping[str, str]) -> None:
            if "path" in options:
                raise InvalidInputError(f"{name} stands for a table already: leave out the path. table={address}")
            stored = {STORAGE + option: value for option, value in options_here.items()}
            super().__init__(type(options)({**options, **stored, "path": address}))  # type: ignore[call-arg, arg-type]

        def schema(self) -> StructType:
            """The columns; for CREATE TABLE, which names the provider, without defaults for any INSERT."""
            columns = super().schema()
            return _without_defaults(columns) if "provider" in self.options else columns

        @classmethod
        def name(cls) -> str:
            return name

    with active(spark):
        spark.dataSource.register(CrdtMorSource)
        spark.dataSource.register(BoundSource)


def _without_defaults(schema: StructType) -> StructType:
    return StructType([StructField(f.name, f.dataType, f.nullable, {**f.metadata, **_NO_DEFAULT}) for f in schema])


def require_java() -> int:
    """The version of the Java that Spark will start; raises `UnsupportedVersionError` where it would not start.

    Call it before a session is made: pyspark itself says no more than that the gateway exited.
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
    """What a Java calls itself; empty if it does not start with these options."""
    done = subprocess.run([java, *options, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "([^"]*)"', done.stderr)
    return "" if done.returncode or version is None else version[1]
