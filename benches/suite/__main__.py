"""The suite in one command: a JSON with every round, a readable table, and plots.

    python -m benches.suite                      # some minutes
    python -m benches.suite --small              # seconds: that it runs
    python -m benches.suite -k "8groups or 5M"   # some of the cases, as pytest selects them

Written to `benches/results`, or where `--output` says: results.json, results.md, ratios.svg, memory.svg.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from benches.suite.report import plots, text

HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benches.suite", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="few rows, few logs, two rounds")
    parser.add_argument("-k", metavar="EXPRESSION", help="only these cases")
    parser.add_argument("--output", type=Path, default=HERE.parent / "results", help="where the results go")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    results = args.output / "results.json"
    command = [sys.executable, "-m", "pytest", str(HERE), "-q", "-p", "no:xdist", "--benchmark-quiet"]
    command += [f"--benchmark-json={results}", *["--small"] * args.small, *(["-k", args.k] if args.k else [])]
    results.unlink(missing_ok=True)
    status = subprocess.run(command, cwd=HERE.parents[1], check=False).returncode
    if not results.exists() or not results.stat().st_size:
        return status or 1
    found = json.loads(results.read_text())
    table = text(found)
    (args.output / "results.md").write_text(table)
    print(table)
    print(plots(found, args.output))
    return status


if __name__ == "__main__":
    sys.exit(main())
