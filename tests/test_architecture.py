"""Imports point one way. The table below is the rule; a failure prints the line that would have to change."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

BELOW_READ = {"errors", "clock", "threads", "model", "merge", "format", "store", "laws", "timeline"}
ROOMS = BELOW_READ | {"read", "write", "services"}
USERS_HOLD = {"rows", "scan", "changes", "inspect", "maintenance", "distributed", "transaction", "table"}
ENGINE = ROOMS | USERS_HOLD

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "clock": {"errors"},
    "threads": set(),
    "model": {"errors"},
    "merge": {"errors", "model"},  # columns and keys; neither files nor the timeline
    "format": {"errors", "model"},  # bytes and values; no paths
    "store": {"errors", "clock"},  # bytes and paths; nothing of Hudi
    "laws": {"errors", "model", "merge"},  # which payloads there are, and what they are held to
    "testing": {"laws"},  # for tests on top of us
    "timeline": {"errors", "clock", "model", "format", "store", "laws"},  # neither columns nor rows
    "read": BELOW_READ,
    "write": BELOW_READ | {"read"},
    "services": BELOW_READ | {"read", "write"},
    "rows": {"errors", "merge"},
    "scan": BELOW_READ | {"read", "rows"},
    "changes": BELOW_READ | {"read", "rows"},
    "inspect": ROOMS,
    "maintenance": ROOMS,
    "distributed": ROOMS,
    "transaction": ROOMS | {"scan"},
    "table": ROOMS | {"scan", "changes", "inspect", "maintenance", "distributed", "transaction"},
    "crdt_mor": ENGINE,  # the front door
    "cli": ENGINE | {"crdt_mor", "readers"},
    "payloads": {"crdt_mor"},  # each is a model for a customer's own
    "readers": {"crdt_mor"},  # if a reader needs more, the public API lacks something
}

LIBRARIES: dict[str, set[str]] = {
    "errors": set(),
    "clock": set(),
    "threads": set(),
    "model": {"numpy", "pyarrow"},
    "merge": {"numpy", "polars", "pyarrow"},
    "format": {"fastavro", "numpy", "polars", "pyarrow"},
    "store": set(),
    "laws": {"hypothesis", "polars", "pyarrow"},
    "testing": set(),
    "timeline": {"pyarrow"},
    "read": {"numpy", "polars", "pyarrow"},
    "write": {"numpy", "polars", "pyarrow"},
    "services": {"polars", "pyarrow"},
    "rows": {"pandas", "polars", "pyarrow"},  # pandas: only its name, for type checkers
    "changes": {"pyarrow"},
    "scan": {"polars", "pyarrow"},
    "inspect": {"pyarrow"},
    "maintenance": set(),
    "distributed": set(),
    "transaction": {"polars", "pyarrow"},
    "table": {"polars", "pyarrow"},
    "crdt_mor": set(),
    "cli": {"click", "polars", "pyarrow", "rich", "typer"},
    "payloads": {"datasketches", "numpy", "polars", "pyarrow"},
    "readers": {"numpy", "polars", "pyarrow", "pyspark"},
}

OURS = {"crdt_mor", "tests", "benches"}
LINKED = {"payloads", "readers"}  # at the root of the repository, and linked into the package
CHANCE = {"random", "secrets", "time", "uuid"}
STANDARD_LIBRARY = sys.stdlib_module_names

FILES = sorted(file for name in ("crdt_mor", *LINKED) for file in (ROOT / name).rglob("*.py"))


def name_of(file: Path) -> str:
    name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return f"crdt_mor.{name}" if name.split(".")[0] in LINKED else name


def unit_of(module: str) -> str:
    """The row of the table that a module belongs to."""
    parts = module.split(".")
    return parts[1] if parts[0] == "crdt_mor" and len(parts) > 1 else parts[0]


def modules_imported(file: Path) -> Iterator[str]:
    """Every module that a file imports, at its top, inside functions and for type checking only."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(file)} imports relatively; write the full name"
            assert node.module is not None
            for alias in node.names:
                inner = ROOT.joinpath(*node.module.split("."), alias.name)
                is_module = inner.with_suffix(".py").exists() or inner.is_dir()
                yield f"{node.module}.{alias.name}" if is_module else node.module


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_imports_point_one_way(file: Path) -> None:
    unit = unit_of(name_of(file))
    assert unit in MAY_IMPORT, f"say in MAY_IMPORT what {unit!r} may import"
    for module in modules_imported(file):
        target = unit_of(module)
        if module.split(".")[0] in OURS and target != unit:
            assert target in MAY_IMPORT[unit], f"{name_of(file)} imports {module}: {unit!r} may not import {target!r}"


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_libraries_stay_in_their_layer(file: Path) -> None:
    unit = unit_of(name_of(file))
    for module in modules_imported(file):
        library = module.split(".")[0]
        if library in OURS or library in STANDARD_LIBRARY:
            continue
        assert library in LIBRARIES[unit], f"{name_of(file)} imports {library}, which {unit!r} does without"
        if library == "pyspark":
            assert file.is_relative_to(ROOT / "readers" / "spark"), f"{name_of(file)}: pyspark is readers.spark's alone"


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_time_and_chance_come_in_through_one_door(file: Path) -> None:
    found = {module.split(".")[0] for module in modules_imported(file)} & CHANCE
    assert name_of(file) == "crdt_mor.clock" or not found, f"take {found} from crdt_mor.clock.Environment"


TESTS = sorted((ROOT / "tests").rglob("*.py"))


@pytest.mark.parametrize("file", TESTS, ids=name_of)
def test_no_test_imports_from_another_test(file: Path) -> None:
    """What two files of tests share stands in a module of its own: a test can then be moved, split or removed alone."""
    for module in modules_imported(file):
        name = module.rpartition(".")[2]
        is_test = module.startswith("tests.") and (name.startswith("test_") or name == "conftest")
        assert not is_test, f"{name_of(file)} imports {module}; move what they share into a module that is no test"


def test_the_table_has_no_cycle() -> None:
    """Units can be put in a row in which each imports only what stands before it."""
    row: list[str] = []
    todo = dict(MAY_IMPORT)
    while todo:
        ready = sorted(unit for unit, below in todo.items() if below <= set(row))
        assert ready, f"these import each other in a circle: {sorted(todo)}"
        row += ready
        for unit in ready:
            del todo[unit]
