"""The page for those who come from Hudi: what it says to call here works. Its other half runs in tests/interop."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor.cli.main import app
from crdt_mor.payloads import LatestBy
from tests.hudi_page import PAGE, codes, rows


@pytest.fixture
def names(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the example of the page has made, in a folder of its own, and makers of other tables."""
    monkeypatch.chdir(fast_path)
    found: dict[str, Any] = {"timedelta": timedelta, "LatestBy": LatestBy}
    block, shown = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)[0]
    printed: list[str] = []
    exec(block, found | {"print": lambda value: printed.append(f"{value}\n")}, found)
    assert printed == [shown]
    count = iter(range(100))

    def create(**settings: Any) -> mor.Table:
        key = {"key": ["uuid", "city"], "partition_by": "city", **settings}
        return mor.Table.create(f"table-{next(count)}", found["columns"], **key)

    found["create"] = create
    return found


def call(code: str, names: dict[str, Any]) -> bool:
    """Run what a cell says to type; whether it is something to run."""
    if code.startswith("crdt-mor ") and "trips" in code and "…" not in code:
        done = CliRunner().invoke(app, code.split()[1:])
        assert done.exit_code == 0, (code, done.output)
    elif code.startswith("create(…, "):
        eval(code.replace("…, ", ""), names)
    elif re.match(r"(merge|ordering)=.*\w[\")}]+$", code):
        eval(f"create({code})", names)
    elif code.startswith("{"):
        names["trips"].set_properties(eval(code, names))
    elif code.startswith("trips."):
        eval(code, names)
    else:
        return False
    return True


@pytest.mark.costly
@pytest.mark.parametrize(
    ("title", "least"),
    [
        ("Statements", 10),
        ("Settings of a table and of its writers", 14),
        ("Table services and their policies", 7),
        ("Procedures", 29),
        ("hudi-cli", 12),
    ],
)
def test_what_the_page_says_to_call_works(names: dict[str, Any], title: str, least: int) -> None:
    names["trips"].upsert(names["rows"])
    ran = [code for _, *here in rows(title) for cell in here for code in codes(cell) if call(code, names)]
    assert len(ran) >= least, ran


def test_a_table_that_is_handed_over_is_taken_back(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    names["trips"] = mor.Table.create("trips", names["rows"], key=["uuid", "city"])
    (there, _), (back, _) = rows("What your writers must say")
    for ways in zip(codes(there), codes(back), strict=True):
        assert all(call(way, names) for way in ways)
    names["trips"].upsert(names["rows"])
