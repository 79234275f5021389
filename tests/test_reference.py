"""docs/reference: each public name stands there once, each call has an example, and every example prints what it shows.

An entry is a line `::: crdt_mor.Table.upsert`, for which `make docs` puts the signature and the docstring. Entries that
stand together have the blocks below them for their examples.
"""

from __future__ import annotations

import ast
import dataclasses
import doctest
import inspect
import re
from pathlib import Path

import polars as pl
import pytest

import crdt_mor
from crdt_mor import cdc, payloads, testing
from docs.site.entries import FOLDER, entries, homes, public
from tests.guides import run_page

ROOT = Path(__file__).parents[1]
PAGES = sorted(page.name for page in FOLDER.glob("*.md"))
FAST = ["scan.md"]
ELSEWHERE = {"README.md", "spark.md"}
"""Pages whose blocks do not run here: one has none, and those of the other run in tests/spark."""


# --- the examples -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("page", FAST)
def test_every_block_of_a_page_runs_and_shows_what_it_prints(page: str, fast_path: Path) -> None:
    run(page, fast_path)


@pytest.mark.slow
def test_every_block_of_the_other_pages_does(fast_path: Path) -> None:
    for page in PAGES:
        if page not in (*FAST, *ELSEWHERE):
            (fast_path / page).mkdir()
            run(page, fast_path / page)


def run(page: str, folder: Path) -> None:
    run_page(FOLDER / page, folder, r"[\d,]+ bytes")


SHOWN = {
    f"{path.relative_to(ROOT)}::{found.name}": text
    for folder in ("crdt_mor", "payloads")
    for path in sorted((ROOT / folder).rglob("*.py"))
    for found in ast.walk(ast.parse(path.read_text()))
    if isinstance(found, ast.ClassDef | ast.FunctionDef) and ">>> " in (text := ast.get_docstring(found) or "")
}
"""The docstrings that show an example, by function or class."""


@pytest.mark.parametrize("where", SHOWN)
def test_example_of_a_docstring_run_prints_what_it_shows(
    where: str, fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fast_path)
    table = crdt_mor.Table.create("events", {"id": "string", "views": "int64"}, key="id")
    table.upsert(pl.DataFrame({"id": ["a", "b"], "views": [1, 2]}))
    names = {"mor": crdt_mor, "pl": pl, "table": table, **{name: getattr(payloads, name) for name in payloads.__all__}}
    told: list[str] = []
    test = doctest.DocTestParser().get_doctest(SHOWN[where], names, where, where, 0)
    assert doctest.DocTestRunner(verbose=False).run(test, out=told.append).failed == 0, "".join(told)


# --- the entries ------------------------------------------------------------------------------------------------------


ENTRIES = list(entries())
PATHS = [entry.path for entry in ENTRIES]


def names_of_spark() -> list[str]:
    """What `crdt_mor.readers.spark` has, which needs pyspark to be imported."""
    text = (ROOT / "readers" / "spark" / "__init__.py").read_text().partition("__all__ = [")[2]
    return re.findall(r'"(\w+)"', text)


PUBLIC = [f"{module}.{name}" for name, module in homes().items()]
PUBLIC += [f"crdt_mor.payloads.{name}" for name in payloads.__all__ if name not in crdt_mor.__all__]
PUBLIC += [f"crdt_mor.testing.{name}" for name in testing.__all__]
PUBLIC += [f"crdt_mor.readers.spark.{name}" for name in names_of_spark()]
PUBLIC += [f"crdt_mor.cdc.{name}" for name in cdc.__all__]
PUBLIC += ["crdt_mor.readers.polars.scan_table", "crdt_mor.readers.follow.follow"]

OF_VALUES = {
    "ArrowDataset", "DataFile", "LocalStore", "MemoryStore",
    "TableConfig",
}  # fmt: skip
"""Classes whose methods are for the engine, or are those of `Store`, so that their entries do without them."""


def own_members(cls: type) -> list[str]:
    """The public methods and properties that a class of ours says something about."""
    fields = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    found = []
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        is_code = isinstance(member, property | classmethod | staticmethod) or inspect.isfunction(member)
        if is_code and not name.startswith("_") and name not in fields:
            found.append(name)
    return found


def test_each_public_name_has_one_entry() -> None:
    assert not set(PUBLIC) - set(PATHS)
    others = [path.rpartition(".")[0] for path in PATHS if path not in PUBLIC]
    assert not set(others) - set(PUBLIC), "an entry of no public name"
    assert len(PATHS) == len(set(PATHS)), "a name has two entries"


def test_each_public_method_has_an_entry_or_is_shown_with_its_class() -> None:
    shown = {entry.path for entry in ENTRIES if entry.with_members}
    missing = []
    for name, module in homes().items():
        cls, path = public(name), f"{module}.{name}"
        if not inspect.isclass(cls) or issubclass(cls, Exception) or name in OF_VALUES or path in shown:
            continue
        is_kind_of_event = issubclass(cls, crdt_mor.observing.Event) and cls is not crdt_mor.observing.Event
        paths = [] if is_kind_of_event else [f"{path}.{member}" for member in own_members(cls)]
        missing += [path for path in paths if path not in PATHS]
    assert not missing


def is_value(path: str) -> bool:
    """Whether something is a type, a result or an error, which the examples of other entries show."""
    module, _, name = path.rpartition(".")
    return homes().get(name) == module and not inspect.isfunction(public(name))


def test_each_call_has_an_example_that_calls_it() -> None:
    """Values have none of their own: they are what examples of calls print."""
    without = []
    for entry in ENTRIES:
        name = entry.path.rpartition(".")[2]
        if not is_value(entry.path) and not re.search(rf"\b{name}\b", entry.examples):
            without.append(f"{entry.page}: {entry.path}")
    assert not without
