"""A local store on a mount whose kernel remembers for a while that a name was absent, as mounts of networks do."""

from __future__ import annotations

import builtins
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crdt_mor.ground.machine import Mount, mount_in
from crdt_mor.store import local
from crdt_mor.store.disk import remembers_absences
from crdt_mor.store.local import LocalStore

LINES = [
    "21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw",
    "30 21 0:40 / /mnt/data rw,relatime - nfs4 server:/data rw,vers=4.2,lookupcache=pos,hard",
    "31 21 0:41 / /mnt/data/more rw - fuse.sshfs host:/ rw,user_id=0",
    r"32 21 0:42 / /mnt/two\040words rw - cifs //server/share rw",
    "33 21 0:43 / /mnt/twice rw - ext4 /dev/vdb rw",
    "34 33 0:44 / /mnt/twice rw - nfs server:/x rw,hard",
    "no line of a mount",
]


class Kernel:
    """Answers for the names in `absent` that they are not there, until it is to make one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, mount: Mount | None) -> None:
        self.absent: set[str] = set()
        for place, name in ((os, "stat"), (builtins, "open"), (os, "unlink"), (os, "scandir")):
            monkeypatch.setattr(place, name, self._forgetful(getattr(place, name)))
        self._link = os.link
        monkeypatch.setattr(os, "link", self._linked)
        monkeypatch.setattr(local, "mount_of", lambda _: mount)

    def _forgetful(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def asked(path: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.absent.isdisjoint(map(str, (path, *Path(path).parents))):
                raise FileNotFoundError(path)
            return call(path, *args, **kwargs)

        return asked

    def _linked(self, source: str, target: str) -> None:
        self.absent.discard(target)
        self._link(source, target)


def remembering(monkeypatch: pytest.MonkeyPatch, root: Path, mount: Mount | None, *absent: str) -> LocalStore:
    """A store with the object `a/b`, on a mount which remembers that some names are absent."""
    assert LocalStore(root).put("a/b", b"here")
    Kernel(monkeypatch, mount).absent |= {str(root / name) for name in absent}
    return LocalStore(root)


FUSE = Mount("fuse.sshfs", frozenset())


@pytest.mark.parametrize("absent", ["a/b", "a"])
@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (lambda store: store.read("a/b"), b"here"),
        (lambda store: store.view("a/b"), b"here"),
        (lambda store: store.stat("a/b").size, 4),
        (lambda store: [stat.path for stat in store.list("a")], ["a/b"]),
        (lambda store: store.parquet("a/b") is not None, True),
        (lambda store: (store.delete("a/b"), store.list("a"))[1], []),
    ],
)
def test_local_store_where_the_kernel_remembers_an_absence_looks_the_name_up_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Callable[[LocalStore], Any], found: object, absent: str
) -> None:
    assert asked(remembering(monkeypatch, tmp_path, FUSE, absent)) == found


def test_local_store_on_a_disk_believes_an_absence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = remembering(monkeypatch, tmp_path, Mount("ext4", frozenset()), "a/b")
    assert store.read("a/b") is None


@pytest.fixture
def mounts(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """One folder behind two mounts of FUSE, which remember for a minute that a name was absent."""
    if shutil.which("bindfs") is None or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("bindfs or FUSE is missing")
    places = tmp_path / "one", tmp_path / "two"
    (tmp_path / "place").mkdir()
    try:
        for place in places:
            place.mkdir()
            subprocess.run(["bindfs", "-o", "negative_timeout=60", tmp_path / "place", place], check=True)
        yield places
    finally:
        for place in places:
            subprocess.run(["umount", place], check=False)


@pytest.mark.slow
def test_local_store_on_fuse_finds_what_was_made_through_another_mount(mounts: tuple[Path, Path]) -> None:
    here, there = map(LocalStore, mounts)
    assert (here.read("a/b"), here.stat("a/b"), here.list("a")) == (None, None, [])
    assert there.put("a/b", b"here")
    assert not (mounts[0] / "a/b").exists(), "a mount that remembers nothing"
    assert here.read("a/b") == b"here"


def test_look_anew_makes_no_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = remembering(monkeypatch, tmp_path, FUSE)
    assert (store.read("a/c"), store.stat("d/e"), store.list("d")) == (None, None, [])
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["b"]


def test_local_store_where_a_link_leads_nowhere_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = remembering(monkeypatch, tmp_path, FUSE)
    (tmp_path / "a/link").symlink_to("nowhere")
    assert (store.read("a/link"), store.stat("a/link")) == (None, None)
    assert [stat.path for stat in store.list("a")] == ["a/b"]


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/t", "ext4"),
        ("/mnt/data", "nfs4"),
        ("/mnt/database", "ext4"),
        ("/mnt/data/more/t", "fuse.sshfs"),
        ("/mnt/two words/t", "cifs"),
        ("/mnt/twice/t", "nfs"),
    ],
)
def test_mount_in_finds_the_innermost_mount(folder: str, kind: str) -> None:
    found = mount_in(LINES, folder)
    assert found is not None
    assert found.kind == kind


def test_mount_in_without_lines_finds_none() -> None:
    assert mount_in([], "/t") is None


@pytest.mark.parametrize(
    ("mount", "remembers"),
    [
        (None, False),
        (Mount("ext4", frozenset()), False),
        (Mount("fuse", frozenset({"rw"})), True),
        (Mount("nfs4", frozenset({"rw"})), True),
        (Mount("nfs4", frozenset({"lookupcache=pos"})), False),
        (Mount("nfs", frozenset({"lookupcache=none"})), False),
        (Mount("a kind of tomorrow", frozenset()), True),
    ],
)
def test_remembers_absences_is_said_of_mounts_that_others_may_write_to(mount: Mount | None, remembers: bool) -> None:
    assert remembers_absences(mount) is remembers
