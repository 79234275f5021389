"""A run that is guided by coverage: atheris, which is libFuzzer for Python, in a process that may die.

    parent    starts the child, and starts it again where it died; counts in a file that both have mapped
    child     instruments the parser's modules as they are imported, mutates what has reached new code, a quarter by
              `mutation`

A crash of the process, an input that takes ten seconds, or more memory than its limit is a finding like any other: the
input is kept, and another child goes on with another seed.
"""

from __future__ import annotations

import mmap
import os
import resource
import struct
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from glob import glob
from multiprocessing import get_context
from pathlib import Path
from random import Random
from types import FrameType
from typing import Final

MEMORY_BYTES: Final = 2 << 30
"""How much more address space a child may take than it has when it begins."""

SECONDS_AN_INPUT: Final = 10
"""The watchdog: how long one input may take, on a machine that does other things as well."""

_ROOT: Final = Path(__file__).parents[2]
_SEEDS_WARM: Final = 32
"""How many seeds are parsed before anything is tried; one that is a whole table takes as long as a thousand others."""

_LENGTH_MAX: Final = 1 << 15
_LENGTH_MORE: Final = 256
"""How many bytes more than the longest seed an input may have."""

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
    """Run children until so many inputs were tried.

    This process imports no parser, as a child would have the engine's modules from it, without instruments.
    """
    assert "tests.fuzz.parsers" not in sys.modules
    counts = Counts(folder / "counts")
    with ProcessPoolExecutor(1, get_context("spawn")) as another:
        modules = another.submit(modules_of, name).result()
    died = 0
    while counts.read()[0] < inputs:
        before = counts.read()[0]
        pid = os.fork()
        if pid == 0:
            _child(name, inputs, seed + died, folder, modules)
        _, status = os.waitpid(pid, 0)
        died += 1
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 130:
            raise KeyboardInterrupt
        if counts.read()[0] == before:
            raise RuntimeError(f"the child does not begin: see {folder / 'log.txt'}. status={status}")


def modules_of(name: str) -> set[str]:
    """The engine's modules of which code runs as seeds of a parser are parsed. Their code guides its inputs.

    To instrument all modules takes half a minute each time, and is no guide: what the others do, no input decides.
    """
    from tests.fuzz.parsers import parser_of
    from tests.fuzz.run import Run

    run, found = Run(parser_of(name)), set[str]()
    run.parser.seeds()  # which the whole engine makes

    def look(frame: FrameType, event: str, argument: object) -> None:
        found.add(frame.f_globals.get("__name__", ""))

    threading.setprofile(look)
    sys.setprofile(look)
    run.warm(_SEEDS_WARM)
    sys.setprofile(None)
    threading.setprofile(None)
    return found & _engine()


def _engine() -> set[str]:
    """The names of all modules of the engine; its payloads are a link to a folder."""
    paths = glob("crdt_mor/**/*.py", root_dir=_ROOT, recursive=True)
    return {path.removesuffix(".py").replace(os.sep, ".").removesuffix(".__init__") for path in paths}


def _child(name: str, inputs: int, seed: int, folder: Path, modules: set[str]) -> None:
    log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ |= {"RUST_BACKTRACE": "0", "POLARS_MAX_THREADS": "1"}
    import atheris

    # `include` takes whole packages alone: of `crdt_mor.format` it takes the first word.
    with atheris.instrument_imports(include=["crdt_mor"], exclude=sorted(_engine() - modules)):
        from tests.fuzz.mutation import mutated
        from tests.fuzz.parsers import PARSERS
        from tests.fuzz.run import Run

        run = Run(PARSERS[name], folder)
        run.warm(_SEEDS_WARM)
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
    longest = min(_LENGTH_MAX, max(map(len, seeds)) + _LENGTH_MORE)
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
