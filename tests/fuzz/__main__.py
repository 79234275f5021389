"""Fuzz one parser: `python -m tests.fuzz value --inputs 1000000`.

With atheris (`pip install atheris`, no part of the development set-up) coverage guides the inputs; without it they are
mutants of the seeds, and the report says so. Findings are kept in a folder: the input of each kind and its traceback.
Ends with 1 where there are findings. `--try FILE` parses one input, as to look at a finding: an error of
`crdt_mor.errors` is what it should raise, any other one is a finding.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import guided


def main() -> int:
    """Parse the arguments, and run."""
    arguments = _arguments()
    if arguments.list:
        from tests.fuzz.parsers import PARSERS

        _say("\n".join(PARSERS))
        return 0
    if arguments.one is not None:
        from tests.fuzz.parsers import parser_of

        parser_of(arguments.parser).parse(arguments.one.read_bytes())
        return 0
    place = Path(arguments.folder or tempfile.mkdtemp(prefix="crdt-mor-fuzz-"))
    place = place / arguments.parser
    place.mkdir(parents=True, exist_ok=True)
    return _report(arguments.parser, arguments.inputs, arguments.seed, place)


def _report(name: str, inputs: int, seed: int, place: Path) -> int:
    begun = time.monotonic()
    is_guided = guided.is_installed()
    if is_guided:
        guided.supervise(name, inputs, seed, place)
        tried, accepted, peak = guided.Counts(place / "counts").read()
    else:
        from tests.fuzz.parsers import parser_of
        from tests.fuzz.run import Run, blind

        run = Run(parser_of(name), place)
        run.warm()
        blind(run, inputs, seed)
        tried, accepted, peak = run.inputs, run.accepted, 0
    kinds = sorted(
        path.read_text(errors="replace").partition("\n")[0] for path in place.glob("*.txt") if path.name != "log.txt"
    )
    kinds += sorted(path.name for path in place.glob("died-*"))
    _say(
        f"{name}: {tried} inputs, {accepted} parsed, {len(kinds)} kinds of findings, {time.monotonic() - begun:.0f} s, "
        f"of a processor {sum(os.times()[:4]):.0f} s, "
        f"{f'guided by coverage, peak of {peak >> 10} MiB' if is_guided else 'not guided: atheris is not installed'}. "
        f"folder={place}"
    )
    for kind in kinds:
        _say(f"  {kind}")
    return 1 if kinds else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("parser", nargs="?", default="value", help="its name; --list prints them")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="how many; a million by default")
    parser.add_argument("--seed", type=int, default=1, help="of chance; 1 by default")
    parser.add_argument("--folder", help="where findings are kept; without it a new folder among temporary ones")
    parser.add_argument("--list", action="store_true", help="print the names of the parsers")
    parser.add_argument("--try", dest="one", type=Path, metavar="FILE", help="parse one input")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
