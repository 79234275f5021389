"""Imports point one way. The table below is the rule; a failure prints the line that would have to change."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.parsed import nodes, parsed, text_of
from tests.quick import imported

ROOT = Path(__file__).parent.parent

BELOW_EVENTS = {"errors", "ground", "store", "columns", "model", "planners", "format", "log"}
BELOW_READ = BELOW_EVENTS | {"merge", "laws", "hudi", "events"}
ENGINE = BELOW_READ | {"read", "write", "mirror", "services", "api"}

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "ground": {"errors"},  # the doors to the machine: time, threads, forks, what happened
    "store": {"errors", "ground"},  # bytes and paths; nothing of Hudi
    "columns": {"errors", "ground"},  # Arrow types, casts and schemas; no table
    "model": {"errors", "ground", "columns"},  # values: what a table is and what its timeline says
    "planners": {"errors", "model"},  # pure: from a value to what may go, fold, follow
    "format": {"errors", "ground", "columns", "model"},  # Hudi's bytes and values; no paths
    "merge": {"errors", "ground", "columns", "model"},  # columns and keys; neither paths nor the timeline
    "laws": {"errors", "columns", "model", "merge"},  # which payloads there are, and what they are held to
    "testing": {"errors", "ground", "merge", "store", "laws"},  # for tests on top of us
    "simulation": BELOW_READ | {"read", "write", "testing", "crdt_mor", "payloads"},  # runs tables, and writes as Hudi
    "log": {"errors", "ground", "model", "planners", "store"},  # the protocol; nothing of Hudi, no columns
    "hudi": BELOW_EVENTS,  # what Hudi is told, and what Hudi wrote
    "events": BELOW_EVENTS | {"hudi", "laws"},  # what may happen to a table
    "read": BELOW_READ,
    "write": BELOW_READ | {"read"},
    "mirror": BELOW_READ | {"read"},  # a snapshot as metadata of other formats
    "services": BELOW_READ | {"read", "write", "mirror"},
    "api": BELOW_READ | {"read", "write", "services", "mirror"},  # the public classes
    "crdt_mor": ENGINE,  # the front door
    "cli": ENGINE | {"simulation", "crdt_mor", "readers", "cdc"},
    "__main__": {"cli"},  # python -m crdt_mor
    "payloads": {"crdt_mor", "errors"},  # each is a model for a customer's own
    "telemetry": {"crdt_mor", "errors"},  # an observer like any other
    "pyspark_crdt_mor": {"readers"},  # where Spark looks for the format
    "cdc": {"crdt_mor", "errors"},  # a feed's changes become writes of the public API
    "readers": {"crdt_mor", "errors"},  # if a reader needs more, the public API lacks something
}

LIBRARIES: dict[str, set[str]] = {
    "errors": set(),
    "ground": {"numpy", "polars", "pyarrow"},
    "store": {"boto3", "obstore"},
    "columns": {"numpy", "pyarrow"},
    "model": {"numpy", "pyarrow"},
    "planners": set(),
    "format": {"fastavro", "numpy", "polars", "pyarrow"},
    "merge": {"numpy", "polars", "pyarrow"},
    "laws": {"hypothesis", "polars", "pyarrow"},
    "testing": {"polars"},
    "simulation": {"polars", "pyarrow"},
    "log": set(),
    "hudi": {"pyarrow"},
    "events": {"pyarrow"},
    "read": {"numpy", "polars", "pyarrow"},
    "write": {"numpy", "polars", "pyarrow"},
    "mirror": {"fastavro", "numpy", "polars", "pyarrow", "pyiceberg", "pyroaring"},
    "services": {"hive_metastore", "polars", "pyarrow", "pyiceberg"},
    "api": {"deltalake", "pandas", "polars", "pyarrow", "pyiceberg"},  # pandas: types of a user's frame
    "crdt_mor": set(),
    "cli": {"click", "polars", "prometheus_client", "pyarrow", "rich", "typer"},
    "__main__": set(),
    "payloads": {"datasketches", "numpy", "polars", "pyarrow"},
    "telemetry": {"opentelemetry"},
    "pyspark_crdt_mor": set(),
    "cdc": {"confluent_kafka", "fastavro", "polars", "psycopg", "pyarrow"},
    "readers": {"dagster", "dlt", "numpy", "polars", "pyarrow", "pydantic", "pyspark", "ray"},
}

OURS = {"crdt_mor", "pyspark_crdt_mor", "tests", "benches"}
LINKED = {"payloads", "readers"}  # at the root of the repository, and linked into the package
CHANCE = {"random", "secrets", "time", "uuid"}
CLOCKS = {"wait", "wait_for", "sleep", "Timer", "now", "utcnow", "today", "monotonic", "perf_counter", "time_ns"}
STANDARD_LIBRARY = sys.stdlib_module_names

FILES = sorted(file for name in ("crdt_mor", *LINKED) for file in (ROOT / name).rglob("*.py"))
FILES.append(ROOT / "pyspark_crdt_mor.py")


def name_of(file: Path) -> str:
    name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return f"crdt_mor.{name}" if name.split(".")[0] in LINKED else name


FRONT_DOOR = {f"crdt_mor.{name}" for name in ("observing", "parts", "results", "store")}
"""Public modules beside the root and `errors`: they import their names from the rooms."""


def unit_of(module: str) -> str:
    """The row of the table that a module belongs to."""
    if module in FRONT_DOOR:
        return "crdt_mor"
    parts = module.split(".")
    if module.startswith("crdt_mor.testing.simulation"):
        return "simulation"  # which runs whole tables, as users do; the rest of testing stands below them
    return parts[1] if parts[0] == "crdt_mor" and len(parts) > 1 else parts[0]


def each(files: Sequence[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """A rule that every one of these files keeps, as one test: a file takes a millisecond, and there are hundreds."""

    def made(rule: Callable[[Path], None]) -> Callable[[], None]:
        def check() -> None:
            broken = []
            for file in files:
                try:
                    rule(file)
                except AssertionError as error:
                    broken.append(f"{name_of(file)}: {error}")
            assert not broken, "\n".join(broken)

        check.__name__, check.__doc__ = rule.__name__, rule.__doc__
        return check

    return made


@cache
def modules_imported(file: Path) -> tuple[str, ...]:
    """Every module that a file imports, at its top, inside functions and for type checking only."""
    return tuple(_modules_imported(file))


def _modules_imported(file: Path) -> Iterator[str]:
    for node in nodes(parsed(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(file)} imports relatively; write the full name"
            assert node.module is not None
            for alias in node.names:
                inner = ROOT.joinpath(*node.module.split("."), alias.name)
                is_module = inner.with_suffix(".py").exists() or inner.is_dir()
                yield f"{node.module}.{alias.name}" if is_module else node.module


@each(FILES)
def test_imports_point_one_way(file: Path) -> None:
    unit = unit_of(name_of(file))
    assert unit in MAY_IMPORT, f"say in MAY_IMPORT what {unit!r} may import"
    for module in modules_imported(file):
        target = unit_of(module)
        if module.split(".")[0] in OURS and target != unit:
            assert target in MAY_IMPORT[unit], f"{name_of(file)} imports {module}: {unit!r} may not import {target!r}"


@each(FILES)
def test_what_is_imported_late_is_seen_here(file: Path) -> None:
    """A module that `Late` stands for is imported for type checkers under the same name, where these tests find it."""
    calls = [node for node in nodes(parsed(file)) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Late"]
    late = [
        (ast.unparse(node.targets[0]), ast.literal_eval(node.value.args[0]))
        for node in nodes(parsed(file))
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value in calls
    ]
    assert len(late) == len(calls), "write name = Late(module), one a line"
    imported = set(names_imported(parsed(file)))
    assert set(late) <= imported, f"import these below `if TYPE_CHECKING`: {set(late) - imported}"


def names_imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names that imports of whole modules bind, with the module, wherever they stand."""
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


