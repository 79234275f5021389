"""Bugs that are planted on purpose, one for each promise of the simulator, and the seed that finds each of them.

A planted bug is a function that takes `pytest.MonkeyPatch` and replaces one rule of the engine by a careless one.
docs/correctness.md lists them with their seeds. A change of what is drawn for a seed moves them:
`python -c "from tests.simulation.planted import *; print_first_seeds()"` says which they are then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pytest

from crdt_mor import Dot, Payload
from crdt_mor.api import erasure, table_writes
from crdt_mor.api.commit import commit_rows
from crdt_mor.columns.names import Names
from crdt_mor.errors import CommitUnknownError, StorageUnavailableError
from crdt_mor.events import sweep
from crdt_mor.events.views import Views
from crdt_mor.ground.threads import in_threads
from crdt_mor.hudi import adoption_instants
from crdt_mor.laws.merging import Merging, lift
from crdt_mor.log.steps import Steps
from crdt_mor.merge.expiry import expired
from crdt_mor.model.cut import Cut
from crdt_mor.model.expiry import Expiry
from crdt_mor.model.instant import EPOCH, InstantTime, from_ms, to_ms
from crdt_mor.model.migration import Step
from crdt_mor.model.savepoint import Savepoint
from crdt_mor.model.slices import FileSlice, Slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.parts import DataFile
from crdt_mor.payloads import MVRegister
from crdt_mor.read import cut, snapshot
from crdt_mor.read.cut import saved_under
from crdt_mor.read.window import Window
from crdt_mor.services import compaction as services
from crdt_mor.services.migration import Migration
from crdt_mor.store.memory import MemoryStore
from crdt_mor.testing.simulation import run_seed, world
from crdt_mor.write import stage, statements


def a_store_without_put_if_absent(patch: pytest.MonkeyPatch) -> None:
    """Of two puts of one name the later one replaces the earlier one, and both are told that theirs is there."""
    put = MemoryStore.put

    def careless(store: MemoryStore, path: str, data: Any, **how: Any) -> bool:
        store.delete(path)
        return put(store, path, data, **how)

    patch.setattr(MemoryStore, "put", careless)


def tokens_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The token of an upsert is not handed on, so that its repeat is another commit."""

    def careless(session: Any, read: Any, token: Any, *rest: Any) -> Any:
        del token
        return commit_rows(session, read, None, *rest)

    patch.setattr(table_writes, "commit_rows", careless)


def an_unknown_outcome_is_told_as_a_failure(patch: pytest.MonkeyPatch) -> None:
    """An upsert of which nobody knows whether it landed is told as one that did not."""

    def careless(*arguments: Any) -> Any:
        try:
            return commit_rows(*arguments)
        except CommitUnknownError as error:
            raise StorageUnavailableError(f"nothing was published: {error}") from error

    patch.setattr(table_writes, "commit_rows", careless)


def a_view_goes_by_begin(patch: pytest.MonkeyPatch) -> None:
    """A view as of a moment shows what had begun by then."""

    def careless(moment: Cut, commit: Completion) -> bool:
        by_completion = moment.by == "completed"
        return commit.requested <= moment.time if by_completion else commit.requested < moment.time

    patch.setattr(Cut, "shows", careless)


def logs_beside_a_base_are_left_out(patch: pytest.MonkeyPatch) -> None:
    """A snapshot reads a base file without what was written since."""

    slices = Views.slices

    def careless(views: Views, *of: Any, **how: Any) -> Slices:
        return Slices(replace(one, logs=()) if one.base else one for one in slices(views, *of, **how))

    patch.setattr(Views, "slices", careless)


def logs_are_read_again_beside_their_base(patch: pytest.MonkeyPatch) -> None:
    """A snapshot reads logs that a compaction has folded, together with the base file that holds them."""

    slices = Views.slices

    def careless(views: Views, *at: Any, **how: Any) -> Slices:
        logs = [file for one in views.snapshot_completions(*at) for file in one.files if not file.is_base]

        def of(one: FileSlice) -> tuple[DataFile, ...]:
            return tuple(log for log in logs if (log.partition, log.name.file_id) == one.group)

        return Slices(replace(one, logs=of(one)) if one.base else one for one in slices(views, *at, **how))

    patch.setattr(Views, "slices", careless)


def a_file_of_a_commit_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A commit that touches several file groups has the log file of one of them."""
    patch.setattr(stage, "in_threads", lambda work, items, *more: in_threads(work, list(items)[:1], *more))


def a_commit_is_skipped(patch: pytest.MonkeyPatch) -> None:
    """A follower that is several commits behind does not hear of the first of them."""
    seal = Window.seal.__func__  # type: ignore[attr-defined]

    def careless(cls: type[Window], session: Any, value: Any, start: Cut, end: Cut, **how: Any) -> Window:
        window: Window = seal(cls, session, value, start, end, **how)
        is_behind = start.time > EPOCH and len(window.between) > 1
        return replace(window, between=window.between[1:]) if is_behind else window

    patch.setattr(Window, "seal", classmethod(careless))  # type: ignore[arg-type]


def states_have_no_dots(patch: pytest.MonkeyPatch) -> None:
    """What is written is lifted as if all of it had been written at once."""

    def careless(rows: pl.DataFrame, merging: Merging, dot: Dot, *absent: Any) -> pl.DataFrame:
        return lift(rows, merging, replace(dot, time=pl.lit(0, pl.Int64)), *absent)

    patch.setattr(statements, "lift", careless)


def an_erasure_deletes_one_key(patch: pytest.MonkeyPatch) -> None:
    """Of the keys that are to be erased the first one is."""
    missing = erasure._remaining

    def careless(*arguments: Any) -> Any:
        found = missing(*arguments)
        return replace(found, deletes=found.deletes.head(1))

    patch.setattr(erasure, "_remaining", careless)


def each_pending_write_is_given_up(patch: pytest.MonkeyPatch) -> None:
    """A sweep takes each pending write for one of a dead process."""

    def careless(*_: object) -> Steps[bool]:
        return True
        yield

    patch.setattr(sweep, "is_expired", careless)


def a_savepoint_is_the_newest_moment(patch: pytest.MonkeyPatch) -> None:
    """The name of a savepoint stands for whatever the table shows by now."""

    def careless(value: Timeline, *text: Any, **how: Any) -> Savepoint:
        return replace(saved_under(value, *text, **how), at=value.clock)

    patch.setattr(cut, "saved_under", careless)


def a_commit_of_hudis_is_adopted_in_part(patch: pytest.MonkeyPatch) -> None:
    """A commit of Hudi's that touches several file groups is adopted with the log file of one of them."""
    completion = adoption_instants._completion

    def careless(*arguments: Any) -> Completion:
        found = completion(*arguments)
        return replace(found, files=found.files[:1])

    patch.setattr(adoption_instants, "_completion", careless)


