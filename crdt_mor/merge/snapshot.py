"""The merge: one file slice in, the rows that a reader should see out.

    1. the logs decide       every row and delete of the logs as a narrow line; one winner a key       (fold.py)
    2. the base objects      only where it can: a log older than what the base folded in, an ordering column
    3. the rest passes       base rows of keys that the logs replace are dropped inside the Parquet scan, all other
                             rows pass through it untouched: never hashed, sorted or copied

A predicate is pushed into step 3's scan, and applied to merged rows after merging. In a slice without a base the
largest block plays it (a first load goes to logs). Knows columns and keys; neither files' names nor the timeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.merge.blocks import COMMIT_TIME, RECORD_KEY, Columns, DataBlock, DeleteBlock, Slice, distinct
from crdt_mor.merge.contributions import AT, KEY, KIND, ORDER, ROW, TIME, Contributions, gather, raw
from crdt_mor.merge.contributions import scan as scan_parquet
from crdt_mor.merge.fold import Patches, alive, cleared, patches, take, winners
from crdt_mor.merge.rule import MergeRule

PLAYS_BASE_BYTES_MIN = 1 << 20
"""A smaller block is cheaper merged than promoted."""

NO_SAY = ""
"""`base_latest` of a block that plays the base: each of its rows that another block touches is in a block as well, so
that the base itself never competes."""

_BASE_ORDER, _BASE_TIME, _CUT = "base_ordering", "base_time", "cut"


def merge(
    files: Slice, rule: MergeRule, columns: Columns, *, select: Sequence[str], predicate: pl.Expr | None = None
) -> list[pl.DataFrame]:
    """The snapshot of one file slice: at least one frame, exactly the columns `select`, rows in any order."""
    return _merge(files, rule, columns, columns.merge_key, list(select), predicate)


def count(files: Slice, rule: MergeRule, columns: Columns) -> int:
    """How many rows `merge` would give; reads key columns alone (and the ordering column where it must)."""
    if not files.blocks:
        base = files.base
        return int(scan_parquet(base, columns).select(pl.len()).collect().item()) if base is not None else 0
    return sum(frame.height for frame in merge(files, rule, columns, select=[columns.merge_key]))


def touched(blocks: Sequence[DataBlock | DeleteBlock], columns: Columns) -> pl.Series:
    """The distinct record keys that `blocks` write or delete, as text."""
    found = gather(blocks, MergeRule(), columns, RECORD_KEY, [RECORD_KEY])
    return found.lines[KEY].unique().alias(RECORD_KEY)


def _merge(
    files: Slice, rule: MergeRule, columns: Columns, key: str, select: list[str], predicate: pl.Expr | None
) -> list[pl.DataFrame]:
    need = distinct(select, predicate.meta.root_names() if predicate is not None else [])
    files = promote(files, columns, key)
    if rule.kind == "partial":
        merged, rest = _merge_partial(files, rule, columns, key, need, predicate)
    else:
        found = resolve(files, rule, columns, key, need)
        merged = found.live_rows()
        rest = untouched(files, columns, key, found.drop, select, predicate)
    if predicate is not None:
        merged = merged.filter(predicate)
    frames = [merged.select(select), *([rest.select(select)] if rest is not None else [])]
    return [f for f in frames if f.height] or frames[:1]


def promote(files: Slice, columns: Columns, key: str) -> Slice:
    """Without a base file: the largest block as the base, its rows that the others touch as an ordinary block."""
    if files.base is not None or len(files.blocks) < 2:
        return files
    sizes = [_parquet_bytes(b) for b in files.blocks]
    largest = int(np.argmax(sizes))
    block = files.blocks[largest]
    if sizes[largest] < max(PLAYS_BASE_BYTES_MIN, sum(sizes) // 2):
        return files
    assert isinstance(block, DataBlock)
    assert not isinstance(block.rows, pl.DataFrame)
    before, after = files.blocks[:largest], files.blocks[largest + 1 :]
    base = raw(block.rows)
    others = gather((*before, *after), MergeRule(), columns, key, [key]).lines[KEY].unique()
    hit = scan_parquet(base, columns).filter(pl.col(key).is_in(others.implode()))
    given = block.given or tuple(c for c in pq.read_schema(pa.BufferReader(base)).names if c in columns.stored)
    mine = replace(block, rows=hit.collect(), given=given)
    return Slice(base, NO_SAY, (*before, mine, *after))


def _parquet_bytes(block: DataBlock | DeleteBlock) -> int:
    return len(block.rows) if isinstance(block, DataBlock) and not isinstance(block.rows, pl.DataFrame) else 0


@dataclass(frozen=True, slots=True)
class Resolved:
    """Who won: base rows of the keys in `drop` are void; `live` (positions in `rows`) replace them.

    `dead` are the lines of deletes that won: plain ones for `latest`, tombstones for `ordering`.
    """

    drop: pl.Series
    rows: pl.DataFrame
    live: pl.Series
    dead: pl.DataFrame

    def live_rows(self) -> pl.DataFrame:
        """The winning rows of the logs."""
        keep = np.zeros(self.rows.height, dtype=bool)
        keep[self.live.to_numpy()] = True
        return self.rows.filter(pl.Series(keep))


def resolve(
    files: Slice, rule: MergeRule, columns: Columns, key: str, need: Sequence[str], *, timed: bool = False
) -> Resolved:
    """Steps 1 and 2, for `latest` and `ordering`."""
    assert rule.kind != "partial"
    late = _is_late(files)
    found = gather(files.blocks, rule, columns, key, need, timed=timed or late)
    best = winners(found.lines, rule)
    drop = best[KEY] if rule.kind == "latest" else found.lines[KEY].unique()
    compete = late or (rule.kind == "ordering" and files.base_latest != NO_SAY)
    if files.base is not None and best.height and compete:
        lost = _base_wins(files, rule, columns, key, found, best, late)
        if len(lost):
            best = best.filter(~pl.col(KEY).is_in(lost.implode()))
            drop = drop.filter(~drop.is_in(lost.implode()))
    if late and rule.kind == "ordering" and files.base is not None:
        drop = _spare_newer(files, columns, key, found, best, drop)
    is_row = best[KIND] == ROW
    return Resolved(drop, found.rows, best.filter(is_row)[AT], best.filter(~is_row))


def _is_late(files: Slice) -> bool:
    """Whether some log may be older than what the base folded in."""
    if files.base is None or files.base_latest == NO_SAY:
        return False
    latest = files.base_latest if files.base_latest is not None else _latest_in(files.base)
    oldest = min((_oldest(b) for b in files.blocks), default="~")
    return latest is None or oldest < latest


def _oldest(block: DataBlock | DeleteBlock) -> str:
    if isinstance(block, DeleteBlock) and TIME in block.keys.columns and block.keys.height:
        return str(block.keys[TIME].min())
    # Rows with their own times are never older than the fold of what was stable when they were carried.
    return block.instant


def _latest_in(base: str | bytes) -> str | None:
    """The greatest requested time in a base file that does not say, by its statistics; None if they do not either."""
    try:
        footer = pq.read_metadata(pa.BufferReader(base) if isinstance(base, bytes) else base)
    except (OSError, pa.ArrowInvalid):
        return None
    column = next((i for i in range(footer.num_columns) if footer.schema.column(i).path == COMMIT_TIME), None)
    if column is None:
        return None
    found = [footer.row_group(g).column(column).statistics for g in range(footer.num_row_groups)]
    if any(s is None or not s.has_min_max for s in found):
        return None
    return max((str(s.max) for s in found), default="")


def _base_rows(base: str | bytes, columns: Columns, key: str, keys: pl.Series, need: Sequence[pl.Expr]) -> pl.DataFrame:
    hit = scan_parquet(base, columns).filter(pl.col(key).is_in(keys.implode()))
    return hit.select(pl.col(key).alias(KEY), *need).collect()


def _base_wins(
    files: Slice, rule: MergeRule, columns: Columns, key: str, found: Contributions, best: pl.DataFrame, late: bool
) -> pl.Series:
    """The keys whose base row beats the winner of the logs."""
    assert files.base is not None
    need = [pl.col(rule.ordering).alias(_BASE_ORDER)] if rule.ordering else []
    need += [pl.col(COMMIT_TIME).alias(_BASE_TIME)] if late else []
    challenged = best.select(KEY, KIND, *([TIME] if late else []), *([ORDER] if rule.ordering else []))
    rows = _base_rows(files.base, columns, key, best[KEY], need).join(challenged, on=KEY, how="inner")
    newer = pl.lit(False)
    if late:
        # At one requested time the delete comes first, and a row meets only itself.
        same = (pl.col(_BASE_TIME) == pl.col(TIME)) & (pl.col(KIND) != ROW)
        newer = (pl.col(_BASE_TIME) > pl.col(TIME)) | same
    if rule.kind == "latest":
        return rows.filter(newer)[KEY]
    mine, theirs = pl.col(_BASE_ORDER), pl.col(ORDER)
    greater = mine.is_not_null() & (theirs.is_null() | (mine > theirs).fill_null(False))
    wins = rows.filter(greater | (mine.eq_missing(theirs) & newer))
    cut = cleared(found.lines)
    if not cut.height:
        return wins[KEY]
    if not late:
        return wins.join(cut, on=KEY, how="anti")[KEY]
    cuts = wins.join(cut.select(KEY, pl.col(TIME).alias(_CUT)), on=KEY, how="left")
    return cuts.filter(pl.col(_CUT).is_null() | (pl.col(_BASE_TIME) >= pl.col(_CUT)))[KEY]


def _spare_newer(
    files: Slice, columns: Columns, key: str, found: Contributions, best: pl.DataFrame, drop: pl.Series
) -> pl.Series:
    """A late plain delete with no version after it removes older base rows only."""
    alone = cleared(found.lines).join(best, on=KEY, how="anti").select(KEY, TIME)
    if not alone.height:
        return drop
    assert files.base is not None
    rows = _base_rows(files.base, columns, key, alone[KEY], [pl.col(COMMIT_TIME).alias(_BASE_TIME)])
    spared = rows.join(alone, on=KEY, how="inner").filter(pl.col(_BASE_TIME) >= pl.col(TIME))[KEY]
    return drop.filter(~drop.is_in(spared.implode())) if len(spared) else drop


def untouched(
    files: Slice, columns: Columns, key: str, drop: pl.Series, select: Sequence[str], predicate: pl.Expr | None
) -> pl.DataFrame | None:
    """Step 3: the base rows of all keys but `drop`."""
    if files.base is None:
        return None
    base = scan_parquet(files.base, columns)
    if not len(drop):
        return (base if predicate is None else base.filter(predicate)).select(select).collect()
    if predicate is None:
        return base.filter(~pl.col(key).is_in(drop.implode())).select(select).collect()
    # The predicate alone in the scan, where statistics serve it; then the keys, of what is left.
    rows = base.filter(predicate).select(distinct(select, [key])).collect()
    return rows.filter(~rows[key].is_in(drop.implode())).select(select)


def _merge_partial(
    files: Slice, rule: MergeRule, columns: Columns, key: str, need: list[str], predicate: pl.Expr | None
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Merged rows (not yet filtered), and the untouched rows of the base (filtered)."""
    found = gather(files.blocks, rule, columns, key, need)
    after = alive(found.lines)
    folded = patches(found, after, rule, key)
    drop = found.lines[KEY].unique() if after.height != found.lines.height else folded.keys
    if files.base is None:
        return _overlay(found, folded, need, None, None), None
    complete = files.base_latest == NO_SAY or all((folded.row_of(c) >= 0).all() for c in need)
    if complete:
        return _overlay(found, folded, need, None, None), untouched(files, columns, key, drop, need, predicate)
    base, rest = _split_base(files, columns, key, drop, need, predicate)
    under = _under(folded, base[key], cleared(found.lines)[KEY])
    return _overlay(found, folded, need, base, under), rest


