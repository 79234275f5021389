"""Find Hudi's running writes: an update waits for them, as it computes from their rows.

    T.deltacommit.requested, .inflight    put by Hudi's writer, without our key
    T_C.deltacommit                       completed, and adopted (`hudi.adoption`)
    .hoodie/.heartbeat/T                  touched by Hudi's writer while it runs

Versions of a row are in the order of requested times, also Hudi's. So a Hudi commit comes before an update requested
later, even if the commit was not complete when the update was computed.

Silent writers of Hudi are not waited for beyond our expiry: Hudi refuses their commits, by default after two minutes.
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


def begun_files(value: Timeline, files: Sequence[Stat]) -> list[Stat]:
    """Return the files of uncompleted writes that a value does not know. Some may be ours."""
    ours = {p.requested for p in value.pending} | {r.requested for r in value.rolled_back}
    ours |= {c.requested for c in value.completions}
    names = [timeline_file_name(file.path) for file in files]
    ended = ours | {name.requested for name in names if name is not None and name.state == "completed"}
    return [
        file for file, name in zip(files, names, strict=True)
        if name is not None and name.action in DATA_ACTIONS and name.requested not in ended
    ]  # fmt: skip


def pending_of_hudi(files: Sequence[Stat]) -> Steps[list[Pending]]:
    return (yield from _begun_by(files, ours=False))


def claimed(files: Sequence[Stat]) -> Steps[list[Pending]]:
    """Return our writes in `begun_files`: claimed times without a version (`events.one_event`).

    Nobody can commit at or below the table's clock any more.
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
    """Return Hudi's writes that were heard of within the expiry, by the store's clock."""
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
    for file in put:
        data = yield Read(file.path)
        name = timeline_file_name(file.path)
        if data and name is not None and bears_our_key(name, data, file.path):
            return True
    return False
