"""Check hints of visible rows against the files: readers would trust a wrong hint, but ignore a damaged one."""

from __future__ import annotations

from collections.abc import Iterator

from crdt_mor.merge.resolution_hint import from_bytes
from crdt_mor.model.slices import FileSlice
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.services.resolving import NOTHING
from crdt_mor.services.verify_findings import Finding, found
from crdt_mor.services.verify_rows import Faults


def ask_hint(snapshot: Snapshot, slice_: FileSlice, faults: Faults) -> Iterator[Finding]:
    """Yield findings that only cost speed. snapshot: just merged the slice without hints."""
    resolved = snapshot.resolved
    path = resolved.hint_path(slice_)
    hint = None if path is None else snapshot.session.store.read(path)
    if path is None or hint is None or hint == NOTHING:
        return
    told, known = from_bytes(hint, resolved.name(slice_)), resolved.of(slice_)
    if told is None:
        said = "the hint is damaged or belongs to other files: readers ignore it and merge the file group"
        yield found("hint", path, said, slice_.group)
    elif known is not None and told != known:
        faults.fail("shown rows", f"a hint disagrees with the visible rows of the file group. hint={path}")