@each(FILES)
def test_row_groups_are_joined_behind_one_door(file: Path) -> None:
    """The codec of Parquet's footers joins row groups; another module that needs a struct takes it at the door."""
    door = "crdt_mor.format.row_groups"
    if not name_of(file).startswith(door):
        assert not [module for module in modules_imported(file) if module.startswith(f"{door}.")], f"import {door}"


@each(FILES)
def test_libraries_stay_in_their_layer(file: Path) -> None:
    unit = unit_of(name_of(file))
    for module in modules_imported(file):
        library = module.split(".")[0]
        if library in OURS or library in STANDARD_LIBRARY:
            continue
        assert library in LIBRARIES[unit], f"{name_of(file)} imports {library}, which {unit!r} does without"
        if library == "pyspark":
            assert file.is_relative_to(ROOT / "readers" / "spark"), f"{name_of(file)}: pyspark is readers.spark's alone"


@each(FILES)
def test_time_and_chance_come_in_through_one_door(file: Path) -> None:
    found = {module.split(".")[0] for module in modules_imported(file)} & CHANCE
    found |= set(clocks_of_their_own(parsed(file)))
    assert name_of(file) == "crdt_mor.ground.clock" or not found, f"take {found} from crdt_mor.ground.clock.Environment"


def clocks_of_their_own(tree: ast.AST) -> Iterator[str]:
    """Calls that wait, or ask for the time, of something that is not an `Environment`."""
    for node in nodes(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name("environment") | ast.Attribute(attr="environment"))):
                continue
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name("SystemEnvironment")))):
                continue
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(name)) if name in CLOCKS:
                yield f"{ast.unparse(node.func)}, line {node.lineno}"


