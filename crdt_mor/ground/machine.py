"""What a machine has: programs, and room on its disks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple


class DiskUsage(NamedTuple):
    """Bytes of a file system: all of them, and those that are free."""

    total: int
    free: int


def find_java() -> str | None:
    """The path of the Java that Spark would start; None: there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin") if home else None)


def disk_usage(folder: str | os.PathLike[str]) -> DiskUsage:
    """Of the file system in which a folder is, or would be made."""
    path = Path(folder).absolute()
    usage = shutil.disk_usage(next(above for above in (path, *path.parents) if above.exists()))
    return DiskUsage(usage.total, usage.free)


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether there is a folder."""
    return Path(path).is_dir()
