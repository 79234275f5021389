"""A table from elsewhere leads nowhere: neither its paths nor its links take a write or a delete out of its folder."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.store.local import LocalStore

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("n", pa.int64())])


def rows(number: int) -> pa.Table:
    return pa.table({"id": ["a", "b"], "part": ["x", "y"], "n": [number, number]}, SCHEMA)


@pytest.fixture
def uri(fast_path: Path) -> str:
    """A table with base files and logs."""
    table = mor.Table.create(fast_path / "t", SCHEMA, key="id", partition_by="part", buckets=1)
    table.upsert(rows(1))
    table.maintenance.compact()
    table.upsert(rows(2))
    say(table.uri, swept="20250101000000000")  # so that the next writer sweeps
    return table.uri


def tail(uri: str) -> Path:
    """The newest version of the timeline."""
    return max(Path(uri, ".hoodie/.crdt_mor/timeline").iterdir())


def say(uri: str, **said: object) -> None:
    """Change what the newest version says."""
    value = json.loads(tail(uri).read_text())
    tail(uri).write_text(json.dumps(value | said, separators=(",", ":")))


@pytest.fixture
def home(fast_path: Path) -> Path:
    """What is the user's and no table's; names that sort before and after an instant."""
    (fast_path / "home").mkdir()
    for name in ("0", "20250101-letter.txt", "put-me-down.txt", "zebra.txt", "00000000000000000000.json"):
        (fast_path / "home" / name).write_text("mine")
        os.utime(fast_path / "home" / name, (1, 1))
    return fast_path / "home"


def everything(folder: Path) -> dict[str, tuple[str, int]]:
    return {path.name: (path.read_text(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def use(uri: str) -> None:
    """All that a program might do, as far as it gets; what it meets is an error of ours."""
    steps: list[Callable[[], object]] = [
        lambda: mor.Table(uri).scan().to_arrow(),
        lambda: mor.Table(uri).changes().to_arrow(),
        lambda: mor.Table(uri).upsert(rows(3)),
        lambda: mor.Table(uri).delete(keys=[("a", "x")]),
        lambda: mor.Table(uri).maintenance.compact(log_files_min=1),
        lambda: LocalStore(uri).sweep_temp(),
        lambda: [mor.Table(uri).upsert(rows(n)) for n in range(3)],
    ]
    for step in steps:
        with suppress(mor.CrdtMorError):
            step()


# --- links ------------------------------------------------------------------------------------------------------------

FOLDERS = [
    ".hoodie/.heartbeat", ".hoodie/.temp", ".hoodie/timeline", ".hoodie/.crdt_mor", ".hoodie/.crdt_mor/staged",
    ".hoodie/.crdt_mor/plans", ".hoodie/.crdt_mor/segments", ".hoodie", "part=x",
]  # fmt: skip


@pytest.mark.parametrize("folder", FOLDERS)
def test_nothing_is_written_or_deleted_behind_a_link_that_leads_out(uri: str, home: Path, folder: str) -> None:
    found = Path(uri, folder)
    if found.exists():  # what the table needs of it stands behind the link
        shutil.copytree(found, home, dirs_exist_ok=True)
        shutil.rmtree(found)
    found.parent.mkdir(parents=True, exist_ok=True)
    files = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    times = {path: path.stat().st_mtime_ns for path in files}
    found.symlink_to(home)
    use(uri)
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == files
    assert {path: path.stat().st_mtime_ns for path in files} == times


def test_the_error_says_where_the_link_leads(uri: str, home: Path) -> None:
    shutil.rmtree(Path(uri, ".hoodie/.heartbeat"), ignore_errors=True)
    Path(uri, ".hoodie/.heartbeat").symlink_to(home)
    store = LocalStore(uri)
    attempts: dict[str, Callable[[str], object]] = {
        "0": store.delete, "zebra.txt": store.touch, "new": lambda path: store.put(path, b""),
        "other": lambda path: store.copy(".hoodie/hoodie.properties", path),
    }  # fmt: skip
    for name, attempt in attempts.items():
        with pytest.raises(mor.errors.UnsupportedFeatureError, match=f"leads out of the table.*leads_to={home}"):
            attempt(f".hoodie/.heartbeat/{name}")
    assert (home / "0").read_text() == "mine"


def test_a_link_to_a_file_is_deleted_itself_and_never_touched_through(uri: str, home: Path) -> None:
    for path in ("part=x/link", ".hoodie/.temp/clock"):
        Path(uri, path).unlink(missing_ok=True)
        Path(uri, path).symlink_to(home / "zebra.txt")
    store, before = LocalStore(uri), everything(home)
    with pytest.raises(mor.StorageUnavailableError):
        store.now_ms()
    for path in ("part=x/link", ".hoodie/.temp/clock"):
        store.delete(path)
        assert not Path(uri, path).is_symlink()
    assert everything(home) == before


def test_links_inside_the_table_and_to_the_table_are_followed(uri: str, fast_path: Path) -> None:
    (fast_path / "link").symlink_to(uri)
    Path(uri, "part=x").rename(Path(uri, "moved"))
    Path(uri, "part=x").symlink_to(Path(uri, "moved"))
    table = mor.Table(fast_path / "link")
    table.upsert(rows(9))
    assert table.maintenance.compact()
    assert table.scan(columns=["n"]).to_arrow().to_pylist() == [{"n": 9}, {"n": 9}]


def test_what_a_link_shows_is_read_where_the_file_system_lets_us(uri: str, fast_path: Path) -> None:
    Path(uri, "part=x").rename(fast_path / "elsewhere")
    Path(uri, "part=x").symlink_to(fast_path / "elsewhere")
    assert mor.Table(uri).scan().to_arrow().num_rows == 2


# --- paths ------------------------------------------------------------------------------------------------------------

OUT = ["../home/zebra.txt", "../../../../etc/passwd", "/etc/passwd", "part=x/../../home/zebra.txt", "a//b", "x\0y", ""]


def data_file(path: str) -> list[object]:
    return [path, 4, 1, 0]


@pytest.mark.parametrize("path", OUT)
def test_a_timeline_that_names_files_outside_is_an_error_and_they_stay(uri: str, home: Path, path: str) -> None:
    before = everything(home)
    completions = json.loads(tail(uri).read_text())["completions"]
    completions[-1][6] = [data_file(path)]
    say(uri, completions=completions, plans=[["20260101000000001", "n", 3, path]])
    with pytest.raises(mor.CrdtMorError):
        mor.Table(uri).scan().to_arrow()
    use(uri)
    assert everything(home) == before


@pytest.mark.parametrize("path", OUT[:5])
def test_a_plan_that_names_files_outside_deletes_and_writes_none_of_them(uri: str, home: Path, path: str) -> None:
    before = everything(home)
    table = mor.Table(uri)
    table.upsert(rows(3))
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    file = max(Path(uri, ".hoodie/.crdt_mor/plans").iterdir())
    found = json.loads(file.read_text())
    for group in found["groups"]:
        group[0] = path  # its partition, where the outputs go
        group[3] = [data_file(path)]
    file.write_text(json.dumps(found, separators=(",", ":")))
    with pytest.raises(mor.CrdtMorError):
        mor.Table(uri).maintenance.compact()
    with suppress(mor.CrdtMorError):
        mor.Table(uri).maintenance.plans.cancel(plan.barrier)
    use(uri)
    assert everything(home) == before


@pytest.mark.parametrize("path", OUT[:5])
@pytest.mark.parametrize("name", ["hoodie.timeline.path", "hoodie.timeline.history.path"])
def test_a_timeline_outside_of_the_table_is_refused(uri: str, home: Path, name: str, path: str) -> None:
    before = everything(home)
    file = Path(uri, ".hoodie/hoodie.properties")
    lines = [line for line in file.read_text().splitlines() if not line.startswith(name)]
    file.write_text("\n".join([*lines, f"{name}={path}"]))
    with pytest.raises(mor.errors.FormatError, match=f"{name}="):
        mor.Table(uri)
    use(uri)
    assert everything(home) == before


@pytest.mark.parametrize("name", ["../../../../home/0", "/etc/passwd", "x\0y"])
def test_a_segment_outside_of_the_table_is_refused(uri: str, home: Path, name: str) -> None:
    say(uri, segments=[[name, 0, "20260101000000000", "20260102000000000", 3, None]])
    with pytest.raises(mor.CrdtMorError):
        mor.Table(uri).scan().to_arrow()


@pytest.mark.parametrize("text", ["completed:../../x", "requested:", ":", "completed:9:9:x", "\0", "a:" * 999])
def test_a_checkpoint_from_a_stranger_is_a_text_and_nothing_more(uri: str, text: str) -> None:
    with pytest.raises(mor.CrdtMorError):
        mor.Table(uri).changes(since=text)


# --- texts of the wrong shape -----------------------------------------------------------------------------------------

HOSTILE: list[object] = [None, -1, 10**30, "../../../etc/passwd", [], {}, "99999999999999999", [[[]]]]
LOOKS: list[Callable[[mor.Table], object]] = [
    lambda table: table.scan().to_arrow(),
    lambda table: table.inspect.timeline(),
    lambda table: table.changes().to_arrow(),
]


def places(found: object, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a document."""
    yield above
    inner = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for name, value in inner:
        yield from places(value, (*above, name))


