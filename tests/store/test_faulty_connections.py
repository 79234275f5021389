"""Object stores behind a connection that fails: what was acknowledged is there, once, and what was refused is not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pytest

from crdt_mor import CrdtMorError, Opening, StorageUnavailableError, Table
from crdt_mor.errors import CommitUnknownError, StorageRefusedError
from crdt_mor.payloads import Counter
from crdt_mor.store import Store  # fmt: skip
from crdt_mor.store.addresses import place_of
from crdt_mor.store.objects import ObjectStore, open_at
from crdt_mor.testing.store_suite import StoreSuite
from tests import servers
from tests.proxy import FATES, Hurried, Proxy
from tests.store import faulty_groups
from tests.store.helpers import COLUMNS
from tests.tiers import seeds

DONE = ("lost reply", "wrong answer", "cut off", "delayed")
"""Fates in which the store does what it is asked."""


def store_at(server: servers.Server, address: str) -> ObjectStore:
    place = place_of(address)
    assert place is not None
    return open_at(place, server.options, Hurried())


# --- one request ------------------------------------------------------------------------------------------------------


@pytest.fixture
def proxy(server: servers.Server) -> Iterator[Proxy]:
    """A proxy that lets everything pass, until a test says otherwise."""
    with Proxy(server.port).running() as proxy:
        yield proxy


@pytest.fixture
def store(server: servers.Server, proxy: Proxy) -> ObjectStore:
    return store_at(server.through(proxy.port), server.address())


class Script:
    """The fates of the requests that change objects, one after the other; what comes after them is left alone."""

    def __init__(self, proxy: Proxy, *fates: str, method: str = "PUT") -> None:
        self._left = list(fates)
        self._method = method
        proxy.fate = self.fate  # type: ignore[method-assign]
        self.asked: list[str] = []

    def fate(self, method: str, path: str) -> tuple[str, int]:
        self.asked.append(method)
        return (self._left.pop(0), 0) if method == self._method and self._left else ("", 0)


@pytest.mark.parametrize("fate", [f for f in FATES if f != "delayed"])
def test_a_put_whose_answer_fails_tells_whose_object_it_is(proxy: Proxy, store: ObjectStore, fate: str) -> None:
    script = Script(proxy, fate)
    assert store.put("x", b"ours") is True
    assert store.read("x") == b"ours"
    assert store.put("x", b"theirs") is False
    assert script.asked.count("PUT") == (2 if fate in DONE else 3)


def test_a_put_that_loses_a_race_while_its_answer_is_lost_has_lost(
    server: servers.Server, proxy: Proxy, store: ObjectStore
) -> None:
    other = ObjectStore(store._place, server.options, store._secrets)

    class Meanwhile(Script):
        def fate(self, method: str, path: str) -> tuple[str, int]:
            if method == "PUT" and self._left:
                other.put("x", b"theirs")
            return super().fate(method, path)

    Meanwhile(proxy, "broken")
    assert store.put("x", b"ours") is False
    assert store.read("x") == b"theirs"


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_reading_goes_on_where_it_failed(proxy: Proxy, store: ObjectStore, fate: str, method: str) -> None:
    content = bytes(range(256)) * 100
    store.put("x", content)
    Script(proxy, fate, fate, method=method)
    assert store.read("x") == content
    assert [stat.size for stat in store.list("")] == [len(content)]
    found = store.stat("x")
    assert found is not None
    assert found.size == len(content)


def test_what_never_answers_ends_at_the_deadline_and_says_what_is_known(server: servers.Server, proxy: Proxy) -> None:
    store = ObjectStore.at(store_at(server.through(proxy.port), server.address())._place,
                           _options(server.through(proxy.port), retry_timeout="200ms"), Hurried())  # fmt: skip
    store.put("there", b"1")
    proxy.share, proxy.fates = 1.0, ("refused",)
    with pytest.raises(StorageUnavailableError, match=r"until the deadline\. Try again.*tries="):
        store.read("there")
    with pytest.raises(CommitUnknownError, match=r"whether it made an object.*put=x .*cause=[45]\d\d"):
        store.put("x", b"1")


def _options(server: servers.Server, **more: str) -> Any:
    from crdt_mor.store.options import read_options

    return read_options({**server.options, **more}, {"s3": "s3", "azure": "azure"}[server.kind])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "AccessDenied", "access denied"),
        (403, "SignatureDoesNotMatch", "does not know these credentials: correct AWS_ACCESS_KEY_ID"),
        (403, "InvalidAccessKeyId", "does not know these credentials"),
        (400, "ExpiredToken", "credentials have expired: renew them"),
        (403, "RequestTimeTooSkewed", "clock is wrong"),
        (301, "PermanentRedirect", r"another region.*set aws_region"),
        (400, "AuthorizationHeaderMalformed", r"another region.*set aws_region"),
        (404, "NoSuchBucket", "no such bucket: create it"),
        (401, "Unauthorized", "asks for other credentials"),
        (501, "NotImplemented", "lacks a feature that tables need"),
        (507, "InsufficientStorage", "no space left"),
    ],
)
def test_what_will_not_get_better_is_told_at_once_with_what_to_set(
    monkeypatch: pytest.MonkeyPatch, status: int, code: str, message: str
) -> None:
    from tests import proxy as proxies

    server = servers.s3()
    monkeypatch.setattr(proxies, "ANSWERS", {status: (code, "So it is.")})
    with Proxy(server.port, share=1.0, fates=("refused",)).running() as proxy:
        monkeypatch.setattr(proxies._Handler._answer, "__defaults__", ((status,),))
        store = store_at(server.through(proxy.port), server.address())
        with pytest.raises(StorageRefusedError, match=message) as of_a_read:
            store.read("x")
        assert "published" not in str(of_a_read.value)
        with pytest.raises(StorageRefusedError, match=f"{message}.*Nothing was published"):
            store.put("x", b"")
        assert len(proxy.requests) == 2, "no request is repeated that will not get better"


def test_requests_are_few(proxy: Proxy, store: ObjectStore) -> None:
    def asked() -> list[str]:
        methods = [method for method, _, _ in proxy.requests]
        proxy.requests.clear()
        return methods

    asked()
    store.put("x", b"1")
    assert asked() == ["PUT"]
    store.put("x", b"2")
    assert asked() == ["PUT"]
    store.read("x")
    assert asked() == ["GET"]
    store.stat("x")
    assert asked() == ["HEAD"]
    store.list("")
    store.walk("")
    assert asked() == ["GET", "GET"]
    store.touch("beat")
    store.touch("beat")
    store.touch("beat")
    assert asked() == ["PUT", "PUT", "PUT"]
    store.now_ms()
    store.now_ms()
    assert asked() == ["PUT", "HEAD"]


@pytest.mark.slow
class TestS3ThroughAFaultyProxy(StoreSuite):
    """What every store must do holds where every fifth request fails, too."""

    kind = "s3"

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        server = servers.SERVERS[self.kind]()
        with Proxy(server.port, seed=20, share=0.2).running() as proxy:
            yield store_at(server.through(proxy.port), server.address())


@pytest.mark.slow
class TestAzureThroughAFaultyProxy(TestS3ThroughAFaultyProxy):
    kind = "azure"


# --- histories --------------------------------------------------------------------------------------------------------


@dataclass
class Writer:
    """A writer with a faulty connection of its own, and what it was told of each of its keys."""

    name: str
    seed: int
    told: dict[str, str] = field(default_factory=dict)

    def run(self, server: servers.Server, uri: str, rounds: int, share: float) -> None:
        with Proxy(server.port, seed=self.seed, share=share).running() as proxy:
            options = server.through(proxy.port).options
            table = self._open(uri, options)
            for number in range(rounds):
                key = f"{self.name}-{number}"
                self.told[key] = self._say(lambda key=key: table.upsert(rows_of(key)))
                if (self.seed + number) % 4 == 0:
                    self._say(table.maintenance.compact)

    def _open(self, uri: str, options: Any) -> Table:
        while True:
            try:
                return Table(uri, storage_options=options, opening=Opening(environment=Hurried()))
            except StorageUnavailableError:
                continue

    def _say(self, work: Any) -> str:
        try:
            work()
        except CommitUnknownError:
            return "unknown"
        except CrdtMorError:
            return "failed"
        return "done"


def rows_of(key: str) -> pl.DataFrame:
    return pl.DataFrame({"id": [key, "all"], "n": [1, 1]}, COLUMNS)


def history(server: servers.Server, seed: int, writers: int = 3, rounds: int = 2, share: float = 0.12) -> None:
    """Writers count up a key of their own and one of all at once, each through a connection that fails.

    What was acknowledged is there, once; what failed is not there, or is unknown; and the sum agrees with the keys.
    """
    uri = server.address(f"history-{seed}")
    table = Table.create(uri, COLUMNS, key="id", merge={"n": Counter()}, buckets=2, storage_options=server.options)
    crew = [Writer(f"w{number}", seed * 100 + number) for number in range(writers)]
    errors: list[Exception] = []

    def work(writer: Writer) -> None:
        try:
            writer.run(server, uri, rounds, share)
        except Exception as error:  # noqa: BLE001  told by the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(writer,)) for writer in crew]
    with ExitStack() as stack:
        for thread in threads:
            thread.start()
            stack.callback(thread.join)
    assert not errors, f"seed={seed} {errors}"
    found = dict(Table(uri, storage_options=server.options).to_polars().rows())
    told = {key: word for writer in crew for key, word in writer.told.items()}
    assert len(told) == writers * rounds
    where = f"seed={seed} told={told} found={found}"
    total = found.pop("all", 0)
    assert set(found.values()) <= {1}, f"a commit counts once: {where}"
    assert {key for key, word in told.items() if word == "done"} <= found.keys(), f"a commit is lost: {where}"
    assert found.keys() <= {key for key, word in told.items() if word != "failed"}, f"a failed one is there: {where}"
    assert total == len(found), where
    assert table.count() == len(found) + bool(found)


@pytest.mark.parametrize("seed", seeds([], range(1, 4), range(100, 1100)))
def test_histories_through_faulty_connections_to_s3(seed: int) -> None:
    history(servers.s3(), seed)


@pytest.mark.parametrize("seed", seeds([], range(1, 3), range(100, 1100)))
def test_groups_through_faulty_connections_to_s3(seed: int) -> None:
    """All of them: `python -m tests.store.faulty_groups --histories 1000`."""
    assert faulty_groups.run(servers.s3(), seed)["posted commits"]


@pytest.mark.parametrize("seed", seeds([], range(1, 2), range(100, 200)))
def test_histories_through_faulty_connections_to_azure(seed: int) -> None:
    history(servers.azure(), seed)
