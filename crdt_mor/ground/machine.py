"""Programs, mounts, memory and disk space of a machine."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

_UNKNOWN: Final = 8 << 30

_MOUNTS: Final = "/proc/self/mountinfo"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A mounted file system: kernel type, such as `ext4`, and mount options."""

    kind: str
    options: frozenset[str]


class DiskUsage(NamedTuple):
    total: int
    free: int


def find_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin") if home else None)


def mount_of(folder: str | os.PathLike[str]) -> Mount | None:
    """Return the mount of a folder, existing or not; None if unknown."""
    try:
        lines = Path(_MOUNTS).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    return mount_in(lines, os.path.realpath(folder))


def mount_in(lines: Iterable[str], folder: str) -> Mount | None:
    """Return the innermost mount of a folder in lines of `/proc/self/mountinfo`; the last of equals."""
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
    path = Path(folder).absolute()
    usage = shutil.disk_usage(next(above for above in (path, *path.parents) if above.exists()))
    return DiskUsage(usage.total, usage.free)


def memory_bytes(root: str = "/") -> int:
    """Return the memory of the machine or container."""
    limits = [_meminfo(f"{root}proc/meminfo"), *_cgroup_limits(root)]
    return min((limit for limit in limits if limit), default=_UNKNOWN)


def _meminfo(path: str) -> int | None:
    found = re.search(r"MemTotal:\s*(\d+) kB", _text(path))
    return int(found[1]) << 10 if found else None


def _cgroup_limits(root: str) -> Iterator[int]:
    """Yield the limits of the control groups of this process, versions 2 and 1."""
    for line in _text(f"{root}proc/self/cgroup").splitlines():
        _, kinds, group = line.split(":", 2)
        if kinds not in ("", "memory"):
            continue
        top, name = (f"{root}sys/fs/cgroup", "max") if not kinds else (f"{root}sys/fs/cgroup/memory", "limit_in_bytes")
        levels = [level for level in group.split("/") if level]
        for depth in range(len(levels) + 1):
            text = _text("/".join([top, *levels[:depth], f"memory.{name}"])).strip()
            if text.isdigit():
                yield int(text)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def is_folder(path: str | os.PathLike[str]) -> bool:
    return Path(path).is_dir()
