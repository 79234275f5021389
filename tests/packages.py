"""Builds the packages that a release uploads, and installs each in an environment of its own, as its users will.

    python -m tests.packages
    python -m tests.packages FOLDER     # and keeps them there, with the bill of materials

The source distribution and the wheel must satisfy `twine check --strict`; the wheel that is built from the source
distribution must be, byte for byte, the one that is built from the tree; and neither tests nor benches are in it. Then
both are installed with the versions of `requirements.lock`, and a small program runs that sees nothing of this tree.
mypy knows the types of what a table returns, in a program of a user beside the installed wheel (`tests/typed.py`).
All that the wheel needs must have a licence that `tests/sbom.py` allows, and stand in its bill of materials.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from tests import sbom

ROOT = Path(__file__).parents[1]

STUBS = "pyarrow-stubs==20.0.0.20260819"

MAN = "share/man/man1/crdt-mor.1"
"""The man page, below the environment's folder."""

OWN = {"crdt_mor", "pyspark_crdt_mor.py"}
"""What the wheel has at its top: the engine, and the module in which Spark looks for a format."""

PROGRAM = """
import sys
from importlib.metadata import version
from importlib.resources import files

import polars as pl

import crdt_mor as mor
import crdt_mor.payloads
import crdt_mor.readers.polars
from crdt_mor.payloads import Counter

assert crdt_mor.__file__.startswith(sys.prefix), crdt_mor.__file__
assert files("crdt_mor").joinpath("py.typed").is_file()
assert mor.__version__ == version("crdt-mor") == sys.argv[1], (mor.__version__, version("crdt-mor"))
rows = pl.DataFrame({"id": ["a", "b"], "views": [1, 2]})
table = mor.Table.create("events", rows.to_arrow().schema, key="id", merge={"views": Counter()})
table.upsert(rows)
table.upsert(rows)
table.maintenance.compact()
table.upsert(pl.DataFrame({"id": ["c"], "views": [5]}))
want = [("a", 2), ("b", 4), ("c", 5)]
assert sorted(mor.Table("events").scan().to_polars().rows()) == want
assert sorted(crdt_mor.readers.polars.scan_table("events").collect().rows()) == want
"""


def call(*command: str | Path, cwd: Path = ROOT) -> str:
    """What a command printed; an error with all of it where it failed."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """The source distribution and the wheel that is built from it; it is the one that the tree gives."""
    python = (sys.executable, "-m", "build", "--no-isolation")
    call(*python, "--outdir", folder, ROOT)
    call(*python, "--wheel", "--outdir", folder / "tree", ROOT)
    [source], [wheel] = folder.glob("*.tar.gz"), folder.glob("*.whl")
    if wheel.read_bytes() != (folder / "tree" / wheel.name).read_bytes():
        raise SystemExit("the wheel of the source distribution is not that of the tree: what does its `include` lack?")
    copy = folder / "copy"
    kept = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=kept)
    for link in ("payloads", "readers"):
        (copy / "crdt_mor" / link).unlink()
    call(*python, "--wheel", "--outdir", folder / "without-links", copy)
    if wheel.read_bytes() != (folder / "without-links" / wheel.name).read_bytes():
        raise SystemExit("a checkout without links gives another wheel: see [tool.hatch.build.targets.wheel]")
    return source, wheel


def check_contents(wheel: Path) -> None:
    """The wheel has the engine with the two folders that are links in the tree, its type marker, the man page, and
    nothing else.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    data = {name for name in names if ".data/" in name}
    if [name.partition(".data/data/")[2] for name in data] != [MAN]:
        raise SystemExit(f"the wheel's only data is {MAN}, not {sorted(data)}")
    folders = {name.split("/")[0] for name in names - data}
    if extra := {name for name in folders if name not in OWN and not name.endswith(".dist-info")}:
        raise SystemExit(f"the wheel has more than the engine: {sorted(extra)}")
    needed = {"__init__.py", "py.typed", "payloads/__init__.py", "readers/polars.py", "readers/spark/__init__.py"}
    if lacking := {*OWN - folders, *(name for name in needed if f"crdt_mor/{name}" not in names)}:
        raise SystemExit(f"the wheel lacks {sorted(lacking)}")


def use(package: Path, folder: Path, version: str) -> Path:
    """Install a package in an environment of its own, far from the tree, and run the program and the command there.

    The Python of the environment.
    """
    python = sbom.with_package(folder, package)
    call(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "check")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    call(python, "-I", "-W", "error", "-c", PROGRAM, version, cwd=elsewhere)
    if version not in (said := call(folder / "bin" / "crdt-mor", "--version", cwd=elsewhere)):
        raise SystemExit(f"crdt-mor --version says {said!r}, not {version}")
    call(folder / "bin" / "crdt-mor", "show", "events", cwd=elsewhere)
    if not (folder / MAN).is_file():
        raise SystemExit(f"the package installs no {MAN}")
    return python


def check_types(python: Path, folder: Path) -> None:
    """Check the program of a user by mypy, which finds the types of pyarrow in a package of its own."""
    lock = (ROOT / "requirements.lock").read_text()
    (mypy,) = (line for line in lock.splitlines() if line.startswith("mypy=="))
    call(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "-q", mypy, STUBS)
    shutil.copy(ROOT / "tests" / "typed.py", folder / "elsewhere")
    call(python, "-I", "-m", "mypy", "--strict", "typed.py", cwd=folder / "elsewhere")


def keep(source: Path, wheel: Path, bill: dict[str, Any], target: Path) -> None:
    """Put both packages and the bill into a folder."""
    target.mkdir(parents=True, exist_ok=True)
    for package in (source, wheel):
        shutil.copy(package, target)
    (target / sbom.name_of_bill(wheel)).write_text(json.dumps(bill, indent=2) + "\n")


def main(target: Path | None) -> int:
    """Build, check, install, use; ends with the first thing that is wrong."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    with tempfile.TemporaryDirectory(prefix="crdt-mor-packages-") as name:
        folder = Path(name)
        source, wheel = build(folder / "dist")
        sys.stdout.write(call(sys.executable, "-m", "twine", "check", "--strict", source, wheel))
        check_contents(wheel)
        for package, environment in ((wheel, "of-wheel"), (source, "of-source")):
            python = use(package, folder / environment, version)
            sys.stdout.write(f"installed and used: {package.name}, {package.stat().st_size // 1024} KiB\n")
        bill = sbom.bill_of(python, folder)
        check_types(python, folder / environment)
        sys.stdout.write(f"allowed: the licences of the {len(bill['components'])} packages that are needed\n")
        if target is not None:
            keep(source, wheel, bill, target)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None))