def changed(found: Any, place: tuple[Any, ...], value: object) -> Any:
    """The document with another value at one place."""
    if not place:
        return value
    copy = found.copy()
    copy[place[0]] = changed(found[place[0]], place[1:], value)
    return copy


@pytest.mark.slow
def test_a_timeline_of_the_wrong_shape_is_an_error_of_ours_and_ends(uri: str) -> None:
    writer = mor.Table(uri).transaction(token=("app", 1)).__enter__()
    writer.upsert(rows(4))
    mor.Table(uri).maintenance.plans.schedule()
    file = tail(uri)
    document = json.loads(file.read_text())
    refused = 0
    for number, place in enumerate(places(document)):
        for value in (HOSTILE[number % len(HOSTILE)], HOSTILE[number * 3 % len(HOSTILE)]):
            file.write_text(json.dumps(changed(document, place, value), separators=(",", ":")))
            for look in LOOKS:
                try:
                    look(mor.Table(uri))
                except mor.CrdtMorError:
                    refused += 1
    assert refused > 300


DEEP = "[" * 100_000
BROKEN = [b"", b"{", b"[]", b"null", b"7", DEEP.encode(), b'{"format": 2}', b"\xff\xfe", b'{"format": 1e999}', b"{}"]


@pytest.mark.parametrize("data", BROKEN, ids=lambda data: repr(data[:20]))
def test_a_damaged_version_is_named(uri: str, data: bytes) -> None:
    tail(uri).write_bytes(data)
    with pytest.raises(mor.errors.FormatError, match=tail(uri).name):
        mor.Table(uri)


