"""Writes of Hudi's own that are under way: an update computes from what they make, so that it waits for them.

    T.deltacommit.requested, .inflight    put by Hudi's writer, and never with our key in it
    T_C.deltacommit                       it is completed, and adopted (`hudi.adoption`)
    .hoodie/.heartbeat/T                  touched by a writer of Hudi's while it is at work

Hudi's versions of a row are in the order of their requested times, as ours are: a commit of Hudi's comes before an
update that was requested later, although it was not there when the update was computed.

A writer of Hudi's of which nothing was heard for as long as a writer of ours may be silent is not waited for: Hudi
refuses the commit of a writer whose heartbeat has expired, which takes it two minutes unless it is told otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from crdt_mor.hudi.actions import bears_our_key
from crdt_mor.log.paths import heartbeat_path
from crdt_mor.log.steps import GetStat, Read, Steps, StoreNow
from crdt_mor.model.authors import Author
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import DATA_ACTIONS, timeline_file_name
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Pending
from crdt_mor.store.protocol import Stat

HUDI: Final = Author("Hudi", "", 0)
"""Whose its writes are."""


def begun_files(value: Timeline, files: Sequence[Stat]) -> list[Stat]:
    """The files in Hudi's timeline of writes that have not completed, and that a value does not know.

    Some may be ours, of events that the value does not have. files: all that are there.
    """
    ours = {p.requested for p in value.pending} | {r.requested for r in value.rolled_back}
    ours |= {c.requested for c in value.completions}
    named = [(name, file) for file in files if (name := timeline_file_name(file.path)) is not None]
    ended = ours | {name.requested for name, _ in named if name.state == "completed"}
    return [file for name, file in named if name.action in DATA_ACTIONS and name.requested not in ended]


def pending_of_hudi(files: Sequence[Stat]) -> Steps[list[Pending]]:
    """The writes of `begun_files` that are Hudi's; `begun_ms`: when the last file of each was put."""
    return (yield from _begun_by(files, ours=False))


def claimed(files: Sequence[Stat]) -> Steps[list[Pending]]:
    """The writes of `begun_files` that are ours: each has claimed its time, and no version has it (`events.one_event`).

    Its process is about to publish it, or has died. At or below the table's clock nobody can commit it any more.
    """
    return (yield from _begun_by(files, ours=True))


def _begun_by(files: Sequence[Stat], *, ours: bool) -> Steps[list[Pending]]:
    begun: dict[InstantTime, list[Stat]] = {}
    for file in files:
        name = timeline_file_name(file.path)
        assert name is not None, "these are files of Hudi's timeline"
        begun.setdefault(name.requested, []).append(file)
    found = []
    for requested, put in begun.items():
        if (yield from _is_ours(put)) == ours:
            found.append(Pending(requested, "", 0, max(f.modified_ms for f in put), author=None if ours else HUDI))
    return found


def heard_of_hudi(files: Sequence[Stat], expiry_ms: int) -> Steps[list[Pending]]:
    """Those of these writes that are at work: something was heard of them within the expiry, by the store's clock."""
    found: list[Pending] = yield from pending_of_hudi(files)
    if not found:
        return []
    now_ms: int = yield StoreNow()
    heard = []
    for pending in found:
        beat: Stat | None = yield GetStat(heartbeat_path(pending.requested))
        last_ms = max(pending.begun_ms or 0, 0 if beat is None else beat.modified_ms)
        if now_ms - last_ms <= expiry_ms:
            heard.append(pending)
    return heard


def _is_ours(put: Sequence[Stat]) -> Steps[bool]:
    """Whether files of a pending instant were put by us: each bears our key."""
    for file in put:
        data = yield Read(file.path)
        name = timeline_file_name(file.path)
        if data and name is not None and bears_our_key(name, data, file.path):
            return True
    return False
