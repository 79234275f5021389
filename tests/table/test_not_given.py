"""Files that the system does not let a process read: they are not damaged, to reads, to services and to `verify`."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crdt_mor import Opening, StorageUnavailableError, Table
from crdt_mor.errors import FormatError
from crdt_mor.format.base_file import read_footer
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.store import LocalStore
from crdt_mor.testing import SimulatedEnvironment
from tests.stores import Script, ScriptedStore, as_it_is, refusing
from tests.table.damaged import START_MS, bases, logs, made, opened

CODES = [errno.EACCES, errno.EIO, errno.EMFILE]


@pytest.fixture(scope="module")
def sound(fast_module_path: Path) -> Path:
    return made(fast_module_path / "sound")


def refuse_to_open(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Have the system refuse to open base files."""
    there = os.open

    def refused(path: Any, *args: Any, **kwargs: Any) -> int:
        if str(path).endswith(".parquet"):
            raise OSError(code, os.strerror(code), path)
        return there(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refused)


def refuse_to_read(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """Have Arrow and polars say that the system refuses to read Parquet files."""

    def refused(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(ParquetSource, "_opened", refused)
    monkeypatch.setattr(ParquetSource, "scan", refused)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(
    "ask",
    [
        lambda table: table.to_arrow(),
        lambda table: table.scan(filter="n > 1").to_polars(),
        lambda table: table.maintenance.compact(),
    ],
    ids=["scan", "filter", "compact"],
)
def test_a_base_file_that_cannot_be_opened_is_not_called_damaged(
    sound: Path, fast_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, ask: Callable[[Table], object]
) -> None:
    folder = fast_path / "t"
    shutil.copytree(sound, folder)
    table = opened(folder)
    with monkeypatch.context() as patch:
        refuse_to_open(patch, code)
        with pytest.raises(StorageUnavailableError, match=r"may be whole.*try again") as caught:
            ask(table)
    assert errno.errorcode[code] in str(caught.value)
    ask(table)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),
        PermissionError("Permission denied (os error 13): x.parquet"),
        OSError("Too many open files (os error 24): x.parquet"),
    ],
    ids=["arrow", "class of polars", "text of polars"],
)
def test_a_base_file_that_fails_while_it_is_read_is_not_called_damaged(
    sound: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    refuse_to_read(monkeypatch, error)
    with pytest.raises(StorageUnavailableError, match="may be whole"):
        opened(sound).to_arrow()
    with pytest.raises(StorageUnavailableError, match="may be whole"):
        read_footer(ParquetSource.file(str(bases(sound)[0])))
    findings = opened(sound).verify().findings
    assert {finding.path for finding in findings} >= {path.name for path in bases(sound)}
    for finding in findings:
        assert "may be whole" in finding.description
        assert finding.advice.startswith("remove the cause")


def test_bytes_that_were_read_and_are_no_parquet_are_damaged(fast_path: Path) -> None:
    (fast_path / "x").write_bytes(b"PAR1 no footer PAR1")
    with pytest.raises(FormatError, match="damaged Parquet"):
        read_footer(ParquetSource.file(str(fast_path / "x")))


def failing(times: dict[str, int]) -> Script:
    """Fails to give each object this number of times."""

    def fails(path: str) -> bool:
        times[path] = times.get(path, 0) - 1
        return times[path] >= 0

    return refusing("read", "view", "parquet", of=fails)


def names(folder: Path) -> list[str]:
    own = sorted(folder.glob(".hoodie/.crdt_mor/timeline/*.json"))[:-1] + sorted(folder.glob(".hoodie/timeline/*_*"))
    return [str(path.relative_to(folder)) for path in (*own, *bases(folder), *logs(folder))]


def failing_table(sound: Path, times: dict[str, int]) -> Table:
    """The table, some of whose objects are not given from now on."""
    store = ScriptedStore(LocalStore(sound), as_it_is)
    table = Table(sound, opening=Opening(store=store, environment=SimulatedEnvironment(START_MS + 60_000, "given.")))
    store.script = failing(times)
    return table


def test_verify_beside_failures_that_pass_finds_nothing(sound: Path) -> None:
    times = dict.fromkeys(names(sound), 1)
    assert failing_table(sound, times).verify().findings == ()
    assert all(times[path.name] < 0 for path in (*bases(sound), *logs(sound))), "a case that covers nothing"


def test_verify_beside_failures_that_stay_advises_to_look_for_their_cause(sound: Path) -> None:
    findings = failing_table(sound, dict.fromkeys(names(sound), 1_000_000)).verify().findings
    assert {finding.path for finding in findings} >= {path.name for path in (*bases(sound), *logs(sound))}
    for finding in findings:
        assert finding.advice.startswith("remove the cause")
