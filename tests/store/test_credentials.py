"""Where keys come from: providers, options, the environment, profiles; who comes first, and when they are renewed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from obstore.exceptions import GenericError
from obstore.store import LocalStore, S3Store
from typer.testing import CliRunner

from crdt_mor import InvalidInputError, Opening, StorageUnavailableError, Table
from crdt_mor.cli.main import app
from crdt_mor.errors import StorageRefusedError
from crdt_mor.readers.polars import scan_table
from crdt_mor.store.addresses import place_of
from crdt_mor.store.credentials import Vending, VendingError
from crdt_mor.store.objects import ObjectStore, open_at
from crdt_mor.testing.clock import SimulatedEnvironment
from tests import servers
from tests.store import vending
from tests.store.helpers import COLUMNS
from tests.store.listening import Listening, said

KEYS = {"aws_access_key_id": "EXPLICIT", "aws_secret_access_key": "hidden-and-explicit"}
ROWS = pl.DataFrame({"id": ["a"], "n": [1]}, COLUMNS)


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The home of somebody without any configuration."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    return tmp_path / ".aws"


@pytest.fixture
def listening() -> Iterator[Listening]:
    with Listening().running() as listening:
        yield listening


def store_at(listening: Listening, environment: SimulatedEnvironment | None = None, **options: Any) -> ObjectStore:
    place = place_of("s3://lake/t")
    assert place is not None
    return open_at(place, {**listening.options, **options}, environment or SimulatedEnvironment())


def signer(listening: Listening, **options: Any) -> tuple[str, str]:
    """Who signs a request, and for which region."""
    store_at(listening, **options).read("x")
    return listening.signed[-1]


# --- who comes first --------------------------------------------------------------------------------------------------


@pytest.fixture
def profiles(bare: Path) -> None:
    pytest.importorskip("boto3", reason="boto3 reads the profiles of AWS")
    sections = {"default": "DEFAULT", "ops": "OPS"}
    text = "".join(f"[{n}]\naws_access_key_id={k}\naws_secret_access_key=hidden-{k}\n" for n, k in sections.items())
    (bare / "credentials").write_text(text)
    (bare / "config").write_text("[default]\nregion=eu-north-1\n[profile ops]\nregion=eu-west-1\n")


@pytest.mark.usefixtures("profiles")
def test_the_region_of_the_environment_comes_before_that_of_the_profile(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert signer(listening, aws_profile="ops") == ("OPS", "eu-west-1")
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    assert signer(listening, aws_profile="ops") == ("OPS", "ap-south-1")
    assert signer(listening, aws_profile="ops", region="us-west-2") == ("OPS", "us-west-2")


@pytest.mark.usefixtures("profiles")
def test_the_profile_named_default_is_read_where_nothing_else_is_said(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert signer(listening) == ("DEFAULT", "eu-north-1")
    monkeypatch.setenv("AWS_PROFILE", "ops")
    assert signer(listening) == ("OPS", "eu-west-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
    assert signer(listening)[0] == "OPS", "an empty variable hides no profile"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "SET")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden-and-set")
    assert signer(listening)[0] == "SET"
    assert signer(listening, aws_profile="default")[0] == "DEFAULT"
    assert signer(listening, **KEYS)[0] == "EXPLICIT"
    assert signer(listening, **KEYS, aws_profile="ops")[0] == "EXPLICIT", "keys that are given beat a profile"
    assert signer(listening, **KEYS, credential_provider=vending.Vendor())[0] == "KEY-1"
    assert signer(listening, skip_signature="true")[0] == ""


def test_a_profile_of_sso_is_read_by_boto3(bare: Path, listening: Listening) -> None:
    """SSO itself needs a browser: what is told is boto3's own word, not that there are no credentials at all."""
    pytest.importorskip("boto3", reason="boto3 reads the profiles of AWS")
    (bare / "config").write_text(
        "[default]\nsso_start_url=https://acme.awsapps.com/start\nsso_region=eu-west-1\nsso_account_id=1\n"
        "sso_role_name=r\nregion=eu-west-1\n"
    )
    with pytest.raises(StorageRefusedError, match=r"credential provider returned no credentials.*SSO"):
        store_at(listening).read("x")


def test_a_profile_without_keys_leaves_the_role_of_the_machine_alone(bare: Path, listening: Listening) -> None:
    (bare / "config").write_text("[default]\nregion=eu-west-1\noutput=json\n")
    assert store_at(listening)._requests.clients.vending is None


