"""Open the table of a library's dataset, or create it at the first write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import crdt_mor as mor


def opened_or_created(
    address: str, rows: Any, key: str | Sequence[str] | None, storage_options: Mapping[str, Any] | None, hint: str
) -> mor.Table:
    """rows, key: of a new table. hint: how the library's users name a key, for the error."""
    try:
        return mor.Table(address, storage_options=storage_options)
    except mor.errors.TableNotFoundError as error:
        if not key:
            raise mor.InvalidInputError(f"a new table needs a key: {hint}. table={address}") from error
    try:
        return mor.Table.create(address, rows, key=key, storage_options=storage_options)
    except mor.errors.TableExistsError:  # another writer was faster
        return mor.Table(address, storage_options=storage_options)
