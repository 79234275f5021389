"""The peak of a write stays below its bound, in a process of its own: docs/memory.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crdt_mor.ground.machine import memory_bytes

MIB = 1 << 20
BENCH = Path(__file__).parents[1] / "benches" / "memory.py"
ROWS = 600_000
"""80 MiB of Arrow rows, which take 400 MiB if they are written in memory."""


def peak(verb: str, folder: Path, limit: int) -> int:
    command = [sys.executable, str(BENCH), "--verb", verb, "--uri", str(folder / "table"), "--rows", str(ROWS)]
    done = subprocess.run([*command, "--limit", str(limit)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from /proc")
def test_an_upsert_keeps_its_bound(tmp_path: Path) -> None:
    assert peak("upsert", tmp_path, 32 * MIB) < 200 * MIB


def written(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return f"{root}/"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/meminfo": "MemTotal:       1000 kB\n"}, 1000 << 10),
        ({"proc/meminfo": "MemTotal: 1000 kB\n", "proc/self/cgroup": "0::/a/b\n",
          "sys/fs/cgroup/a/memory.max": "5000\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, 5000),
        ({"proc/meminfo": "MemTotal: 1000 kB\n", "proc/self/cgroup": "4:memory:/a\n3:cpu:/\n",
          "sys/fs/cgroup/memory/memory.limit_in_bytes": "7000\n"}, 7000),
        ({}, 8 << 30),
    ],
    ids=["machine", "version 2", "version 1", "unknown"],
)  # fmt: skip
def test_the_memory_of_a_container_is_its_limit(files: dict[str, str], expected: int, tmp_path: Path) -> None:
    assert memory_bytes(written(tmp_path, files)) == expected
