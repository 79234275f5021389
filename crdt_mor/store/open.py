"""Open the store of an address, and pass stores between processes.

Paths and `file://` are local disks; `store.addresses` parses object stores. Other schemes are refused.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from crdt_mor.errors import InvalidInputError, UnsupportedFeatureError
from crdt_mor.ground.clock import Environment
from crdt_mor.store.addresses import KNOWN, SCHEMES, Place, place_of
from crdt_mor.store.handed_stores import own_store
from crdt_mor.store.local import LocalStore
from crdt_mor.store.options import check_form, read_options
from crdt_mor.store.protocol import Bucket, Store

if TYPE_CHECKING:
    from crdt_mor.store.handed_stores import Handed

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>/*)")
_KNOWN_SCHEMES = frozenset({*SCHEMES, "file", "http", "https"})
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")
"""Beginnings of Windows paths: a drive, or a server's share."""


def open_store(uri: str | os.PathLike[str], environment: Environment, storage_options: object = None) -> Store:
    """Return the store at an address, without reading or making anything. Disks have no storage_options."""
    place = place_of(uri)
    if place is not None:
        return open_bucket(place, storage_options, environment)
    check_form(storage_options)
    return LocalStore(_local_path(uri), environment.nonce)


def open_bucket(place: Place, storage_options: object, environment: Environment) -> Bucket:
    from crdt_mor.store.objects import open_at

    return open_at(place, storage_options, environment)


def store_at(
    uri: str | os.PathLike[str], environment: Environment, storage_options: object, store: Store | Handed | None
) -> Store:
    """Return the user's store, ours or obstore's, or else the store at the address."""
    if store is None:
        return open_store(uri, environment, storage_options)
    if storage_options is not None:
        raise InvalidInputError("leave storage_options out: the store argument already contains its options")
    return own_store(store, uri, environment)


def storage_options(uri: str | os.PathLike[str], options: Mapping[str, Any] | None) -> dict[str, str]:
    """Check the options of an address; a pickle of the result contains no keys.

    Raises `InvalidInputError` for unknown options.
    """
    place = place_of(uri)
    if place is None:
        check_form(options)
        return {}
    return read_options(options, place.provider)


def absolute(uri: str | os.PathLike[str]) -> str:
    place = place_of(uri)
    return os.path.abspath(_local_path(uri)) if place is None else place.uri


def address_of(store: Store, uri: str) -> str:
    """Return the address by which other engines open a table's objects.

    uri: as the user named the table; used for stores that know no address, such as one in memory.
    """
    known: str | None = getattr(store, "address", None)
    if known is not None or "://" in uri:
        return (known or uri).rstrip("/")
    return f"file://{uri.rstrip('/')}" if uri.startswith("/") else f"memory:///{uri.strip('/')}"


def are_nested(one: str, other: str) -> bool:
    """Return True if an address is inside the other: Hudi's readers would find the inner table's files in both."""
    folders = [os.path.join(uri if place_of(uri) else os.path.realpath(uri), "") for uri in (one, other)]
    return folders[0] != folders[1] and (folders[0].startswith(folders[1]) or folders[1].startswith(folders[0]))


def portable(store: Store) -> Store:
    """Return the store for pickling. Raises `UnsupportedFeatureError` if other processes cannot use it."""
    try:
        pickle.dumps(store)
    except Exception as error:  # a user's store may raise anything
        raise UnsupportedFeatureError(
            "other processes cannot use this table, because its store cannot be pickled: use threads, or a table on a "
            f"disk. store={store!r} cause={error}"
        ) from error
    return store


def _local_path(uri: str | os.PathLike[str]) -> str:
    if not isinstance(uri, str | os.PathLike):
        raise InvalidInputError(f"pass as address {KNOWN}. type={type(uri).__name__}")
    text = os.fsdecode(uri)
    if not text or "\0" in text:
        raise InvalidInputError(f"pass as address {KNOWN}. uri={text!r}")
    match = _SCHEME.match(text)  # of a Path as well: Path("s3://bucket/t") is s3:/bucket/t
    if match is not None and (match["slashes"] or match["scheme"].lower() in _KNOWN_SCHEMES):
        text = _path_of_uri(text, match)
    elif _WINDOWS.match(text) and os.sep == "/":
        raise _not_local("this is a Windows path, and this machine runs another system", text)
    else:
        text = os.path.expanduser(text)
    if os.path.exists(text) and not os.path.isdir(text):
        raise InvalidInputError(f"pass a folder as the table, not a file. uri={uri}")
    return text


def _shown(uri: str) -> str:
    """Return an unknown address without user, password and query."""
    scheme, _, rest = uri.partition("://")
    authority, slash, path = re.split(r"[?#]", rest)[0].partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"


def _not_local(why: str, uri: str) -> InvalidInputError:
    shown = re.sub(r"[^/]*@", "", re.split(r"[?#]", uri)[0])
    return InvalidInputError(f"{why}: pass {KNOWN}; for a folder of this name pass its absolute path. uri={shown}")


def _path_of_uri(uri: str, match: re.Match[str]) -> str:
    scheme = match["scheme"].lower()
    if not match["slashes"] or (scheme != "file" and match["slashes"] == "/"):
        raise _not_local(f"put two slashes after {scheme}:, and an absolute path after file://", uri)
    if scheme != "file":
        raise UnsupportedFeatureError(
            f"tables cannot be at such addresses: pass {KNOWN}. scheme={scheme} uri={_shown(uri)}"
        )
    path = uri[match.start("slashes") :]
    if path.startswith("//") and not path.startswith("///"):
        host, slash, rest = path[2:].partition("/")
        if host.lower() != "localhost" or not slash:
            raise UnsupportedFeatureError(
                f"write a file address as file:///path, without another machine's name. host={host} uri={uri}"
            )
        path = "/" + rest
    return unquote("/" + path.lstrip("/"))
