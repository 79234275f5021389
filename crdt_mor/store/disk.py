"""What the operating system does with files of a local disk, and what its errors mean for the caller of a store.

An error of the system says that a call failed. The caller of a store wants to know whether something was published, and
whether it is of use to try again: `answering` says so.
"""

from __future__ import annotations

import errno
import os
import stat as mode
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from crdt_mor.errors import CommitUnknownError, InvalidInputError, StorageUnavailableError, UnsupportedFeatureError
from crdt_mor.ground import machine
from crdt_mor.store.protocol import Stat

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DISKS = frozenset({
    "bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "iso9660", "jfs", "ntfs3", "overlay",
    "ramfs", "reiserfs", "rootfs", "squashfs", "tmpfs", "vfat", "xfs", "zfs",
})  # fmt: skip
_ASKS_AGAIN = frozenset({"lookupcache=pos", "lookupcache=positive", "lookupcache=none"})
"""Options of NFS mounts that do not remember absent names, as the kernel and people write them."""

_ELSEWHERE = "/proc/version"
_LOOKS = frozenset({"read", "stat", "list"})
_NO_FSYNC = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class RemovedError(StorageUnavailableError):
    """The temporary file was removed under a put; nothing was published."""


def answering(what: str, path: str) -> AbstractContextManager[None]:
    """The operating system's errors, as what the caller would do about them."""
    return _Answering(what, path)


@dataclass(slots=True)
class _Answering:
    """The block of an `answering`. It is a class, as a generator would take longer than some calls of the system do."""

    what: str
    path: str

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise self._answer(error) from error

    def _answer(self, error: OSError) -> InvalidInputError | StorageUnavailableError:
        if error.errno == errno.ENAMETOOLONG:
            return InvalidInputError(f"the file system does not take names this long. path={self.path}")
        if self.what in _LOOKS and not isinstance(error, FileNotFoundError):
            return StorageUnavailableError(
                "the disk refused to read, and what is there may be whole. See the cause, such as rights or open "
                f"files, and try again. {self.what}={self.path} cause={cause_of(error)}"
            )
        full = error.errno in _DISK_FULL
        what_now = "disk full; nothing was published. Free some space" if full else (
            "the disk refused; nothing was published. See the cause"
        )  # fmt: skip
        kind = RemovedError if isinstance(error, FileNotFoundError) else StorageUnavailableError
        return kind(f"{what_now} and try again. {self.what}={self.path} cause={cause_of(error)}")


def link(temp: str, target: str, root: str, path: str) -> bool:
    """Give the temporary file its name: True. False if the name is taken by somebody else.

    root, path: the store's folder, and the object in it that the name is of.
    """
    try:
        os.link(temp, target)
    except OSError as error:
        if _links(temp, path, error) > 1:
            return True
        if error.errno == errno.EEXIST:
            return False
        if error.errno in _NO_LINKS:
            raise UnsupportedFeatureError(
                "this file system has no hard links, which commits rest on; nothing was published. Put the table "
                f"on a local disk that has them (ext4, xfs, btrfs, apfs). root={root} path={path}"
            ) from error
        raise
    return True


def link_again(source: str, target: str) -> bool:
    """Give a file a second name: True. False if the name is taken."""
    fsync_path(source)  # its own put may have left that out
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    return True


def _links(temp: str, path: str, error: OSError) -> int:
    """How many names the temporary file has: two if a link that reported failure had worked after all."""
    try:
        return os.stat(temp).st_nlink
    except FileNotFoundError:  # swept while we were frozen, so the link had no file to give a name to
        return 0
    except OSError:
        raise CommitUnknownError(
            "the disk failed while the file got its name, and cannot tell whether it did. Read it back before trying "
            f"again. path={path} cause={cause_of(error)}"
        ) from error


def remembers_absences(mount: machine.Mount | None) -> bool:
    """Whether the kernel may believe for a while that a name is absent which another machine has made since.

    Mounts of networks and of FUSE do, unless their options say otherwise. Of file systems on this machine none does.
    """
    return mount is not None and not is_disk(mount) and _ASKS_AGAIN.isdisjoint(mount.options)


def is_disk(mount: machine.Mount) -> bool:
    """Whether a mount is a file system that this machine alone writes to."""
    return mount.kind in _DISKS


def look_anew(target: str) -> bool:
    """Whether a file is there after all that the kernel believes to be absent.

    Opening the folder makes NFS ask its server whether the folder has changed. FUSE looks a name up that is to be made:
    a link from another file system asks for that, and never makes it (EXDEV).
    """
    folder = os.path.dirname(target)
    if not os.path.exists(folder) and not look_anew(folder):
        return False
    with suppress(OSError):
        os.close(os.open(folder, os.O_RDONLY))
    with suppress(OSError):
        os.link(_ELSEWHERE, target)
    return os.path.exists(target)


def can_open(path: str) -> bool:
    """Whether a file is there; raises where this process may not read it."""
    try:
        os.close(os.open(path, os.O_RDONLY))
    except FileNotFoundError:
        return False
    return True


def write_whole(file: int, chunk: bytes | memoryview) -> None:
    """Write all bytes of a chunk: one call of the system may write fewer."""
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(file, rest) :]


def fsync(file: int) -> None:
    """Make durable what an open file holds; raises `UnsupportedFeatureError` where the file system never can."""
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in _NO_FSYNC:
            raise
        raise UnsupportedFeatureError(
            "this file system cannot make files last through a power cut (fsync), which commits rest on; nothing was "
            f"published. Put the table on a local disk (ext4, xfs, btrfs, apfs). cause={cause_of(error)}"
        ) from error


def fsync_path(path: str) -> None:
    """Make durable what a file holds, or which names a folder has."""
    file = os.open(path, os.O_RDONLY)
    try:
        fsync(file)
    finally:
        os.close(file)


def fsync_nearest(folder: str, root: str) -> None:
    """Fsync a folder; where it is gone, as it is with its last object, the nearest one above it that is there."""
    while True:
        try:
            fsync_path(folder)
        except FileNotFoundError:
            if folder == root:
                raise
            folder = os.path.dirname(folder)
        else:
            return


def make_root(root: Path) -> None:
    """Make the folder of a store and those above it, durably."""
    missing = [root]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for folder in reversed(missing):
        with suppress(FileExistsError):
            folder.mkdir()
        with suppress(PermissionError):  # above the root it may not be ours to open, and was not ours to make
            fsync_path(str(folder.parent))


def stat_of(path: str, status: os.stat_result) -> Stat:
    """Size and age of an object, of what the system says of its file."""
    return Stat(path, status.st_size, status.st_mtime_ns // 1_000_000)


def stat_of_file(path: str, status: os.stat_result) -> Stat | None:
    """As `stat_of`; None of what is no file."""
    return stat_of(path, status) if mode.S_ISREG(status.st_mode) else None


def stat_in(entry: os.DirEntry[str], path: str) -> Stat | None:
    """Size and age of an object that a scan of its folder shows; None where it is gone meanwhile, or is no file."""
    try:  # a `suppress` would take a sixth of a long listing
        status = entry.stat()
    except FileNotFoundError:
        return None
    return stat_of_file(path, status)


def cause_of(error: Exception) -> str:
    """The system's name for an error, and its words."""
    if not isinstance(error, OSError):
        return str(error)
    code = errno.errorcode.get(error.errno, "?") if error.errno else "?"
    return f"{code} ({error.strerror or error})"
