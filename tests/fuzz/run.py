"""A run of one parser: what it found, by kind, and the smallest input of each kind.

Two findings are of one kind where the same error is raised at the same place of ours.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Final

from tests.fuzz.mutation import mutated
from tests.fuzz.parsers import Parser
from tests.fuzz.watch import parsed

_OWN: Final = ("/crdt_mor/", "/payloads/")
_HARNESS: Final = "/fuzz/"


@dataclass
class Run:
    """The inputs of a run and its findings; `folder` keeps the input and the traceback of each kind."""

    parser: Parser
    folder: Path | None = None
    inputs: int = 0
    accepted: int = 0
    found: dict[str, bytes] = field(default_factory=dict)

    def warm(self, most: int | None = None) -> None:
        """Parse seeds, so that what is imported late is there before an import is held against an input."""
        for seed in self.parser.seeds()[:most]:
            try:
                self.parser.parse(seed)
            except Exception as error:  # noqa: BLE001  what a parser raises is what is asked
                self._note(seed, error)

    def try_one(self, data: bytes) -> None:
        """Parse one input, and note what goes wrong."""
        self.inputs += 1
        try:
            self.accepted += parsed(self.parser.parse, data, self.parser.allowed)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  a panic of polars is no Exception
            self._note(data, error)

    def _note(self, data: bytes, error: BaseException) -> None:
        from crdt_mor.errors import CrdtMorError

        if isinstance(error, CrdtMorError):
            return
        kind = _kind(error)
        if kind not in self.found or len(data) < len(self.found[kind]):
            self.found[kind] = data
            if self.folder is not None:
                name = sha256(kind.encode()).hexdigest()[:12]
                (self.folder / name).write_bytes(data)
                (self.folder / f"{name}.txt").write_text(
                    f"{kind}\n\n{''.join(traceback.format_exception(error))}", errors="replace"
                )


def _kind(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if any(part in frame.filename for part in _OWN) and _HARNESS not in frame.filename]
    where = f"{own[-1].filename.rpartition('/crdt_mor/')[2]}:{own[-1].name}" if own else "the harness"
    return f"{type(error).__name__} in {where}"


def mutant(parser: Parser, chance: Random, seeds: Sequence[bytes]) -> bytes:
    """One hostile input of a parser."""
    data = mutated(chance.choice(seeds), chance, parser.shape, seeds)
    return parser.mend(data) if chance.random() < 0.5 else data


def blind(run: Run, inputs: int, seed: int) -> None:
    """Try so many mutants of the seeds, the same ones each time; no coverage guides them."""
    chance, seeds = Random(seed), run.parser.seeds()
    for _ in range(inputs):
        run.try_one(mutant(run.parser, chance, seeds))
