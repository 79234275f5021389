"""docs/payloads.md and docs/own-payloads.md: every block runs and prints what the page shows.

    ```python, first line `# name.py`   a module beside the tables; where it replaces another one, Python starts anew
    ```python                           runs; prints, warnings and a last error are in the ```text block that follows
    ```console                          `$ ` a command, and what it prints
    ```toml                             parses, and names what is there

Lines are compared by their words: the guide may break a long line. The table of payloads is held to the classes, whose
names, kinds and meanings are pinned for good.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor import payloads
from crdt_mor.laws.claims import LAWS
from crdt_mor.laws.fingerprint import fingerprint
from crdt_mor.laws.resolve import payload_of
from tests.guides import Block, Interpreter, blocks, interpreter, words

GUIDES = [Path(__file__).parents[1] / "docs" / name for name in ("own-payloads.md", "payloads.md")]
TEXT = "\n".join(guide.read_text() for guide in GUIDES)


class Reader:
    """Somebody who does what the guide says, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._python = Interpreter(folder)

    def follow(self, block: Block) -> str:
        """What comes out of a block."""
        if block.language == "console":
            return self._console(block.code)
        if block.language == "toml":
            tomllib.loads(block.code)
            return ""
        assert block.language == "python", f"line {block.line}: a {block.language!r} block is executed by nothing"
        module = re.match(r"# (\w+\.py)\n", block.code)
        if module is None:
            return self._python.run(block.code)
        file = self._folder / module[1]
        if file.exists():
            self.close()
            self._python = Interpreter(self._folder)
        file.write_text(block.code)
        return ""

    def _console(self, code: str) -> str:
        """The commands, each with what it prints."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        environment = {**os.environ, "PATH": path, "COLUMNS": "120", "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}
        printed = []
        for line in code.splitlines():
            if line.startswith("$ "):
                done = subprocess.run(
                    line[2:], shell=True, cwd=self._folder, env=environment, encoding="utf-8", check=False,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                )  # fmt: skip
                printed += [line, done.stdout]
        return "\n".join(printed)

    def close(self) -> None:
        """Leave no process behind."""
        self._python.close()


@contextmanager
def reader(folder: Path) -> Iterator[Reader]:
    """A reader of the guide in an empty folder."""
    found = Reader(folder)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.slow
def test_every_block_of_the_guide_runs_and_shows_what_it_prints(fast_path: Path) -> None:
    found = blocks(TEXT)
    assert {block.language for block in found} == {"python", "console", "toml"}
    with reader(fast_path) as somebody:
        for block in found:
            expected = block.code if block.language == "console" else block.shown
            assert words(somebody.follow(block)) == words(expected), f"line {block.line} of both guides"


def test_the_packaging_of_the_guide_provides_a_payload_of_the_guide() -> None:
    snippet = next(block.code for block in blocks(TEXT) if block.language == "toml")
    provided = tomllib.loads(snippet)["project"]["entry-points"]["crdt_mor.payloads"]
    modules = {found[1]: block.code for block in blocks(TEXT) if (found := re.match(r"# (\w+)\.py\n", block.code))}
    for name, path in provided.items():
        module, cls = path.split(":")
        assert f"class {cls}(" in modules[module]
        assert f'name = "{name}"' in modules[module]


def test_every_law_stands_in_the_guide() -> None:
    assert [law for law in LAWS if law not in TEXT] == []


@pytest.mark.slow
def test_a_class_that_moved_is_found_by_its_entry_point(fast_path: Path) -> None:
    code = next(block.code for block in blocks(TEXT) if "class Longest" in block.code and "def merge" in block.code)
    (fast_path / "acme_payloads.py").write_text(code)
    with interpreter(fast_path) as python:
        made = python.run(
            "import crdt_mor as mor, pyarrow as pa\n"
            "schema = pa.schema([('id', pa.string()), ('t', pa.string())])\n"
            "table = mor.Table.create('t', schema, key='id', merge={'t': 'acme_payloads:Longest'})\n"
            "[table.upsert(pa.table({'id': ['1'], 't': [t]})) for t in ('aa', 'b')]\n"
        )
    assert made == ""
    (fast_path / "acme_payloads.py").rename(fast_path / "acme_moved.py")
    read = "import crdt_mor as mor\nprint(mor.Table('t').scan().to_arrow().to_pylist())"
    package = fast_path / "site" / "acme-1.0.dist-info"
    with interpreter(fast_path, package.parent) as python:
        assert "PayloadNotAllowedError" in python.run(read)
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[crdt_mor.payloads]\nacme.longest/1 = acme_moved:Longest\n")
    with interpreter(fast_path, package.parent) as python:
        assert python.run(read) == "[{'id': '1', 't': 'aa'}]\n"


# --- the payloads that ship -------------------------------------------------------------------------------------------

PINNED = {
    "all/1": ("semilattice", "f69ec63c97c48cc6"),
    "any/1": ("semilattice", "b7ab5f572607b6d8"),
    "counter/1": ("delta", "c428ff2cf8b130fc"),
    "distinct/1": ("semilattice", "654b02725634cef0"),
    "event_list/1": ("ordered", "8be4cd75057df384"),
    "first/1": ("ordered", "b885a8ea24d7be6c"),
    "grow_set/1": ("semilattice", "61aabab81a71e637"),
    "last/1": ("ordered", "de4f54332d03f78a"),
    "latest_by/1": ("ordered", "a2e5612d618be9d4"),
    "map_last/1": ("ordered", "edc4b34be86c0dc3"),
    "max/1": ("semilattice", "38e55fd5e15b46fd"),
    "min/1": ("semilattice", "43e1e04c9db9c787"),
    "mv_register/1": ("semilattice", "e8f513e735f5a750"),
    "or_set/1": ("semilattice", "f0772df3f154367c"),
    "quantiles/1": ("delta", "7d549565ca7fe4d1"),
}
"""Kind and fingerprint of what is on storage. These lines never change; what means something else gets a new one."""

SCALARS = [
    pa.bool_(), pa.int32(), pa.int64(), pa.decimal128(12, 2), pa.string(), pa.binary(), pa.date32(),
    pa.timestamp("us", "UTC"),
]  # fmt: skip
FLOATS = [pa.float32(), pa.float64()]
LISTS = [pa.list_(kind) for kind in [*SCALARS, *FLOATS, pa.struct([("a", pa.int64())]), pa.list_(pa.int64())]]
MAPS = [pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.float64())]
PROBES = [*SCALARS, *FLOATS, *LISTS, *MAPS, pa.struct([("a", pa.int64())])]

COLUMNS: dict[str, Sequence[pa.DataType]] = {
    "any": PROBES,
    "ordered": [*SCALARS, *FLOATS],
    "booleans": [pa.bool_()],
    "int64": [pa.int64()],
    "decimals": [pa.decimal128(12, 2)],
    "lists": LISTS,
    "lists of exact": [pa.list_(kind) for kind in SCALARS],
    "lists of ordered": [pa.list_(kind) for kind in [*SCALARS, *FLOATS]],
    "lists of float64": [pa.list_(pa.float64())],
    "maps": MAPS,
}
"""What the guide's words for columns stand for."""

