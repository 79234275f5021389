"""Compare the visible rows of a file group with the plain fold in `merge.oracle`.

base rows, log rows, deletes ─► a contribution each ─► fold, key by key, payloads by `join` alone ─► rows
the same files               ─► the merge kernel, as in any reader                                ─► rows
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import polars as pl

from crdt_mor.events.session import Session
from crdt_mor.laws.merging import Merging, merging_of
from crdt_mor.merge.blocks import COMMIT_TIME, META_COLUMNS, RECORD_KEY, DataBlock, DeleteBlock, Slice
from crdt_mor.merge.contributions import decode, given_names, scan
from crdt_mor.merge.oracle import Contribution, Meaning, Row, fold
from crdt_mor.merge.rule import ORDERS, Member, naming_payload
from crdt_mor.model.slices import FileSlice
from crdt_mor.read.open_slice import open_slice
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.services.verify_rows import Faults

PART_ROWS: Final = 100_000
"""Approximate contributions folded at once, to bound memory."""

_TIME, _ORDERING = "time", "ordering"


def ask_fold(session: Session, snapshot: Snapshot, slice_: FileSlice, faults: Faults) -> None:
    deep = _Deep(merging_of(session.config, snapshot.value.schema))
    opened = open_slice(session.store, slice_, session.config)
    frames = list(snapshot.with_slices([slice_]).frames(deep.compared, None))
    rows = sum(file.rows + file.deletes for file in slice_.files)
    parts = 1 + rows // PART_ROWS
    for number in range(parts):
        part = pl.col(RECORD_KEY).hash() % parts == number
        seen = pl.concat([frame.filter(part) for frame in frames]) if frames else None
        made = deep.made_of(opened, part)
        _compare(made, pl.DataFrame(schema=made.schema) if seen is None else seen, faults)


def _compare(made: pl.DataFrame, seen: pl.DataFrame, faults: Faults) -> None:
    for what, rows in (
        ("readers do not see a row", made.join(seen, on=RECORD_KEY, how="anti")),
        ("readers see a row that no commit wrote", seen.join(made, on=RECORD_KEY, how="anti")),
    ):
        if rows.height:
            faults.note("fold", f"{what}. key={rows[RECORD_KEY][0]!r}", rows.height)
    both = made.join(seen, on=RECORD_KEY, how="inner", suffix=":seen", maintain_order="left")
    for name in made.columns:
        if name == RECORD_KEY:
            continue
        wrong = both[name].ne_missing(both[f"{name}:seen"]).arg_true()
        if len(wrong):
            at = wrong[0]
            key, seen_value, folded = both[RECORD_KEY][at], both[f"{name}:seen"][at], both[name][at]
            said = f"a column differs. key={key!r} column={name} seen={seen_value!r} folded={folded!r}"
            faults.note("fold", said, len(wrong))


@dataclass(frozen=True)
class _Deep:
    merging: Merging

    @property
    def compared(self) -> list[str]:
        hidden = self.merging.rule.hidden
        return [RECORD_KEY, COMMIT_TIME, *(name for name in self.merging.columns.stored if name not in hidden)]

    def made_of(self, opened: Slice, part: pl.Expr) -> pl.DataFrame:
        rule = self.merging.rule
        of_members = {_place(number): _joined(member) for number, member in enumerate(rule.members)}
        merged = rule.merged
        plain = [name for name in self.compared[2:] if name not in merged]
        meanings: dict[tuple[str, ...], Meaning] = {(name,): meaning for name, meaning in of_members.items()}
        folded = fold(self._contributions(opened, part), rule, [*plain, *of_members], meanings)
        return self._frame(folded, plain)

    def _frame(self, folded: dict[str, Row], plain: Sequence[str]) -> pl.DataFrame:
        types = self.merging.columns.schema
        rows = list(folded.values())
        made = [pl.Series(RECORD_KEY, list(folded), pl.String)]
        made += [pl.Series(name, [row[name] for row in rows], types[name]) for name in (COMMIT_TIME, *plain)]
        for number, member in enumerate(self.merging.rule.members):
            kind = member.kind if member.hidden is None else types[member.hidden]
            states = pl.Series("state", [_unboxed(row[_place(number)]) for row in rows], kind)
            made += member.unpack(states, member.columns)
        return pl.DataFrame(made).select(self.compared)

    # --- contributions ------------------------------------------------------------------------------------------------

    def _contributions(self, opened: Slice, part: pl.Expr) -> Iterator[Contribution]:
        columns = self.merging.columns
        if opened.base is not None:
            frame = scan(opened.base, columns).filter(part).collect()
            if self.merging.rule.has_orders:
                yield from self._unfolded(frame, opened.base.column_names())
                frame = frame.clear()
            yield from self._rows(frame, list(columns.stored), None, Member.restored)
        for block in opened.blocks:
            if isinstance(block, DeleteBlock):
                yield from self._deletes(block, block.keys.filter(part))
            else:
                yield from self._of_block(block, part)

    def _unfolded(self, frame: pl.DataFrame, there: Collection[str]) -> Iterator[Contribution]:
        """Yield the contributions that a base row stands for, see `merge.orders`."""
        ordering = str(self.merging.rule.ordering)
        names = [name for name in self.merging.columns.stored if name in there and name != ORDERS]
        for row in frame.iter_rows(named=True):
            entries, key = row[ORDERS] or (), row[RECORD_KEY]
            for entry in entries:
                order, set_ = (ordering, entry["order"]), entry["columns"]
                if set_ is None:
                    yield Contribution(entry["time"], key, "tombstone", (order,))
                elif entry["time"] is not None:
                    values = (order, *((name, row[name]) for name in set_))
                    yield Contribution(entry["time"], key, "row", values, nulls=frozenset(set_))
            listed = {name for entry in entries for name in entry["columns"] or ()}
            own = [name for name in names if name not in listed]
            yield Contribution(row[COMMIT_TIME], key, "row", tuple((n, row[n]) for n in own), nulls=frozenset(own))

    def _of_block(self, block: DataBlock, part: pl.Expr) -> Iterator[Contribution]:
        columns = self.merging.columns
        given = given_names(block)
        frame = decode([block], columns, [*META_COLUMNS, *columns.stored]).filter(part)
        whole = self.merging.rule.kind != "columns" or self.merging.rule.whole
        names = [name for name in columns.stored if whole or name in given]
        instant, nulls = None if block.own_times else block.instant, frozenset(block.nulls)
        yield from self._rows(frame, names, instant, Member.pack, nulls)

    def _rows(
        self,
        frame: pl.DataFrame,
        names: Sequence[str],
        instant: str | None,
        states_in: Callable[..., pl.Series],
        nulls: frozenset[str] = frozenset(),
    ) -> Iterator[Contribution]:
        """Yield a contribution for each row. instant: requested time of all rows; None if stored per row."""
        rule = self.merging.rule
        shown = {name for member in rule.members for name in (*member.columns, member.hidden)}
        values: dict[str, list[Any]] = {name: frame[name].to_list() for name in names if name not in shown}
        there = {*names}
        for number, member in enumerate(rule.members):
            if there.issuperset(member.stored):
                states = states_in(member, frame).to_list()
                counts_null = member.payload.nulls == "value"
                values[_place(number)] = [(state,) if counts_null or state is not None else None for state in states]
        times = frame[COMMIT_TIME].to_list() if instant is None else [instant] * frame.height
        for at, (time, key) in enumerate(zip(times, frame[RECORD_KEY].to_list(), strict=True)):
            row = tuple((name, of[at]) for name, of in values.items())
            yield Contribution(time, key, "row", row, nulls=nulls)

    def _deletes(self, block: DeleteBlock, keys: pl.DataFrame) -> Iterator[Contribution]:
        times = keys[_TIME].to_list() if _TIME in keys.columns else [block.instant] * keys.height
        ordering = self.merging.rule.ordering
        values: list[Any] = [None] * keys.height
        if ordering is not None and _ORDERING in keys.columns:
            values = keys[_ORDERING].cast(self.merging.columns.stored[ordering]).to_list()
        for time, key, value in zip(times, keys[RECORD_KEY].to_list(), values, strict=True):
            if value is None:
                yield Contribution(time, key, "delete")
            else:
                yield Contribution(time, key, "tombstone", ((str(ordering), value),))


def _place(member: int) -> str:
    """Name a payload's state in the fold. Columns begin with a letter or `_`, so none has this name."""
    return f"#{member}"


def _joined(member: Member) -> Meaning:

    def meaning(values: Sequence[tuple[Contribution, tuple[object, ...]]]) -> Sequence[object]:
        states = [box[0] for _, (box,) in values if isinstance(box, tuple)]
        with naming_payload(member.payload, member.columns):
            return [(reduce(member.payload.join, states),)]

    return meaning


def _unboxed(box: object) -> object:
    return box[0] if isinstance(box, tuple) else None
