"""From an address to a store, and from one process to another.

Paths and `file://` are of local disks, and `store.addresses` knows those of object stores. Other schemes are refused by
name, never guessed. The client of object stores is only imported where there is one.
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
from crdt_mor.store.handed_stores import taken
from crdt_mor.store.local import LocalStore
from crdt_mor.store.options import check_form, read_options
from crdt_mor.store.protocol import Bucket, Store

if TYPE_CHECKING:
    from crdt_mor.store.handed_stores import Handed

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>/*)")
_KNOWN_SCHEMES = frozenset({*SCHEMES, "file", "http", "https"})
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")
"""The beginning of a path of Windows: a drive, or the share of a server."""


def open_store(uri: str | os.PathLike[str], environment: Environment, storage_options: object = None) -> Store:
    """The store at an address. Nothing is read or made yet. storage_options: of object stores; disks have none."""
    place = place_of(uri)
    if place is not None:
        return open_bucket(place, storage_options, environment)
    check_form(storage_options)
    return LocalStore(_local_path(uri), environment.nonce)


def open_bucket(place: Place, storage_options: object, environment: Environment) -> Bucket:
    """The store at a place in a bucket. Nothing is asked of it yet."""
    from crdt_mor.store.objects import open_at

    return open_at(place, storage_options, environment)


def store_at(
    uri: str | os.PathLike[str], environment: Environment, storage_options: object, store: Store | Handed | None
) -> Store:
    """The store that a user gave, ours or one of obstore's, or else the one at the address."""
    if store is None:
        return open_store(uri, environment, storage_options)
    if storage_options is not None:
        raise InvalidInputError("storage_options say how to reach an address, and a store was given: leave them out")
    return taken(store, uri, environment)


def storage_options(uri: str | os.PathLike[str], options: Mapping[str, Any] | None) -> dict[str, str]:
    """Options for an address, checked, in a form that can be pickled: without the keys, which each other process takes
    from its own environment. Raises `InvalidInputError` for options that mean nothing there."""
    place = place_of(uri)
    if place is None:
        check_form(options)
        return {}
    return read_options(options, place.provider)


def absolute(uri: str | os.PathLike[str]) -> str:
    """The address of the same place for processes that work in other folders."""
    place = place_of(uri)
    return os.path.abspath(_local_path(uri)) if place is None else place.uri


def are_nested(one: str, other: str) -> bool:
    """Whether one of two absolute addresses is in the folder of the other. Hudi's readers look for a table's partitions
    in all of its folder, so that of two tables there the outer one would have the files of the other as well."""
    folders = [os.path.join(uri if place_of(uri) else os.path.realpath(uri), "") for uri in (one, other)]
    return folders[0] != folders[1] and (folders[0].startswith(folders[1]) or folders[1].startswith(folders[0]))


def portable(store: Store) -> Store:
    """`store`, which is about to be pickled; raises `UnsupportedFeatureError` where no other process can have it."""
    try:
        pickle.dumps(store)
    except Exception as error:  # whatever the store is made of raises
        raise UnsupportedFeatureError(
            "this table's store cannot be pickled, so that other processes cannot read or write the table: use threads "
            f"of this process, or a table on a disk. store={store!r} cause={error}"
        ) from error
    return store


def _local_path(uri: str | os.PathLike[str]) -> str:
    if not isinstance(uri, str | os.PathLike):
        raise InvalidInputError(f"the address of a table is {KNOWN}. type={type(uri).__name__}")
    text = os.fsdecode(uri)
    if not text or "\0" in text:
        raise InvalidInputError(f"the address of a table is {KNOWN}. uri={text!r}")
    if isinstance(uri, str):  # a Path is always local
        match = _SCHEME.match(text)
        if match is not None and (match["slashes"] or match["scheme"].lower() in _KNOWN_SCHEMES):
            text = _path_of_uri(text, match)
        elif _WINDOWS.match(text) and os.sep == "/":
            raise _not_local("this is a path of Windows, and this machine has another system", text)
        else:
            text = os.path.expanduser(text)
    if os.path.exists(text) and not os.path.isdir(text):
        raise InvalidInputError(f"a table is a folder, and this is a file. uri={uri}")
    return text


def _shown(uri: str) -> str:
    """An address that nobody here knows, without a user, a password or a query in it."""
    scheme, _, rest = uri.partition("://")
    authority, slash, path = re.split(r"[?#]", rest)[0].partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"


def _not_local(why: str, uri: str) -> InvalidInputError:
    """The error of a text that looks like a place elsewhere, and would be the name of a folder here."""
    shown = re.sub(r"[^/]*@", "", re.split(r"[?#]", uri)[0])
    return InvalidInputError(f"{why}: give {KNOWN}; for a folder of this name put ./ in front of it. uri={shown}")


def _path_of_uri(uri: str, match: re.Match[str]) -> str:
    """`file:///a/b`, `file://localhost/a/b` and Hadoop's `file:/a/b` are `/a/b`."""
    scheme = match["scheme"].lower()
    if not match["slashes"] or (scheme != "file" and match["slashes"] == "/"):
        raise _not_local(f"an address has two slashes behind {scheme}:, and a file address an absolute path", uri)
    if scheme != "file":
        raise UnsupportedFeatureError(
            f"there are no tables at such addresses: give {KNOWN}. scheme={scheme} uri={_shown(uri)}"
        )
    path = uri[match.start("slashes") :]
    if path.startswith("//") and not path.startswith("///"):
        host, slash, rest = path[2:].partition("/")
        if host.lower() != "localhost" or not slash:
            raise UnsupportedFeatureError(
                f"a file address names no other machine: file:///path has three slashes. host={host} uri={uri}"
            )
        path = "/" + rest
    return unquote("/" + path.lstrip("/"))
