"""Packages of npm that tests need, in a folder outside the repository.

python -m tests.npm azurite axe-core      # fetches these
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

VERSIONS: Final = {"azurite": "3.35.0", "axe-core": "4.14.1"}


def folder(name: str) -> Path:
    """Return a package's folder, which may not exist yet."""
    return _prefix(name) / "node_modules" / name


def _prefix(name: str) -> Path:
    own = os.environ.get(f"CRDT_MOR_{name.replace('-', '_').upper()}")
    return Path(own) if own else Path.home() / ".cache" / "crdt-mor" / name


def _install(name: str) -> None:
    prefix = _prefix(name)
    prefix.mkdir(parents=True, exist_ok=True)
    package = f"{name}@{VERSIONS[name]}"
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(prefix), package], check=True)


if __name__ == "__main__":
    if not sys.argv[1:] or {*sys.argv[1:]} - {*VERSIONS}:
        sys.exit(__doc__)
    for asked in sys.argv[1:]:
        _install(asked)
