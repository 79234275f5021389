"""Tables on a mount that remembers for a while that a name was absent: nothing is called lost that its folder lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.ground.machine import Mount
from crdt_mor.log.paths import SEGMENTS, VERSIONS
from tests.stores import Script, ScriptedStore, as_it_is

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


def remembering(*names: str, for_good: bool = False) -> Script:
    """A script that does not find these objects, until their folder is listed; `for_good`: nor then."""
    absent = {*names}

    def script(operation: str, path: str, call: Callable[[], Any]) -> Any:
        if operation == "list" and not for_good:
            absent.difference_update([name for name in absent if name.rpartition("/")[0] == path])
        return None if operation in ("read", "view", "stat", "parquet") and path in absent else call()

    return script


@pytest.fixture(scope="module")
def uri(fast_module_path: Path) -> Iterator[Path]:
    """A table with a segment, a base file, logs and an open plan."""
    folder = fast_module_path / "t"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 3)
        table = mor.Table.create(folder, SCHEMA, key="id", buckets=1)
        for n in range(6):
            table.upsert(pa.table({"id": ["a"], "n": [n]}))
            if n == 3:
                table.maintenance.compact()
        assert table.maintenance.plans.schedule() is not None
        yield folder


def names(uri: Path, pattern: str) -> list[str]:
    found = sorted(str(path.relative_to(uri)) for path in uri.glob(pattern))
    assert found, "a case that covers nothing"
    return found


KINDS = [f"{SEGMENTS}/*.json", "*.parquet", ".*.log.*"]


@pytest.mark.parametrize("pattern", KINDS)
def test_read_of_a_file_whose_absence_is_remembered_shows_the_rows(uri: Path, pattern: str) -> None:
    store = ScriptedStore(mor.store.LocalStore(uri), remembering(*names(uri, pattern)))
    assert mor.Table(uri, opening=mor.Opening(store=store)).to_arrow()["n"].to_pylist() == [5]


@pytest.mark.parametrize("pattern", KINDS)
def test_read_of_a_file_that_only_its_folder_shows_asks_to_try_again(uri: Path, pattern: str) -> None:
    store = ScriptedStore(mor.store.LocalStore(uri), as_it_is)
    table = mor.Table(uri, opening=mor.Opening(store=store))
    store.script = remembering(*names(uri, pattern), for_good=True)
    with pytest.raises(mor.StorageUnavailableError, match="Try again in a moment"):
        table.to_arrow()


@pytest.mark.parametrize("pattern", [*KINDS, f"{VERSIONS}/*.json", ".hoodie/.crdt_mor/plans/*"])
def test_verify_where_an_absence_is_remembered_finds_nothing(uri: Path, pattern: str) -> None:
    store = ScriptedStore(mor.store.LocalStore(uri), as_it_is)
    table = mor.Table(uri, opening=mor.Opening(store=store))
    store.script = remembering(*(names(uri, pattern)[:-1] or names(uri, pattern)))
    assert table.verify().findings == ()


@pytest.mark.parametrize("pattern", [*KINDS, ".hoodie/.crdt_mor/plans/*"])
def test_verify_of_a_file_that_only_its_folder_shows_asks_to_try_again(uri: Path, pattern: str) -> None:
    store = ScriptedStore(mor.store.LocalStore(uri), as_it_is)
    table = mor.Table(uri, opening=mor.Opening(store=store))
    store.script = remembering(*names(uri, pattern), for_good=True)
    with pytest.raises(mor.StorageUnavailableError, match="Try again in a moment"):
        table.verify()


@pytest.mark.parametrize(
    ("mount", "state"),
    [
        (Mount("nfs4", frozenset({"rw"})), "note"),
        (Mount("fuse.sshfs", frozenset({"rw"})), "note"),
        (Mount("nfs4", frozenset({"lookupcache=pos"})), "fine"),
        (Mount("ext4", frozenset({"rw"})), None),
        (None, None),
    ],
)
def test_doctor_on_a_mount_tells_whether_it_remembers_absent_names(
    uri: Path, monkeypatch: pytest.MonkeyPatch, mount: Mount | None, state: str | None
) -> None:
    monkeypatch.setattr("crdt_mor.ground.machine.mount_of", lambda _: mount)
    found = {one.check: one for one in mor.doctor(uri)}
    assert (found["mount"].state if "mount" in found else None) == state
    assert state != "note" or "lookupcache=positive" in found["mount"].advice
