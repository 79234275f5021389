"""What a table declares of itself, as `show` and `ui` say it."""

from __future__ import annotations

from typing import Any

import crdt_mor as mor
from crdt_mor.cli.rules import texts


def declared(table: mor.Table) -> dict[str, Any]:
    """Version, format, key, partitions, merge, buckets, properties and rules of a table."""
    config = table.config
    return {
        "version": table.version,
        "format": f"Hudi {config.version}, {config.table_type}",
        "key": list(config.key.fields),
        "partition_by": list(config.key.partition_fields),
        "merge": config.merge.summary,
        "buckets": config.buckets,
        "properties": dict(table.properties),
        "rules": [f"{name}: {text}" for name, text in texts(table.rules).items()],
    }
