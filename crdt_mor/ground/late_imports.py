"""Import modules on first use.

    if TYPE_CHECKING:
        import pyarrow.compute as pc
    else:
        pc = Late("pyarrow.compute")

For slow modules used in many functions. A module used in one function is imported there.

    from crdt_mor.ground.late_imports import pa, pc, pl    # pyarrow, its functions, and polars
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING


class Late:
    """Stands for a module. Safe to share between threads."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> object:
        value = getattr(import_module(self._module), name)
        setattr(self, name, value)  # later lookups skip this method
        return value


if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa = Late("pyarrow")
    pc = Late("pyarrow.compute")
    pl = Late("polars")

__all__ = ["Late", "pa", "pc", "pl"]
