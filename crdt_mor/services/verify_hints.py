"""Hints of which rows a reader sees, held to what the files say: a wrong one would be believed, a damaged one not."""

from __future__ import annotations

from collections.abc import Iterator

from crdt_mor.merge.resolution_hint import from_bytes
from crdt_mor.model.slices import FileSlice
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.services.resolving import NOTHING
from crdt_mor.services.verify_findings import Finding, found
from crdt_mor.services.verify_rows import Faults


def ask_hint(snapshot: Snapshot, slice_: FileSlice, faults: Faults) -> Iterator[Finding]:
    """What costs speed alone. snapshot: one that has just merged the slice, and believes no hints."""
    resolved = snapshot.resolved
    path = resolved.hint_path(slice_)
    hint = None if path is None else snapshot.session.store.read(path)
    if path is None or hint is None or hint == NOTHING:
        return
    told, known = from_bytes(hint, resolved.name(slice_)), resolved.of(slice_)
    if told is None:
        said = "it is damaged, or of other files: readers pass over it, and merge the file group by themselves"
        yield found("hint", path, said, slice_.group)
    elif known is not None and told != known:
        faults.fail("shown rows", f"a hint says otherwise which rows of the file group are shown. hint={path}")
