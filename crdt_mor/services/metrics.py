"""The state of a table as numbers, from its newest value and listings of small folders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from crdt_mor.errors import TableMovedError
from crdt_mor.events.session import Session
from crdt_mor.model.checkpoints import Checkpoint
from crdt_mor.model.instant import InstantTime, from_ms, to_ms
from crdt_mor.model.policies import MINUTE, SECOND, Policies
from crdt_mor.model.slices import Slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.planners.clean import is_commit
from crdt_mor.services.checkpoints import lags, recorded
from crdt_mor.services.maintain import LIGHT_SERVICES, maintain
from crdt_mor.services.verify_notes import last_verify

RATE_MS: Final = 10 * MINUTE


def _exported(help: str, label: str = "") -> Any:
    return field(metadata={"help": help, "label": label})


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The state of a table, from `table.inspect.metrics()`. None: unknown. Files are those of the latest snapshot.

    Attributes:
        last_commit_age_seconds: a lower bound if history dropped the newest commit of rows.
        oldest_pending_age_seconds: age of the oldest pending write; 0 without one.
        service_due: by service of `maintain`: True if the policies call for it. A failed one stays due.
        versions_total: number of the newest version.
        versions_per_minute: mean of ten minutes.
        file_group_log_files_max, file_group_log_files_p50: log files of a file group: most and median.
        unmerged_ratio: log bytes by all bytes, 0 to 1.
        verify_findings, verify_age_seconds: damage that the last whole verify found, and its age.
        reader_lag_seconds, reader_lag_commits, reader_lost: by named reader, as in `table.inspect.readers()`.
    """

    last_commit_age_seconds: float | None = _exported("Age of the newest commit of rows.")
    oldest_pending_age_seconds: float = _exported("Age of the oldest pending write, 0 without one.")
    pending_writes: int = _exported("Pending writes.")
    open_plans: int = _exported("Plans that are scheduled and not completed.")
    service_due: Mapping[str, bool] = _exported("1 if the table's policies call for this service now.", "service")
    versions_total: int = _exported("Versions of the timeline.")
    versions_per_minute: float
    file_groups: int = _exported("File groups of the latest snapshot.")
    base_files: int = _exported("Base files of the latest snapshot.")
    base_bytes: int = _exported("Bytes of the base files of the latest snapshot.")
    log_files: int = _exported("Log files of the latest snapshot.")
    log_bytes: int = _exported("Bytes of the log files of the latest snapshot.")
    file_group_log_files_max: int = _exported("Most log files of a file group.")
    file_group_log_files_p50: float = _exported("Median log files of a file group.")
    file_group_log_max_bytes: int = _exported("Most bytes of logs of a file group.")
    file_group_log_p50_bytes: float = _exported("Median bytes of logs of a file group.")
    unmerged_ratio: float = _exported("Share of log bytes in all bytes of the latest snapshot.")
    verify_findings: int | None = _exported("Damage that the last verify of the whole table found.")
    verify_age_seconds: float | None = _exported("Age of the last verify of the whole table.")
    reader_lag_seconds: Mapping[str, float] = _exported("Age of a reader's oldest unread commit.", "reader")
    reader_lag_commits: Mapping[str, int] = _exported("Unread commits of a reader.", "reader")
    reader_lost: Mapping[str, bool] = _exported("1 if unread changes of a reader are gone.", "reader")


def metrics(session: Session) -> Metrics:
    value = session.views.sealed()
    slices = session.views.slices(value)
    now_ms = session.looked_ms()
    verified = last_verify(session.store)
    oldest = min((p.requested for p in value.pending), default=None)
    checkpoints = recorded(session.store)
    readers = list(lags(session, value, now_ms, checkpoints))
    return Metrics(
        last_commit_age_seconds=_age(last_commit(session, value, slices), now_ms),
        oldest_pending_age_seconds=_age(oldest, now_ms) or 0.0,
        pending_writes=len(value.pending),
        open_plans=len(value.plans),
        service_due=_due(session, value, checkpoints),
        versions_total=value.version,
        versions_per_minute=_versions_since(session, value, now_ms - RATE_MS) / (RATE_MS / MINUTE),
        **_files(slices),
        verify_findings=None if verified is None else verified.findings,
        verify_age_seconds=None if verified is None else max(0, now_ms - verified.at_ms) / SECOND,
        reader_lag_seconds={one.checkpoint.reader: one.ms / SECOND for one in readers},
        reader_lag_commits={one.checkpoint.reader: one.commits for one in readers},
        reader_lost={one.checkpoint.reader: one.is_lost for one in readers},
    )


def _age(instant: InstantTime | None, now_ms: int) -> float | None:
    return None if instant is None else max(0, now_ms - to_ms(instant)) / SECOND


def _files(slices: Slices) -> dict[str, Any]:
    found = list(slices)
    logs = [len(slice_.logs) for slice_ in found]
    sizes = [sum(log.size for log in slice_.logs) for slice_ in found]
    bases = [slice_.base.size for slice_ in found if slice_.base is not None]
    size = sum(sizes) + sum(bases)
    return {
        "file_groups": len(found),
        "base_files": len(bases),
        "base_bytes": sum(bases),
        "log_files": sum(logs),
        "log_bytes": sum(sizes),
        "file_group_log_files_max": max(logs, default=0),
        "file_group_log_files_p50": float(median(logs or [0])),
        "file_group_log_max_bytes": max(sizes, default=0),
        "file_group_log_p50_bytes": float(median(sizes or [0])),
        "unmerged_ratio": sum(sizes) / size if size else 0.0,
    }


def _due(session: Session, value: Timeline, readers: tuple[Checkpoint, ...]) -> dict[str, bool]:
    try:
        actions = maintain(session, Policies.of(value.properties), dry_run=True, light=True, readers=readers).actions
    except TableMovedError:
        actions = ()
    due = {action.service for action in actions if action.state in ("due", "failed")}
    return {name: name in due for name in LIGHT_SERVICES}


def last_commit(session: Session, value: Timeline, slices: Slices) -> InstantTime | None:
    """Return the completion of the newest commit of rows, or else the instant of the newest base file."""
    newest = session.views.newest(value, is_commit)
    if newest is not None:
        return newest.completed
    return max((slice_.base.name.instant for slice_ in slices if slice_.base is not None), default=None)


def _versions_since(session: Session, value: Timeline, since_ms: int) -> int:
    since = from_ms(max(0, since_ms))
    known = session.views.completions(value, lambda segment: segment.last > since)
    versions = [c.version for c in known if c.completed > since]
    return value.version - min(versions) + 1 if versions else 0
