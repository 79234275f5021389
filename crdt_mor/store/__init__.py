"""Stores of objects, for tables in your own store, and the options of object stores; docs/stores.md.

Each name is imported on first use: the modules of this folder import each other, and few need all of them.
"""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from crdt_mor.ground.parquet import ParquetSource, RangeReader
    from crdt_mor.store.local import LocalStore
    from crdt_mor.store.memory import MemoryStore
    from crdt_mor.store.open import storage_options
    from crdt_mor.store.options import secret_options
    from crdt_mor.store.protocol import Chunks, Content, Durable, Stat, Store

_HOMES = {
    "Chunks": "store.protocol",
    "Content": "store.protocol",
    "Durable": "store.protocol",
    "LocalStore": "store.local",
    "MemoryStore": "store.memory",
    "ParquetSource": "ground.parquet",
    "RangeReader": "ground.parquet",
    "Stat": "store.protocol",
    "Store": "store.protocol",
    "secret_options": "store.options",
    "storage_options": "store.open",
}

if not _typing.TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(_import_module(f"crdt_mor.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


__all__ = [
    "Chunks", "Content", "Durable", "LocalStore", "MemoryStore", "ParquetSource", "RangeReader", "Stat", "Store",
    "secret_options", "storage_options",
]  # fmt: skip