BY = "by"


def shipped() -> dict[str, mor.Payload]:
    """One payload of each name that ships."""
    entries = entry_points(group="crdt_mor.payloads")
    own = [entry.name for entry in entries if entry.value.startswith("crdt_mor.payloads:")]
    return {name: payload_of(f"{name}?by={BY}" if name == "latest_by/1" else name) for name in sorted(own)}


SHIPPED = shipped()


def rows() -> dict[str, dict[str, str]]:
    """The table of the guide, by name."""
    lines = [line for line in TEXT.splitlines() if line.startswith("| ")]
    head = next(i for i, line in enumerate(lines) if line.startswith("| name |"))
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[head:]]
    return {row[0].strip("`"): dict(zip(cells[0], row, strict=True)) for row in cells[1:] if row[0].startswith("`")}


ROWS = rows()


def test_every_payload_that_ships_has_its_line_in_the_guide_and_is_pinned() -> None:
    assert sorted(ROWS) == sorted(SHIPPED) == sorted(PINNED)
    classes = {f"`{type(payload).__name__}`" for payload in SHIPPED.values()}
    assert {row["class"] for row in ROWS.values()} == classes
    assert classes == {f"`{name}`" for name in payloads.__all__ if name != "PartialUpdate"}


@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_on_storage_means_the_same_for_ever(name: str) -> None:
    payload = SHIPPED[name]
    assert (payload.kind, fingerprint(payload)) == PINNED[name]


