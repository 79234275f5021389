"""Modules that are imported when something of them is first used.

    if TYPE_CHECKING:
        import pyarrow.compute as pc
    else:
        pc = Late("pyarrow.compute")

For what many functions of a module use, and few calls need: `pyarrow.compute` makes its functions as it is imported,
which takes longer than all of our own modules of one room. What one function needs it imports itself.
"""

from __future__ import annotations

from importlib import import_module


class Late:
    """Stands for a module. Safe to share between threads, as an import is."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> object:
        value = getattr(import_module(self._module), name)
        setattr(self, name, value)  # which is found next time without this method
        return value
