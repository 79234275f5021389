"""Parse addresses of object stores into provider, bucket and folder, without a request.

    s3://bucket/path, s3a://bucket/path                    Amazon S3 and compatible stores
    gs://bucket/path                                       Google Cloud Storage
    az://container/path                                    Azure; the account is an option
    abfss://container@account.dfs.core.windows.net/path    Azure, account in the address (also abfs://)
    https://account.blob.core.windows.net/container/path   and other addresses that providers show:
        https://bucket.s3.region.amazonaws.com/path, https://account.r2.cloudflarestorage.com/bucket/path, …

Messages, logs and files contain addresses, so an address with a user, a password or a SAS signature is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote

from crdt_mor.errors import InvalidInputError, UnsupportedFeatureError
from crdt_mor.store.paths import object_path

Provider: TypeAlias = Literal["s3", "gs", "azure"]

SCHEMES: Final[Mapping[str, Provider]] = {
    "s3": "s3", "s3a": "s3", "gs": "gs",
    "az": "azure", "azure": "azure", "adl": "azure", "abfs": "azure", "abfss": "azure",
}  # fmt: skip

_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://(?P<rest>.*)", re.DOTALL)
_AZURE_HOST = re.compile(r"(?P<account>[a-z0-9-]+)\.(?P<kind>dfs|blob)\.(core\.windows\.net|fabric\.microsoft\.com)")
_S3_HOST = re.compile(
    r"((?P<bucket>.+)\.)?s3(\.dualstack)?([.-](?!accelerate|website|fips|dualstack)(?P<region>[a-z0-9-]+))?"
    r"\.amazonaws\.com(\.cn)?"
)
_R2_HOST = re.compile(r"[a-z0-9-]+(\.[a-z]+)?\.r2\.cloudflarestorage\.com")

KNOWN: Final = (
    "a path, file:///path, s3://bucket/path, gs://bucket/path, az://container/path or "
    "abfss://container@account.dfs.core.windows.net/path"
)


@dataclass(frozen=True, slots=True)
class Place:
    """A folder in a bucket.

    uri: the address in polars' form.
    bucket: the bucket or, on Azure, the container. root: the key of the folder; "" is the bucket itself.
    options: connection options from the address, by the names of `store.options`.
    """

    provider: Provider
    uri: str
    bucket: str
    root: str
    options: Mapping[str, str] = field(default_factory=dict)

    def key(self, path: str) -> str:
        return f"{self.root}/{path}".strip("/")


def place_of(uri: str | os.PathLike[str]) -> Place | None:
    """Return the place of an object store's address; None for paths and unknown schemes.

    Raises:
        InvalidInputError: The address is malformed or contains a secret.
        UnsupportedFeatureError: A web address does not name its bucket.
    """
    text: object = os.fspath(uri) if isinstance(uri, os.PathLike) else uri
    match = _ADDRESS.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    scheme = match["scheme"].lower()
    if scheme not in SCHEMES and scheme not in ("http", "https"):
        return None
    authority, _, path = match["rest"].partition("/")
    shown = f"{scheme}://{authority.rpartition('@')[2]}"
    _refuse_secrets(match["rest"], authority, shown, azure=SCHEMES.get(scheme) == "azure")
    if scheme in ("http", "https"):
        return _of_web(scheme, authority.lower(), unquote(path), shown)
    if SCHEMES[scheme] == "azure" and "@" in authority:
        container, _, host = authority.partition("@")
        return _azure(_azure_account(host, shown), container, path, shown, host)
    if SCHEMES[scheme] == "azure":
        return _place("azure", f"az://{authority}", authority, path, shown, {})
    return _place(SCHEMES[scheme], f"{SCHEMES[scheme]}://{authority}", authority, path, shown, {})


def _refuse_secrets(rest: str, authority: str, shown: str, *, azure: bool) -> None:
    if "?" in rest or "#" in rest:
        raise InvalidInputError(
            "remove '?' and '#' from the address. Pass a SAS signature as storage_options={'sas_token': …} or as the "
            f"variable AZURE_STORAGE_SAS_TOKEN, because messages and files contain addresses. uri={shown}/…"
        )
    user, at, _ = authority.rpartition("@")
    if at and (not azure or ":" in user or "@" in user):
        raise InvalidInputError(
            "remove user, key and password from the address, because messages and files contain it. Pass keys as "
            "storage_options={'aws_access_key_id': …, 'aws_secret_access_key': …}, or in the environment. "
            f"uri={shown}/…"
        )


def _of_web(scheme: str, host: str, path: str, shown: str) -> Place:
    bucket, _, inside = path.partition("/")
    if match := _AZURE_HOST.fullmatch(host):
        return _azure(match["account"], bucket, inside, shown, host)
    if match := _S3_HOST.fullmatch(host):
        options = {} if match["region"] is None else {"aws_region": match["region"]}
        if match["bucket"] is not None:
            return _place("s3", f"s3://{match['bucket']}", match["bucket"], path, shown, options)
        return _place("s3", f"s3://{bucket}", bucket, inside, shown, options)
    if _R2_HOST.fullmatch(host):
        options = {"aws_endpoint_url": f"https://{host}", "aws_region": "auto"}
        return _place("s3", f"s3://{bucket}", bucket, inside, shown, options)
    if host == "storage.googleapis.com":
        return _place("gs", f"gs://{bucket}", bucket, inside, shown, {})
    raise UnsupportedFeatureError(
        "the address does not name a known provider. For an S3-compatible store use "
        f"s3://bucket/path and storage_options={{'aws_endpoint_url': '{scheme}://{host}'}}. uri={shown}"
    )


def _azure(account: str, container: str, path: str, shown: str, host: str) -> Place:
    options = {"azure_storage_account_name": account}
    if host.endswith("fabric.microsoft.com"):
        options["azure_use_fabric_endpoint"] = "true"
    return _place("azure", f"abfss://{container}@{host.replace('.blob.', '.dfs.')}", container, path, shown, options)


def _azure_account(host: str, shown: str) -> str:
    match = _AZURE_HOST.fullmatch(host.lower())
    if match is None:
        raise InvalidInputError(
            "write an address with an account as abfss://container@account.dfs.core.windows.net/path. For another "
            "endpoint use az://container/path and storage_options={'azure_storage_account_name': …, "
            f"'azure_storage_endpoint': …}}. uri={shown}"
        )
    return match["account"]


def _place(provider: Provider, start: str, bucket: str, path: str, shown: str, options: Mapping[str, str]) -> Place:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._$-]*", bucket):
        raise InvalidInputError(f"name a bucket or container in the address: s3://bucket/path. uri={shown}")
    root = path.strip("/")
    if root:
        object_path(root)
    return Place(provider, f"{start}/{root}".rstrip("/"), bucket, root, options)
