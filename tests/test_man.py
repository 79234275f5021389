"""The man page is the parser's, and `man` renders it without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from crdt_mor.cli.main import app
from docs.site.man import COMMON, PAGE, commands, page

REPO = Path(__file__).parents[1]


def test_the_page_is_of_this_parser() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python -m docs.site.man"


def test_the_page_has_each_command_and_each_option_with_its_names() -> None:
    text = page().replace("\\-", "-")
    assert re.findall(r"^\.SS crdt-mor ((?:cdc )?[a-z-]+)", text, re.MULTILINE) == list(commands(app))
    for line in (
        "--from\\fR \\fICOPY",
        "--debug, --verbose\\fR",
        "--output\\fR \\fItext|json",
        "[default: ,]",
        ".B 130",
    ):
        assert line in text
    for name in COMMON:
        assert text.count(f"\\fB--{name.replace('_', '-')}") == 1


def test_the_wheel_installs_the_page() -> None:
    wheel = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {REPO / file: there for file, there in wheel["shared-data"].items()} == {PAGE: "share/man/man1/crdt-mor.1"}


def test_man_renders_the_page_without_a_warning() -> None:
    tools = {"man": ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"], "groff": ["groff", "-man", "-ww", "-z"]}
    command = next((words for tool, words in tools.items() if shutil.which(tool)), None)
    if command is None:
        pytest.skip("neither man nor groff is installed")
    done = subprocess.run([*command, str(PAGE)], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