def a_migration_copies_and_does_not_follow(patch: pytest.MonkeyPatch) -> None:
    """A migration copies the table, and takes what was written meanwhile for copied."""
    do = Migration._do

    def careless(migration: Migration, step: Step) -> bool:
        return do(migration, step) if step.since == EPOCH else True

    patch.setattr(Migration, "_do", careless)


def a_dropped_column_is_seen(patch: pytest.MonkeyPatch) -> None:
    """A column that was dropped is still shown."""
    patch.setattr(Names, "_hidden", property(lambda _: frozenset()))  # also of names that a run before has met


def a_compaction_drops_rows_an_hour_early(patch: pytest.MonkeyPatch) -> None:
    """A compaction drops rows that expire in the next hour."""

    def careless(expiry: Expiry, at: InstantTime) -> pl.Expr:
        return expired(expiry, from_ms(to_ms(at) + 3_600_000))

    patch.setattr(services, "expired", careless)


def the_past_expires_too(patch: pytest.MonkeyPatch) -> None:
    """A view as of a moment hides the rows that have expired by now."""
    patch.setattr(
        snapshot.Snapshot, "expiry_time", property(lambda self: snapshot.moment_now(self.session, self.value))
    )


class Mean(Payload):
    """The mean of means, which depends on who merged first."""

    name = "planted.mean/1"

    def join(self, a: float, b: float) -> float:
        return (a + b) / 2

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.mean()

    def examples(self) -> Sequence[float]:
        return [0.0, 1.0, 4.0]


def nothing(patch: pytest.MonkeyPatch) -> None:
    """The payload itself is the bug."""
    del patch


@dataclass(frozen=True)
class Planted:
    """A bug, the promise that it breaks, and the first seed of which the run breaks just that promise."""

    invariant: str
    plant: Callable[[pytest.MonkeyPatch], None]
    seed: int
    payload: Payload | None = None


PLANTED = [
    Planted("nothing-lost", a_store_without_put_if_absent, 9),
    Planted("nothing-twice", tokens_are_forgotten, 3),
    Planted("given-up-stays-away", an_unknown_outcome_is_told_as_a_failure, 21),
    Planted("one-moment", a_view_goes_by_begin, 32),
    Planted("readers-agree", logs_beside_a_base_are_left_out, 9),
    Planted("increments-add-up", logs_are_read_again_beside_their_base, 2),
    Planted("bank", a_file_of_a_commit_is_forgotten, 20),
    Planted("convergence", a_commit_is_skipped, 25),
    Planted("merged-as-joined", states_have_no_dots, 1, MVRegister()),
    Planted("saved-stays", a_savepoint_is_the_newest_moment, 0),
    Planted("erased-stays-erased", an_erasure_deletes_one_key, 103),
    Planted("laws", nothing, 0, Mean()),
    Planted("no-surprise", each_pending_write_is_given_up, 40),
]

PLANTED_BESIDE = [
    Planted("nothing-lost", a_commit_of_hudis_is_adopted_in_part, 26),
    Planted("nothing-lost", a_migration_copies_and_does_not_follow, 123),
    Planted("nothing-lost", a_dropped_column_is_seen, 1),
    Planted("one-moment", the_past_expires_too, 140),
    Planted("nothing-lost", a_compaction_drops_rows_an_hour_early, 51),
]
"""Bugs in what becomes of Hudi's commits, in migrations, in changes of columns and in rows that expire."""


@contextmanager
def planted_in(planted: Planted) -> Iterator[None]:
    """The bug is there in the block, also where tables are made that other runs would begin with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "_MADE", {})
        planted.plant(patch)
        yield


def first_seed(planted: Planted, seeds: range) -> int | None:
    """The first of these seeds of which the run breaks just the promise of a planted bug."""
    with planted_in(planted):
        runs = ((seed, run_seed(seed, planted.payload).violation) for seed in seeds)
        return next((seed for seed, broken in runs if broken and broken.invariant == planted.invariant), None)


def print_first_seeds() -> None:
    """Say which seeds find the bugs, after a change of what is drawn for a seed."""
    for one in (*PLANTED, *PLANTED_BESIDE):
        sys.stdout.write(f"{one.invariant} {one.plant.__name__} {first_seed(one, range(1000))}\n")
        sys.stdout.flush()
