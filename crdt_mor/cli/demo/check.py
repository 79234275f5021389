"""The claims of the demo.

The oracle is a dict per column: the journals' batches in requested order, later cells replacing earlier ones.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

import crdt_mor as mor
from crdt_mor.cli.demo.journal import Entry
from crdt_mor.cli.demo.story import (
    CORRECTION,
    DELAYS,
    KEY,
    PLAIN,
    WRONG_ORIGIN,
    Story,
    flown,
    installed,
    pseudonyms,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Claim:
    name: str
    holds: bool
    evidence: str


def check(
    table: mor.Table,
    story: Story,
    raw: pl.DataFrame,
    entries: Sequence[Entry],
    secret: bytes,
    middle: pl.DataFrame,
    middle_as_of: str,
) -> tuple[Claim, ...]:
    """`middle` is a snapshot read during the run."""
    snapshot = table.scan().to_polars().sort(KEY)
    raw = raw.sort(KEY)
    return (
        _same_as_dicts(snapshot, entries),
        _no_plain_tails(snapshot, raw, story, secret),
        _corrections_stand(snapshot, raw, entries),
        _the_past_is_fixed(table, middle, middle_as_of),
    )


def _same_as_dicts(snapshot: pl.DataFrame, entries: Sequence[Entry]) -> Claim:
    batches = [entry.batch() for entry in entries]
    number: dict[tuple[object, ...], int] = {}
    rows = [[number.setdefault(key, len(number)) for key in _keys(batch)] for batch in batches]
    order = [number.get(key, -1) for key in _keys(snapshot)]
    wrong = 0
    for column in snapshot.columns:
        cells: dict[int, object] = {}
        for batch, positions in zip(batches, rows, strict=True):  # in requested order
            if column in batch.columns:
                cells.update(zip(positions, batch[column].to_list(), strict=True))
        wrong += sum(
            cells.get(row, KeyError) != value for row, value in zip(order, snapshot[column].to_list(), strict=True)
        )
    total = snapshot.height * snapshot.width
    holds = wrong == 0 and snapshot.height == len(number)
    return Claim(
        "the table is the fold of all journals, by a dict",
        holds,
        f"{snapshot.height:,} rows, {total:,} cells compared, {wrong:,} differ"
        + ("" if snapshot.height == len(number) else f"; the dict has {len(number):,} rows"),
    )


def _keys(batch: pl.DataFrame) -> list[tuple[object, ...]]:
    return list(zip(*(batch[name].to_list() for name in KEY), strict=True))


def _no_plain_tails(snapshot: pl.DataFrame, raw: pl.DataFrame, story: Story, secret: bytes) -> Claim:
    days = flown >= story.encrypt_from
    encrypted, original = snapshot.filter(days), raw.filter(days)
    plain = encrypted.filter(PLAIN).height
    expected = pseudonyms(original["tailnum"], secret)
    since, planes = f"{story.encrypt_from:%d %b}", expected.n_unique()
    untouched = snapshot.filter(~days)["tailnum"].equals(raw.filter(~days)["tailnum"])
    return Claim(
        "no plain tail number is left in the encrypted days",
        plain == 0 and encrypted["tailnum"].equals(expected) and untouched,
        f"{encrypted.height:,} flights from {since} on, {planes:,} planes, {plain:,} plain",
    )


def _corrections_stand(snapshot: pl.DataFrame, raw: pl.DataFrame, entries: Sequence[Entry]) -> Claim:
    keys = pl.concat([entry.batch().select(KEY) for entry in entries if entry.process == "backfill"])
    corrected = raw.join(keys, on=KEY, how="semi").with_columns(CORRECTION)
    expected = pl.concat([corrected, raw.join(keys, on=KEY, how="anti")]).sort(KEY)
    wrong = int(
        (snapshot.select(pl.struct(DELAYS).alias("d"))["d"] != expected.select(pl.struct(DELAYS).alias("d"))["d"]).sum()
    )
    return Claim(
        "every correction stands, once",
        wrong == 0 and keys.is_unique().all() and set(corrected["origin"]) == {WRONG_ORIGIN},
        f"{keys.height:,} flights corrected, {wrong:,} wrong",
    )


def _the_past_is_fixed(table: mor.Table, middle: pl.DataFrame, as_of: str) -> Claim:
    again = table.scan(as_of=as_of).to_polars().sort(KEY)
    return Claim(
        "a snapshot from the middle of it reads the same now",
        again.equals(middle.sort(KEY)),
        f"as of {as_of}, {again.height:,} rows",
    )


def check_after(table: mor.Table, before: pl.DataFrame) -> Claim:
    """Check that maintenance changed no row for our readers and Hudi's."""
    ours, hudi = table.scan().to_polars().sort(KEY), _hudi_rows(table, before.columns)
    expected = before.sort(KEY)
    return Claim(
        f"hudi-rs {installed('hudi').version} reads the same rows",
        ours.equals(expected) and hudi.equals(expected.cast(hudi.schema)),
        f"{hudi.height:,} rows of the maintained table",
    )


def _hudi_rows(table: mor.Table, columns: Sequence[str]) -> pl.DataFrame:
    hudi = importlib.import_module("hudi")  # optional
    builder = hudi.HudiTableBuilder.from_base_uri(table.uri).with_options(dict(table.storage_options))
    batches = builder.build().read(hudi.HudiReadOptions())
    return pl.concat([pl.DataFrame(batch) for batch in batches]).select(columns).sort(KEY)
