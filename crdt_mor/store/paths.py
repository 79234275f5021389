"""The one rule for paths inside a store: relative, `/` between the parts, and never out of the root again."""

from __future__ import annotations

from collections.abc import Iterable

from crdt_mor.errors import InvalidInputError

PASSING = ".hoodie/.crdt_mor/loads"
"""The one folder below `.hoodie` whose folders go when they are empty: each is of one load, and of no use after it."""

TEMP_FOLDER = ".hoodie/.temp"
"""Where puts and clocks have their passing objects. Hudi keeps its own markers there, which are left alone."""

CLOCKS = f"{TEMP_FOLDER}/clock"
"""How the names of objects begin that tell a store's clock. In a bucket each process puts one of its own."""

_STEPS = frozenset({"", ".", ".."})


def object_path(path: str) -> str:
    """`path` unchanged, if it can name an object."""
    if "\0" in path or not _STEPS.isdisjoint(path.split("/")) or not (path.isascii() or _is_unicode(path)):
        raise InvalidInputError(
            "a path in a store is relative, without empty, '.' or '..' parts, and of whole characters. "
            f"path={path!r:.300}"
        )
    return path


def _is_unicode(path: str) -> bool:
    """Whether a path has a name on a disk: it is no half of a character, but for bytes that Python has found there."""
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def folder_path(folder: str) -> str:
    """`folder` without a slash at its end; "" is the root."""
    folder = folder.removesuffix("/")
    return object_path(folder) if folder else ""


def one_of_each_folder(paths: Iterable[str]) -> tuple[str, ...]:
    """One of the objects in each folder: as its name lasts, or stays away, so do those of the others."""
    return tuple({path.rpartition("/")[0]: path for path in paths}.values())


def in_hoodie(folder: str) -> bool:
    """Whether `folder` is Hudi's own folder or lies inside of it."""
    return folder == ".hoodie" or folder.startswith(".hoodie/")


def stays_empty(folder: str) -> bool:
    """Whether a folder stays when its last object is gone, as many processes put and delete in it all the time."""
    return in_hoodie(folder) and not folder.startswith(PASSING)
