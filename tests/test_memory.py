"""Memory that was freed is there for the next array, not given back to the system page by page."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from crdt_mor.ground.memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [b"x" * (3 << 20) for _ in range(8)]
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(min(faults() for _ in range(3)))
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has rules of its own")
def test_blocks_that_come_and_go_are_not_made_of_new_pages() -> None:
    def faults(way: str) -> int:
        command = [sys.executable, "-c", PROGRAM, way]
        return int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)

    pages = 8 * (3 << 20) // 4096
    assert faults("kept") < pages / 10 < faults("as it is")
