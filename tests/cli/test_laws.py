"""`crdt-mor laws`, as the author of a payload meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from crdt_mor.cli.main import app
from tests.cli.own_module import own_module

ROOT = Path(__file__).parent.parent.parent
MINE = """
from crdt_mor import Payload

class Longest(Payload):
    name = "acme.longest/1"
    def join(self, a, b):
        return max(a, b, key=lambda text: (len(text), text))
    def examples(self):
        return ["", "a", "bb"]

class Joined(Longest):
    name = "acme.joined/1"
    def join(self, a, b):
        return a + b

class Ending(Longest):
    def __init__(self, end):
        self.end = end

ending = Ending("!")
"""


def laws(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["laws", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return own_module(MINE, tmp_path, monkeypatch)


def test_a_lawful_payload_shows_its_laws(mine: str) -> None:
    result = laws(f"{mine}:Longest", "--examples", 20)
    assert "✓ associative  join(join(x, y), z) is join(x, join(y, z))" in result.stdout
    assert "✗" not in result.stdout
    assert "keeps the laws" in result.stderr


def test_broken_laws_are_shown_and_the_exit_code_is_three(mine: str) -> None:
    result = laws(f"{mine}:Joined", "--examples", 20, code=3)
    assert "✗ commutative" in result.stdout
    assert "✓ associative" in result.stdout
    assert "  commutative: join('a', 'bb') is 'abb', join('bb', 'a') is 'bba'" in result.stderr


def test_programs_get_json(mine: str) -> None:
    found = json.loads(laws(f"{mine}:Joined", "--examples", 20, "--output", "json", code=3).stdout)
    assert found["payload"] == "acme.joined/1"
    assert found["laws"]["commutative"] is False
    assert found["laws"]["total"] is True
    assert "join(" in found["message"]


@pytest.fixture
def no_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where hypothesis is not installed: the deep check is not there, either."""
    monkeypatch.setattr("crdt_mor.cli.laws._has_hypothesis", lambda: False)
    for module in ("search", "strategies"):
        monkeypatch.setitem(sys.modules, f"crdt_mor.laws.{module}", None)


@pytest.mark.slow
def test_a_python_without_hypothesis_checks_shallowly(tmp_path: Path) -> None:
    program = "import sys; sys.modules['hypothesis'] = None; from crdt_mor.cli.main import app; app()"
    done = subprocess.run(
        [sys.executable, "-c", program, "laws", "crdt_mor.payloads:Max"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "this was the shallow check" in done.stderr


@pytest.mark.usefixtures("no_hypothesis")
def test_without_hypothesis_the_check_is_shallow_and_says_so(mine: str) -> None:
    shallow = laws(f"{mine}:Longest")
    assert "✓ associative" in shallow.stdout
    assert "this was the shallow check" in shallow.stderr
    assert "pip install 'crdt-mor[testing]'" in shallow.stderr
    broken = laws(f"{mine}:Joined", code=3)
    assert "✗ commutative" in broken.stdout
    assert broken.stderr == laws(f"{mine}:Joined", code=3).stderr, "the same examples each time"
    assert json.loads(laws(f"{mine}:Longest", "--output", "json").stdout)["check"] == "shallow"


@pytest.mark.usefixtures("no_hypothesis")
@pytest.mark.filterwarnings("always:acme.longest/1 lacks merge")
def test_a_table_is_made_with_a_payload_of_ones_own_without_hypothesis(mine: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,text\na,b\n")
    create = ["create", str(tmp_path / "t"), "--like", str(tmp_path / "rows.csv"), "--key", "id", "--merge"]
    made = CliRunner().invoke(app, [*create, f"text={mine}:Longest"])
    assert made.exit_code == 0, made.output
    assert made.stderr.startswith("warning: acme.longest/1 lacks merge")
    assert "UserWarning" not in made.stderr
    refused = CliRunner().invoke(app, [*create, f"text={mine}:Joined", "--exist-ok"])
    assert refused.exit_code == 1
    assert "commutative" in refused.stderr


def test_with_hypothesis_the_check_is_deep(mine: str) -> None:
    result = laws(f"{mine}:Longest", "--examples", 2, "--output", "json")
    assert json.loads(result.stdout)["check"] == "deep"
    assert "shallow" not in result.stderr


def test_an_instance_will_do_where_a_class_needs_arguments(mine: str) -> None:
    assert "✓ total" in laws(f"{mine}:ending", "--examples", 5).stdout
    assert "name an instance" in laws(f"{mine}:Ending", code=1).stderr


@pytest.mark.parametrize("path", ["no_such_module:Max", "crdt_mor.payloads:NoSuch", "sys:path"])
def test_what_is_no_payload_is_one_line(path: str) -> None:
    result = laws(path, code=1)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_a_path_without_a_payload_is_wrong_usage() -> None:
    assert "crdt_mor.payloads:Counter" in laws("payloads", code=2).stderr


@pytest.mark.slow
def test_the_command_leaves_nothing_in_the_current_directory(mine: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "crdt_mor.cli.main", "laws", f"{mine}:Longest", "--examples", "5"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [f"{mine}.py"]
