"""Options of Delta, Hudi and Iceberg, and the crdt_mor way for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from crdt_mor.errors import page

_OF_THE_TABLE = (
    "nothing, as it is said once, when the table is made: crdt_mor.readers.spark.create(df, path, key=…, ordering=…, …)"
)
_OF_HUDI = f"nothing, or a property of the table: Table.set_properties, {page('maintenance')}"
_OVERWRITES = 'mode("overwrite")'
_DYNAMIC = 'mode("overwrite") with option("partitionOverwriteMode", "dynamic")'
_AS_OF, _SINCE, _UNTIL = (f'option("{name}", "{{value}}")' for name in ("asOf", "since", "until"))
_FROM_VERSION = 'option("since", …) with the version before {value}, as since excludes its own commit'
_FROM_MOMENT = 'option("since", …) with a moment before {value}, as since excludes the commit of its own moment'
_IMAGES = 'option("changes", "images"), with since and until'
_DELETES_SHOW = 'option("changes", "merged"), whose column _change_type tells deletes from other rows'

WAYS = {
    "versionAsOf": _AS_OF,
    "timestampAsOf": _AS_OF,
    "as.of.instant": _AS_OF,
    "snapshot-id": 'option("asOf", …) with a version or a time',
    "as-of-timestamp": 'option("asOf", …) with a version or a time',
    "readChangeFeed": _IMAGES,
    "readChangeData": _IMAGES,
    "startingVersion=0": "nothing, as changes without since begin with the empty table",
    "startingVersion": _FROM_VERSION,
    "startingTimestamp": _FROM_MOMENT,
    "endingVersion": _UNTIL,
    "endingTimestamp": _UNTIL,
    "startingOffsets": 'option("since", …), without which a stream begins with the empty table',
    "start-snapshot-id": 'option("since", …) with a version or a time',
    "end-snapshot-id": 'option("until", …) with a version or a time',
    "ignoreDeletes": _DELETES_SHOW,
    "ignoreChanges": _DELETES_SHOW,
    "skipChangeCommits": _DELETES_SHOW,
    "paths": "a load(path) for each table, and union of the frames",
    "option.path": "crdt_mor.readers.spark.register_path(spark, name, path), then CREATE TABLE name USING name",
    "mergeSchema": 'option("schemaMode", "merge")',
    "overwriteSchema": 'option("schemaMode", "merge") for new columns, and Table.alter for those that are there',
    "replaceWhere": 'mode("overwrite") with option("partitions", "mon, tue"), or delete_where and an upsert',
    "dataChange": "nothing, as upkeep is no write here (crdt_mor.readers.spark.maintain)",
    "userMetadata": 'commit_info={"message": …} of crdt_mor.readers.spark.upsert and its siblings',
    "hoodie.datasource.query.type=incremental": 'option("changes", "merged") with option("since", …)',
    "hoodie.datasource.query.type=read_optimized": 'option("consistency", "read_optimized")',
    "hoodie.datasource.query.type": "nothing, as a read shows the newest snapshot",
    "hoodie.datasource.query.incremental.format": _IMAGES,
    "hoodie.datasource.read.begin.instanttime": _SINCE,
    "hoodie.datasource.read.end.instanttime": _UNTIL,
    "hoodie.datasource.read.start.version": _SINCE,
    "hoodie.table.name": _OF_THE_TABLE,
    "hoodie.datasource.write.table.name": _OF_THE_TABLE,
    "hoodie.datasource.write.table.type": _OF_THE_TABLE,
    "hoodie.datasource.write.recordkey.field": _OF_THE_TABLE,
    "hoodie.datasource.write.precombine.field": _OF_THE_TABLE,
    "hoodie.datasource.write.partitionpath.field": _OF_THE_TABLE,
    "hoodie.datasource.write.hive_style_partitioning": _OF_THE_TABLE,
    "hoodie.datasource.write.payload.class": _OF_THE_TABLE,
    "hoodie.datasource.write.operation=insert": 'option("operation", "append")',
    "hoodie.datasource.write.operation=bulk_insert": 'option("operation", "append")',
    "hoodie.datasource.write.operation=delete": 'option("operation", "delete")',
    "hoodie.datasource.write.operation=insert_overwrite": _DYNAMIC,
    "hoodie.datasource.write.operation=insert_overwrite_table": _OVERWRITES,
    "hoodie.datasource.write.operation": 'option("operation", "upsert")',
}
"""The crdt_mor way for an option, or for an option with a certain value. {value}: the user's value."""

_BY_NAME = {name.lower(): (name, way) for name, way in WAYS.items()}

_CLOSE = 0.8


def instead(options: Mapping[str, str], known: Sequence[str] = ()) -> str:
    """Return the crdt_mor way for options of other systems or misspelt ones; empty if there are none.

    options: by lower-case names, as Spark passes them. known: crdt_mor options that are not set.
    """
    said: dict[str, list[str]] = {}
    for name, value in options.items():
        found = (
            _BY_NAME.get(f"{name}={value.lower()}") or _BY_NAME.get(name) or _of_a_family(name) or _near(name, known)
        )
        if found is not None:
            meant, way = found
            said.setdefault(way.replace("{value}", value), []).append(meant)
    return "; ".join(f"instead of {' and '.join(names)} say {way}" for way, names in said.items())


def _of_a_family(name: str) -> tuple[str, str] | None:
    return (name, _OF_HUDI) if name.startswith(("hoodie.", "delta.")) else None


def _near(name: str, known: Sequence[str]) -> tuple[str, str] | None:
    """Return the name and way of a misspelt option, such as `version_as_of` or `consistancy`."""
    ways = {_letters(one): way for one, way in WAYS.items() if "=" not in one}
    ways |= {_letters(one): f'option("{one}", "{{value}}")' for one in known}
    close = get_close_matches(_letters(name), ways, 1, _CLOSE)
    return (name, ways[close[0]]) if close else None


def _letters(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