# --- providers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "provider",
    [
        vending.of_obstore,
        vending.of_polars,
        vending.Made,
        lambda: {"ACCESS_KEY_ID": "AKIATESTS", "secret_access_key": "x", "session_token": "y"},
        "tests.store.vending:of_obstore",
        "tests.store.vending:Made",
    ],
)
def test_a_provider_gives_keys_as_those_of_obstore_and_polars_do(listening: Listening, provider: object) -> None:
    assert signer(listening, credential_provider=provider)[0] == "AKIATESTS"


@pytest.mark.parametrize(
    ("provider", "given", "taken"),
    [
        ("azure", {"account_key": "k"}, {"access_key": "k"}),
        ("azure", ({"bearer_token": "t"}, None), {"token": "t"}),
        ("azure", {"sas_token": "s"}, {"sas_token": "s"}),
        ("gs", ({"bearer_token": "t"}, 1), {"token": "t"}),
        ("gs", {"token": "t", "expires_at": datetime(2030, 1, 1, tzinfo=UTC)}, {"token": "t"}),
    ],
)
def test_providers_of_each_kind_of_store(provider: Any, given: object, taken: dict[str, str]) -> None:
    answer = Vending(lambda: given, provider, SimulatedEnvironment())()
    assert {name: value for name, value in answer.items() if name != "expires_at"} == taken


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "a mapping of credentials by name, not NoneType"),
        ({"access_key_id": "a"}, "instead of aws_access_key_id and aws_secret_access_key"),
        ({"token": "t"}, r"it returned \['aws_session_token'\]"),
        ({**KEYS, "expires_at": "tomorrow"}, "expires_at must be a datetime"),
        ({**KEYS, "expires_at": datetime(2030, 1, 1)}, "expires_at must be a datetime"),  # noqa: DTZ001
    ],
)
def test_a_provider_that_gives_something_else_is_told_what_it_has_to_give(given: object, words: str) -> None:
    with pytest.raises(VendingError, match=words):
        Vending(lambda: given, "s3", SimulatedEnvironment())()


async def later() -> dict[str, str]:
    return KEYS


def test_an_asynchronous_provider_is_refused_by_name(listening: Listening) -> None:
    with pytest.raises(StorageRefusedError, match="it is asynchronous"):
        store_at(listening, credential_provider=later).read("x")


