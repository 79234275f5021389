"""Access the user's files on local disks or in buckets.

    landing/*.parquet              a path or a pattern: local disks
    s3://lake/landing/*.parquet    objects of a bucket, reached with `storage_options` like tables

Files in buckets are fetched in ranges, as needed. In addresses, `*` matches characters of one level, `[…]` one of
several characters, and `**` levels; `?` is not allowed, because an address must not contain a signature.
"""

from __future__ import annotations

import fnmatch
import glob
import io
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa

from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.clock import Environment, SystemEnvironment
from crdt_mor.store.addresses import KNOWN, Place, Provider, place_of
from crdt_mor.store.open import open_bucket
from crdt_mor.store.options import shared
from crdt_mor.store.protocol import Bucket, Stat

_BUFFER_BYTES: Final = 4 << 20
"""Bytes fetched at a time of a text in a bucket."""


class Places:
    """Lists and opens the user's files.

    `storage_options` as in `Table`; `beside` is another address for the same options.
    """

    def __init__(
        self,
        storage_options: Mapping[str, Any] | None = None,
        environment: Environment | None = None,
        beside: str | os.PathLike[str] = "",
    ) -> None:
        self._options = storage_options
        self._environment = environment or SystemEnvironment()
        self._beside = beside
        self._stores: dict[tuple[Provider, str, str], Bucket] = {}

    def is_file(self, path: str) -> bool:
        place = place_of(path)
        return os.path.isfile(path) if place is None else bool(place.root) and self._stat(place) is not None

    def is_folder(self, path: str) -> bool:
        """Return True for an existing folder, or a non-empty folder in a bucket."""
        place = place_of(path)
        return os.path.isdir(path) if place is None else bool(self._walk(place))

    def matching(self, pattern: str) -> list[str]:
        place = place_of(pattern)
        if place is None:
            return sorted(file for file in glob.glob(pattern, recursive=True) if not os.path.isdir(file))
        fixed = re.split(r"[*\[]", place.root)[0].rpartition("/")[0]
        found = self._walk(_inside(place, fixed))
        levels = place.root.split("/")
        return [_address(place, stat.path) for stat in found if _fits(stat.path.split("/"), levels)]

    def below(self, folder: str, ending: str) -> list[str]:
        """Return the files at every depth of a folder with this ending, by name."""
        place = place_of(folder)
        if place is None:
            return sorted(glob.glob(os.path.join(glob.escape(folder), "**", f"*{ending}"), recursive=True))
        return [_address(place, stat.path) for stat in self._walk(place) if stat.path.endswith(ending)]

    def modified(self, path: str) -> float:
        """Return a file's time of change as a growing number."""
        place = place_of(path)
        if place is None:
            return os.path.getmtime(path)
        found = self._stat(place)
        return 0.0 if found is None else found.modified_ms / 1000

    def source(self, path: str) -> str | BinaryIO:
        """Return a file for Arrow: its path, or a reader of ranges. Nothing must be closed."""
        place = place_of(path)
        if place is None:
            return path
        found = self._stat(place)
        if found is None:
            raise InvalidInputError(f"there is no such file. path={path}")
        return self._store(place).ranges_of(place.root, found.size).open()

    def stream(self, path: str) -> pa.NativeFile:
        """Open a text, decompressed if the name ends in `.gz`; close it."""
        source = self.source(path)
        if isinstance(source, str):
            return pa.input_stream(source)
        buffered = io.BufferedReader(cast(Any, source), _BUFFER_BYTES)
        return pa.input_stream(buffered, compression="gzip" if path.lower().endswith(".gz") else None)

    def options_of(self, path: str) -> dict[str, str]:
        """Return the options for an address, with current keys, for other formats' libraries."""
        place = place_of(path)
        return {} if place is None else self._store(place).texts()

    def _walk(self, place: Place) -> list[Stat]:
        return self._store(place).walk(place.root)

    def _stat(self, place: Place) -> Stat | None:
        return self._store(place).stat(place.root)

    def _store(self, place: Place) -> Bucket:
        key = place.provider, place.bucket, str(sorted(place.options.items()))
        if key not in self._stores:
            other = place_of(self._beside)
            options = shared(self._options, place.provider, () if other is None else (other.provider,))
            self._stores[key] = open_bucket(_inside(place, ""), options, self._environment)
        return self._stores[key]


_ICEBERG: Final[Mapping[str, str]] = {
    "aws_endpoint_url": "s3.endpoint", "aws_region": "s3.region", "aws_access_key_id": "s3.access-key-id",
    "aws_secret_access_key": "s3.secret-access-key", "aws_session_token": "s3.session-token",
    "aws_virtual_hosted_style_request": "s3.force-virtual-addressing", "proxy_url": "s3.proxy-uri",
    "azure_storage_account_name": "adls.account-name", "azure_storage_account_key": "adls.account-key",
    "azure_storage_sas_token": "adls.sas-token", "azure_storage_client_id": "adls.client-id",
    "azure_storage_client_secret": "adls.client-secret", "azure_storage_tenant_id": "adls.tenant-id",
    "google_bearer_token": "gcs.oauth2.token",
}  # fmt: skip
"""The options of a store that pyiceberg has, and its names of them."""


def iceberg_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return store options under pyiceberg's names."""
    return {_ICEBERG[name]: value for name, value in options.items() if name in _ICEBERG}


def is_same(path: str, uri: str) -> bool:
    """Return True if both are the same folder."""
    here, there = place_of(path), place_of(uri)
    if here is None or there is None:
        return here is there and os.path.realpath(path) == os.path.realpath(uri)
    return (here.provider, here.bucket, here.root) == (there.provider, there.bucket, there.root)


def providers_of(source: object) -> set[Provider]:
    """Return the kinds of stores of the user's addresses."""
    given: Iterable[object] = source if isinstance(source, list | tuple) else [source]
    places = [place_of(path) for path in given if isinstance(path, str)]
    return {place.provider for place in places if place is not None}


def require_known(path: str) -> None:
    scheme, found, _ = path.partition("://")
    if place_of(path) is None and found and scheme.isalnum():
        raise InvalidInputError(f"unknown kind of address: pass {KNOWN}. scheme={scheme}")


def _inside(place: Place, root: str) -> Place:
    return Place(place.provider, _address(place, root), place.bucket, root, place.options)


def _address(place: Place, key: str) -> str:
    start = place.uri.removesuffix(place.root).rstrip("/")
    return f"{start}/{key}".rstrip("/")


def _fits(levels: list[str], pattern: list[str]) -> bool:
    """Match the levels of a key with a pattern's; names with a leading dot must be explicit."""
    if not pattern:
        return not levels
    if pattern[0] == "**":
        hidden = next((n for n, level in enumerate(levels) if level.startswith(".")), len(levels))
        return any(_fits(levels[n:], pattern[1:]) for n in range(hidden + 1))
    if not levels or (levels[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    return fnmatch.fnmatchcase(levels[0], pattern[0]) and _fits(levels[1:], pattern[1:])
