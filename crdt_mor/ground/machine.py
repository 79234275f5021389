"""What a machine has: programs, mounts, and room on its disks."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

_MOUNTS: Final = "/proc/self/mountinfo"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A mounted file system: its type as the kernel names it, such as `ext4` or `nfs4`, and its mount options."""

    kind: str
    options: frozenset[str]


class DiskUsage(NamedTuple):
    """Bytes of a file system: all of them, and those that are free."""

    total: int
    free: int


def find_java() -> str | None:
    """The path of the Java that Spark would start; None: there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin") if home else None)


def mount_of(folder: str | os.PathLike[str]) -> Mount | None:
    """The mount in which a folder is, or would be made; None where the system lists no mounts."""
    try:
        lines = Path(_MOUNTS).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    return mount_in(lines, os.path.realpath(folder))


def mount_in(lines: Iterable[str], folder: str) -> Mount | None:
    """The innermost mount around a folder, of the lines of `/proc/self/mountinfo`; of several at one place the last."""
    found: tuple[int, Mount] | None = None
    for line in lines:
        own, _, system = line.partition(" - ")
        fields, about = own.split(" "), system.split(" ")
        if len(fields) < 6 or len(about) < 3:
            continue
        place = os.path.join(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4]), "")
        if os.path.join(folder, "").startswith(place) and (found is None or len(place) >= found[0]):
            found = len(place), Mount(about[0], frozenset([*fields[5].split(","), *about[2].split(",")]))
    return None if found is None else found[1]


def disk_usage(folder: str | os.PathLike[str]) -> DiskUsage:
    """Of the file system in which a folder is, or would be made."""
    path = Path(folder).absolute()
    usage = shutil.disk_usage(next(above for above in (path, *path.parents) if above.exists()))
    return DiskUsage(usage.total, usage.free)


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether there is a folder."""
    return Path(path).is_dir()
