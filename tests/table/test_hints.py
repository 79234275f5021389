"""Hints of which rows a reader sees: they save the merge, and none of them, whatever it holds, changes an answer."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from datetime import timedelta
from itertools import product
from typing import Any, Final

import pytest

from crdt_mor import Opening, Table
from crdt_mor.log.paths import RESOLVED
from crdt_mor.merge import resolution_hint
from crdt_mor.merge.resolution import Bits, Resolution, only
from crdt_mor.read import resolved, together
from crdt_mor.services import resolving
from crdt_mor.store.protocol import Store
from tests.inside import store_of
from tests.simulated import Simulated
from tests.table.compacting import written
from tests.table.helpers import MERGES, Make, counted_merges, frame
from tests.tiers import only as fast_only
from tests.tiers import seeds

CASES: Final = list(product(("latest", "ordering"), ("flat", "partitions")))
FAST: Final = [("latest", "partitions"), ("ordering", "flat")]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small slices to which somebody has just written have hints, too, and are merged alone."""
    monkeypatch.setattr(resolving, "QUIET_MS", -1)
    monkeypatch.setattr(resolved, "HINTED_BYTES_MIN", 0)
    monkeypatch.setattr(together, "BYTES_MAX", 0)


@pytest.fixture
def merges(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of blocks of each merge from now on."""
    return counted_merges(monkeypatch)


def opened(table: Table) -> Table:
    """The table as another process has it open."""
    return Table(table.uri, opening=Opening(store=store_of(table)))


def answers(table: Table, **scan: Any) -> list[object]:
    """What another process says of it: all columns, some without the key, the number of rows, and some by a filter."""
    other = opened(table)
    count = opened(table).scan(**scan).count()
    every = sorted(other.scan(**scan).to_polars().rows(), key=repr)
    narrow = sorted(opened(table).scan(columns=["price", "n"], **scan).to_polars().rows(), key=repr)
    chosen = sorted(opened(table).scan(filter="n > 8", **scan).to_polars().rows(), key=repr)
    return [count, every, narrow, chosen]


def hints_of(store: Store) -> dict[str, bytes]:
    return {stat.path: store.read(stat.path) or b"" for stat in store.list(RESOLVED)}


def maintained(table: Table) -> list[str]:
    """What `maintain` says that it has done about hints."""
    done = table.maintenance.maintain(keep=timedelta(days=99)).actions
    return [str(one) for one in done if one.service == "hints"]


@pytest.fixture
def logged(make: Make) -> Table:
    """A table of three buckets, of which each has a base, and two have a log."""
    table = make(buckets=3)
    table.upsert(frame(*((f"k{i:02}", "a", i) for i in range(40))))
    table.maintenance.compact()
    table.upsert(frame(("k01", "b", 101), ("k02", "b", 107)))
    assert len({one["file_id"] for one in table.inspect.files().to_pylist() if one["kind"] == "log"}) == 2
    return table


def test_a_hint_saves_the_merge(logged: Table, merges: list[int]) -> None:
    before = answers(logged)
    assert merges
    merges.clear()
    assert opened(logged).scan().unopened == 1
    assert maintained(logged)
    assert opened(logged).scan().unopened == 3, "a count opens no file of theirs"
    assert len(hints_of(store_of(logged))) == 2
    merges.clear()
    assert answers(logged) == before
    assert not merges
    assert not maintained(logged), "nothing is due any more"


def test_a_slice_with_another_log_is_merged_until_it_has_a_hint_of_its_own(
    logged: Table, merges: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    maintained(logged)
    first = hints_of(store_of(logged))
    logged.upsert(frame(("k01", "c", 999)))
    merges.clear()
    assert opened(logged).scan(filter="n = 999").count() == 1
    assert merges
    monkeypatch.setattr(resolving, "KEPT_MS", -1)
    assert "removed 1 file" in maintained(logged)[0]
    second = hints_of(store_of(logged))
    assert len(second) == 2
    assert len(second.keys() & first.keys()) == 1


def test_a_slice_has_a_hint_when_nobody_has_written_to_it_for_a_while(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(resolved, "HINTED_BYTES_MIN", 0)
    table = simulated.create(frame(("k01", "a", 1)).schema, key="id", buckets=1)
    table.upsert(frame(("k01", "a", 1)))
    table.maintenance.compact()
    table.upsert(frame(("k01", "a", 2)))
    assert not maintained(table)
    simulated.environment.sleep(601)
    assert maintained(table)
    (old,) = hints_of(store_of(table))
    table.upsert(frame(("k01", "a", 3)))
    assert not maintained(table)
    assert [*hints_of(store_of(table))] == [old], "which an open snapshot may still ask for"
    simulated.environment.sleep(601)
    assert maintained(table)
    (new,) = hints_of(store_of(table))
    assert new != old


def test_a_dry_run_says_so_and_puts_nothing(logged: Table) -> None:
    done = logged.maintenance.maintain(dry_run=True).actions
    assert [one.state for one in done if one.service == "hints"] == ["due"]
    assert not hints_of(store_of(logged))


def flipped(hint: bytes, at: int) -> bytes:
    return hint[:at] + bytes([hint[at] ^ 1]) + hint[at + 1 :]


DAMAGES: Final[dict[str, Callable[[bytes, bytes], bytes]]] = {
    "empty": lambda hint, other: b"",
    "half": lambda hint, other: hint[: len(hint) // 2],
    "longer": lambda hint, other: hint + b"\0",
    "of other files": lambda hint, other: other,
    "other bytes": lambda hint, other: b"PAR1" * 50,
    "a bit of the magic": lambda hint, other: flipped(hint, 0),
    "a bit of the name": lambda hint, other: flipped(hint, 20),
    "a bit of the counts": lambda hint, other: flipped(hint, 44),
    "a bit of the masks": lambda hint, other: flipped(hint, -40),
    "a bit of the digest": lambda hint, other: flipped(hint, -1),
}


@pytest.mark.costly
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_hint_changes_nothing(logged: Table, damage: str) -> None:
    before, store = answers(logged), store_of(logged)
    maintained(logged)
    hints = hints_of(store)
    for (path, hint), other in zip(hints.items(), reversed(hints.values()), strict=True):
        store.delete(path)
        store.put(path, DAMAGES[damage](hint, other))
    assert answers(logged) == before


def signed(head: bytes) -> bytes:
    """Bytes with a digest that fits, as somebody makes them who means harm."""
    return head + hashlib.blake2b(head, digest_size=32).digest()


@pytest.mark.parametrize("counts", [(10, 3, 4, 1), (9, 2, 4, 2), (1 << 40, 2, 4, 1), (9, 2, 1 << 62, 1), (17, 2, 4, 1)])
def test_counts_that_are_not_those_of_the_masks_say_nothing(counts: tuple[int, int, int, int]) -> None:
    name = resolution_hint.name_of(["a", "b"])
    resolution = Resolution(Bits.of(only([1, 7], 9)), Bits.of(only([2], 4)))
    hint = resolution_hint.to_bytes(resolution, name)
    assert resolution_hint.from_bytes(hint, name) == resolution
    packed = resolution_hint._HEAD.pack(resolution_hint.MAGIC, name, *counts)
    assert resolution_hint.from_bytes(signed(packed + hint[len(packed) : -32]), name) is None


def test_names_tell_apart_what_is_written_alike() -> None:
    names = {resolution_hint.name_of(parts) for parts in (["a", "b"], ["ab"], ["", "ab"], ["b", "a"], ["a", "b", ""])}
    assert len(names) == 5


@pytest.mark.slow
@pytest.mark.parametrize(("merge", "layout"), fast_only(FAST, CASES))
@pytest.mark.parametrize("seed", seeds([0], range(1, 4), range(4, 40)))
def test_random_histories_read_the_same_with_hints_of_any_age_and_damage(
    make: Make, merge: str, layout: str, seed: int
) -> None:
    table = make(buckets=3, partition_by="region" if layout == "partitions" else (), **MERGES[merge])
    chance = random.Random(seed)
    store, moments = store_of(table), list[Any]([None])
    for _ in range(3 if seed else 1):
        moments += written(table, chance)[-2:]
        first = [answers(table, as_of=moment) for moment in moments]
        maintained(table)
        assert [answers(table, as_of=moment) for moment in moments] == first
        hints = {path: hint for path, hint in hints_of(store).items() if hint}
        for path, hint in hints.items():
            if chance.random() < 0.5:
                store.delete(path)
                store.put(path, chance.choice([*DAMAGES.values()])(hint, chance.choice([*hints.values()])))
        assert [answers(table, as_of=moment) for moment in moments] == first


def test_verify_says_which_hint_is_damaged_and_which_one_is_wrong(logged: Table) -> None:
    store = store_of(logged)
    maintained(logged)
    found = logged.verify()
    assert found.is_sound
    assert not found.hints
    (first, hint), (second, other) = hints_of(store).items()
    store.delete(first)
    store.put(first, hint[:-1])
    assert [one.path for one in logged.verify().hints] == [first]
    name = resolution_hint._HEAD.unpack_from(other)[1]
    known = resolution_hint.from_bytes(other, name)
    assert known is not None
    every = only(range(known.base.rows), known.base.rows)
    store.delete(second)
    store.put(second, resolution_hint.to_bytes(Resolution(Bits.of(every), known.logs), name))
    (wrong,) = logged.verify().findings
    assert (wrong.check, second in wrong.description, opened(logged).count()) == ("shown rows", True, 41)
    store.delete(second)
    assert logged.verify().is_sound
    assert opened(logged).count() == 40


def test_payloads_and_partial_updates_have_none(make: Make) -> None:
    table = make(buckets=1, **MERGES["partial"])
    table.upsert(frame(("k01", "a", 1)))
    table.maintenance.compact()
    table.upsert(frame(("k01", "a", 2)))
    assert not maintained(table)
    assert not hints_of(store_of(table))
