"""Stores in buckets, over real servers on loopback: what every store must do, and what these do besides."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import obstore
import polars as pl
import pytest

import crdt_mor as mor
from crdt_mor import InvalidInputError, StorageUnavailableError, Table
from crdt_mor.errors import ForkedProcessError, StorageRefusedError
from crdt_mor.store import (
    Store,  # fmt: skip
    objects,
    puts,
)
from crdt_mor.store.objects import ObjectStore
from crdt_mor.testing.clock import SimulatedEnvironment
from crdt_mor.testing.store_suite import StoreSuite
from tests import servers
from tests.store.helpers import COLUMNS


@pytest.mark.slow
class TestS3(StoreSuite):
    @pytest.fixture
    def store(self) -> Store:
        return servers.s3().store()


@pytest.mark.slow
class TestAzure(StoreSuite):
    @pytest.fixture
    def store(self) -> Store:
        return servers.azure().store()


def rows(*pairs: tuple[str, int]) -> pl.DataFrame:
    return pl.DataFrame(list(pairs), COLUMNS, orient="row")


# --- a table ----------------------------------------------------------------------------------------------------------


def test_a_table_is_made_written_and_read_at_an_address(server: servers.Server) -> None:
    uri = server.address("day=[2025] 100%")
    table = Table.create(uri, COLUMNS, key="id", storage_options=server.options)
    table.upsert(rows(("a", 1), ("b", 2)))
    table.upsert(rows(("b", 3)))
    opened = Table(uri, storage_options=server.options)
    assert sorted(opened.to_polars().rows()) == [("a", 1), ("b", 3)]
    opened.maintenance.compact()
    assert sorted(opened.to_polars().rows()) == [("a", 1), ("b", 3)]
    assert opened.scan(filter="id = 'b'").to_polars().rows() == [("b", 3)]
    assert [r[0] for r in opened.changes().to_polars().rows()] != []


def test_there_is_no_table_and_there_is_no_bucket(server: servers.Server) -> None:
    uri = server.address()
    with pytest.raises(mor.errors.TableNotFoundError, match=r"create it with Table\.create"):
        Table(uri, storage_options=server.options)
    elsewhere = uri.replace(f"://{servers.BUCKET}/", "://no-such-place/")
    for use in (Table, lambda u, **o: Table.create(u, COLUMNS, key="id", **o)):
        with pytest.raises(StorageRefusedError, match=r"there is no such (bucket|container): create it, or correct"):
            use(elsewhere, storage_options=server.options)


def test_a_missing_bucket_is_noticed_whatever_is_asked_first(server: servers.Server) -> None:
    asks: list[Callable[[ObjectStore], object]] = [
        lambda s: s.read("x"), lambda s: s.stat("x"), lambda s: s.list(""), lambda s: s.walk(""),
        lambda s: s.put("x", b""), lambda s: s.touch("x"), lambda s: s.now_ms(),
        lambda s: s.parquet("x"), lambda s: s.copy("x", "y"),
    ]  # fmt: skip
    for ask in asks:
        store = server.store(server.address().replace(f"://{servers.BUCKET}/", "://no-such-place/"))
        with pytest.raises(StorageRefusedError, match="there is no such"):
            ask(store)


def test_a_store_that_makes_an_object_twice_is_refused(server: servers.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    put: Callable[..., object] = obstore.put

    def careless(*arguments: object, mode: str | None = None, **keywords: object) -> object:
        return put(*arguments, **keywords)

    monkeypatch.setattr(obstore, "put", careless)
    uri = server.address()
    with pytest.raises(mor.errors.UnsupportedFeatureError, match="If-None-Match"):
        Table.create(uri, COLUMNS, key="id", storage_options=server.options)
    monkeypatch.undo()
    store = server.store(uri)
    assert store.walk("") == []
    assert store.walk(".hoodie") == [], "the trial is cleaned up"


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_nobody_listens() -> None:
    store = servers.s3().through(servers.free_port()).store()
    store.environment = SimulatedEnvironment()
    store._requests.environment = store.environment
    with pytest.raises(StorageUnavailableError, match=r"did not answer.*tries=\d+ waited_s=.*Connection refused"):
        store.read("x")


def test_an_endpoint_without_tls_has_to_be_allowed() -> None:
    store = servers.s3().store(aws_allow_http="false")
    with pytest.raises(StorageRefusedError, match="set allow_http to 'true'"):
        store.read("x")


def test_wrong_keys_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVowMTIzNDU2Nzg5YWJjZGVmZ2hpamtsbW5vcA=="
    store = servers.azure().store(azure_storage_account_key=wrong)
    with pytest.raises(StorageRefusedError, match=r"credentials|access denied"):
        store.read("x")


def test_a_path_that_no_store_takes(server: servers.Server) -> None:
    with pytest.raises(InvalidInputError):
        server.store().put("a\tb", b"")


def test_what_is_too_large_is_refused_before_it_is_sent(
    server: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(puts, "PUT_MAX", {"s3": 10, "azure": 10, "gs": 10})
    store = server.store()
    with pytest.raises(InvalidInputError, match=r"more buckets.*size=11 most=10"):
        store.put("x", b"01234567890")
    assert store.stat("x") is None


def test_large_objects_are_copied_where_they_are(server: servers.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "COPIED_HERE_MAX", 10)
    store = server.store()
    store.put("source", b"a" * 100)
    monkeypatch.setattr(store, "view", lambda path: pytest.fail("the bytes came here"))
    assert store.copy("source", "target") is True
    assert store.copy("source", "target") is False
    monkeypatch.undo()
    assert store.read("target") == b"a" * 100


def test_the_clock_is_asked_once_a_minute(server: servers.Server) -> None:
    store, asked = server.store(), list[int]()
    ask = store._requested_time

    def noted() -> int:
        asked.append(1)
        return ask()

    store._requested_time = noted  # type: ignore[method-assign]
    times = [store.now_ms() for _ in range(5)]
    assert asked == [1]
    assert times == sorted(times)
    store.environment = SimulatedEnvironment()  # one without a clock that nobody sets
    before = len(asked)
    for _ in range(2):
        store.now_ms()
    assert len(asked) == before + 2


# --- secrets ----------------------------------------------------------------------------------------------------------


ALLOW_HTTP = {"s3": "aws_allow_http", "azure": "allow_http"}


def secrets_of(server: servers.Server) -> list[bytes]:
    named = ("aws_access_key_id", "aws_secret_access_key", "azure_storage_account_key")
    return [server.options[name].encode() for name in named if name in server.options]


def test_no_secret_is_written_shown_pickled_or_logged(server: servers.Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    uri = server.address()
    table = Table.create(uri, COLUMNS, key="id", storage_options=server.options)
    table.upsert(rows(("a", 1)))
    table.maintenance.compact()
    store = server.store(uri)
    source = store.parquet(next(s.path for s in store.walk("") if s.path.endswith(".parquet")))
    job = table.jobs.plan("upsert", COLUMNS)
    shown = [repr(x) for x in (table, table.scan(), table.scan().parts(), store, source, job, table.storage_options)]
    shown += [repr(vars(source.ranges) if source and source.ranges else None), caplog.text]
    shown += [repr(vars(x)) for x in (store, store._requests, table, job.store)]
    pickled = [pickle.dumps(x) for x in (table.scan(), table.scan().parts(), table.storage_options, job, store)]
    written = [store.read(stat.path) or b"" for stat in (*store.walk(""), *store.walk(".hoodie"))]
    for secret in secrets_of(server):
        assert not [text for text in shown if secret.decode() in text]
        assert not [data for data in (*pickled, *written) if secret in data]
    assert pickle.loads(pickle.dumps(table.scan())).to_polars().rows() == [("a", 1)]


def test_no_secret_is_in_an_error_nor_in_what_it_came_from(server: servers.Server) -> None:
    def errors() -> Iterator[BaseException]:
        closed = server.through(servers.free_port())
        for options in (
            {**closed.options, "retry_timeout": "10ms"},
            {**server.options, ALLOW_HTTP[server.kind]: "false", "retry_timeout": "10ms"},
            {**server.options, "timeout": "1ms", "retry_timeout": "1ms"},
        ):
            with pytest.raises(mor.CrdtMorError) as raised:
                Table(server.address(), storage_options=options).upsert(rows(("a", 1)))
            yield raised.value

    for error in errors():
        chain: BaseException | None = error
        text = "".join(traceback.format_exception(error))
        while chain is not None:
            text += str(chain) + repr(chain)
            chain = chain.__cause__ or chain.__context__
        for secret in secrets_of(server):
            assert secret.decode() not in text


PROGRAM = """
import os, pickle, sys
rows = pickle.load(open(sys.argv[1], "rb")).to_polars().rows()
print(rows)
"""


@pytest.mark.slow
def test_another_process_takes_the_keys_from_its_own_environment(server: servers.Server, tmp_path: Path) -> None:
    table = Table.create(server.address(), COLUMNS, key="id", storage_options=server.options)
    table.upsert(rows(("a", 1)))
    (tmp_path / "scan").write_bytes(pickle.dumps(table.scan()))
    bare = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    keys = {name.upper(): value for name, value in server.options.items() if "key" in name}

    def run(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "scan")]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    done = run(bare)
    assert f"variables={', '.join(keys)} " in done.stderr
    done = run({**bare, **keys})
    assert done.stdout.strip() == "[('a', 1)]", done.stderr


def test_a_forked_process_is_told_rather_than_left_waiting(server: servers.Server) -> None:
    store = server.store()
    store.put("x", b"1")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            server.store().read("x")
        except ForkedProcessError:
            os.write(writer, b"told")
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    assert os.read(reader, 10) == b"told"
    os.close(reader)
    assert store.read("x") == b"1"


def test_a_profile_of_the_aws_configuration_gives_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = servers.s3()
    (tmp_path / "credentials").write_text(
        "[ops]\n" + "".join(f"{name} = {value}\n" for name, value in servers.AWS_KEYS.items())
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    options = {name: value for name, value in server.options.items() if name not in servers.AWS_KEYS}
    uri = server.address()
    table = Table.create(uri, COLUMNS, key="id", storage_options={**options, "aws_profile": "ops"})
    table.upsert(rows(("a", 1)))
    table.maintenance.compact()
    assert table.to_polars().rows() == [("a", 1)]
    with pytest.raises(StorageRefusedError, match="profile has no credentials"):
        Table(uri, storage_options={**options, "aws_profile": "nobody"})
