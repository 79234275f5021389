"""Options of object stores that cannot be right: each is refused with its name and what the client library says."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import obstore
import pytest

from crdt_mor import InvalidInputError, Table
from crdt_mor.errors import StorageRefusedError
from crdt_mor.store import secret_options, storage_options
from crdt_mor.store.addresses import place_of
from crdt_mor.store.options import read_options
from tests import servers
from tests.store.helpers import COLUMNS
from tests.store.listening import Listening, said

KEYS = {"aws_access_key_id": "AKIATESTS", "aws_secret_access_key": "the-secret-of-the-tests"}
S3 = {**KEYS, "aws_endpoint_url": "http://127.0.0.1:9", "allow_http": "true", "retry_timeout": "10ms"}

OPENINGS: list[Callable[..., object]] = [Table, lambda uri, **o: Table.create(uri, COLUMNS, key="id", **o)]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """Nothing of this machine's own configuration."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(
    "text", ["127.0.0.1:9000", "not a url", "localhost", "http://", "https://host:port", "ftp://h"]
)
def test_an_endpoint_that_is_no_address_is_refused_before_the_client_panics(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for use in OPENINGS:
        with pytest.raises(InvalidInputError, match=r"write the endpoint.*option=aws_endpoint_url"):
            use("s3://lake/t", storage_options={**S3, "aws_endpoint_url": text})
    with pytest.raises(InvalidInputError, match="option=azure_storage_endpoint"):
        storage_options("az://lake/t", {"account_name": "a", "azure_endpoint": text})
    with pytest.raises(InvalidInputError, match="option=google_base_url"):
        storage_options("gs://lake/t", {"base_url": text})
    monkeypatch.setenv("AWS_ENDPOINT_URL", text)
    with pytest.raises(InvalidInputError, match="option=AWS_ENDPOINT_URL"):
        Table("s3://lake/t", storage_options={k: v for k, v in S3.items() if k != "aws_endpoint_url"})


def test_a_panic_of_the_client_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        """What the library raises is no `Exception`."""

    def get(*_: object, **__: object) -> object:
        raise PanicException("request valid: InvalidUri(InvalidUri(InvalidFormat))")

    store = servers.Server("s3", 9, S3).store("s3://lake/t")
    monkeypatch.setattr(obstore, "get", get)
    with pytest.raises(StorageRefusedError, match=r"store's options are wrong.*cause=request valid"):
        store.read("x")


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("aws_checksum_algorithm", "foo", '"foo" is not a valid checksum algorithm'),
        ("connect_timeout", "abc", 'failed to parse "abc" as Duration'),
        ("aws_virtual_hosted_style_request", "maybe", 'failed to parse "maybe" as boolean'),
        ("allow_http", "yesplease", 'failed to parse "yesplease" as boolean'),
        ("aws_request_payer", "perhaps", 'failed to parse "perhaps" as boolean'),
        ("aws_copy_if_not_exists", "x", 'Failed to parse "x" as S3CopyIfNotExists'),
        ("root_certificate", "/nope", "No certificates found"),
    ],
)
def test_the_words_of_the_client_tell_which_option_is_wrong(option: str, value: str, words: str) -> None:
    for use in OPENINGS:
        with pytest.raises(StorageRefusedError) as raised:
            use("s3://lake/t", storage_options={**S3, option: value})
        text = str(raised.value)
        assert text.startswith("the store's options are wrong: correct storage_options")
        assert words in text
        assert option in text
        assert "GenericError" not in text


@pytest.mark.parametrize("missing", KEYS)
def test_half_of_the_keys_are_no_keys(missing: str) -> None:
    with pytest.raises(StorageRefusedError, match=r"store's options are wrong.*cause=Missing "):
        Table("s3://lake/t", storage_options={k: v for k, v in S3.items() if k != missing})


def test_a_secret_that_cannot_be_right_is_not_shown() -> None:
    with pytest.raises(StorageRefusedError, match="the store's options are wrong") as raised:
        Table("az://lake/t", storage_options={"account_name": "a", "account_key": "hidden!"})
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("provider", "name", "near"),
    [
        ("s3", "secret", "aws_secret_access_key"),
        ("s3", "access_key", "aws_access_key_id or aws_secret_access_key"),
        ("azure", "secret", "azure_storage_client_secret"),
        ("s3", "credentials_provider", "credential_provider"),
    ],
)
def test_an_unknown_option_is_answered_with_those_that_have_its_word(provider: str, name: str, near: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"did you mean {near}\?"):
        read_options({name: "x"}, provider)  # type: ignore[arg-type]