def test_a_version_under_another_number_is_named_and_not_looked_for_without_end(uri: str) -> None:
    say(uri, version=10**30)
    with pytest.raises(mor.errors.FormatError, match=tail(uri).name):
        mor.Table(uri)
    tail(uri).write_text(json.dumps(json.loads(tail(uri).read_text())))  # the same with spaces
    with pytest.raises(mor.errors.FormatError, match=tail(uri).name):
        mor.Table(uri)


@pytest.mark.parametrize(
    "merge", ["latest " + DEEP, "latest [[]]", "latest [7]", 'latest [{"columns":7}]', "partial_update/1?" + "9" * 9999]
)
def test_a_merge_of_the_wrong_shape_is_an_error_of_ours(uri: str, merge: str) -> None:
    file = Path(uri, ".hoodie/hoodie.properties")
    lines = [line for line in file.read_text().splitlines() if not line.startswith("crdt_mor.merge")]
    file.write_text("\n".join([*lines, f"crdt_mor.merge={merge}"]))
    with pytest.raises(mor.errors.FormatError, match=r"crdt_mor\.merge"):
        mor.Table(uri)


# --- files that claim too much ----------------------------------------------------------------------------------------


def log_of(uri: str) -> Path:
    return max(Path(uri).glob("part=x/.*.log.*"))


@pytest.mark.parametrize("claimed", [2**60, 2**63 - 1, 2**64 - 1, 10**9, 0])
def test_a_log_block_that_claims_more_than_there_is_is_named(uri: str, claimed: int) -> None:
    log = log_of(uri)
    data = log.read_bytes()
    log.write_bytes(data[:6] + claimed.to_bytes(8, "big") + data[14:])
    with pytest.raises(mor.errors.FormatError, match=re.escape(log.name)):
        mor.Table(uri).scan().to_arrow()


@pytest.mark.costly
@pytest.mark.parametrize("place", range(14, 200, 6))
def test_lengths_inside_a_log_block_that_claim_too_much_are_named(uri: str, place: int) -> None:
    log = log_of(uri)
    data = log.read_bytes()
    log.write_bytes(data[:place] + b"\x7f\xff\xff\xff" + data[place + 4 :])
    said = ""
    try:
        mor.Table(uri).scan().to_arrow()
    except mor.CrdtMorError as error:
        said = str(error)
    assert not said or log.name in said


@pytest.mark.parametrize("cut", [0, 1, 8, 40, 200])
def test_a_base_file_that_is_cut_short_or_claims_a_long_footer_is_named(uri: str, cut: int) -> None:
    (base,) = Path(uri).glob("part=x/*.parquet")
    data = base.read_bytes()
    base.write_bytes(data[: -8 - cut] + (2**31 - 1).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(mor.errors.FormatError, match=re.escape(base.name)):
        mor.Table(uri).scan().to_arrow()
