"""Convert a plan's rows for the ledger, for the table, and for the story."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from crdt_mor.testing.simulation.ledger import KeyWrite
from crdt_mor.testing.simulation.plan import Given

if TYPE_CHECKING:
    from crdt_mor.testing.simulation.world import World


def told_of(rows: Sequence[Given]) -> str:
    return ", ".join(f"{row['name']}({', '.join(f'{k} {v!r}' for k, v in _columns(row).items())})" for row in rows)


def key_writes_of(world: World, rows: Sequence[Given]) -> list[KeyWrite]:
    rows = [same_value(world, row, rows[0]) for row in rows]
    return [(row["name"], "row", {**world_key(world, row["name"]), **_columns(row)}) for row in rows]


def world_key(world: World, name: str) -> dict[str, str]:
    part, _, key = name.rpartition("/")
    return {"p": part, "k": key} if world.settings.partitioned else {"k": key}


def _columns(row: Given) -> Given:
    return {name: value for name, value in row.items() if name != "name"}


def same_value(world: World, row: Given, first: Given) -> Given:
    """Return the row with a value of the first row's type: a frame's column has one type."""
    if world.settings.payload is None or row.get("value") is None or first.get("value") is None:
        return row
    examples = world.settings.examples
    kind = examples[first["value"]][0]
    return row if examples[row["value"]][0] == kind else {**row, "value": first["value"]}


def frame_of(world: World, rows: Sequence[Given]) -> pa.Table:
    settings = world.settings
    rows = [same_value(world, row, rows[0]) for row in rows]
    given = {name for row in rows for name in row} - {"name", "value"}
    if not (rows and settings.is_partial):
        given |= {*world.columns.names} - {*(settings.value_columns if rows else ())}
    columns: dict[str, pa.Array] = {}
    keys = [world_key(world, row["name"]) for row in rows]
    for name, kind in world.columns.types.items():
        if name in ("p", "k"):
            columns[name] = pa.array([key[name] for key in keys], kind)
        elif name in given:
            columns[name] = pa.array([row.get(name) for row in rows], kind)
    if settings.payload is not None and any("value" in row for row in rows):
        indices = [row.get("value") for row in rows]
        index = next((i for i in indices if i is not None), None)
        kind = settings.payload.column() if index is None else settings.examples[index][0]
        values = pa.array([None if i is None else settings.examples[i][1] for i in indices], kind)
        names = settings.value_columns
        if len(names) > 1:
            columns |= {name: values.field(n) for n, name in enumerate(names)}
        else:
            columns[names[0]] = values
    return world.columns.named(pa.table(columns))


def keys_of(world: World, keys: Sequence[str], **given: int) -> pa.Table:
    names = [world_key(world, key) for key in keys]
    columns = {name: pa.array([key[name] for key in names]) for name in names[0]}
    more = {name: pa.array([value] * len(names), pa.int64()) for name, value in given.items()}
    return world.columns.named(pa.table({**columns, **more}))


def where(world: World, key: str) -> pl.Expr:
    part, _, name = key.rpartition("/")
    found = world.column("k") == name
    return found & (world.column("p") == part) if world.settings.partitioned else found


def added(world: World, amount: int) -> dict[str, str]:
    name = world.columns.names["amount"]
    return {name: f'"{name}" {"+" if amount >= 0 else "-"} {abs(amount)}'}
