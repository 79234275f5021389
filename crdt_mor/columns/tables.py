"""Change columns of Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa


def in_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast columns of other types. pyarrow 21 cannot cast variants inside nested types to themselves."""
    pairs = zip(rows.columns, schema, strict=True)
    columns = [column if str(column.type) == str(field.type) else column.cast(field.type) for column, field in pairs]
    return pa.table(columns, schema=schema)


def with_columns(rows: pa.Table, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """Set columns, which become nullable; new ones come last. `pa.Table.set_column` copies all columns for each."""
    if not columns:
        return rows
    fields = [pa.field(f.name, columns[f.name].type) if f.name in columns else f for f in rows.schema]
    values = [columns.get(name, column) for name, column in zip(rows.column_names, rows.columns, strict=True)]
    new = {name: column for name, column in columns.items() if rows.schema.get_field_index(name) < 0}
    fields += [pa.field(name, column.type) for name, column in new.items()]
    return pa.table([*values, *new.values()], schema=pa.schema(fields, rows.schema.metadata))
