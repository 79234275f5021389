"""Simulates tables without an end, with fresh seeds.

    python -m tests.simulation --forever                 # until Ctrl-C
    python -m tests.simulation --minutes 60
    python -m tests.simulation --life restores:81273     # one life again

Each failure prints its story and the command that repeats it, and the run goes on. The exit code is 1 after a failure.
Every process draws its own seeds, so start one on each processor.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator

from tests.simulation.lives import LIVES, fresh, run_lives


def life(text: str) -> tuple[str, int]:
    """Parse KIND:SEED."""
    kind, _, seed = text.partition(":")
    if kind not in LIVES or not seed.isdecimal():
        raise argparse.ArgumentTypeError(f"write KIND:SEED, where KIND is one of {', '.join(LIVES)}")
    return kind, int(seed)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--forever", action="store_true")
    wanted.add_argument("--minutes", type=float)
    wanted.add_argument("--life", type=life, metavar="KIND:SEED")
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes if given.minutes is not None else float("inf")
    stopped: list[int] = []

    def stop(number: int, frame: object) -> None:
        """Let the life at hand end; a second signal ends the process."""
        stopped.append(number)
        signal.signal(number, signal.SIG_DFL)

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    lives: Iterator[tuple[str, int]] = iter([given.life]) if given.life is not None else fresh()
    tally = run_lives(lives, sys.stdout, lambda: not stopped and time.monotonic() < until)
    did = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.items()) if kind != "failed")
    sys.stdout.write(f"{did}: {tally['failed']} failed\n")
    return int(bool(tally["failed"]))


if __name__ == "__main__":
    sys.exit(main())
