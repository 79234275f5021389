"""One engine reads all mirrors in a process of its own and prints a line of JSON for each read.

    python -m tests.engines.reading ENGINE FOLDER

The first line has the engine's version.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version
from pathlib import Path

from tests.engines.engine import Engine, Mirrored, built
from tests.engines.judging import difference, verdict_of


def engines() -> tuple[Engine, ...]:
    """Every engine; the modules import an engine's package only when it reads."""
    from tests.engines.catalogs import CATALOGS
    from tests.engines.light import LIGHT
    from tests.engines.spark import SPARK
    from tests.engines.trino import TRINO

    return (*LIGHT, *CATALOGS, *SPARK, *TRINO)


def judged(engine: Engine, mirrored: Mirrored, where: str | None) -> tuple[str, str]:
    """The verdict on one read, and its text."""
    want = mirrored.expected(filtered=where is not None)
    return verdict_of(lambda: difference(engine.read(mirrored, where), want, engine.change))


def tell(**said: object) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def main(name: str, folder: str) -> None:
    (engine,) = (engine for engine in engines() if engine.name == name)
    tell(version=version(engine.package))
    for mirror in engine.mirrors:
        for mirrored in built(Path(folder).absolute(), mirror):
            for where in (None, mirrored.where):
                verdict, text = judged(engine, mirrored, where)
                tell(mirror=mirror, shape=mirrored.shape, filtered=where is not None, verdict=verdict, text=text)
    os._exit(0)  # the threads of some engines do not end


if __name__ == "__main__":
    main(*sys.argv[1:])
