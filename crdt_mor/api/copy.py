"""`Table.copy`: check the target, copy the table and verify the copy."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from crdt_mor.api.create import refuse_nested
from crdt_mor.api.migration import address_of, require_beside, store_beside
from crdt_mor.errors import FormatError, InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.log.deciding import deciding
from crdt_mor.services import copy as service
from crdt_mor.services.copy import Copied, CopyProgress
from crdt_mor.services.mirror import mirror_copy
from crdt_mor.services.verify import verify as read_whole
from crdt_mor.store.open import absolute
from crdt_mor.store.protocol import Store

if TYPE_CHECKING:
    from crdt_mor.store.handed_stores import Handed


def copy(
    session: Session,
    to_uri: str | os.PathLike[str],
    update: bool,
    verify: bool,
    on_progress: Callable[[CopyProgress], None] | None,
    storage_options: Mapping[str, Any] | None,
    store: Store | Handed | None,
) -> Copied:
    address = absolute(to_uri) if store is None else str(to_uri)
    target = store_beside(session, to_uri, storage_options, store)
    if target is session.store or (store is None and address == address_of(session)):
        raise InvalidInputError(f"cannot copy a table to its own address: pass another one. uri={address}")
    if store is None:
        require_beside(session, address, "copied")
    refuse_nested(target, address)
    done, is_mirrored = service.copy(session, target, address, update=update, tell=on_progress or (lambda _: None))
    if is_mirrored or verify:
        with deciding(is_made=True):
            copied = session.open_another(address, target)
            if is_mirrored:
                mirror_copy(session, copied)
        if verify:
            _require_sound(copied, address)
    return done


def _require_sound(copied: Session, address: str) -> None:
    with deciding(is_made=True):
        found = read_whole(copied)
    if not found.is_sound:
        first = found.findings[0]
        raise FormatError(
            "the copy is complete but damaged: check with crdt-mor verify whether the table has the same damage. "
            f"path={address} findings={len(found.findings)} check={first.check!r} file={first.path} "
            f"description={first.description}"
        )
