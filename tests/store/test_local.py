"""What only a disk can get wrong: processes that race, half files, full disks, dead writers, lost replies."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from crdt_mor.errors import CommitUnknownError, InvalidInputError, StorageUnavailableError, UnsupportedFeatureError
from crdt_mor.store import disk as system
from crdt_mor.store.local import _READ_BYTES_MAX, TEMP_EXPIRY_MS, LocalStore
from crdt_mor.store.paths import TEMP_FOLDER
from tests.tiers import long, slow

RACER = """
import hashlib, json, sys
from crdt_mor.store.local import LocalStore
root, name, slots = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = LocalStore(root)
body = name.encode() * 20_000
content = hashlib.sha256(body).hexdigest().encode() + body
print("ready", flush=True)
sys.stdin.readline()
won, read = [], []
for slot in range(slots):
    if store.put(f"slots/{slot}", content):
        won.append(slot)
    seen = store.read(f"slots/{slot}")
    assert hashlib.sha256(seen[64:]).hexdigest().encode() == seen[:64], "half a file"
    read.append(seen[64:65].decode())
print(json.dumps([won, read]))
"""

KILLED_WRITER = """
import os, signal, stat, sys
from crdt_mor.store import local
at, root = sys.argv[1:]
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
if at == "fsync":
    os.fsync = lambda file: die() if stat.S_ISREG(os.fstat(file).st_mode) else None
else:
    os.link = die
local.LocalStore(root).put("t/version", b"x" * 10_000)
"""


@pytest.fixture
def disk(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "table")


def temp_files(store: LocalStore) -> list[str]:
    return [stat.path for stat in store.list(TEMP_FOLDER) if "put-" in stat.path]


def race(root: Path, names: str, slots: int) -> None:
    """Processes put the same slots in the same order; each slot has one winner, and everybody reads it whole."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(root), name, str(slots)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for name in names
    ]  # fmt: skip
    answers: dict[str, tuple[list[int], list[str]]] = {}
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for name, racer in zip(names, racers, strict=True):
        out, _ = racer.communicate(timeout=300)
        assert racer.returncode == 0
        answers[name] = json.loads(out)
    for slot in range(slots):
        winners = [name for name, (won, _) in answers.items() if slot in won]
        assert len(winners) == 1, f"slot {slot} was won by {winners}"
        assert {read[slot] for _, read in answers.values()} == set(winners)
    assert temp_files(LocalStore(root)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "rounds", "slots"), [("abc", 1, 100), slow("abcdefgh", 1, 500), long("abcdefgh", 4, 1500)]
)
def test_of_several_processes_one_wins_each_slot_and_all_read_it_whole(
    tmp_path: Path, names: str, rounds: int, slots: int
) -> None:
    for number in range(rounds):
        race(tmp_path / f"table-{number}", names, slots)