@pytest.mark.parametrize(
    ("provider", "words"),
    [
        ("nowhere.at.all:f", "cannot be imported.*in every process"),
        ("tests.store.vending:missing", "cannot be imported"),
        ("just_a_name", "module:function"),
        ("tests.store.vending:NOT_CALLABLE", "a callable without arguments"),
        (5, "storage_options as texts"),
    ],
)
def test_what_is_no_provider_is_refused_when_the_table_is_opened(provider: object, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        Table("s3://lake/t", storage_options={"credential_provider": provider})


def test_credentials_are_renewed_before_they_expire(listening: Listening) -> None:
    environment = SimulatedEnvironment()
    now = datetime.fromtimestamp(environment.now_ms() / 1000, UTC)
    vendor = vending.Vendor(now + timedelta(hours=1))
    store = store_at(listening, environment, credential_provider=vendor)
    for _ in range(3):
        store.read("x")
        store.stat("x")
    assert {key for key, _ in listening.signed} == {"KEY-1"}, "the provider is asked once for all connections"
    vendor.expires_at = now + timedelta(hours=2)
    environment.sleep(timedelta(minutes=56).total_seconds())
    store.read("x")
    assert listening.signed[-1][0] == "KEY-2"
    assert vendor.given == 2


def test_credentials_that_the_store_took_before_and_refuses_now_are_asked_for_anew(listening: Listening) -> None:
    refused = {"KEY-1"}
    listening.answer = lambda method, key: said(404, "NoSuchKey")
    vendor = vending.Vendor()
    store = store_at(listening, credential_provider=vendor)
    store.read("x")
    listening.answer = lambda method, key: said(*((400, "ExpiredToken") if key in refused else (404, "NoSuchKey")))
    assert store.read("x") is None
    refused.add("KEY-2")
    assert store.stat("x") is None, "as well where the answer has no words"
    refused.add("KEY-3")
    listening.answer = lambda method, key: (200, b"") if key not in refused else said(400, "ExpiredToken")
    assert store.put("x", b"1") is True, "a refused put has made nothing"
    refused |= {f"KEY-{n}" for n in range(100)}
    with pytest.raises(StorageRefusedError, match="credentials have expired"):
        store.read("x")
    assert vendor.given == 5, "new credentials that are refused at once are not asked for again and again"


@pytest.mark.parametrize("method", ["read", "stat"])
def test_requests_in_flight_with_refused_keys_are_all_sent_again(listening: Listening, method: str) -> None:
    vendor, together = vending.Vendor(), threading.Barrier(8)
    store = store_at(listening, credential_provider=vendor)
    store.read("x")

    def answer(method: str, key: str) -> tuple[int, bytes]:
        if key != "KEY-1":
            return said(404, "NoSuchKey")
        if not together.broken:
            together.wait(20)  # none is answered before all are under way
        return said(403, "ExpiredToken")

    listening.answer = answer
    assert store.side_by_side([lambda: getattr(store, method)("x")] * 8) == [None] * 8
    assert vendor.given == 2


def test_keys_refused_late_do_not_take_newer_keys_away() -> None:
    vendor = vending.Vendor()
    keys = Vending(vendor, "s3", SimulatedEnvironment())
    keys()
    first = keys.number
    keys.note_accepted(first)
    assert keys.renews(first)
    assert keys.renews(first), "it was sent with the keys before"
    keys()
    keys.note_accepted(first)
    assert not keys.renews(keys.number), "the store has taken the keys before, and not these"
    assert vendor.given == 2


def test_a_provider_that_cannot_reach_its_service_is_asked_again(listening: Listening) -> None:
    failing = [ConnectionError("connection refused"), TimeoutError("timed out")]

    def provider() -> dict[str, Any]:
        if failing:
            raise failing.pop()
        return vending.of_obstore()

    store = store_at(listening, credential_provider=provider)
    assert store.read("x") is None
    assert failing == []


def test_a_provider_that_fails_for_good_is_told_by_its_own_words(listening: Listening) -> None:
    def down() -> object:
        raise ConnectionError("nobody is at vending.acme")

    def refuses() -> object:
        raise KeyError("no such role: reader")

    with pytest.raises(StorageUnavailableError, match=r"credential provider: ConnectionError: nobody is at vending"):
        store_at(listening, credential_provider=down).read("x")
    asks: list[Callable[[ObjectStore], object]] = [
        lambda s: s.read("x"), lambda s: s.put("x", b"1"), lambda s: s.stat("x"),
    ]  # fmt: skip
    for ask in asks:
        with pytest.raises(
            StorageRefusedError, match=r"Check its configuration.*cause=KeyError: 'no such role: reader'"
        ):
            ask(store_at(listening, credential_provider=refuses))
    assert listening.signed == []


def test_what_a_provider_gave_is_in_no_error_repr_or_pickle(listening: Listening) -> None:
    vendor = vending.Vendor()
    store = store_at(listening, credential_provider=vendor)
    listening.answer = lambda method, key: said(403, "AccessDenied", f"{key} with secret-of-{key} may not")
    with pytest.raises(StorageRefusedError) as raised:
        store.read("x")
    shown = [str(raised.value), repr(store), repr(store.options), repr(vars(store._requests))]
    assert not [text for text in shown if "secret-of-KEY-1" in text or "KEY-1" in text]
    assert not [data for data in (pickle.dumps(store), pickle.dumps(store.options)) if b"KEY-1" in data]


# --- tables -----------------------------------------------------------------------------------------------------------


def without_keys(server: servers.Server) -> dict[str, str]:
    return {name: value for name, value in server.options.items() if name not in servers.AWS_KEYS}


@pytest.mark.slow
def test_a_table_is_used_through_a_provider() -> None:
    server = servers.s3()
    uri, options = server.address(), {**without_keys(server), "credential_provider": vending.of_obstore}
    table = Table.create(uri, COLUMNS, key="id", storage_options=options)
    table.upsert(ROWS)
    again = Table(uri, storage_options=table.storage_options)
    assert again.to_polars().rows() == scan_table(uri, storage_options=options).collect().rows() == [("a", 1)]
    assert table.storage_options["credential_provider"] == "tests.store.vending:of_obstore"
    moved = server.address()
    assert table.maintenance.migrate(moved).uri == moved
    assert Table(moved, storage_options=options).count() == 1


def test_polars_takes_the_options_of_a_table_as_they_are() -> None:
    server = servers.s3()
    options = {**server.options, "retry_timeout": "2m"}
    table = Table.create(server.address(), COLUMNS, key="id", storage_options=options)
    table.upsert(ROWS)
    table.maintenance.compact()
    files = [f"{table.uri}/{path}" for path in table.inspect.files()["path"].to_pylist()]
    assert isinstance(table.storage_options, dict)
    found = pl.scan_parquet(files, storage_options=table.storage_options).select("id", "n").collect()
    assert found.rows() == [("a", 1)]
    assert servers.AWS_KEYS["aws_secret_access_key"] not in repr(table.storage_options)


def test_commands_take_a_provider_by_its_name() -> None:
    server = servers.s3()
    uri = server.address()
    Table.create(uri, COLUMNS, key="id", storage_options=server.options).upsert(ROWS)
    options = {**without_keys(server), "credential_provider": "tests.store.vending:of_polars"}
    words = [word for name, value in options.items() for word in ("--storage", f"{name}={value}")]
    done = CliRunner().invoke(app, ["count", uri, *words])
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == "1"


PROGRAM = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).to_polars().rows())"