def test_an_empty_option_says_nothing() -> None:
    """Programs pass on variables that are not set: `os.environ.get("AWS_SESSION_TOKEN", "")`."""
    assert dict(read_options({**KEYS, "aws_session_token": "", "aws_profile": ""}, "s3")) == KEYS


def test_an_empty_variable_with_a_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
    with pytest.raises(StorageRefusedError, match=r"unset \['AWS_ACCESS_KEY_ID'\]"):
        Table("s3://lake/t", storage_options={k: v for k, v in S3.items() if k not in KEYS})


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("https://lake.s3.amazonaws.com/a/t", ("s3://lake/a/t", {})),
        ("https://s3.amazonaws.com/lake/a/t", ("s3://lake/a/t", {})),
        ("https://lake.s3.dualstack.eu-west-1.amazonaws.com/t", ("s3://lake/t", {"aws_region": "eu-west-1"})),
        ("https://s3.dualstack.eu-west-1.amazonaws.com/lake/t", ("s3://lake/t", {"aws_region": "eu-west-1"})),
        ("https://a.s3.b.s3-us-west-2.amazonaws.com/t", ("s3://a.s3.b/t", {"aws_region": "us-west-2"})),
    ],
)
def test_every_way_in_which_aws_writes_an_address_is_read(uri: str, place: tuple[str, dict[str, str]]) -> None:
    found = place_of(uri)
    assert found is not None
    assert (found.uri, dict(found.options)) == place


# --- what the store says ----------------------------------------------------------------------------------------------


@pytest.fixture
def listening() -> Iterator[Listening]:
    with Listening().running() as listening:
        yield listening


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (400, "ExpiredToken", "credentials have expired: renew them"),
        (403, "SignatureDoesNotMatch", "does not know these credentials"),
        (403, "AccessDenied", "access denied"),
        (400, "AuthorizationHeaderMalformed", "another region"),
    ],
)
def test_an_answer_without_words_is_asked_for_again_with_words(
    listening: Listening, status: int, code: str, words: str
) -> None:
    listening.answer = lambda method, key: said(status, code, "Said in a body.")
    store = servers.Server("s3", listening.port, {**listening.options, **KEYS}).store("s3://lake/t")
    for ask in (lambda: store.stat("x"), lambda: store.parquet("x"), lambda: store.copy("x", "y")):
        with pytest.raises(StorageRefusedError, match=rf"{words}.*cause={status} {code} Said in a body\."):
            ask()


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (403, "InvalidObjectState", "moved to an archive, such as Glacier.*restore it"),
        (409, "BlobArchived", "moved to an archive"),
        (407, "", "proxy refuses the connection"),
    ],
)
def test_what_no_try_can_mend_is_told_by_what_it_is(listening: Listening, status: int, code: str, words: str) -> None:
    listening.answer = lambda method, key: said(status, code)
    store = servers.Server("s3", listening.port, {**listening.options, **KEYS}).store("s3://lake/t")
    with pytest.raises(StorageRefusedError, match=words):
        store.read("x")
    assert len(listening.signed) == 1, "no request is repeated that will not get better"


def test_a_proxy_that_asks_for_a_password_is_not_asked_until_the_deadline(listening: Listening) -> None:
    listening.answer = lambda method, key: (407, b"")
    options = {**KEYS, "aws_region": "eu-west-1", "proxy_url": f"http://127.0.0.1:{listening.port}"}
    store = servers.Server("s3", 0, {**options, "aws_endpoint_url": "https://s3.example.com"}).store("s3://lake/t")
    with pytest.raises(StorageRefusedError, match="set proxy_url with a user and a password"):
        store.read("x")
    assert len(listening.signed) == 1


def test_secrets_are_known_by_every_name_that_they_have_at_any_store() -> None:
    secret = ("AWS_SECRET_ACCESS_KEY", "token", "account_key", "sas_key", "service_account_key", "proxy_url")
    public = ("aws_region", "aws_profile", "account_name", "client_id", "google_service_account", "credential_provider")
    assert secret_options((*public, *secret, "no_such_option")) == secret
