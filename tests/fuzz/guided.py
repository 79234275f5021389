"""A run that is guided by coverage: atheris, which is libFuzzer for Python, in a process that may die.

    parent    starts the child, and starts it again where it died; counts in a file that both have mapped
    child     instruments `crdt_mor` as it is imported, mutates what has reached new code, a quarter by `mutation`

A crash of the process, an input that takes ten seconds, or more memory than its limit is a finding like any other: the
input is kept, and another child goes on with another seed.
"""

from __future__ import annotations

import mmap
import os
import resource
import struct
import sys
from pathlib import Path
from random import Random
from typing import Final

MEMORY_BYTES: Final = 2 << 30
"""How much more address space a child may take than it has when it begins."""

SECONDS_AN_INPUT: Final = 10
"""The watchdog: how long one input may take, on a machine that does other things as well."""

_ROOMS: Final = (
    "format",
    "model",
    "columns",
    "planners",
    "log",
    "hudi",
    "read",
    "merge",
    "store.paths",
    "api.files_json",
    "cli.inputs",
)
"""The rooms whose code guides a run: to instrument all of them takes half a minute each time."""

_LENGTH_MAX: Final = 1 << 15
_COUNTS: Final = struct.Struct("=qqq")


class Counts:
    """Inputs, accepted ones and the peak of memory in KiB, of all children together, in a mapped file."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_COUNTS.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _COUNTS.size)

    def read(self) -> tuple[int, int, int]:
        """As they are now."""
        inputs, accepted, peak = _COUNTS.unpack_from(self._map)
        return inputs, accepted, peak

    def write(self, inputs: int, accepted: int) -> None:
        """Note these."""
        _COUNTS.pack_into(self._map, 0, inputs, accepted, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def is_installed() -> bool:
    """Whether atheris is there."""
    from importlib.util import find_spec

    return find_spec("atheris") is not None


def supervise(name: str, inputs: int, seed: int, folder: Path) -> None:
    """Run children until so many inputs were tried."""
    counts = Counts(folder / "counts")
    died = 0
    while counts.read()[0] < inputs:
        before = counts.read()[0]
        pid = os.fork()
        if pid == 0:
            _child(name, inputs, seed + died, folder)
        _, status = os.waitpid(pid, 0)
        died += 1
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 130:
            raise KeyboardInterrupt
        if counts.read()[0] == before:
            raise RuntimeError(f"the child does not begin: see {folder / 'log.txt'}. status={status}")


def _child(name: str, inputs: int, seed: int, folder: Path) -> None:
    log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ |= {"RUST_BACKTRACE": "0", "POLARS_MAX_THREADS": "1"}
    import atheris

    with atheris.instrument_imports(include=[f"crdt_mor.{room}" for room in _ROOMS]):
        from tests.fuzz.mutation import mutated
        from tests.fuzz.parsers import PARSERS
        from tests.fuzz.run import Run

        run = Run(PARSERS[name], folder)
        run.warm()
    chance, counts = Random(), Counts(folder / "counts")
    begun, accepted, _ = counts.read()
    seeds = run.parser.seeds()
    corpus = folder / "corpus"
    corpus.mkdir(exist_ok=True)
    for number, data in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(data)

    def try_one(data: bytes) -> None:
        counts.write(begun + run.inputs + 1, accepted + run.accepted)
        run.try_one(data)
        if begun + run.inputs >= inputs:
            counts.write(begun + run.inputs, accepted + run.accepted)
            os._exit(0)

    def mutate(data: bytes, length_max: int, number: int) -> bytes:
        chance.seed(number)
        if number % 4 == 0:
            found = mutated(data, chance, run.parser.shape, seeds)
        else:
            found = bytes(atheris.Mutate(data, length_max))
        return (run.parser.mend(found) if chance.random() < 0.5 else found)[:length_max]

    _limit_memory()
    longest = min(_LENGTH_MAX, 2 * max(map(len, seeds)) + 256)
    options = [
        f"-seed={seed}",
        f"-timeout={SECONDS_AN_INPUT}",
        "-rss_limit_mb=0",
        "-print_final_stats=1",
        "-verbosity=1",
        f"-artifact_prefix={folder}/died-",
        f"-max_len={longest}",
        "-reload=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], try_one, custom_mutator=mutate)
    atheris.Fuzz()


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    most = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
