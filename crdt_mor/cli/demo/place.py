"""The place of a demo: its table, and a folder for its other files."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import crdt_mor as mor
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.store.addresses import place_of
from crdt_mor.store.open import absolute, open_store, storage_options
from crdt_mor.store.options import Options
from crdt_mor.store.protocol import Stat, Store

WAIT_SECONDS: Final = 0.02
WAIT_SECONDS_IN_BUCKETS: Final = 0.2
"""In a bucket each look is a request, and commits take ten times as long."""


@dataclass(frozen=True)
class Place:
    """The table's address, and the folder for journals and the picture.

    options: may contain secrets, which are never printed.
    """

    uri: str
    folder: Path
    options: Mapping[str, str] | None = field(default=None, repr=False)

    @classmethod
    def at(cls, uri: str | None, folder: Path, options: Mapping[str, str] | None) -> Place:
        return cls(str(folder / "flights"), folder) if uri is None else cls(absolute(uri), folder, options)

    @property
    def in_folder(self) -> bool:
        return self.uri == str(self.folder / "flights")

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    @property
    def picture(self) -> Path:
        return self.folder / "transactions.svg"

    @property
    def wait_seconds(self) -> float:
        return WAIT_SECONDS if place_of(self.uri) is None else WAIT_SECONDS_IN_BUCKETS

    def table(self) -> mor.Table:
        return mor.Table(self.uri, storage_options=self.options)

    def objects(self) -> list[Stat]:
        return _objects(_store(self.uri, self.options))

    def clear(self) -> None:
        if not self.in_folder:
            store = _store(self.uri, self.options)
            for stat in _objects(store):
                store.delete(stat.path)
        shutil.rmtree(self.folder)

    def text(self) -> str:
        return str(self.folder) if self.in_folder else f"{self.uri}, with journals and picture in {self.folder}"

    def reached(self) -> str:
        return shlex.join([self.uri, *self._words()])

    def again(self) -> str:
        where = ["--dir", f"{self.folder}-again"] if self.in_folder else ["--uri", f"{self.uri}-again"]
        return shlex.join([*where, *self._words()])

    def _words(self) -> list[str]:
        given = storage_options(self.uri, self.options)
        shown = given.public if isinstance(given, Options) else given
        return [word for name, value in shown.items() for word in ("--storage", f"{name}={value}")]


def require_free(uri: str, options: Mapping[str, str] | None) -> None:
    if found := _objects(_store(uri, options)):
        raise mor.InvalidInputError(
            f"the demo needs an empty address, to keep your data safe. uri={uri} found={found[0].path}"
        )


def _store(uri: str, options: Mapping[str, str] | None) -> Store:
    return open_store(uri, SystemEnvironment(), options)


def _objects(store: Store) -> list[Stat]:
    return [stat for folder in ("", ".hoodie") for stat in store.walk(folder)]
