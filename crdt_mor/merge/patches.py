"""Fold column by column: for each key, find the row that sets each column and merge payload states.

lines ─ keys ─► codes        every array has one entry per key, in the order of `keys`
cut                          a key's last plain delete: earlier contributions never count again
newest, value, given         positions in the log rows, -1 for none
states                       the fold of a payload, on top of the base's state
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pyarrow as pa

from crdt_mor.errors import FormatError
from crdt_mor.merge.blocks import META_COLUMNS
from crdt_mor.merge.contributions import AT, KIND, LINE_KEY, PLAIN, Contributions
from crdt_mor.merge.rule import Member, MergeRule
from crdt_mor.merge.states import fold_states, take


@dataclass(frozen=True, slots=True)
class Patches:
    """Contributions folded column by column, see the module. A fully deleted key has no `newest` row.

    reset: a mask of the keys that a plain delete separates from their base row.
    value, given: by column, the row that sets its value, and the last row that contains it.
    """

    contributions: Contributions
    rule: MergeRule
    keys: pl.Series
    at: np.ndarray
    code: np.ndarray
    reset: np.ndarray
    newest: np.ndarray
    value: dict[str, np.ndarray]
    given: dict[str, np.ndarray]

    def row_of(self, column: str) -> np.ndarray:
        """Return the row whose value a column takes. Hudi's own columns come from the latest contribution."""
        return self.newest if column in META_COLUMNS else self.value[column]

    def states(self, member: Member, base: pl.DataFrame | None = None, under: np.ndarray | None = None) -> pl.Series:
        """Fold the state of a payload's columns for each key.

        under: each key's row in `base`, which is folded first; -1 for none. Keys with a base row must come in the order
            of the base's rows (see `renumbered`).
        """
        states = member.pack(self.contributions.rows)
        keep = self.contributions.given[member.stored[0]][self.at]
        at, code = (self.at, self.code) if keep.all() else (self.at[keep], self.code[keep])
        if len(at) < len(states) or (at[:-1] > at[1:]).any():
            states = take(states, at)
        if base is not None and under is not None:
            here = np.flatnonzero(under >= 0)
            touched = np.zeros(base.height, dtype=bool)
            touched[under[here]] = True
            rows = base.select(member.below).filter(pl.Series(touched))
            states = pl.concat([member.restored(rows), states])
            code = np.concatenate([here, code])
        return fold_states(member, states, code, self.keys)

    def renumbered(self, first: np.ndarray) -> Patches:
        """Renumber the keys: the keys `first` come first, in that order.

        With `first` in the order of the base's rows, base and patches are read sequentially.
        """
        rest = np.ones(len(self.keys), dtype=bool)
        rest[first] = False
        order = np.concatenate([first, np.flatnonzero(rest)])
        number = np.empty(len(order), dtype=np.int64)
        number[order] = np.arange(len(order))
        moved = {id(a): a[order] for a in (self.newest, *self.value.values(), *self.given.values())}
        return replace(
            self,
            keys=self.keys.gather(pl.Series(order)),
            code=number[self.code],
            reset=self.reset[order],
            newest=moved[id(self.newest)],
            value={c: moved[id(a)] for c, a in self.value.items()},
            given={c: moved[id(a)] for c, a in self.given.items()},
        )


def patches(contributions: Contributions, lines: pl.DataFrame, rule: MergeRule, key: str) -> Patches:
    keys, code = _codes(lines[LINE_KEY])
    count = len(keys)
    reset, at = np.zeros(count, dtype=bool), lines[AT].to_numpy()
    if (plain := (lines[KIND] == PLAIN).to_numpy()).any():
        place = np.arange(lines.height)
        cut = _last(code[plain], place[plain], count)
        alive = ~plain & (place > cut[code])
        reset, at, code = cut >= 0, at[alive], code[alive]
    newest = _last(code, at, count)
    folded = Patches(contributions, rule, keys, at, code, reset, newest, {}, {})
    members = {name for member in rule.members for name in member.stored}
    memo: dict[bytes, np.ndarray] = {}
    for column, mask in contributions.given.items():
        if column in members:
            continue
        if column == key:
            folded.value[column] = folded.given[column] = newest
            continue
        in_column = mask[at]
        packed = np.packbits(in_column).tobytes()
        if packed not in memo:
            memo[packed] = newest if in_column.all() else _last(code[in_column], at[in_column], count)
        folded.given[column] = folded.value[column] = memo[packed]
        series = contributions.rows[column]
        if rule.nulls == "keep" and series.null_count():
            sets = series.is_not_null().to_numpy()
            in_column &= (sets | contributions.nulls[column] if column in contributions.nulls else sets)[at]
            folded.value[column] = _last(code[in_column], at[in_column], count)
    return folded


def _codes(keys: pl.Series) -> tuple[pl.Series, np.ndarray]:
    if keys.null_count():
        raise FormatError(
            "a row has no record key, so the file group is damaged. Run crdt-mor verify to find the file. "
            f"rows={keys.null_count()}"
        )
    arrow = keys.rechunk().to_arrow()
    encoded = arrow.dictionary_encode()
    assert isinstance(encoded, pa.DictionaryArray)
    distinct = pl.from_arrow(encoded.dictionary)
    assert isinstance(distinct, pl.Series)
    return distinct.cast(keys.dtype).alias(LINE_KEY), encoded.indices.to_numpy(zero_copy_only=False)


def _last(code: np.ndarray, at: np.ndarray, count: int) -> np.ndarray:
    last = np.full(count, -1, dtype=np.int64)
    last[code] = at
    return last
