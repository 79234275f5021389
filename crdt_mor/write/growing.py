"""The columns of a table that may not widen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crdt_mor.columns.kinds import kind_of
from crdt_mor.columns.schema import TableSchema
from crdt_mor.columns.types import values_of
from crdt_mor.errors import SchemaMismatchError
from crdt_mor.ground.late_imports import Late
from crdt_mor.laws.merging import check_columns
from crdt_mor.model.config import TableConfig
from crdt_mor.model.rules import Rules

if TYPE_CHECKING:
    from crdt_mor.write import rules as writing_rules
else:
    writing_rules = Late("crdt_mor.write.rules")


def require_growth(config: TableConfig, rules: Rules, schema: TableSchema, grown: TableSchema) -> None:
    """Raise if keys, payloads, rules or the ordering forbid that a table's schema becomes `grown`."""
    check_columns(config, grown)
    for name in config.key.identity:
        kind = values_of(grown.declared.field(name).type)
        if grown.select([name]).stored != schema.select([name]).stored and not kind_of(kind).may_be_key(kind):
            raise SchemaMismatchError(
                "a key or partition column stays as it is, because the text of its values would change: cast the data. "
                f"column={name!r} type={schema.declared.field(name).type} wider={kind}"
            )
    if rules:
        writing_rules.require_rules(rules, config, grown)
    ordering = config.merge.ordering
    if ordering and grown.select([ordering]).stored != schema.select([ordering]).stored:
        raise SchemaMismatchError(
            "an ordering column keeps its type, because Hudi's readers compare old deletes with new rows: cast the "
            f"data. column={ordering!r}"
        )
