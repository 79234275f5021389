"""Jobs, the writes of many processes: their names, and the tickets by which a process joins one.

The name of a job is the nonce of its write's begin. So a process that knows the name finds the write in the value. The
ticket is the value that the write began from, which all processes of the job have to hold.
"""

from __future__ import annotations

from crdt_mor.log.outcome import ValueOf
from crdt_mor.log.paths import ticket_path
from crdt_mor.log.steps import Read, Steps
from crdt_mor.model.instant import InstantTime, from_ms, to_ms
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Pending

JOB_EXPIRY_MS = 7 * 24 * 3600 * 1000
"""How long after it was planned a job may begin its write, and so how long a note that it was given up is kept."""


def read_ticket(nonce: str) -> Steps[tuple[ValueOf, Pending] | None]:
    """The write that has begun with `nonce` and the value that it began from, if its ticket is there."""
    path = ticket_path(nonce)
    data = yield Read(path)
    if not data:  # not there, or emptied by a power cut
        return None
    value = Timeline.decode(data, path)
    pending = value.find_by_nonce(nonce)
    return (ValueOf(value), pending) if isinstance(pending, Pending) else None


def job_name(nonce: str, planned: InstantTime) -> str:
    """The name of a job, which is the nonce of its write's begin. It says when the job was planned."""
    return f"{nonce}-{planned}"


def last_begin_time(nonce: str) -> InstantTime | None:
    """The last time at which the write of a job may begin; None for the nonce of a write that is not a job's."""
    _, job, planned = nonce.rpartition("-")
    return from_ms(to_ms(InstantTime(planned)) + JOB_EXPIRY_MS) if job else None
