"""Addresses: what they mean, and which are refused."""

from __future__ import annotations

from pathlib import Path, PurePath, PureWindowsPath

import polars as pl
import pytest

from crdt_mor.api.files import is_address
from crdt_mor.api.table import Table
from crdt_mor.errors import InvalidInputError, UnsupportedFeatureError
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.store.local import LocalStore
from crdt_mor.store.memory import MemoryStore
from crdt_mor.store.open import absolute, are_nested, open_store
from crdt_mor.store.protocol import is_bucket
from crdt_mor.testing.faults import DelegatingStore


def root_of(uri: str | Path) -> str:
    store = open_store(uri, SystemEnvironment())
    assert isinstance(store, LocalStore)
    return str(store.root)


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        ("/data/t", "/data/t"),
        ("/data/t/", "/data/t"),
        (Path("/data/t"), "/data/t"),
        ("file:///data/t", "/data/t"),
        ("file://localhost/data/t", "/data/t"),
        ("FILE:///data/t", "/data/t"),
        ("file:/data/t", "/data/t"),
        ("file:///data/my%20table%23", "/data/my table#"),
        ("/data/my%20table", "/data/my%20table"),
    ],
)
def test_an_address_of_a_local_folder(uri: str | Path, root: str) -> None:
    assert root_of(uri) == root


def test_a_relative_path_is_fixed_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("a:b/t", SystemEnvironment())
    monkeypatch.chdir("/")
    store.put("x", b"1")
    assert (tmp_path / "a:b" / "t" / "x").read_bytes() == b"1"


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert root_of("~/t") == root_of(Path("~/t")) == "/home/ada/t"


@pytest.mark.parametrize("uri", ["hdfs://n:8020/t", "memory://t", "ftp://user:hidden@host/t?key=hidden"])
def test_another_scheme_is_refused_by_name_with_what_works(uri: str) -> None:
    known = rf"file:///path, s3://bucket/path, .*scheme={uri.split(':', maxsplit=1)[0]} "
    with pytest.raises(UnsupportedFeatureError, match=known) as raised:
        open_store(uri, SystemEnvironment())
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    "uri",
    [
        "dbfs:/t", "s3:/b/t", "s3:b/t", "S3:/b/t", "gs:/b/t", "http:/x", "file:t",
        "C:\\t", "C:/t", "n:/t", "\\\\server\\share\\t", Path("s3://b/t"), Path("C:/t"), PureWindowsPath("C:/t"),
    ],
)  # fmt: skip
def test_open_store_of_a_place_elsewhere_is_refused_and_makes_no_folder(
    uri: str | PurePath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for make in (
        lambda: Table.create(uri, {"id": pl.String}, key="id"),
        lambda: Table.create_from(uri, pl.DataFrame({"id": ["a"]}), key="id"),
        lambda: Table(uri),
        lambda: absolute(uri),
    ):
        with pytest.raises(InvalidInputError, match="pass its absolute path"):
            make()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("uri", ["./dbfs:/t", "./C:/t", Path("/C:/t"), "local:t", "a/s3:/t"])
def test_open_store_of_a_folder_with_a_colon_in_its_name_is_local(uri: str | Path) -> None:
    assert isinstance(open_store(uri, SystemEnvironment()), LocalStore)


def test_open_store_of_a_place_elsewhere_shows_no_secret() -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_store("s3:/user:hidden@b/t?key=hidden", SystemEnvironment())
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("uri", ["file://data/t", "file://host"])
def test_a_file_address_on_another_machine_is_refused(uri: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match="file:///path"):
        open_store(uri, SystemEnvironment())


def test_a_file_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x")
    with pytest.raises(InvalidInputError, match="not a file"):
        open_store(tmp_path / "rows.csv", SystemEnvironment())


@pytest.mark.parametrize("uri", ["", "a\0b"])
def test_no_address_at_all_is_refused(uri: str) -> None:
    with pytest.raises(InvalidInputError):
        open_store(uri, SystemEnvironment())


@pytest.mark.parametrize(
    ("uri", "options"),
    [("s3://lake/t", {"region": "eu-west-1"}), ("az://lake/t", {"azure_storage_account_name": "a"}), ("/data/t", None)],
)
def test_what_only_stores_in_buckets_have_tells_them_from_the_others(uri: str, options: dict[str, str] | None) -> None:
    store = open_store(uri, SystemEnvironment(), options)
    assert is_bucket(store) == (options is not None)
    assert not is_bucket(DelegatingStore(store)), "it has no options by which another process gets there"


@pytest.mark.parametrize(
    ("text", "is_one"), [("s3://lake/t", True), ("file:///t", True), ("/data/t", False), ("a.b://c/rows.csv", False)]
)
def test_an_address_is_told_from_a_path(text: str, is_one: bool) -> None:
    assert is_address(text) == is_one


def test_opening_makes_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t", SystemEnvironment())
    assert store.read("x") is None
    assert store.list("") == []
    assert store.walk("") == []
    assert not (tmp_path / "t").exists()


def test_memory_takes_its_clock_from_the_test() -> None:
    times = iter([5, 7])
    store = MemoryStore(lambda: next(times))
    store.put("x", b"")
    found = store.stat("x")
    assert found is not None
    assert found.modified_ms == 5
    assert store.now_ms() == 7


@pytest.mark.parametrize(
    ("one", "other", "nested"),
    [
        ("/data/t", "/data/t/copy", True),
        ("/data/t", "/data", True),
        ("/data/t", "/", True),
        ("/data/t", "/data/t", False),
        ("/data/t", "/data/t-copy", False),
        ("s3://lake/t", "s3://lake/t/copy", True),
        ("s3://lake", "s3://lake/copy", True),
        ("s3://lake/t", "s3://lake/t2", False),
        ("s3://lake/t", "gs://lake/t/copy", False),
        ("s3://lake/t", "/lake/t/copy", False),
    ],
)
def test_whether_one_address_is_in_the_folder_of_another(one: str, other: str, nested: bool) -> None:
    assert are_nested(one, other) == are_nested(other, one) == nested


def test_a_folder_that_is_reached_by_a_link_is_the_folder_itself(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "t")
    assert are_nested(str(tmp_path / "link" / "copy"), str(tmp_path / "t"))
    assert not are_nested(str(tmp_path / "link"), str(tmp_path / "t"))
