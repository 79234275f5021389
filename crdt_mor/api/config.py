"""The settings of a table as users see them: `table.config`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from types import MappingProxyType
from typing import Literal

from crdt_mor.model import config as engine
from crdt_mor.model.partition_functions import PartitionFunction, sources


@dataclass(frozen=True, slots=True)
class TableConfig:
    """Settings of a table, with current column names. `Table.create` sets them.

    Attributes:
        name: the table's name for Hudi.
        key: the columns that identify a row within its partition.
        partition_by: columns, and functions of columns, that form the folders; may belong to the key.
        hive_style: folders are named `column=value`.
        buckets: file groups per partition; None for a table of Hudi's without buckets.
        ordering: the row with the greatest value in this column wins; None without such a column.
        merge: the merge in words, such as `latest`, `ordering:at` or `latest (views: counter/1)`.
        payloads: names of payloads by column.
        hudi_version: Hudi's table version: 9 for tables of ours.
        table_type: Hudi's table type.
        local_times: Hudi's instants are in local time, Hudi's default, instead of UTC.
        ttl: rows expire at the time in this column, or a duration later; None: never.
    """

    name: str
    key: tuple[str, ...]
    partition_by: tuple[str | PartitionFunction, ...] = ()
    hive_style: bool = False
    buckets: int | None = None
    ordering: str | None = None
    merge: str = "latest"
    payloads: Mapping[str, str] = field(default_factory=dict, hash=False)
    hudi_version: int = 9
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"] = "MERGE_ON_READ"
    local_times: bool = False
    ttl: str | tuple[str, timedelta] | None = None

    @property
    def partition_sources(self) -> tuple[str, ...]:
        """The columns that determine a row's partition, each once."""
        return sources(self.partition_by)

    def __post_init__(self) -> None:
        object.__setattr__(self, "payloads", MappingProxyType(dict(self.payloads)))

    def __reduce__(self) -> tuple[object, ...]:
        values = (getattr(self, one.name) for one in fields(self))
        return TableConfig, tuple(dict(value) if isinstance(value, Mapping) else value for value in values)


def shown(config: engine.TableConfig) -> TableConfig:
    """Return the view of a configuration with shown column names."""
    merge = config.merge
    return TableConfig(
        name=config.name,
        key=config.key.fields,
        partition_by=config.key.partition_by,
        hive_style=config.key.hive_style,
        buckets=config.buckets,
        ordering=merge.ordering,
        merge=merge.summary,
        payloads={name: str(member.payload) for member in merge.columns for name in member.columns},
        hudi_version=config.version,
        table_type=config.table_type,
        local_times=config.local_times,
        ttl=merge.ttl,
    )
