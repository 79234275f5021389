"""The settings of a table, for `show` and `ui`."""

from __future__ import annotations

from typing import Any

import crdt_mor as mor
from crdt_mor.cli.settings import texts


def declared(table: mor.Table) -> dict[str, Any]:
    config = table.config
    return {
        "version": table.version,
        "format": f"Hudi {config.hudi_version}, {config.table_type}",
        "key": list(config.key),
        "partition_by": [*map(str, config.partition_by)],
        "merge": config.merge,
        "buckets": config.buckets,
        "properties": dict(table.properties),
        "rules": [f"{name}: {text}" for name, text in texts(table.rules).items()],
    }
