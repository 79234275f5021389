"""The rule for paths in a store: relative, `/` between parts, never out of the root."""

from __future__ import annotations

from collections.abc import Iterable

from crdt_mor.errors import InvalidInputError

PASSING = ".hoodie/.crdt_mor/loads"
"""The only folder below `.hoodie` with removable folders: each belongs to a finished load."""

TEMP_FOLDER = ".hoodie/.temp"
"""Folder of temporary objects and clocks. Hudi's own markers in it are left alone."""

CLOCKS = f"{TEMP_FOLDER}/clock"
"""Prefix of objects that tell a store's clock. In a bucket each process puts its own."""

_STEPS = frozenset({"", ".", ".."})


def object_path(path: str) -> str:
    """Return `path` unchanged, if it can name an object."""
    if "\0" in path or not _STEPS.isdisjoint(path.split("/")) or not (path.isascii() or _is_unicode(path)):
        raise InvalidInputError(
            f"use a relative path without empty, '.' or '..' parts and without half characters. path={path!r:.300}"
        )
    return path


def _is_unicode(path: str) -> bool:
    """Return True if a path can name a file: its surrogates may only stand for undecodable bytes of a file name."""
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def folder_path(folder: str) -> str:
    folder = folder.removesuffix("/")
    return object_path(folder) if folder else ""


def one_of_each_folder(paths: Iterable[str]) -> tuple[str, ...]:
    """Return an object of each folder: `make_durable` of it covers the names of the others."""
    return tuple({path.rpartition("/")[0]: path for path in paths}.values())


def in_hoodie(folder: str) -> bool:
    return folder == ".hoodie" or folder.startswith(".hoodie/")


def stays_empty(folder: str) -> bool:
    """Return True for folders that are kept when empty, because many processes put and delete objects there."""
    return in_hoodie(folder) and not folder.startswith(PASSING)