@pytest.mark.parametrize(
    ("code", "own"),
    [
        ("over.wait(seconds)", True),
        ("Event().wait(1)", True),
        ("threading.Timer(1, beat).start()", True),
        ("sleep(1)", True),
        ("datetime.now(UTC)", True),
        ("date.today()", True),
        ("table.environment.sleep(1)", False),
        ("environment.sleep(environment.jitter())", False),
        ("SystemEnvironment().sleep(1)", False),
        ("datetime.fromtimestamp(seconds, UTC)", False),
    ],
)
def test_a_clock_of_ones_own_is_found(code: str, own: bool) -> None:
    assert bool(list(clocks_of_their_own(ast.parse(code)))) == own


TESTS = sorted((ROOT / "tests").rglob("*.py"))


@each(TESTS)
def test_no_test_imports_from_another_test(file: Path) -> None:
    """What two files of tests share stands in a module of its own: a test can then be moved, split or removed alone."""
    for module in imported(text_of(file)):
        name = module.rpartition(".")[2]
        is_test = module.startswith("tests.") and (name.startswith("test_") or name == "conftest")
        assert not is_test, f"{name_of(file)} imports {module}; move what they share into a module that is no test"


LETS_TIME_PASS = {
    "tests.waiting",  # the one place
    "tests.proxy",  # lets answers come late, as a store that is far away does
    "tests.crash.buckets",  # processes are killed at moments drawn by lot
    "tests.crash.killing",  # processes are killed at moments drawn by lot
    "tests.crash.scene",  # asks stuck processes where they are, and gives them a second to answer
    "tests.crash.migrations",  # writers wait for a table that arrives
    "tests.crash.services",  # processes are killed at moments drawn by lot
    "tests.crash.test_updates",  # as below
    "tests.crash.test_processes",  # processes are killed and stopped at moments drawn by lot
    "tests.crash.worker",  # writers that leave services a turn
    "tests.soak.crowd",  # processes are killed and stopped at moments drawn by lot
    "tests.spark.chaos",  # a long run, drawn by lot
    "tests.spark.test_cluster",  # attempts of a task that are slow, so that Spark starts another
    "tests.spark.test_failing",  # a task that does not end by itself
}