def test_a_polling_reader_never_sees_half_a_file(disk: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer gives the file its name only after the reader has looked, so that it looks while the file is made."""
    content = os.urandom(3_000_000)
    looked = threading.Event()
    link = os.link

    def link_later(source: str, target: str) -> None:
        assert looked.wait(60)
        link(source, target)

    monkeypatch.setattr(os, "link", link_later)
    for number in range(12):
        looked.clear()
        writer = threading.Thread(target=disk.put, args=(f"d/{number}", content))
        writer.start()
        assert disk.read(f"d/{number}") is None
        looked.set()
        while (seen := disk.read(f"d/{number}")) is None:
            pass
        assert seen == content
        writer.join()


@pytest.mark.costly
@pytest.mark.parametrize("at", ["fsync", "link"])
def test_a_killed_writer_leaves_no_object_and_its_temp_file_is_swept(disk: LocalStore, at: str) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_WRITER, at, str(disk.root)], check=False)
    assert killed.returncode == -9
    assert disk.read("t/version") is None
    (left,) = temp_files(disk)
    assert disk.put("t/version", b"mine"), "a dead writer blocks nobody"
    assert temp_files(disk) == [left], "too young: its writer might live"

    old = (disk.now_ms() - TEMP_EXPIRY_MS - 1000) / 1000
    os.utime(disk.root / left, (old, old))
    LocalStore(disk.root).put("t/next", b"x")
    assert temp_files(disk) == []


def test_sweeping_leaves_what_hudi_keeps_in_the_folder(disk: LocalStore) -> None:
    disk.put(f"{TEMP_FOLDER}/20250101000000000/MARKERS0", b"hudi's")
    disk.put(f"{TEMP_FOLDER}/note", b"hudi's")
    (disk.root / TEMP_FOLDER / "put-dead").write_bytes(b"half")
    expired = (disk.now_ms() - TEMP_EXPIRY_MS - 1000) / 1000
    for file in (disk.root / TEMP_FOLDER).rglob("*"):
        os.utime(file, (expired, expired))
    assert disk.sweep_temp() == [f"{TEMP_FOLDER}/put-dead"]
    assert disk.read(f"{TEMP_FOLDER}/20250101000000000/MARKERS0") == b"hudi's"
    assert disk.read(f"{TEMP_FOLDER}/note") == b"hudi's"


def test_a_put_whose_temp_file_was_swept_starts_again(disk: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    link, calls = os.link, count()

    def swept_first(source: str, target: str) -> None:
        if next(calls) == 0:
            os.unlink(source)
        link(source, target)

    monkeypatch.setattr(os, "link", swept_first)
    assert disk.put("a", b"1") is True
    assert disk.read("a") == b"1"


def test_pieces_that_cannot_be_taken_again_are_not_put_in_part(
    disk: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def swept_first(source: str, target: str) -> None:
        os.unlink(source)
        link(source, target)

    monkeypatch.setattr(os, "link", swept_first)
    with pytest.raises(StorageUnavailableError, match="nothing was published"):
        disk.put("a", (piece for piece in (b"1", b"2")))
    monkeypatch.undo()
    assert disk.read("a") is None
    assert temp_files(disk) == []


@pytest.mark.parametrize("removed", [".", "a", TEMP_FOLDER])
def test_pieces_are_put_in_a_folder_that_was_removed_before_or_while_they_are_made(
    disk: LocalStore, removed: str
) -> None:
    disk.put("a/b", b"1")
    shutil.rmtree(disk.root / removed)
    assert disk.put("a/before", (piece for piece in (b"1", b"2")))
    assert disk.read("a/before") == b"12"
    if removed != "a":
        return  # with the others the temporary file goes, too

    def pieces() -> Iterator[bytes]:
        yield b"1"
        shutil.rmtree(disk.root / removed)
        yield b"2"

    assert disk.put("a/while", pieces())
    assert disk.read("a/while") == b"12"


def test_a_maker_that_fails_leaves_no_temp_file(disk: LocalStore) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise ValueError("the maker's")

    with pytest.raises(ValueError, match="the maker's"):
        disk.put("a", pieces())
    assert temp_files(disk) == []


def test_a_table_removed_under_the_store_can_be_made_again(disk: LocalStore, tmp_path: Path) -> None:
    disk.put("a/b", b"1")
    disk.root.rename(tmp_path / "gone")
    assert disk.read("a/b") is None
    assert disk.put("a/b", b"2") is True
    assert disk.read("a/b") == b"2"


def test_names_of_temp_files_come_from_the_given_nonces(tmp_path: Path) -> None:
    nonces = iter(["one", "one", "two"])
    store = LocalStore(tmp_path, nonce=lambda: next(nonces))
    store.put("a", b"")
    (tmp_path / TEMP_FOLDER / "put-one").write_bytes(b"somebody else's")
    assert store.put("b", b"mine") is True
    assert (tmp_path / TEMP_FOLDER / "put-one").read_bytes() == b"somebody else's"


# Failures of the disk ------------------------------------------------------------------------------------------------


def failing(code: int, real: Callable[..., object], when: Callable[[Any], bool]) -> Callable[..., object]:
    """`real`, but an `OSError` for the paths or open files that `when` picks (of several paths, the first counts)."""

    def call(path: str | int, *rest: object) -> object:
        if when(path):
            raise OSError(code, os.strerror(code))
        return real(path, *rest)

    return call


def is_temp(path: str) -> bool:
    return "put-" in path


def is_file(number: int) -> bool:
    """Whether an open file is no folder."""
    return stat.S_ISREG(os.fstat(number).st_mode)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("step", ["write", "fsync", "link", "mkdir"])
def test_a_disk_that_fails_before_the_link_leaves_nothing_behind(
    disk: LocalStore, monkeypatch: pytest.MonkeyPatch, step: str, code: int
) -> None:
    disk.put("t/1", b"1")
    with monkeypatch.context() as patch:
        if step == "write":
            patch.setattr(os, "write", failing(code, os.write, lambda _: True))
        elif step == "fsync":
            patch.setattr(os, "fsync", failing(code, os.fsync, is_file))
        elif step == "link":
            patch.setattr(os, "link", failing(code, os.link, is_temp))
        else:
            patch.setattr(os, "mkdir", failing(code, os.mkdir, lambda path: path.endswith("new")))
        with pytest.raises(StorageUnavailableError, match="nothing was published") as caught:
            disk.put("new/2", b"2")
    assert ("disk full" in str(caught.value)) == (code != errno.EIO)
    assert "new/2" in str(caught.value)
    assert errno.errorcode[code] in str(caught.value)
    assert disk.read("new/2") is None
    assert temp_files(disk) == []
    assert disk.put("new/2", b"2") is True, "and afterwards it works"


def test_a_folder_that_cannot_be_made_durable_after_the_link_is_an_unknown_outcome(
    disk: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.put("t/1", b"1")
    monkeypatch.setattr(system, "fsync_path", failing(errno.EIO, system.fsync_path, lambda path: path.endswith("/t")))
    with pytest.raises(CommitUnknownError, match="path=t/2 cause=EIO"):
        disk.put("t/2", b"2")
    assert temp_files(disk) == []


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM], ids=errno.errorcode.get)
@pytest.mark.parametrize("what", ["file", "folder"])
def test_put_without_fsync_says_that_the_file_system_lacks_it(
    disk: LocalStore, monkeypatch: pytest.MonkeyPatch, what: str, code: int
) -> None:
    refused = failing(code, os.fsync, lambda number: is_file(number) == (what == "file"))
    monkeypatch.setattr(os, "fsync", refused)
    with pytest.raises(UnsupportedFeatureError, match=r"fsync.*nothing was published"):
        disk.put("t/1", b"1")
    assert disk.read("t/1") is None
    assert temp_files(disk) == []


def test_put_whose_folder_has_no_fsync_after_the_link_is_an_unknown_outcome(
    disk: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.put("t/1", b"1")
    monkeypatch.setattr(os, "fsync", failing(errno.ENOSYS, os.fsync, lambda number: not is_file(number)))
    with pytest.raises(CommitUnknownError, match="path=t/2"):
        disk.put("t/2", b"2")


def test_a_link_that_worked_but_reported_failure_is_our_success(
    disk: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link
    for code in (errno.EEXIST, errno.EIO):

        def lost_reply(source: str, target: str, code: int = code) -> None:
            link(source, target)
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "link", lost_reply)
        assert disk.put(f"t/{code}", b"ours") is True
        assert disk.read(f"t/{code}") == b"ours"


def test_a_disk_that_cannot_tell_whether_it_linked_is_an_unknown_outcome(
    disk: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.put("t/1", b"1")
    monkeypatch.setattr(os, "link", failing(errno.EIO, os.link, is_temp))
    monkeypatch.setattr(os, "stat", failing(errno.EIO, os.stat, is_temp))
    with pytest.raises(CommitUnknownError, match="Read the file"):
        disk.put("t/2", b"2")


def test_a_file_system_without_links_is_refused_by_name(disk: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EPERM, os.link, is_temp))
    with pytest.raises(UnsupportedFeatureError, match="hard links"):
        disk.put("t/2", b"2")
    monkeypatch.undo()
    assert disk.read("t/2") is None
    assert temp_files(disk) == []


def test_a_failing_read_says_so(disk: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.put("t/1", b"1")
    monkeypatch.setattr(os, "scandir", failing(errno.EIO, os.scandir, lambda _: True))
    with pytest.raises(StorageUnavailableError, match="EIO"):
        disk.list("t")


def test_a_name_too_long_for_the_file_system_is_the_caller_s_mistake(disk: LocalStore) -> None:
    with pytest.raises(InvalidInputError, match="too long"):
        disk.put("x" * 300, b"")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 512 KiB; only root can mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot mount a small disk here; the simulated full disks above cover the same steps")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_really_full_disk_leaves_nothing_behind(small_disk: Path) -> None:
    store = LocalStore(small_disk / "table")
    assert store.put("a/small", b"x" * 1000)
    with pytest.raises(StorageUnavailableError, match=r"disk full; nothing was published.*ENOSPC"):
        store.put("a/large", b"x" * 5_000_000)
    assert store.read("a/large") is None
    assert temp_files(store) == []
    assert store.put("a/after", b"x" * 1000), "the failed put gave its space back"


# Order of the steps --------------------------------------------------------------------------------------------------


def test_the_file_is_durable_before_it_has_a_name_and_the_name_before_the_put_returns(
    disk: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, fsync_folder, link = os.fsync, system.fsync_path, os.link

    def fsync_noted(number: int) -> None:
        fsync(number)
        if is_file(number):
            done.append("fsync temp")

    def fsync_folder_noted(path: str) -> None:
        fsync_folder(path)
        done.append(f"fsync {os.path.relpath(path, disk.root)}")

    def link_noted(source: str, target: str) -> None:
        link(source, target)
        done.append("link")

    monkeypatch.setattr(os, "fsync", fsync_noted)
    monkeypatch.setattr(system, "fsync_path", fsync_folder_noted)
    monkeypatch.setattr(os, "link", link_noted)
    disk.put("t/deep/1", b"1")
    assert done[-3:] == ["fsync temp", "link", "fsync t/deep"]
    assert {"fsync ..", "fsync .", "fsync t"} <= set(done[:-3]), "new folders are durable before what is in them"
    done.clear()
    disk.put("t/deep/2", b"2")
    assert done == ["fsync temp", "link", "fsync t/deep"], "folders are made durable once"
    done.clear()
    disk.put("t/deep/2", b"late")
    assert done == [], "who comes late pays nothing"
    disk.put("t/deep/3", b"3", durable="content")
    disk.put("t/deep/4", b"4", durable=False)
    assert done == ["fsync temp", "link", "link"], "what alone is to last is alone waited for"
    done.clear()
    disk.put("t/5", b"5", durable="content", after=("t/deep/4", "t/deep/1"))
    assert done == ["fsync temp", "fsync t/deep", "link"], "names that come before, once, before the link"
    done.clear()
    disk.put("t/6", b"6", after=("t/deep/4",))
    assert done == ["fsync temp", "link", "fsync t"], "what lasts is not waited for again"


def test_a_name_that_was_given_again_is_made_durable_again(disk: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.put("t/1", b"1")
    disk.put("t/2", b"1")
    LocalStore(disk.root).delete("t/1")
    done: list[str] = []
    fsync_folder = system.fsync_path

    def noted(path: str) -> None:
        fsync_folder(path)
        done.append(os.path.relpath(path, disk.root))

    monkeypatch.setattr(system, "fsync_path", noted)
    assert disk.put("t/1", b"2", durable="content")
    disk.put("u", b"3", after=("t/1",))
    assert done == ["t", "."]


def test_a_name_that_another_thread_removes_meanwhile_is_made_durable_again(
    disk: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is removed at each moment of `make_durable`, as far as that looks at the file."""
    exists, removed = os.path.lexists, list[str]()

    def late(path: str) -> bool:
        there = exists(path)
        if there and not removed:
            removed.append(path)
            disk.delete("t/1")
        return there

    disk.put("t/1", b"1", durable="content")
    monkeypatch.setattr(os.path, "lexists", late)
    disk.make_durable("t/1")
    monkeypatch.undo()
    assert removed
    synced: list[str] = []
    monkeypatch.setattr(system, "fsync_path", synced.append)
    disk.make_durable("t/1")
    assert synced, "that it is gone lasts"


def test_a_parquet_source_has_the_address_of_a_plain_file(disk: LocalStore) -> None:
    disk.put("day=[2025] 100%/x", b"1")
    source = disk.parquet("day=[2025] 100%/x")
    assert source is not None
    assert source.name == source.address
    assert Path(source.name).read_bytes() == b"1"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")
def test_the_time_is_known_where_the_file_of_the_clock_is_another_users(fast_path: Path) -> None:
    os.chmod(fast_path, 0o755)
    store = LocalStore(fast_path / "t")
    store.put("x", b"")
    before = store.now_ms()
    os.chmod(fast_path / "t" / TEMP_FOLDER, 0o777)
    os.seteuid(1001)
    try:
        now = store.now_ms()
    finally:
        os.seteuid(0)
    assert before <= now <= before + 60_000
    assert [p.name for p in (fast_path / "t" / TEMP_FOLDER).iterdir()] == ["clock"]


@pytest.mark.parametrize("size", [0, 1, _READ_BYTES_MAX, _READ_BYTES_MAX + 1])
def test_a_view_has_all_bytes_also_after_the_object_is_gone(tmp_path: Path, size: int) -> None:
    store = LocalStore(tmp_path)
    content = bytes(i % 251 for i in range(size))
    assert store.put("a/b", content)
    view = store.view("a/b")
    store.delete("a/b")
    assert view is not None
    assert bytes(view) == content
    assert store.view("a/b") is None
