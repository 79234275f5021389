"""Runs the fast tests nearest to the changed files, in under a minute: `make quick`.

    python -m tests.quick                        # files changed since the branch left main, and in the working tree
    python -m tests.quick crdt_mor/log/tail.py   # these files
    python -m tests.quick --list                 # the order of the test files

A test file is near if a short chain of imports leads from it to a changed module. Ties go to tests with the same name,
then to tests in the folder of the same name. A changed file that is not Python is near to each test that names it.
After `--seconds` the remaining tests are skipped, and the report counts them.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("crdt_mor", "payloads", "readers", "tests", "benches")
LINKED = ("payloads", "readers")
FILES_MAX = 60
"""Collecting a test file takes 50 ms."""

SECONDS = 40
"""Until the first skip. Starting takes some seconds, and the last test may be slow."""

IMPORT = re.compile(r"^[ \t]*(?:from ([\w.]+) import (\([^)]*\)|[^\n(]*)|import ([\w., ]+))", re.MULTILINE)

Imports = Mapping[str, set[str]]
"""The modules that each module imports."""


def module_of(path: str) -> str:
    """The module of a file, under the name by which others import it."""
    name = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    return f"crdt_mor.{name}" if name.partition(".")[0] in LINKED else name


def imported(source: str) -> Iterator[str]:
    """Yield the modules that a file may import. `from a import b` names both `a` and `a.b`."""
    for of, names, modules in IMPORT.findall(source):
        for name in re.findall(r"([\w.]+)(?: as \w+)?", names or modules):
            yield f"{of}.{name}" if of else name
        if of:
            yield of


def imports_of(files: Mapping[str, str]) -> dict[str, set[str]]:
    """The imports between these files, from the text of each."""
    modules = {module_of(path) for path in files}
    return {module_of(path): {*imported(text)} & modules - {module_of(path)} for path, text in files.items()}


def distances(changed: Iterable[str], imports: Imports) -> dict[str, int]:
    """The length of the shortest chain of imports from each module to a changed one."""
    importers: dict[str, set[str]] = {}
    for module, named in imports.items():
        for other in named:
            importers.setdefault(other, set()).add(module)
    found, edge = dict.fromkeys(changed, 0), set(changed)
    while edge:
        edge = {importer for module in edge for importer in importers.get(module, ())} - found.keys()
        found |= dict.fromkeys(edge, max(found.values()) + 1)
    return found


def is_test(path: str) -> bool:
    return path.startswith("tests/") and path.rpartition("/")[2].startswith("test_") and path.endswith(".py")


def nearest(changed: Iterable[str], files: Mapping[str, str]) -> list[str]:
    """Order the test files by their distance to changed files, and leave out the ones that reach none."""
    changed = set(changed)
    modules = {module_of(path) for path in changed if path in files}
    far = distances(modules, imports_of(files))
    stems = {Path(path).stem for path in changed}
    rooms = {part for path in changed for part in Path(path).parts[:-1]} - {"tests", "crdt_mor"}
    texts = {Path(path).name for path in changed if not path.endswith(".py")}
    ranked = []
    for path in filter(is_test, files):
        distance = 1 if any(name in files[path] for name in texts) else far.get(module_of(path))
        if distance is not None:
            named = Path(path).stem.removeprefix("test_") in stems
            ranked.append((distance, not named, rooms.isdisjoint(Path(path).parts), path))
    return [path for *_, path in sorted(ranked)]


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed_files() -> list[str]:
    """The files changed since the branch left main; on main itself, those of the working tree or of the last commit."""
    new = git("ls-files", "--others", "--exclude-standard")
    for base in (*git("merge-base", "HEAD", "main"), "HEAD~1"):
        if found := [*git("diff", "--name-only", base), *new]:
            return found
    return []


def sources() -> dict[str, str]:
    """The text of each Python file, by its path."""
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]
    return {
        path: file.read_text(encoding="utf-8")
        for file in files
        if (path := file.relative_to(ROOT).as_posix()).split("/")[1] not in LINKED
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.quick", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", help="changed files; default: by git")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--list", action="store_true", help="print the test files in order, and run none")
    given = parser.parse_args()
    tests = nearest(given.files or changed_files(), sources())[:FILES_MAX]
    if given.list or not tests:
        sys.stdout.write("".join(f"{path}\n" for path in tests) or "no test is near to a changed file\n")
        return 0
    by_file = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
    command = [sys.executable, "-m", "pytest", "-q", *by_file, "--within", str(given.seconds), *tests]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