def _split_base(
    files: Slice, columns: Columns, key: str, drop: pl.Series, need: list[str], predicate: pl.Expr | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The base rows of the keys in `drop`, and the others (those that satisfy the predicate)."""
    assert files.base is not None
    every = distinct(need, [key])
    base = scan_parquet(files.base, columns)
    if predicate is not None:
        hit = base.filter(pl.col(key).is_in(drop.implode())).select(every).collect()
        rest = untouched(files, columns, key, drop, every, predicate)
        assert rest is not None
        return hit, rest
    rows = base.select(every).collect()
    mask = rows[key].is_in(drop.implode())
    return rows.filter(mask), rows.filter(~mask)


def _under(folded: Patches, base_keys: pl.Series, reset: pl.Series) -> np.ndarray:
    """For every patched key the base row below it; -1 if there is none, or a delete lies between."""
    rows = base_keys.alias(KEY).to_frame().with_row_index("under")
    if len(reset):
        rows = rows.filter(~pl.col(KEY).is_in(reset.implode()))
    joined = folded.keys.to_frame().join(rows, on=KEY, how="left", maintain_order="left")
    return joined["under"].cast(pl.Int64).fill_null(-1).to_numpy()


def _overlay(
    found: Contributions, folded: Patches, need: Sequence[str], base: pl.DataFrame | None, under: np.ndarray | None
) -> pl.DataFrame:
    """Patched rows: each column from the row that gave it last, else from the base, else null."""
    result: list[pl.Series] = []
    for column in need:
        index, series = folded.row_of(column), found.rows[column]
        if base is not None and under is not None and (index < 0).any():
            below = np.where(under >= 0, under + series.len(), -1)
            index = np.where(index >= 0, index, below)
            series = pl.concat([series, base[column]])
        result.append(take(series, index))
    return pl.DataFrame(result)