@each(TESTS)
def test_no_test_sleeps(file: Path) -> None:
    """Tests have a simulated clock, or wait for real processes until something holds (`tests.waiting`)."""
    if name_of(file) not in LETS_TIME_PASS and re.search("sleep|let_run", text_of(file)):
        slept = list(sleeps(parsed(file)))
        assert not slept, f"take crdt_mor.testing.clock, or wait for other processes by tests.waiting: {slept}"


def sleeps(tree: ast.AST) -> Iterator[str]:
    """Calls that let real time pass."""
    for node in nodes(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name("time") | ast.Call(func=ast.Name("SystemEnvironment")), attr="sleep")
                | ast.Attribute(attr="let_run")
                | ast.Name("sleep" | "let_run")
            ):
                yield f"{ast.unparse(node.func)}, line {node.lineno}"


@each(FILES)
def test_nobody_opens_a_file_behind_the_stores_back(file: Path) -> None:
    """Objects of a table are read and written through its `Store`: else it works on a local disk alone.

    The command line, `read_files` and `create_from` open the files that their user names; `forks` asks for its own
    process's threads, and `machine` for programs and for room on disks.
    """
    if unit_of(name_of(file)) in {"store", "cli"} or name_of(file) in OPENS_WHAT_USERS_NAME:
        return
    opened = [f"line {line}: {what}" for line, what in files_opened(parsed(file))]
    assert not opened, f"{name_of(file)} opens files itself; take bytes or a ParquetSource of the store. {opened}"


@each([file for file in FILES if unit_of(name_of(file)) == "log"])
def test_what_publishes_the_timeline_knows_nothing_of_hudi(file: Path) -> None:
    """The publisher tells Hudi's readers through a projector that is handed in."""
    known = {name for name in modules_imported(file) if re.match(r"crdt_mor\.model\.(names|config)", name)}
    assert not known, f"{name_of(file)} imports {known}"


@each(FILES)
def test_a_module_ends_below_800_lines(file: Path) -> None:
    """A file is one noun, however long: split it where a second noun begins. At 800 lines nobody holds it in mind."""
    lines = text_of(file).count("\n")
    assert lines < 800, f"it has {lines} lines"


def test_no_files_import_each_other_in_a_circle() -> None:
    """In no order can one read files of a circle first to last. Imports for type checking count, and late ones.

    The front door is left out: it names the public objects, and the rooms above import all of it.
    """
    files = {name_of(file): file for file in FILES}
    below = {name: {*files_imported(file, files)} - {name, "crdt_mor"} for name, file in files.items()}
    while ready := [name for name, imported in below.items() if not imported]:
        for name in ready:
            del below[name]
        below = {name: imported - {*ready} for name, imported in below.items()}
    above = {name for imported in below.values() for name in imported}
    assert not below, f"a circle is among these: {sorted(name for name in below if name in above)}"


def files_imported(file: Path, files: Mapping[str, Path]) -> Iterator[str]:
    """The files of ours that a file imports: a name of a package, or the package itself."""
    for node in nodes(parsed(file)):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names if alias.name in files)
            case ast.ImportFrom(module=str(module)):
                inner = (f"{module}.{alias.name}" for alias in node.names)
                yield from (name if name in files else module for name in inner if name in files or module in files)
            case ast.Call(func=ast.Name("Late"), args=[ast.Constant(str(name))]) if name in files:
                yield name


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


# --- who opens files --------------------------------------------------------------------------------------------------

OPENS_WHAT_USERS_NAME = {"crdt_mor.ground.parquet", "crdt_mor.ground.forks", "crdt_mor.api.load_sources"}
OPENS_WHAT_USERS_NAME |= {"crdt_mor.ground.machine", "crdt_mor.ground.spill"}
OPENS_WHAT_USERS_NAME |= {f"crdt_mor.api.files{kind}" for kind in ("", "_int96", "_places")}
"""Modules below the command line that open the files which users name, or ask for threads, programs or disk
room, or make a temporary file."""

OPENS_FILES = {"fsspec", "glob", "mmap", "obstore", "pathlib", "pyarrow.dataset", "pyarrow.fs", "tempfile"}
"""Modules that are of no use but to find and open files."""

