"""Names and tickets of jobs, the writes of many processes. A job's name is the nonce of its write's begin."""

from __future__ import annotations

from crdt_mor.log.outcome import ValueOf
from crdt_mor.log.paths import ticket_path
from crdt_mor.log.steps import Read, Steps
from crdt_mor.model.instant import InstantTime, from_ms, to_ms
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Pending

JOB_EXPIRY_MS = 7 * 24 * 3600 * 1000
"""How long after planning a job may begin its write. A note that it was given up is kept as long."""


def read_ticket(nonce: str) -> Steps[tuple[ValueOf, Pending] | None]:
    """Return the write that began with `nonce` and the value it began from."""
    path = ticket_path(nonce)
    data = yield Read(path)
    if not data:  # missing, or emptied by a power cut
        return None
    value = Timeline.decode(data, path)
    pending = value.find_by_nonce(nonce)
    return (ValueOf(value), pending) if isinstance(pending, Pending) else None


def job_name(nonce: str, planned: InstantTime) -> str:
    return f"{nonce}-{planned}"


def last_begin_time(nonce: str) -> InstantTime | None:
    """Return the last time at which a job may begin, or None if the nonce belongs to no job."""
    _, job, planned = nonce.rpartition("-")
    return from_ms(to_ms(InstantTime(planned)) + JOB_EXPIRY_MS) if job else None
