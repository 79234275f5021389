"""What the tests of the guides share: their blocks, and a Python of its own in which blocks run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

WORKER = """
import contextlib, io, json, sys, traceback, warnings
names = {"__name__": "__main__"}
warnings.showwarning = lambda message, kind, *_: print(f"{kind.__name__}: {message}")
for line in sys.stdin:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            exec(compile(json.loads(line), "docs/payloads.md", "exec"), names)
        except Exception as error:
            print("".join(traceback.format_exception_only(error)))
    print(json.dumps(out.getvalue()), flush=True)
"""


class Block(NamedTuple):
    """A fenced block; `shown` is the text block right behind it."""

    line: int
    language: str
    code: str
    shown: str


def blocks(text: str) -> list[Block]:
    """The blocks of a guide, each with what it shows."""
    fences = re.compile(r"^```(\w*)\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
    found = [Block(text[: m.start()].count("\n") + 1, m[1], m[2], m[3] or "") for m in fences.finditer(text)]
    assert text.count("```") == sum(4 if block.shown else 2 for block in found), "a block that nothing holds"
    return found


class Interpreter:
    """A Python of its own, in which blocks run one after another."""

    def __init__(self, folder: Path, site: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-B", "-Wdefault", "-c", WORKER],
            env=os.environ | ({"PYTHONPATH": str(site)} if site else {}), cwd=folder,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, code: str) -> str:
        """What the code prints, its warnings and errors included."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()
        return str(json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End it."""
        self._process.communicate()


@contextmanager
def interpreter(folder: Path, site: Path | None = None) -> Iterator[Interpreter]:
    """A Python in `folder`, ended behind the block; `site` is where packages are installed, besides."""
    found = Interpreter(folder, site)
    try:
        yield found
    finally:
        found.close()


def words(text: str) -> list[str]:
    return text.split()


def run_page(page: Path, folder: Path, sizes: str) -> None:
    """Run the blocks of a page in `folder`, one after another: each prints what it shows.

    One that begins with `# name.py` is a module that others import. sizes: a pattern of what is not compared, as bytes
    depend on the version of the compressor.
    """
    with interpreter(folder) as python:
        for block in blocks(page.read_text()):
            where = f"docs/{page.name}:{block.line}"
            assert block.language == "python", f"{where}: a {block.language!r} block is executed by nothing"
            module = re.match(r"# (\w+\.py)\n", block.code)
            if module:
                (folder / module[1]).write_text(block.code)
                continue
            printed = python.run(block.code)
            shown, found = (re.sub(sizes, "…", text) for text in (block.shown, printed))
            assert words(found) == words(shown), f"{where}\n{printed}"
