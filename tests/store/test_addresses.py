"""Addresses of object stores and their options: what they mean, what is refused, and that no secret is ever shown."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from crdt_mor import InvalidInputError, Table
from crdt_mor.errors import StorageRefusedError, UnsupportedFeatureError
from crdt_mor.store import storage_options
from crdt_mor.store.addresses import place_of
from crdt_mor.store.open import absolute
from crdt_mor.store.options import Options, read_options

SECRET = "f4l5-never-to-be-seen"


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("s3://lake/a/b", ("s3", "s3://lake/a/b", "lake", "a/b")),
        ("s3a://lake/a/b/", ("s3", "s3://lake/a/b", "lake", "a/b")),
        ("S3://lake", ("s3", "s3://lake", "lake", "")),
        ("s3://lake/day=[2025] 100%/x%20y", ("s3", "s3://lake/day=[2025] 100%/x%20y", "lake", "day=[2025] 100%/x%20y")),
        ("gs://lake/a", ("gs", "gs://lake/a", "lake", "a")),
        ("az://lake/a", ("azure", "az://lake/a", "lake", "a")),
        ("abfss://lake@acc.dfs.core.windows.net/a", ("azure", "abfss://lake@acc.dfs.core.windows.net/a", "lake", "a")),
        ("abfs://lake@acc.dfs.core.windows.net/a", ("azure", "abfss://lake@acc.dfs.core.windows.net/a", "lake", "a")),
        ("https://acc.blob.core.windows.net/lake/a%20b", ("azure", "abfss://lake@acc.dfs.core.windows.net/a b", "lake",
                                                           "a b")),
        ("https://lake.s3.eu-west-1.amazonaws.com/a", ("s3", "s3://lake/a", "lake", "a")),
        ("https://s3.eu-west-1.amazonaws.com/lake/a", ("s3", "s3://lake/a", "lake", "a")),
        ("https://acc.r2.cloudflarestorage.com/lake/a", ("s3", "s3://lake/a", "lake", "a")),
        ("https://storage.googleapis.com/lake/a", ("gs", "gs://lake/a", "lake", "a")),
    ],
)  # fmt: skip
def test_an_address_says_provider_bucket_and_folder(uri: str, said: tuple[str, ...]) -> None:
    place = place_of(uri)
    assert place is not None
    assert (place.provider, place.uri, place.bucket, place.root) == said
    assert absolute(uri) == place.uri


def test_an_address_may_say_how_to_get_there() -> None:
    said = {
        "https://lake.s3.eu-west-1.amazonaws.com/a": {"aws_region": "eu-west-1"},
        "https://acc.r2.cloudflarestorage.com/lake/a": {
            "aws_endpoint_url": "https://acc.r2.cloudflarestorage.com", "aws_region": "auto",
        },
        "abfss://lake@acc.dfs.core.windows.net/a": {"azure_storage_account_name": "acc"},
    }  # fmt: skip
    for uri, options in said.items():
        place = place_of(uri)
        assert place is not None
        assert place.options == options


@pytest.mark.parametrize("uri", ["/a/b", "a:b/c", "file:///a", "c:\\a", Path("/s3:/x"), "hdfs://a/b"])
def test_what_is_no_address_of_an_object_store_is_left_alone(uri: str | Path) -> None:
    assert place_of(uri) is None


@pytest.mark.parametrize(
    "uri",
    [
        f"s3://AKIA:{SECRET}@lake/a",
        f"https://user:{SECRET}@acc.blob.core.windows.net/lake/a",
        f"abfss://lake:{SECRET}@acc.dfs.core.windows.net/a",
        f"https://acc.blob.core.windows.net/lake/a?sv=2021&sig={SECRET}",
        f"az://lake/a?sig={SECRET}",
        f"s3://lake/a?X-Amz-Signature={SECRET}",
        f"s3://lake/a#{SECRET}",
    ],
)
def test_an_address_that_holds_a_secret_is_refused_without_showing_it(uri: str) -> None:
    for use in (Table, lambda u: Table.create(u, {"id": "string"}, key="id"), absolute):
        with pytest.raises(InvalidInputError, match="storage_options=") as raised:
            use(uri)
        assert SECRET not in str(raised.value)


@pytest.mark.parametrize("uri", ["s3://", "s3:///a", "s3://la ke/a", "s3://lake/a//b", "s3://lake/../b"])
def test_an_address_that_cannot_be_right_is_refused(uri: str) -> None:
    with pytest.raises(InvalidInputError):
        place_of(uri)


@pytest.mark.parametrize("uri", ["https://example.com/lake/a", "http://127.0.0.1:9000/lake/a"])
def test_an_endpoint_of_its_own_is_an_option(uri: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"s3://bucket/path and storage_options=\{'aws_endpoint_url'"):
        place_of(uri)


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["aws_region", "AWS_REGION", "region", "AWS_DEFAULT_REGION", "Default_Region"])
def test_options_go_by_the_names_that_deltalake_and_polars_know(name: str) -> None:
    assert dict(read_options({name: "eu-west-1"}, "s3")) == {"aws_region": "eu-west-1"}


def test_options_of_other_providers_and_of_the_client() -> None:
    assert dict(read_options({"ACCOUNT_NAME": "a", "azure_storage_access_key": "k"}, "azure")) == {
        "azure_storage_account_name": "a", "azure_storage_account_key": "k",
    }  # fmt: skip
    assert dict(read_options({"AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": "http://h"}, "s3")) == {
        "allow_http": "true", "aws_endpoint_url": "http://h",
    }  # fmt: skip
    assert dict(read_options({"service_account": "/f"}, "gs")) == {"google_service_account": "/f"}


def test_what_deltalake_needs_for_locks_is_not_needed_here() -> None:
    assert not read_options({"AWS_S3_ALLOW_UNSAFE_RENAME": "true", "conditional_put": "etag"}, "s3")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aws_regoin": "x"}, r"did you mean .*aws_region\? option='aws_regoin'"),
        ({"azure_storage_account_name": "x"}, "no such option"),
        ({"aws_region": "a", "region": "b"}, "two values"),
        ({"timeout": "soon"}, "a time above 0"),
        ({"aws_region": 5}, "storage_options as texts"),
        ("aws_region=x", "storage_options as texts"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_options(options, "s3")


def test_a_value_that_is_refused_is_not_shown() -> None:
    for options in ({"aws_secret_acces_key": SECRET}, {"secret_access_key": SECRET, "aws_secret_access_key": "other"}):
        with pytest.raises(InvalidInputError) as raised:
            read_options(options, "s3")
        assert SECRET not in str(raised.value)


KEYS = {"aws_access_key_id": "AKIA" + SECRET, "aws_secret_access_key": SECRET, "aws_region": "eu-west-1"}


def test_secrets_are_neither_shown_nor_pickled() -> None:
    options = storage_options("s3://lake/a", KEYS)
    assert isinstance(options, Options)
    assert dict(options) == KEYS
    for shown in (repr(options), str(options), f"{options}", repr([options]), repr(Options.__repr__(options))):
        assert SECRET not in shown
    assert SECRET.encode() not in pickle.dumps(options)
    assert dict(pickle.loads(pickle.dumps(options))) == KEYS, "the same process finds them again"


@pytest.mark.slow
def test_another_process_says_which_variables_to_set(tmp_path: Path) -> None:
    pickled = tmp_path / "options"
    pickled.write_bytes(pickle.dumps(storage_options("s3://lake/a", KEYS)))
    program = (
        "import pickle, sys; from crdt_mor import Table\n"
        f"options = pickle.load(open({str(pickled)!r}, 'rb'))\n"
        "Table('s3://lake/a', storage_options=options)"
    )
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert StorageRefusedError.__name__ in done.stderr
    assert "variables=AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY" in done.stderr
    assert SECRET not in done.stderr
