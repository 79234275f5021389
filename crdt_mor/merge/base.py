"""The base of a slice, in the two ways a merge reads it.

    Scanned   keys are dropped inside the Parquet scan; a predicate too. Asking for single rows is a scan of its own
    Decoded   all rows in memory, once; where each touched key lies is found once. For merges that must look at touched
              rows anyway (an ordering column, a partial update): one decode instead of two

Both answer the same two questions: the rows of some keys, and all rows but those of some keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from crdt_mor.merge.blocks import COMMIT_TIME, Columns, distinct
from crdt_mor.merge.contributions import KEY, scan
from crdt_mor.parquet import ParquetSource

IN_SCAN_KEYS_MAX = 200_000
"""The scan makes a hash table of the keys to drop for every row group: 280 ms against 250 for 400,000 of a million rows
in eight row groups, 455 against 290 for 800,000."""

Places = npt.NDArray[np.int64]

PLACE, NUMBER, BASE_TIME = "place", "number", "base_time"
_HASH = "hash"


@dataclass(frozen=True, slots=True)
class Scanned:
    """A base file that is read as it is needed."""

    source: ParquetSource
    columns: Columns
    key: str
    predicate: pl.Expr | None = None
    part: tuple[int, int] | None = None
    """The first row and the number of rows, where the others do not belong to the slice."""
    ahead: Future[pl.DataFrame] | None = None

    @property
    def _rows(self) -> pl.LazyFrame:
        rows = scan(self.source, self.columns)
        return rows if self.part is None else rows.slice(*self.part)

    def begun(self, select: Sequence[str], pool: Executor) -> Scanned:
        """Rows for which the predicate holds depend on no log: they are read while the logs are."""
        return replace(self, ahead=pool.submit(self._found, select))

    def _found(self, select: Sequence[str]) -> pl.DataFrame:
        assert self.predicate is not None
        # The predicate alone in the scan, where statistics serve it.
        found = self._rows.filter(self.predicate)
        return found.select(distinct(select, [self.key])).collect()

    def rows(self, keys: pl.Series, need: Sequence[pl.Expr]) -> pl.DataFrame:
        """`key` and `need` of the rows of `keys`."""
        hit = self._rows.filter(pl.col(self.key).is_in(keys.implode()))
        return hit.select(pl.col(self.key).alias(KEY), *need).collect()

    def since(self, time: str) -> pl.DataFrame:
        """Key and requested time of the rows that are not older."""
        rows = self._rows.filter(pl.col(COMMIT_TIME) >= time)
        return rows.select(pl.col(self.key).alias(KEY), pl.col(COMMIT_TIME).alias(BASE_TIME)).collect()

    def without(self, drop: pl.Series, select: Sequence[str]) -> pl.DataFrame:
        """All rows for which the predicate holds, but those of the keys in `drop`."""
        if self.predicate is not None:
            found = self._found(select) if self.ahead is None else self.ahead.result()
            return Decoded.of(found, self.key, drop).others(select)
        if len(drop) > IN_SCAN_KEYS_MAX or self.part is not None:  # in a part, nothing could be dropped while scanning
            return self.decode(drop, select).others(select)
        base = self._rows
        rest = base.filter(~pl.col(self.key).is_in(drop.implode())) if len(drop) else base
        return rest.select(select).collect()

    @property
    def height(self) -> int:
        """How many rows the file has."""
        return int(self._rows.select(pl.len()).collect().item())

    def decode(self, keys: pl.Series, need: Sequence[str]) -> Decoded:
        """All rows, whatever the predicate says, and where those of `keys` are."""
        rows = self._rows.select(distinct(need, [self.key])).collect()
        return Decoded.of(rows, self.key, keys)


@dataclass(frozen=True, slots=True)
class Decoded:
    """`placed`: of each touched key that the base has, its number among the touched ones, and where its row is; in the
    order of the rows."""

    frame: pl.DataFrame
    placed: pl.DataFrame

    @classmethod
    def of(cls, frame: pl.DataFrame, key: str, keys: pl.Series) -> Decoded:
        """Find `keys` (distinct) in `frame`: by hash, which is twice as fast as by text; then the text decides."""
        hashes = frame[key].hash().alias(_HASH).to_frame().lazy().with_row_index(PLACE)
        wanted = keys.hash().alias(_HASH).to_frame().lazy().with_row_index(NUMBER)
        found = hashes.join(wanted, on=_HASH, how="inner").select(PLACE, NUMBER).collect().sort(PLACE)
        hit = frame[key].gather(found[PLACE]).alias(KEY)
        return cls(frame, found.with_columns(hit).filter(hit == keys.gather(found[NUMBER])))

    def rows(self, keys: pl.Series, need: Sequence[pl.Expr]) -> pl.DataFrame:
        """`key` and `need` of the rows of `keys`, all of which were looked for."""
        hit = self.placed.join(keys.alias(KEY).to_frame(), on=KEY, how="semi")
        narrow = self.frame.select(need)[hit[PLACE]] if need else pl.DataFrame()
        return narrow.with_columns(hit[KEY]).select(KEY, *narrow.columns)

    def without(self, drop: pl.Series, select: Sequence[str]) -> pl.DataFrame:
        """All rows but those of the keys in `drop`, all of which were looked for."""
        return self._but(self._hit(drop), select)

    def others(self, select: Sequence[str]) -> pl.DataFrame:
        """All rows but those of touched keys."""
        return self._but(self.placed[PLACE], select)

    def standing(self, drop: pl.Series) -> Places:
        """Where the rows are that `without` gives."""
        return np.delete(np.arange(self.frame.height), self._hit(drop).to_numpy())

    def _hit(self, drop: pl.Series) -> pl.Series:
        return self.placed.join(drop.alias(KEY).to_frame(), on=KEY, how="semi")[PLACE]

    def _but(self, places: pl.Series, select: Sequence[str]) -> pl.DataFrame:
        keep = np.ones(self.frame.height, dtype=bool)
        keep[places.to_numpy()] = False
        return self.frame.select(select).filter(pl.Series(keep))


Base = Scanned | Decoded