@pytest.mark.parametrize("name", SHIPPED)
def test_the_guide_says_what_a_payload_is(name: str) -> None:
    payload, row = SHIPPED[name], ROWS[name]
    column = payload.column()
    assert row["class"] == f"`{type(payload).__name__}`"
    assert row["kind"] == payload.kind
    assert row["written as"].startswith("the same") == (tuple(payload.accepts(column)) == (column,))
    assert (row["stored as"] == "the same") == (not payload.stateful)
    assert row["null"].startswith("a value") == (payload.nulls == "value" or isinstance(payload, mor.RecordPayload))
    assert "nothing" in row["null"]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_payload_serves_the_columns_that_the_guide_says(name: str) -> None:
    payload, said = SHIPPED[name], ROWS[name]["columns"]
    record = isinstance(payload, mor.RecordPayload)
    served = [kind for word in said.removeprefix("several; one of them ").split(", ") for kind in COLUMNS[word]]
    for kind in PROBES:
        with nullcontext() if kind in served else pytest.raises(mor.InvalidInputError):
            payload.check(pa.struct([("value", pa.int64()), (BY, kind)]) if record else kind)


@pytest.mark.costly
@pytest.mark.parametrize("name", SHIPPED)
def test_null_means_what_the_guide_says_and_a_delete_starts_afresh(name: str, fast_path: Path) -> None:
    payload = SHIPPED[name]
    column = payload.column()
    columns = list(column) if isinstance(payload, mor.RecordPayload) else [pa.field("value", column)]
    names = tuple(field.name for field in columns)
    schema = pa.schema([("id", pa.string()), *columns])
    table = mor.Table.create(fast_path / "t", schema, key="id", buckets=1, merge={names: payload})
    examples = payload.examples()
    given = examples if isinstance(examples, pa.Array) else pa.array(examples)
    assert len(given) > 1

    def write(value: pa.Scalar, *keys: str) -> None:
        array = pa.array([value.as_py()] * len(keys), value.type)
        parts = array.flatten() if isinstance(payload, mor.RecordPayload) else [array]
        table.upsert(pa.table([pa.array(keys), *parts], ["id", *names]))

    def shown(key: str) -> Any:
        found = table.scan(filter=f"id = '{key}'").to_arrow()
        return repr(found.select(names).to_pylist())

    nothing = pa.scalar(None, given.type)
    write(given[1], "a", "said")
    write(nothing, "a")
    assert (shown("a") == shown("said")) == (payload.nulls == "skip")
    table.delete(keys=["a"])
    write(given[0], "a", "fresh")
    assert shown("a") == shown("fresh")
    table.maintenance.compact()
    assert shown("a") == shown("fresh")


@pytest.mark.parametrize("name", SHIPPED)
def test_the_source_that_the_guide_names_stands_in_the_code(name: str) -> None:
    module = sys.modules[type(SHIPPED[name]).__module__]
    assert module.__file__ is not None
    source = ROWS[name]["source"].partition(",")[0]
    assert source in " ".join(Path(module.__file__).read_text().split())


# --- sketches ---------------------------------------------------------------------------------------------------------


def test_hll_and_t_digest_depend_on_the_order_and_kll_draws_lots() -> None:
    import datasketches

    def hll(first: int, step: int) -> Any:
        sketch = datasketches.hll_sketch(12, datasketches.tgt_hll_type.HLL_8)
        for value in range(first, 600, step):
            sketch.update(f"v{value}")
        return sketch

    def union(*sketches: Any) -> float:
        found = datasketches.hll_union(12)
        for sketch in sketches:
            found.update(sketch)
        return float(found.get_result().get_estimate())

    parts = [hll(i, 3) for i in range(3)]
    assert union(*parts) != union(*reversed(parts))
    whole = hll(0, 1)
    assert union(whole, whole) != whole.get_estimate()

    def digest(*runs: range) -> float:
        merged = datasketches.tdigest_double(20)
        for run in runs:
            part = datasketches.tdigest_double(20)
            for value in run:
                part.update(float(value))
            merged.merge(part)
        return float(merged.get_quantile(0.5))

    low, high = range(100), range(50, 1000, 7)
    assert digest(low, high, low) != digest(high, low, low)

    def kll() -> float:
        sketch = datasketches.kll_floats_sketch(20)
        for value in range(10_000):
            sketch.update(value)
        return float(sketch.get_quantile(0.5))

    assert len({kll() for _ in range(20)}) > 1
