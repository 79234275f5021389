"""File system calls of a local disk. `answering` translates their errors: was something published, can a retry help?"""

from __future__ import annotations

import errno
import os
import stat as mode
from contextlib import suppress
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
_NO_NEGATIVE_CACHE = frozenset({"lookupcache=pos", "lookupcache=positive", "lookupcache=none"})
"""NFS mount options that do not remember absent names."""

_OTHER_FILE_SYSTEM = "/proc/version"
_LOOKS = frozenset({"read", "stat", "list"})
_NO_FSYNC = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class RemovedError(StorageUnavailableError):
    """The temporary file of a put was removed; nothing was published."""


@dataclass(slots=True)
class Answering:
    """Translate the errors of a block. A generator would take longer than some system calls."""

    verb: str
    path: str

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise self._translated(error) from error

    def _translated(self, error: OSError) -> InvalidInputError | StorageUnavailableError:
        if error.errno == errno.ENAMETOOLONG:
            return InvalidInputError(f"the name is too long for this file system: use a shorter one. path={self.path}")
        if self.verb in _LOOKS and not isinstance(error, FileNotFoundError):
            return StorageUnavailableError(
                "the disk refused to read; the data may be whole. Check the cause, such as rights or open files, "
                f"and try again. {self.verb}={self.path} cause={cause_of(error)}"
            )
        full = error.errno in _DISK_FULL
        advice = "disk full; nothing was published. Free some space" if full else (
            "the disk refused; nothing was published. Check the cause"
        )  # fmt: skip
        kind = RemovedError if isinstance(error, FileNotFoundError) else StorageUnavailableError
        return kind(f"{advice} and try again. {self.verb}={self.path} cause={cause_of(error)}")


def link(temp: str, target: str, root: str, path: str) -> bool:
    """Give the temporary file its name. Return True, or False if another file has the name.

    root, path: the store's folder and the object, for messages.
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
                "this file system has no hard links, which commits need; nothing was published. Put the table on a "
                f"local disk (ext4, xfs, btrfs, apfs). root={root} path={path}"
            ) from error
        raise
    return True


def link_again(source: str, target: str) -> bool:
    """Give a file a second name. Return True, or False if the name is taken."""
    fsync_path(source)  # its own put may have skipped the fsync
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    return True


def _links(temp: str, path: str, error: OSError) -> int:
    """Return the temporary file's link count: two if a link worked although an error was reported."""
    try:
        return os.stat(temp).st_nlink
    except FileNotFoundError:  # swept while this process was frozen, so nothing was linked
        return 0
    except OSError:
        raise CommitUnknownError(
            "the disk failed while the file got its name, so the result is unknown. Read the file before you try "
            f"again. path={path} cause={cause_of(error)}"
        ) from error


def remembers_absences(mount: machine.Mount | None) -> bool:
    """Return True if the kernel may remember a name as absent that another machine has created.

    Network and FUSE mounts do by default.
    """
    return mount is not None and not is_disk(mount) and _NO_NEGATIVE_CACHE.isdisjoint(mount.options)


def is_disk(mount: machine.Mount) -> bool:
    """Return True if only this machine writes to the mount."""
    return mount.kind in _DISKS


def exists_uncached(target: str) -> bool:
    """Return True if a file exists that the kernel remembers as absent.

    Opening the folder makes NFS ask its server. FUSE looks up the name of a new link, so a link is tried that never
    succeeds (EXDEV: from another file system).
    """
    folder = os.path.dirname(target)
    if not os.path.exists(folder) and not exists_uncached(folder):
        return False
    with suppress(OSError):
        os.close(os.open(folder, os.O_RDONLY))
    with suppress(OSError):
        os.link(_OTHER_FILE_SYSTEM, target)
    return os.path.exists(target)


def can_open(path: str) -> bool:
    """Return True if the file exists. Raises if this process may not read it."""
    try:
        os.close(os.open(path, os.O_RDONLY))
    except FileNotFoundError:
        return False
    return True


def write_whole(file: int, chunk: bytes | memoryview) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(file, rest) :]


def fsync(file: int) -> None:
    """Make an open file durable. Raises `UnsupportedFeatureError` if the file system cannot."""
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in _NO_FSYNC:
            raise
        raise UnsupportedFeatureError(
            "this file system cannot make files durable (fsync), which commits need; nothing was published. Put the "
            f"table on a local disk (ext4, xfs, btrfs, apfs). cause={cause_of(error)}"
        ) from error


def fsync_path(path: str) -> None:
    """Make a file's content or a folder's names durable."""
    file = os.open(path, os.O_RDONLY)
    try:
        fsync(file)
    finally:
        os.close(file)


def fsync_nearest(folder: str, root: str) -> None:
    """Fsync a folder, or the nearest existing folder above it."""
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
    missing = [root]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for folder in reversed(missing):
        with suppress(FileExistsError):
            folder.mkdir()
        with suppress(PermissionError):  # a folder above the root may belong to another user
            fsync_path(str(folder.parent))


def stat_of(path: str, status: os.stat_result) -> Stat | None:
    return Stat(path, status.st_size, status.st_mtime_ns // 1_000_000) if mode.S_ISREG(status.st_mode) else None


def stat_in(entry: os.DirEntry[str], path: str) -> Stat | None:
    """Return size and age of a scanned entry; None if it is gone or is no file."""
    try:  # a `suppress` would take a sixth of a long listing
        status = entry.stat()
    except FileNotFoundError:
        return None
    return stat_of(path, status)


def cause_of(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    code = errno.errorcode.get(error.errno, "?") if error.errno else "?"
    return f"{code} ({error.strerror or error})"
