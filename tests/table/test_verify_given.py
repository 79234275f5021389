"""`Table.verify` over a store that does not give an object: it is named, and all others are read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import Opening, StorageUnavailableError, Table
from crdt_mor.log.paths import PLANS, VERSIONS
from crdt_mor.results import Verification
from crdt_mor.store import LocalStore
from crdt_mor.testing import SimulatedEnvironment
from tests.simulated import Simulated
from tests.stores import Script, ScriptedStore, as_it_is, refusing
from tests.table.damaged import START_MS, at_work, bases, logs, made, opened

HUDI = ".hoodie/timeline"
OWN = ".hoodie/.crdt_mor"
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


def bad_sectors(bad: Callable[[str], bool] = lambda path: True) -> Script:
    """Fails to read objects, as a disk does whose sectors are bad: their names and sizes are there."""
    return refusing("read", "view", "parquet", of=bad, error=lambda _: StorageUnavailableError("cause=EIO"))


@pytest.fixture(scope="module")
def sound(fast_module_path: Path) -> Path:
    """A table with base files, logs, a segment, a savepoint and an open plan."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 2)
        folder = made(fast_module_path / "sound")
        opened(folder).maintenance.savepoint("kept")
        assert opened(folder).maintenance.plans.schedule() is not None
        return at_work(folder)


def verified(folder: Path, *bad: str) -> Verification:
    """The table, verified after it was opened, from when on some objects are not given."""
    store = ScriptedStore(LocalStore(folder), as_it_is)
    table = Table(folder, opening=Opening(store=store, environment=SimulatedEnvironment(START_MS + 60_000, "given.")))
    store.script = bad_sectors(bad.__contains__)
    return table.verify()


def name_of(folder: Path, pattern: str, which: int = 0) -> str:
    return str(sorted(folder.glob(pattern))[which].relative_to(folder))


def test_a_base_file_and_a_log_are_not_given_and_the_others_are_read(sound: Path) -> None:
    base, log = bases(sound)[-1].name, logs(sound, 1)[0].name
    found = verified(sound, base, log)
    assert {(finding.check, finding.path) for finding in found.findings} == {("read", base), ("read", log)}
    assert all("cause=EIO" in finding.description for finding in found.findings)
    assert found.files == verified(sound).files


@pytest.mark.parametrize(
    ("pattern", "which", "check"),
    [
        (f"{OWN}/timeline/*.json", 3, "old version"),
        (f"{OWN}/segments/*.json", 0, "segment"),
        (f"{OWN}/plans/*.json", -1, "plan"),
        (f"{HUDI}/*_*.deltacommit", 0, "Hudi's timeline"),
        (f"{HUDI}/*.savepoint", 0, "Hudi's timeline"),
        (f"{HUDI}/*.compaction.requested", -1, "Hudi's timeline"),
        (".hoodie_partition_metadata", 0, "partition metadata"),
    ],
)
def test_an_object_of_the_timeline_is_not_given(sound: Path, pattern: str, which: int, check: str) -> None:
    path = name_of(sound, pattern, which)
    assert [(finding.check, finding.path) for finding in verified(sound, path).findings] == [(check, path)]


def test_a_store_that_gives_nothing_says_nothing_of_the_table(sound: Path) -> None:
    store = ScriptedStore(LocalStore(sound), as_it_is)
    table = Table(sound, opening=Opening(store=store))
    store.script = bad_sectors()
    with pytest.raises(StorageUnavailableError):
        table.verify()


@pytest.mark.parametrize("kind", [bases, logs])
def test_a_file_of_which_not_even_the_size_is_given_is_named(
    sound: Path, fast_path: Path, kind: Callable[[Path, int], list[Path]]
) -> None:
    folder = fast_path / "t"
    shutil.copytree(sound, folder)
    path = kind(folder, 0)[-1]
    path.unlink()
    path.symlink_to(path.name)
    found = opened(folder).verify()
    assert {(finding.check, finding.path) for finding in found.findings} == {("read", path.name)}
    assert "ELOOP" in found.findings[0].description
    assert found.files == verified(sound).files


@pytest.mark.parametrize(
    ("key", "edited"),
    [
        ("hoodie.table.type", "COPY_ON_WRITE"),
        ("hoodie.record.merge.mode", "EVENT_TIME_ORDERING"),
        ("crdt_mor.merge", "latest"),
    ],
)
def test_properties_that_tell_hudi_another_merge_are_named(sound: Path, fast_path: Path, key: str, edited: str) -> None:
    """Without their payload, counters show the last number that was added."""
    folder = fast_path / "t"
    shutil.copytree(sound, folder)
    path = folder / ".hoodie/hoodie.properties"
    said = path.read_text().splitlines()
    (line,) = (one for one in said if one.startswith(f"{key}="))
    path.write_text("".join(f"{key}={edited}\n" if one == line else f"{one}\n" for one in said))
    assert "properties" in {finding.check for finding in opened(folder).verify().findings}


def test_properties_that_were_cut_are_named(sound: Path, fast_path: Path) -> None:
    folder = fast_path / "t"
    shutil.copytree(sound, folder)
    path = folder / ".hoodie/hoodie.properties"
    path.write_bytes(path.read_bytes()[:-1])
    (finding,) = opened(folder).verify().findings
    assert (finding.check, finding.path) == ("settings", ".hoodie/hoodie.properties")


def test_verify_of_objects_whose_first_read_is_cut_is_sound() -> None:
    """A store answered one read of each object with half of its bytes."""
    world = Simulated()
    table = world.create(SCHEMA, key="id", buckets=1)
    for number in range(3):
        table.upsert(pa.table({"id": ["a"], "n": [number]}, SCHEMA))
    table.maintenance.plans.schedule()
    cut: set[str] = set()

    def script(operation: str, path: str, call: Callable[[], Any]) -> Any:
        found = call()
        if operation != "read" or found is None or not path.startswith((VERSIONS, PLANS)) or path in cut:
            return found
        cut.add(path)
        return found[: len(found) // 2]

    store = ScriptedStore(world.store, as_it_is)
    opened = Table("simulated", opening=Opening(store=store, environment=world.environment))
    store.script = script
    assert opened.verify().findings == ()
    assert len(cut) > 3