@pytest.mark.slow
def test_another_process_imports_the_provider_by_its_name(tmp_path: Path) -> None:
    server = servers.s3()
    uri = server.address()

    def run(provider: object) -> subprocess.CompletedProcess[str]:
        table = Table(uri, storage_options={**without_keys(server), "credential_provider": provider})
        (tmp_path / "scan").write_bytes(pickle.dumps(table.scan()))
        bare = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(servers.ROOT)}
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "scan")]
        return subprocess.run(command, env=bare, capture_output=True, text=True, check=False)

    Table.create(uri, COLUMNS, key="id", storage_options=server.options).upsert(ROWS)
    for provider in (vending.of_obstore, "tests.store.vending:of_polars"):
        done = run(provider)
        assert done.stdout.strip() == "[('a', 1)]", done.stderr
    done = run(lambda: dict(vending.of_obstore()))
    assert "storage_options={'credential_provider': 'module:function'}" in done.stderr


# --- stores of obstore ------------------------------------------------------------------------------------------------


def handed(server: servers.Server, prefix: str | None = None, **more: Any) -> S3Store:
    config: Any = {"endpoint": server.options["aws_endpoint_url"], "region": "us-east-1", **more.pop("config", {})}
    return S3Store(servers.BUCKET, prefix=prefix, config=config, client_options={"allow_http": True}, **more)


def test_a_store_of_obstore_is_taken() -> None:
    server = servers.s3()
    uri = server.address()
    by_keys = handed(server, config=dict(servers.AWS_KEYS))
    by_provider = handed(server, credential_provider=vending.of_obstore)
    table = Table.create(uri, COLUMNS, key="id", opening=Opening(store=by_keys))
    table.upsert(ROWS)
    assert Table(uri, opening=Opening(store=by_provider)).to_polars().rows() == [("a", 1)]
    assert Table(uri, storage_options=table.storage_options).count() == 1
    assert pickle.loads(pickle.dumps(table.jobs.plan("upsert", COLUMNS))).store is not None
    assert not [secret for secret in servers.AWS_KEYS.values() if secret in repr(vars(table))]


def test_the_prefix_of_a_store_of_obstore_is_where_its_table_is() -> None:
    server = servers.s3()
    root = server.address().removeprefix(f"s3://{servers.BUCKET}/")
    store = handed(server, prefix=root, config=dict(servers.AWS_KEYS))
    Table.create("events", COLUMNS, key="id", opening=Opening(store=store)).upsert(ROWS)
    assert Table(f"s3://{servers.BUCKET}/{root}", storage_options=server.options).count() == 1
    assert Table(f"s3://{servers.BUCKET}/{root}", opening=Opening(store=store)).count() == 1


@pytest.mark.parametrize(
    ("uri", "store", "words"),
    [
        ("s3://other/t", lambda: S3Store("lake", region="eu-west-1"), "outside the store"),
        ("az://lake/t", lambda: S3Store("lake", region="eu-west-1"), "outside the store"),
        ("s3://lake/t", lambda: S3Store("lake", prefix="a", region="eu-west-1"), "outside the store"),
        ("s3://lake/t", LocalStore, "pass its path"),
    ],
)
def test_a_store_of_obstore_that_leads_elsewhere_is_refused(uri: str, store: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        Table(uri, opening=Opening(store=store()))


def test_ask_a_machine_without_a_role_refuses_each_request_at_once(listening: Listening) -> None:
    """Its metadata service answers, and not the store: no later request waits as if the store had taken keys before."""
    requests, asked = store_at(listening)._requests, []
    says = (
        "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 8ms - Server returned "
        "non-2xx status code: 403 Forbidden: resolve_deny"
    )

    def request() -> None:
        asked.append(says)
        raise GenericError(says)

    for _ in range(2):
        with pytest.raises(StorageRefusedError, match="this machine has no role") as caught:
            requests.send("read", "x", request)
        assert "published" not in str(caught.value)
    assert len(asked) == 2
