"""New names for source columns on their way into a table: `Total Sales` becomes `total_sales`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from crdt_mor.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Renames:
    """New column names by source names."""

    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, given: object) -> Renames:
        """Check a user's renames: texts by texts, each new name once."""
        if given is None:
            return cls()
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for both in given.items() for name in both):
            raise InvalidInputError(f'pass a dict as `rename`: rename={{"Total Sales": "sales"}}. rename={given!r}')
        repeated = [name for name, count in Counter(given.values()).items() if count > 1]
        if repeated:
            raise InvalidInputError(f"two columns cannot get the same name: change `rename`. repeated={repeated}")
        return cls(MappingProxyType(dict(given)))

    def back(self, types: pa.Schema | None) -> pa.Schema | None:
        if types is None or not self.names:
            return types
        old = {new: name for name, new in self.names.items()}
        return pa.schema(
            [
                column.with_name(old.get(column.name, column.name))
                for column in types
                if column.name in old or column.name not in self.names
            ]
        )

    def schema(self, schema: pa.Schema) -> pa.Schema:
        there = {*schema.names}
        absent = [name for name in self.names if name not in there]
        if absent:
            raise InvalidInputError(f"the source lacks columns of `rename`. missing={absent} columns={schema.names}")
        renamed = [column.with_name(self.names.get(column.name, column.name)) for column in schema]
        repeated = [name for name, count in Counter(column.name for column in renamed).items() if count > 1]
        if repeated:
            raise InvalidInputError(
                f"a renamed column would get another column's name: rename that column as well. repeated={repeated}"
            )
        return pa.schema(renamed)

    def batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.rename_columns([self.names.get(name, name) for name in rows.schema.names]) if self.names else rows

    def table(self, rows: pa.Table) -> pa.Table:
        return rows.rename_columns(self.schema(rows.schema).names) if self.names else rows


NONE: Final = Renames()
