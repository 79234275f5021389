"""From an address to a store, and from one process to another.

This release knows the addresses of local disks; other schemes are refused by name, never guessed.
"""

from __future__ import annotations

import os
import pickle
import re
from urllib.parse import unquote

from crdt_mor.clock import Environment
from crdt_mor.errors import InvalidInputError, UnsupportedFeatureError
from crdt_mor.store.base import Store
from crdt_mor.store.local import LocalStore

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>/+)")


def open_store(uri: str | os.PathLike[str], environment: Environment) -> Store:
    """The store at a local path or `file://` address. Nothing is read or made yet."""
    return LocalStore(_local_path(uri), environment.nonce)


def absolute(uri: str | os.PathLike[str]) -> str:
    """The address of the same place for processes that work in other folders."""
    return os.path.abspath(_local_path(uri))


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
        raise InvalidInputError(f"the address of a table is a path or a file:// URI. type={type(uri).__name__}")
    text = os.fsdecode(uri)
    if not text or "\0" in text:
        raise InvalidInputError(f"the address of a table is a path or a file:// URI. uri={text!r}")
    match = _SCHEME.match(text) if isinstance(uri, str) else None
    if match:
        text = _path_of_uri(text, match)
    elif isinstance(uri, str):
        text = os.path.expanduser(text)
    if os.path.exists(text) and not os.path.isdir(text):
        raise InvalidInputError(f"a table is a folder, and this is a file. uri={uri}")
    return text


def _path_of_uri(uri: str, match: re.Match[str]) -> str:
    """`file:///a/b`, `file://localhost/a/b` and Hadoop's `file:/a/b` are `/a/b`."""
    scheme = match["scheme"].lower()
    if scheme != "file":
        if "//" not in match["slashes"]:
            return uri  # no address: a relative path whose first folder has a colon in its name
        raise UnsupportedFeatureError(
            f"this release keeps tables on local disks: give a path or file:///path. scheme={scheme} uri={uri}"
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
