"""A table from elsewhere runs no code: what it says of payloads imports nothing that this program did not allow.

A module beside the table leaves a mark when it is imported, and Python has its folder on its path: the worst case, in
which an import would find it.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor import payloads
from crdt_mor.cli.main import app
from crdt_mor.laws import resolve
from crdt_mor.laws.allowed import VARIABLE
from crdt_mor.readers.polars import scan_table
from tests.inside import session_of

EVIL = """
from pathlib import Path
from crdt_mor import Payload

Path(__file__).with_suffix(".ran").touch()

class P(Payload):
    name = "{module}.p/1"

    def join(self, a, b):
        return max(a, b)

    def merge(self, states):
        return states.max()

    def examples(self):
        return ["", "a", "b"]
"""

ROWS = [{"id": "1", "v": "b"}]
NUMBERS = count()


class Harmless(mor.Payload):
    """What the payload of the table meant when it was made."""

    name = "acme.harmless/1"

    def join(self, a: Any, b: Any) -> Any:
        return max(a, b)

    def merge(self, states: Any) -> Any:
        return states.max()

    def examples(self) -> list[str]:
        return ["", "a", "b"]


class Stranger:
    """A folder that came from elsewhere, with the table `t` and the module of its payload."""

    def __init__(self, folder: Path, made: Path) -> None:
        self.folder = folder
        self.module = f"evil{next(NUMBERS)}"  # modules are imported once, and payloads allowed for good
        self.uri = str(folder / "t")
        shutil.copytree(made, self.uri)
        self.rename(f"{__name__}:Harmless".replace(":", "\\:"), f"{self.module}\\:P")
        self.rename("acme.harmless/1", f"{self.module}.p/1")
        (folder / f"{self.module}.py").write_text(EVIL.format(module=self.module))

    def rename(self, said: str, other: str) -> None:
        """Change what the table's properties say."""
        file = Path(self.uri, ".hoodie/hoodie.properties")
        text = file.read_text()
        assert said in text
        file.write_text(text.replace(said, other))

    def rows(self, **options: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = mor.Table(self.uri, **options).scan().to_arrow().to_pylist()
        return found

    @property
    def has_run(self) -> bool:
        return (self.folder / f"{self.module}.ran").exists()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "t"
    schema = pa.schema([("id", pa.string()), ("v", pa.string())])
    table = mor.Table.create(path, schema, key="id", buckets=1, merge={"v": Harmless()})
    for value in ("a", "b"):
        table.upsert(pa.table({"id": ["1"], "v": [value]}))
    return path


@pytest.fixture
def stranger(fast_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> Stranger:
    """What came from elsewhere; the program runs in its folder, as the user of a notebook does."""
    monkeypatch.chdir(fast_path)
    monkeypatch.syspath_prepend(fast_path)
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return Stranger(fast_path, made)


# --- through every door -----------------------------------------------------------------------------------------------

Door = Callable[[mor.Table], object]
DOORS: dict[str, Door] = {
    "a scan": lambda table: table.scan().to_arrow(),
    "a count": lambda table: table.scan().count(),
    "changes": lambda table: table.changes().to_arrow(),
    "an upsert": lambda table: table.upsert(pa.table({"id": ["1"], "v": ["c"]})),
    "a delete": lambda table: table.delete(keys=["1"]),
    "a compaction": lambda table: table.maintenance.compact(),
    "a distributed write": lambda table: table.jobs.plan("upsert", table.schema),
    "a pickle of the table": lambda table: pickle.loads(pickle.dumps(table)).scan().to_arrow(),
    "polars": lambda table: scan_table(table.uri).collect(),
    "a copy of its merge": lambda table: mor.Table.create(
        f"{table.uri}2", table.schema, key="id", merge=str(session_of(table).config.merge)
    ),
    "the same table made again": lambda table: mor.Table.create(
        table.uri, table.schema, key="id", buckets=1, exist_ok=True, merge=str(session_of(table).config.merge)
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_program_that_meets_the_table_imports_nothing_of_it(stranger: Stranger, door: str) -> None:
    table = mor.Table(stranger.uri)
    with pytest.raises(mor.errors.PayloadNotAllowedError) as refused:
        DOORS[door](table)
    module = stranger.module
    assert f"payload={module}:P" in str(refused.value)
    assert f"Table(uri, payloads=['{module}'])" in str(refused.value)
    assert f"{VARIABLE}={module}" in str(refused.value)
    assert not stranger.has_run
    assert table.inspect.timeline()["state"].to_pylist() == ["completed", "completed"], "nothing was begun"


def test_what_needs_no_payload_is_there_without_it(stranger: Stranger) -> None:
    table = pickle.loads(pickle.dumps(mor.Table(stranger.uri)))
    assert table.schema.names == ["id", "v"]
    assert table.inspect.files().num_rows == 2


@pytest.mark.parametrize("command", ["cat", "show", "changes", "compact", "upsert"])
def test_the_command_line_imports_nothing_of_a_table(stranger: Stranger, command: str) -> None:
    (stranger.folder / "rows.csv").write_text("id,v\n1,c\n")
    given = ["rows.csv"] if command == "upsert" else []
    done = CliRunner().invoke(app, [command, "t", *given])
    assert done.exit_code == 1
    assert done.stderr.startswith("error: this table names a payload in a module that is not imported")
    assert f"--payloads {stranger.module}" in done.stderr
    assert not stranger.has_run


# --- what is allowed --------------------------------------------------------------------------------------------------


def rows_allowing(stranger: Stranger, payload: str | type[mor.Payload]) -> list[dict[str, Any]]:
    mor.allow_payloads(payload)
    return stranger.rows()


ALLOWED: dict[str, Callable[[Stranger], object]] = {
    "imported": lambda s: (__import__(s.module), s.rows())[1],
    "a module": lambda s: rows_allowing(s, s.module),
    "a class by name": lambda s: rows_allowing(s, f"{s.module}:P"),
    "a class": lambda s: rows_allowing(s, __import__(s.module).P),
    "opened with a module": lambda s: s.rows(payloads=[s.module]),
    "opened with one name": lambda s: s.rows(payloads=f"{s.module}:P"),
    "opened with the class": lambda s: s.rows(payloads=[__import__(s.module).P]),
}


@pytest.mark.parametrize("way", ALLOWED)
def test_a_program_allows_a_payload(stranger: Stranger, way: str) -> None:
    assert ALLOWED[way](stranger) == ROWS


def test_the_environment_allows_payloads(stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "no_such_module")
    with pytest.raises(mor.errors.UnknownPayloadError, match=f"No module named 'no_such_module'.*{VARIABLE} names it"):
        stranger.rows()
    monkeypatch.setenv(VARIABLE, f"payloads, {stranger.module}")
    assert stranger.rows() == ROWS


@pytest.mark.parametrize("named", ["{}", "{}:P"])
def test_the_command_line_allows_payloads_that_its_user_names(stranger: Stranger, named: str) -> None:
    given = ["--payloads", named.format(stranger.module)]
    done = CliRunner().invoke(app, ["cat", "t", *given, "--format", "jsonl"])
    assert (done.exit_code, json.loads(done.stdout)) == (0, ROWS[0])
    assert CliRunner().invoke(app, ["compact", "t", *given]).exit_code == 0


def test_a_class_that_moved_is_allowed_by_its_name(stranger: Stranger) -> None:
    (stranger.folder / f"{stranger.module}.py").rename(stranger.folder / f"{stranger.module}_moved.py")
    assert stranger.rows(payloads=[f"{stranger.module}_moved"]) == ROWS


def test_an_allowed_class_that_means_something_else_is_refused(stranger: Stranger) -> None:
    file = stranger.folder / f"{stranger.module}.py"
    file.write_text(file.read_text().replace("max", "min"))
    with pytest.raises(mor.errors.UnknownPayloadError, match="changed its meaning"):
        stranger.rows(payloads=[stranger.module])


def test_what_cannot_be_allowed_is_refused() -> None:
    for given, message in {
        "no_such_module": "module=no_such_module",
        "crdt_mor.payloads:Nothing": "payload=crdt_mor.payloads:Nothing",
        "crdt_mor.payloads:scalars": "payload=crdt_mor.payloads:scalars",
    }.items():
        with pytest.raises(mor.errors.UnknownPayloadError, match=message):
            mor.allow_payloads(given)
    with pytest.raises(mor.InvalidInputError, match="got=3"):
        mor.allow_payloads(3)  # type: ignore[arg-type]
    with pytest.raises(mor.InvalidInputError, match="give the payload a name"):
        mor.allow_payloads(mor.Payload)


# --- installed packages -----------------------------------------------------------------------------------------------


@pytest.fixture
def packages() -> Iterator[None]:
    """Packages are looked for anew."""
    resolve._provided.cache_clear()
    yield
    resolve._provided.cache_clear()


def package(folder: Path, module: str) -> None:
    """An entry point for the payload of the table, as an installed package has it."""
    found = folder / f"{module}-1.0.dist-info"
    found.mkdir(parents=True)
    (found / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (found / "entry_points.txt").write_text(f"[crdt_mor.payloads]\n{module}.p/1 = {module}:P\n")


def test_a_package_that_lies_in_the_current_folder_is_not_installed(stranger: Stranger, packages: None) -> None:
    package(stranger.folder, stranger.module)
    with pytest.raises(mor.errors.PayloadNotAllowedError):
        stranger.rows()
    assert not stranger.has_run


def test_an_installed_package_provides_its_own_payload_and_nothing_else(
    stranger: Stranger, packages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, file = stranger.folder / "site", f"{stranger.module}.py"
    package(site, stranger.module)
    (stranger.folder / file).rename(site / file)
    monkeypatch.syspath_prepend(site)
    stranger.rename(f"{stranger.module}.p/1", "acme.unknown/1")
    with pytest.raises(mor.errors.PayloadNotAllowedError):
        stranger.rows()
    assert stranger.module not in sys.modules
    stranger.rename("acme.unknown/1", f"{stranger.module}.p/1")
    assert stranger.rows() == ROWS


def test_what_ships_is_found_in_a_copy_of_the_folder_which_no_package_is_installed_as(
    fast_path: Path, packages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a zip file of `crdt_mor` on the path of Spark's workers."""
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["entry-points"][
        resolve.GROUP
    ]
    assert declared == resolve.SHIPPED
    monkeypatch.setattr(resolve, "distributions", lambda path: [])
    resolve.resolve.cache_clear()
    table = mor.Table.create(fast_path / "t", SCHEMA, key="id", merge={"v": "counter"})
    for _ in range(2):
        table.upsert(pa.table({"id": ["a"], "v": [4]}))
    assert mor.Table(table.uri).to_polars().rows() == [("a", 8)]
    assert type(resolve.payload_of("max/1")) is payloads.Max


# --- what is in the process already -----------------------------------------------------------------------------------


def named(path: str, name: str = "counter/1", parameters: str = "{}") -> str:
    """The merge that a hostile table says."""
    head = f'"columns":["v"],"payload":"{name}","path":"{path}","fingerprint":"0"'
    return f'latest [{{{head},"parameters":{parameters}}}]'


SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])


@pytest.mark.parametrize(
    "path",
    ["os:system", "subprocess:Popen", "crdt_mor:Payload", "crdt_mor.merge.payload:RecordPayload", "builtins:open",
     "tests.security.test_code:Constructed", "crdt_mor.payloads:Counter", "crdt_mor.payloads.counters:Counter.join"],
)  # fmt: skip
def test_nothing_is_made_of_a_class_that_is_not_the_payload_of_that_name(fast_path: Path, path: str) -> None:
    with pytest.raises(mor.errors.UnknownPayloadError, match="payload"):
        mor.Table.create(fast_path / "t", SCHEMA, key="id", merge=named(path, "acme.other/1", '{"args": "true"}'))
    assert not (fast_path / "t").exists()


class Constructed(payloads.Max):
    """Notes that it was made."""

    name = "acme.constructed/1"

    def __init__(self, args: str = "") -> None:
        raise AssertionError("made of what a table says")


def test_a_look_at_a_module_does_not_load_it(monkeypatch: pytest.MonkeyPatch, fast_path: Path) -> None:
    """A module may load what it is asked for, and one that is loaded lazily loads itself when it is looked at."""
    from importlib.util import LazyLoader, module_from_spec, spec_from_file_location

    source = fast_path / "lazy.py"
    source.write_text("from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()")
    spec = spec_from_file_location("lazy_evil", source)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = LazyLoader(spec.loader)
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "lazy_evil", module)
    spec.loader.exec_module(module)
    with pytest.raises(mor.errors.UnknownPayloadError):
        mor.Table.create(fast_path / "t", SCHEMA, key="id", merge=named("lazy_evil:P", "acme.lazy/1"))
    assert not (fast_path / "lazy.ran").exists()


@pytest.mark.parametrize("parameters", ['{"by": ["v"]}', '{"by": 7}', '{"by": null}', '{"no": 1}', '{"by": {}}'])
def test_hostile_parameters_are_an_error_of_ours(fast_path: Path, parameters: str) -> None:
    with pytest.raises(mor.CrdtMorError, match="latest_by/1"):
        mor.Table.create(fast_path / "t", SCHEMA, key="id", merge=named("", "latest_by/1", parameters))


# --- pickles and processes --------------------------------------------------------------------------------------------


def run(*command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program in `folder`."""
    return subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )


UNPICKLE = """
import pickle, sys
import crdt_mor as mor, pyarrow as pa
for name, use in {uses}.items():
    with open(name, "rb") as file:
        found = pickle.load(file)
    assert eval(use), use
    print(name, "{module}" in sys.modules)
"""

USES = {
    "scan": "found.to_arrow()",
    "part": "found.to_arrow()",
    "changes": "found.to_arrow()",
    "change part": "found.to_arrow()",
    "table": "found.scan().to_arrow()",
    "job": "found.stage(pa.table({'id': ['1'], 'v': ['c']}), task=0)",
    "plan": "mor.Table('t').maintenance.plans.execute(found)",
    "plan part": "mor.Table('t').maintenance.plans.execute(found)",
}


@pytest.mark.slow
def test_a_pickle_brings_the_payloads_along(stranger: Stranger) -> None:
    table = mor.Table(stranger.uri, payloads=stranger.module)
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    pickled = {
        "scan": table.scan(), "part": table.scan().parts()[0], "changes": table.changes(),
        "change part": table.changes().parts()[0], "table": table, "job": table.jobs.plan("upsert", table.schema),
        "plan": plan, "plan part": plan.parts()[0],
    }  # fmt: skip
    assert pickled.keys() == USES.keys()
    for name, found in pickled.items():
        data = pickle.dumps(found)
        (stranger.folder / name).write_bytes(data)
        assert stranger.module.encode() in data, f"{name} brings the class itself along"
    code = UNPICKLE.format(uses=USES, module=stranger.module)
    done = run(sys.executable, "-c", code, folder=stranger.folder, **{VARIABLE: ""})
    assert done.stdout.splitlines() == [f"{name} True" for name in USES], done.stderr


SPAWN = """
import multiprocessing as mp
import crdt_mor as mor

def rows(uri):
    return mor.Table(uri).scan().to_arrow().to_pylist()

if __name__ == "__main__":
    mor.allow_payloads("{module}")
    with mp.get_context("spawn").Pool(1) as pool:
        print(pool.apply(rows, ("t",)))
"""


@pytest.mark.slow
def test_processes_that_a_program_starts_may_use_what_it_has_allowed(stranger: Stranger) -> None:
    (stranger.folder / "program.py").write_text(SPAWN.format(module=stranger.module))
    done = run(sys.executable, "program.py", folder=stranger.folder)
    assert done.stdout == f"{ROWS}\n", done.stderr


@pytest.mark.slow
def test_the_installed_command_has_the_current_folder_behind_all_others_and_only_when_asked(stranger: Stranger) -> None:
    command = str(Path(sys.executable).with_name("crdt-mor"))
    for name in ("payloads", "polars", "typer"):
        (stranger.folder / f"{name}.py").write_text("raise SystemExit('the code of a stranger')")
    given = ["--format", "jsonl", "--payloads", stranger.module]
    done = run(command, "cat", "t", *given, folder=stranger.folder)
    assert done.stdout == json.dumps(ROWS[0]) + "\n", done.stderr
    (stranger.folder / f"{stranger.module}.ran").unlink()
    done = run(command, "cat", "t", folder=stranger.folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert not stranger.has_run