HARMLESS = {
    "os": {"PathLike", "cpu_count", "environ", "fspath", "getcwd", "getpid", "path", "pathsep"},
    "os.path": {"abspath", "basename", "dirname", "expanduser", "realpath"},
    "shutil": {"which"},
}
"""What may be taken of modules that open files besides."""

OPENER = re.compile(
    r"(read|scan|write|sink)_(avro|bytes|csv|feather|ipc|ipc_stream|json|lines|metadata|ndjson|parquet|parquet_metadata"
    r"|parquet_schema|schema|table|text)|ParquetDataset|ParquetFile|ParquetWriter|OSFile|memory_map|(in|out)put_stream"
    r"|open|open_file|open_stream|FileIO"
)
"""Functions of polars, Arrow and others that take an address, and methods that open what they are called on."""

METHODS_OF_OTHERS = {"open", "read_metadata", "read_schema", "write_table"}
"""What tables, sources and writers of Parquet have under such a name, too."""

IN_MEMORY = {"BytesIO", "BufferReader", "BufferOutputStream"}
LIBRARY_NAMES = {"io", "pa", "pl", "polars", "pq", "pyarrow"}


def files_opened(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines that may open a file by its address, and what they do. Bytes in memory are told by how they are made."""
    for node in nodes(module):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, f"import {a.name}") for a in node.names if a.name in OPENS_FILES)
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            if node.module in OPENS_FILES or names & OPENS_FILES:
                yield node.lineno, f"from {node.module} import …"
            elif node.module in HARMLESS:
                yield from ((node.lineno, n) for n in names if n.rpartition(".")[2] not in HARMLESS[node.module])
            elif (node.module or "").split(".")[0] in LIBRARY_NAMES:
                yield from ((node.lineno, n) for n in names if OPENER.fullmatch(n.rpartition(".")[2]))
        elif isinstance(node, ast.Attribute):
            of = ast.unparse(node.value)
            if of in HARMLESS and node.attr not in HARMLESS[of]:
                yield node.lineno, f"{of}.{node.attr}"
            elif of.split(".")[0] in LIBRARY_NAMES and OPENER.fullmatch(node.attr) and not is_called(node, module):
                yield node.lineno, f"{of}.{node.attr}, to be called out of sight"
        elif isinstance(node, ast.Call) and opens(node) and not in_memory(node, module):
            yield node.lineno, ast.unparse(node)


def opens(call: ast.Call) -> bool:
    """Whether a call takes the address of a file, by its name."""
    if isinstance(call.func, ast.Name):
        return call.func.id in {"open", "Path"}  # what is imported from a library by its bare name is found there
    if not isinstance(call.func, ast.Attribute) or not OPENER.fullmatch(call.func.attr):
        return False
    if ast.unparse(call.func.value).startswith("resources.files("):
        return False  # a file of the package itself
    of_library = ast.unparse(call.func.value).split(".")[0] in LIBRARY_NAMES
    return of_library or call.func.attr not in METHODS_OF_OTHERS


def in_memory(call: ast.Call, module: ast.Module) -> bool:
    """Whether one of the arguments is a file in memory, made on the spot or under a name that has no other value."""
    buffers: dict[str, set[bool]] = {}
    for node in nodes(module):
        if isinstance(node, ast.Assign | ast.NamedExpr | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                buffers.setdefault(ast.unparse(target), set()).add(is_buffer(node.value))
        elif isinstance(node, ast.arg):
            buffers.setdefault(node.arg, set()).add(False)
    return any(is_buffer(a) or buffers.get(ast.unparse(a)) == {True} for a in call.args)


def is_buffer(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in IN_MEMORY


def is_called(function: ast.Attribute, module: ast.Module) -> bool:
    return any(isinstance(node, ast.Call) and node.func is function for node in nodes(module))


@pytest.mark.parametrize(
    "code",
    [
        "open(path)",
        "io.open(path)",
        "Path(path)",
        "from pathlib import Path",
        "import mmap",
        "import pyarrow.dataset",
        "from pyarrow import fs",
        "os.stat(path)",
        "os.path.exists(path)",
        "from os import remove",
        "shutil.rmtree(path)",
        "path.read_bytes()",
        "pq.ParquetFile(path)",
        "pq.read_metadata(path)",
        "pq.read_table(data)",
        "pl.scan_parquet(store.url(path))",
        "pl.read_parquet(path, glob=False)",
        "pl.read_parquet(source=path)",
        "from polars import scan_parquet",
        "from pyarrow.parquet import ParquetFile",
        "read = pl.read_parquet",
        "pa.memory_map(path)",
        "frame.write_parquet(path)",
        "frames.sink_parquet(path)",
        "def f(data):\n    pl.read_parquet(data)\ndef g():\n    data = io.BytesIO()",
    ],
)
def test_what_opens_a_file_is_found(code: str) -> None:
    assert list(files_opened(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "pl.read_parquet(io.BytesIO(content))",
        "pq.read_metadata(pa.BufferReader(content))",
        "sink = pa.BufferOutputStream()\npq.ParquetWriter(sink, schema)",
        "source.scan().collect()",
        "with source.open() as file: file.metadata",
        "Table(uri)",
        "resources.files('crdt_mor.format').joinpath('schemas', name).read_text()",
        "os.path.basename(uri)",
        "os.environ.get(name)",
        "def f(uri: str | os.PathLike[str]): ...",
    ],
)
def test_what_opens_no_file_is_let_through(code: str) -> None:
    assert not list(files_opened(ast.parse(code)))


def test_every_room_is_in_the_table_of_rooms_and_in_the_picture() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    table = page.partition("## The rooms")[2].partition("## One commit")[0]
    rooms = [name for name in MAY_IMPORT if (ROOT / "crdt_mor" / name).is_dir() and name not in LINKED]
    assert not [room for room in rooms if f"`{room}/`" not in table]
    picture = table.partition("```mermaid")[2].partition("```")[0]
    arrows = re.findall(r"^ +(\w+) --> ([\w& ]+)$", picture, re.MULTILINE)
    drawn = [(left, right) for left, ends in arrows for right in ends.split(" & ") if left in MAY_IMPORT]
    assert len(drawn) > 10
    assert not [(left, right) for left, right in drawn if right not in MAY_IMPORT[left]]


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading of ARCHITECTURE.md, its head first."""
    section = (ROOT / "ARCHITECTURE.md").read_text().partition(f"### {heading}")[2].partition("\n#")[0]
    lines = [line for line in section.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def files_in(room: str) -> list[str]:
    found = (path for path in (ROOT / "crdt_mor" / room).iterdir() if path.name != "__init__.py")
    return sorted(path.stem for path in found if path.suffix == ".py")


def test_the_table_of_features_names_each_file_of_its_rooms_once() -> None:
    head, *features = rows_of("Where a feature is")
    for column, room in enumerate(head[1:], 1):
        named = [name for row in features for name in row[column].split(", ") if name]
        assert sorted(named) == files_in(room.strip("`/")), room


def test_the_other_rooms_name_each_of_their_files_once() -> None:
    _, *rooms = rows_of("The other rooms, in the order in which to read them")
    for room, files in rooms:
        groups = [group.partition(":")[0] for group in files.split("; ")]
        assert sorted(name for group in groups for name in group.split(", ")) == files_in(room.strip("`/")), room


def test_a_word_of_a_feature_is_in_no_name_of_another() -> None:
    """A file whose name begins with the word of a feature stands in its row: `git ls-files '*word*'` finds all."""
    _, *features = rows_of("Where a feature is")
    words = {row[0].split(":")[0].split(",")[0].strip(): row for row in features}
    for word, row in words.items():
        named = {name for other in features if other is not row for cell in other[1:] for name in cell.split(", ")}
        assert not [name for name in named if re.match(rf"{word}(_|$)", name)], word
