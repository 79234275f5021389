"""Tables in Spark, through PySpark's data source API: no jar, no JVM code.

from crdt_mor.readers.spark import create, history, maintain, merge, register, stream, update, upsert
register(spark)                               # Spark 4.0, and threads of your own that call df.write
create(df, "/lake/events", key="id")
spark.read.format("crdt_mor").load("/lake/events")
upsert(df, "/lake/events")
update(spark, "/lake/events", {"seen": "seen + 1"}, "day = '2026-01-31'")
merge(spark, "/lake/events", df, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
stream(clicks, "/lake/events", "/checkpoints/clicks")
maintain(spark, "/lake/events")
history(spark, "/lake/events").show()

Each name is imported on first use: the processes that Spark starts need few of them.
"""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from crdt_mor.readers.spark.compacting import compact, maintain
    from crdt_mor.readers.spark.merging import merge, move
    from crdt_mor.readers.spark.native import read
    from crdt_mor.readers.spark.source import CrdtMorSource, register
    from crdt_mor.readers.spark.sql import named_source, register_path, require_java
    from crdt_mor.readers.spark.starting import stream
    from crdt_mor.readers.spark.tables import create, history
    from crdt_mor.readers.spark.updating import delete_where, update
    from crdt_mor.readers.spark.writing import append, by_file_group, delete, overwrite, upsert

_HOMES = {
    "CrdtMorSource": "source",
    "append": "writing",
    "by_file_group": "writing",
    "compact": "compacting",
    "create": "tables",
    "delete": "writing",
    "delete_where": "updating",
    "history": "tables",
    "maintain": "compacting",
    "merge": "merging",
    "move": "merging",
    "named_source": "sql",
    "overwrite": "writing",
    "read": "native",
    "register": "source",
    "register_path": "sql",
    "require_java": "sql",
    "stream": "starting",
    "update": "updating",
    "upsert": "writing",
}

if not _typing.TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(_import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


__all__ = [
    "CrdtMorSource",
    "append",
    "by_file_group",
    "compact",
    "create",
    "delete",
    "delete_where",
    "history",
    "maintain",
    "merge",
    "move",
    "named_source",
    "overwrite",
    "read",
    "register",
    "register_path",
    "require_java",
    "stream",
    "update",
    "upsert",
]
