"""The four processes. Each sees the others only through the table."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Protocol

import polars as pl

import crdt_mor as mor
from crdt_mor.cli.demo import journal
from crdt_mor.cli.demo.place import Place
from crdt_mor.cli.demo.story import (
    CORRECTION,
    DELAYS,
    FIRST_DAY,
    KEY,
    PARTITION,
    PLAIN,
    WRONG_ORIGIN,
    Story,
    days_of,
    flights,
    flown,
    pseudonyms,
)  # fmt: skip
from crdt_mor.ground.clock import SystemEnvironment

PATIENCE = 15
"""Waits without a commit of another process until a transaction stops waiting."""


class Channel(Protocol):
    """The sending end of a multiprocessing queue."""

    def put(self, message: Message) -> None: ...


class Flag(Protocol):
    def is_set(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Message:
    process: str
    kind: str  # doing | commit | compaction | done | failed
    text: str = ""
    rows: int = 0


@dataclass(frozen=True)
class Desk:
    process: str
    place: Place
    story: Story
    secret: bytes  # of the pseudonyms; only `encrypt` gets it, never the table
    channel: Channel
    stop: Flag

    def table(self) -> mor.Table:
        return self.place.table()

    def say(self, text: str) -> None:
        self.channel.put(Message(self.process, "doing", text))

    def log(self, what: str, commit: mor.Commit | None, batch: pl.DataFrame) -> None:
        assert commit is not None
        assert not commit.repeated, "a token of this run was used before"
        journal.note(self.place.journal, self.process, what, commit, batch)
        self.channel.put(Message(self.process, "commit", what, batch.height))

    @property
    def commit_info(self) -> dict[str, str]:
        return {"application": self.process}

    def rest(self, seconds: float) -> None:
        SystemEnvironment().sleep(seconds)


def work(desk: Desk) -> None:
    jobs: dict[str, Callable[[Desk], None]] = {
        "ingest": ingest,
        "encrypt": encrypt,
        "backfill": backfill,
        "compact": compact,
    }
    try:
        jobs[desk.process](desk)
        desk.channel.put(Message(desk.process, "done", "done"))
    except KeyboardInterrupt:
        pass  # the parent reports it
    except BaseException:
        desk.channel.put(Message(desk.process, "failed", traceback.format_exc()))
        raise


def ingest(desk: Desk) -> None:
    story, table = desk.story, desk.table()
    late: Generator[None] | None = None
    late_ends = FIRST_DAY
    for number, (day, batch) in enumerate(days_of(flights(story))):
        if late is not None and (day > late_ends or day == story.last_day):
            next(late, None)  # completes before the next day, as story.py requires
            late = None
        desk.say(f"{day:%d %b}" + (" and a late delivery" if late else ""))
        commit = table.upsert(batch, commit_info=desk.commit_info)
        desk.log(f"{day}", commit, batch)
        if number % story.late_every == 1 and day + timedelta(days=story.late_days) < story.last_day:
            late, late_ends = deliver_again(desk, table, day, batch), day + timedelta(days=story.late_days)
            next(late)


def deliver_again(desk: Desk, table: mor.Table, day: date, batch: pl.DataFrame) -> Generator[None]:
    """Keep a transaction open between the first `next` and the second."""
    with table.transaction(commit_info=desk.commit_info) as tx:
        tx.upsert(batch)
        yield
    desk.log(f"late-{day}", tx.commit, batch)


def encrypt(desk: Desk) -> None:
    """Replace plain tail numbers in passes, until a pass has seen the last day."""
    story, table = desk.story, desk.table()
    seen = story.encrypt_from - timedelta(days=1)
    while seen < story.last_day:
        wait_for_day(desk, table, min(story.last_day, seen + timedelta(days=story.encrypt_step)))
        with table.transaction(commit_info=desk.commit_info) as tx:
            last = newest_day(tx)
            # A late delivery reaches back by `late_days`. The last pass checks all days.
            since = story.encrypt_from if last == story.last_day else max(story.encrypt_from, seen - timedelta(days=31))
            plain = tx.scan(
                columns=[*KEY, PARTITION, "tailnum"], filter=recent(since) & (flown >= since) & PLAIN
            ).to_polars()
            batch = plain.with_columns(pseudonyms(plain["tailnum"], desk.secret))
            desk.say(f"{batch.height:,} tail numbers up to {last:%d %b}")
            tx.upsert(batch)
            wait_for_commits(desk, table, story.encrypt_commits)
        desk.log(f"up-to-{last}", tx.commit, batch)
        seen = last


def backfill(desk: Desk) -> None:
    story, table = desk.story, desk.table()
    following = FIRST_DAY
    for number in range(story.days):
        awaited = following + timedelta(days=story.backfill_step - 1 + story.old_after)
        wait_for_day(desk, table, min(story.last_day, awaited))
        with table.transaction(token=("backfill", number)) as tx:
            through = newest_day(tx) - timedelta(days=story.old_after)
            days = (flown >= following) & (flown <= through)
            wrong = recent(following) & days & (pl.col("origin") == WRONG_ORIGIN)
            batch = tx.scan(columns=[*KEY, PARTITION, *DELAYS], filter=wrong).to_polars().with_columns(CORRECTION)
            desk.say(f"{batch.height:,} flights, {following:%d %b} to {through:%d %b}")
            tx.upsert(batch)
            wait_for_commits(desk, table, story.backfill_commits)
        desk.log(f"{following}-to-{through}", tx.commit, batch)
        following = through + timedelta(days=1)
        if following > story.last_day - timedelta(days=story.old_after):
            return


def compact(desk: Desk) -> None:
    story, table = desk.story, desk.table()
    while not desk.stop.is_set():
        desk.say("merging logs")
        for done in table.maintenance.compact(log_files_min=story.log_files_min):
            desk.channel.put(Message(desk.process, "compaction", f"{done.carried:,} rows carried", done.rows))
        desk.say("resting")
        desk.rest(story.compact_seconds)


# --- waiting by polling the table -------------------------------------------------------------------------------------


def recent(since: date) -> pl.Expr:
    return pl.col("month") >= since.month


def newest_day(source: mor.Table | mor.Transaction) -> date:
    days = source.scan(columns=["month", "day"], filter=recent(FIRST_DAY)).to_polars()
    newest = days.select(flown.max()).item()
    return newest if isinstance(newest, date) else FIRST_DAY - timedelta(days=1)


def wait_for_day(desk: Desk, table: mor.Table, day: date) -> None:
    desk.say(f"waits for {day:%d %b}")
    while table.scan(columns=["day"], filter=(pl.col("month") == day.month) & (flown == day)).count() == 0:
        desk.rest(10 * desk.place.wait_seconds)


def wait_for_commits(desk: Desk, table: mor.Table, count: int) -> None:
    seen, quiet = table.version, 0
    last = seen + count  # a commit is one version, or two: begin and complete
    while seen < last and quiet < PATIENCE:
        desk.rest(desk.place.wait_seconds)
        quiet = quiet + 1 if table.version == seen else 0
        seen = table.version
