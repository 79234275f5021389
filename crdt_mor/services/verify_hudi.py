"""Check Hudi's timeline directory and history against the value.

    each completed instant above the watermark ─► its completed file, and the record of a service's plan
    each instant up to the watermark ─► its row in the history, with equal contents
    each completed file with our key ─► a known instant of the value
    each savepoint told to Hudi ─► its files, for that savepoint

Missing files of the newest version's events are hints, no damage: later publishers or `maintain` put them. Findings are
checked again with the newest version, which may have archived or restored meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from crdt_mor.errors import CrdtMorError, FormatError
from crdt_mor.events.copy import notes as notes_of_copies
from crdt_mor.events.session import Session
from crdt_mor.format.archive import ArchivedInstant, decode_instants, decode_manifest, manifest_name
from crdt_mor.hudi.actions import WRITE, FrozenAction, action_ending_as, bears_our_key, planned_action
from crdt_mor.hudi.adoption import is_archived_by_others
from crdt_mor.hudi.restore import dropped_by_restores
from crdt_mor.hudi.restore_records import own_savepoint_time
from crdt_mor.laws.merging import merging_of
from crdt_mor.log.outcome import all_completions
from crdt_mor.log.paths import PLANS, plan_path
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.names import SAVEPOINT, TimelineFileName, timeline_file_name
from crdt_mor.model.savepoint import Savepoint
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, completed_name
from crdt_mor.services.verify_findings import Finding, finding
from crdt_mor.services.verify_given import read_decoded, read_object
from crdt_mor.services.verify_told import Schemas, completed_fault, needs_plan, record_fault, savepoint_fault


@dataclass(slots=True)
class HudiReport:
    """The findings by path, and the number of files read.

    Attributes:
        hints: Events of the newest version not yet told to Hudi.
        is_ahead: Hudi was told of later instants of the original table, although this copy was not moved to them.
    """

    findings: dict[str, Finding] = field(default_factory=dict)
    objects: int = 0
    hints: list[Finding] = field(default_factory=list)
    is_ahead: bool = False


def reread_hudi(session: Session) -> HudiReport:
    """Check Hudi's timeline; report only findings of two looks."""
    first = _check_once(session)
    if not first.findings and not first.hints:
        return first
    second = _check_once(session)
    second.findings = {path: said for path, said in second.findings.items() if path in first.findings}
    second.hints = [hint for hint in second.hints if hint in first.hints]
    return second


def _check_once(session: Session) -> HudiReport:
    value = session.tail()
    report = HudiReport()
    if value.version == 0 or session.config.layout_one:
        return report
    commits = session.run(all_completions(value))
    own = {c.requested: c for c in commits if not c.adopted}
    folder = session.publisher.projector.folder
    names: dict[str, TimelineFileName] = {}
    for stat in session.store.list(folder):
        name = timeline_file_name(stat.path)
        if name is not None:
            names[stat.path] = name
    expected = _Expected.of(session, value)
    _ask_active(session, value, own, expected, names, report)
    _ask_plans(session, value, names, report)
    _ask_savepoints(session, value, commits, names, report)
    _ask_strangers(session, value, {c.requested for c in commits}, names, report)
    if value.archive.manifest and value.archive.version < value.version:
        _ask_history(session, value, own, expected, report)
    return report


@dataclass(frozen=True, slots=True)
class _Expected:
    session: Session
    schemas: Schemas
    plans: frozenset[str]

    @classmethod
    def of(cls, session: Session, value: Timeline) -> _Expected:
        stored = merging_of(session.config, value.schema).schema.stored
        plans = frozenset(stat.path for stat in session.store.list(PLANS))
        return cls(session, Schemas(session.config.name, stored), plans)

    def plan(self, completion: Completion) -> bytes | None:
        """Return the frozen plan of a service, if intact. Damage is reported for open plans only."""
        path = plan_path(completion.requested, completion.nonce)
        with suppress(FormatError):
            return read_object(self.session, path) if path in self.plans else None
        return None

    def difference(self, completion: Completion, record: bytes | None, data: bytes, path: str) -> str | None:
        plan = self.plan(completion) if needs_plan(completion) else None
        try:
            return completed_fault(completion, plan, record, data, path, self.schemas)
        except CrdtMorError as error:
            return str(error)


# --- the active timeline ----------------------------------------------------------------------------------------------


def _ask_active(
    session: Session,
    value: Timeline,
    own: Mapping[InstantTime, Completion],
    expected: _Expected,
    names: Mapping[str, TimelineFileName],
    report: HudiReport,
) -> None:
    projector = session.publisher.projector
    for completion in own.values():
        if completion.requested <= value.archive.watermark:
            continue
        path = projector.path(completed_name(completion))
        gone = f"Hudi is not told of a commit: its file is missing. instant={completion.requested}"
        data = _file_of(session, completion.version, value, path, gone, names, report)
        record = _ask_record(session, completion, expected, names, report)
        if data is not None and (differs := expected.difference(completion, record, data, path)) is not None:
            report.findings[path] = finding("Hudi's timeline", path, f"{differs}. instant={completion.requested}")


def _ask_record(
    session: Session,
    completion: Completion,
    expected: _Expected,
    names: Mapping[str, TimelineFileName],
    report: HudiReport,
) -> bytes | None:
    """Check and return the record of a service's plan; None for a write, because nobody reads its record."""
    action = action_ending_as(completion.action)
    if action is WRITE:
        return None
    path = session.publisher.projector.path(TimelineFileName(completion.requested, action.name, action.begin_states[0]))
    data = _read(session, path, names, report)
    if data is None:
        return None
    report.objects += 1
    plan = expected.plan(completion) if isinstance(action, FrozenAction) else None
    _hold(report, path, completion.requested, lambda: record_fault(action, completion, plan, data, path))
    return data


def _hold(report: HudiReport, path: str, instant: InstantTime, fault: Callable[[], str | None]) -> None:
    try:
        said = fault()
    except CrdtMorError as error:
        said = str(error)
    if said is not None:
        report.findings[path] = finding("Hudi's timeline", path, f"{said}. instant={instant}")


def _ask_plans(session: Session, value: Timeline, names: Mapping[str, TimelineFileName], report: HudiReport) -> None:
    for plan in value.plans:
        action = planned_action(plan.action)
        if not action.shown_while_open:
            continue
        path = session.publisher.projector.path(TimelineFileName(plan.barrier, action.name, action.begin_states[0]))
        frozen = session.store.read(plan.path)
        gone = f"Hudi is not told of an open plan: its file is missing. instant={plan.barrier}"
        data = _file_of(session, plan.version, value, path, gone, names, report)
        if data is None or frozen is None:
            continue
        _hold(report, path, plan.barrier, partial(record_fault, action, None, frozen, data, path))


def _ask_savepoints(
    session: Session,
    value: Timeline,
    commits: Sequence[Completion],
    names: Mapping[str, TimelineFileName],
    report: HudiReport,
) -> None:
    """Check the savepoints told to Hudi: without the completed file, Hudi's cleaner removes a savepoint's files.

    Hudi deletes a savepoint with its inflight file. It may delete ours and make its own there.
    """
    for savepoint in value.savepoints:
        if not savepoint.is_in_hudi:
            continue
        path, inflight = session.publisher.projector.savepoint_paths(savepoint)
        if path not in names and savepoint.version < value.version:
            begun = _read(session, inflight, names, report)
            if begun is None or not _is_of(savepoint, begun, inflight):
                continue
        gone = f"Hudi is not told of a savepoint: its file is missing. name={savepoint.name}"
        data = _file_of(session, savepoint.version, value, path, gone, names, report)
        if data is None:
            continue
        if not _is_of(savepoint, data, path):
            report.findings[path] = finding(
                "Hudi's timeline", path, f"the file of another savepoint. name={savepoint.name}"
            )
            continue
        shown = [commit for commit in commits if Cut("completed", savepoint.at).shows(commit)]
        _hold(report, path, savepoint.marks, partial(savepoint_fault, savepoint, shown, data, path))
        begun = _read(session, inflight, names, report)
        if begun and begun != data:  # Hudi leaves the inflight file empty
            said = f"the inflight file differs from the completed file. name={savepoint.name}"
            report.findings[inflight] = finding("Hudi's timeline", inflight, said)


def _is_of(savepoint: Savepoint, data: bytes, path: str) -> bool:
    return own_savepoint_time(data, path) == savepoint.saved


def _file_of(
    session: Session,
    version: int,
    value: Timeline,
    path: str,
    gone: str,
    names: Mapping[str, TimelineFileName],
    report: HudiReport,
) -> bytes | None:
    """Return a file that tells Hudi of an event; None, with a finding or hint, if it cannot be read."""
    data = _read(session, path, names, report)
    if data is not None:
        report.objects += 1
    elif path not in report.findings and version >= value.version:
        report.hints.append(
            finding("unprojected", path, f"Hudi was not told of the newest version yet. version={version}")
        )
    elif path not in report.findings:
        report.findings[path] = finding("Hudi's timeline", path, gone)
    return data


def _read(session: Session, path: str, names: Mapping[str, TimelineFileName], report: HudiReport) -> bytes | None:
    try:
        return read_object(session, path) if path in names else None
    except FormatError as error:
        report.findings[path] = finding("Hudi's timeline", path, error)
        return None


def _ask_strangers(
    session: Session,
    value: Timeline,
    known: set[InstantTime],
    names: Mapping[str, TimelineFileName],
    report: HudiReport,
) -> None:
    """Check that each completed file with our key belongs to a known instant, or to an instant dropped by a restore.

    A commit is published before Hudi is told of it, so a later instant than the newest version shows a lost version. A
    second look reads its version after the first saw the file.
    """
    unfinished = {p.requested for p in value.pending} | {p.barrier for p in value.plans}
    unfinished |= {r.requested for r in value.rolled_back}
    strange = {
        path: name
        for path, name in names.items()
        if name.state == "completed"
        and name.action != SAVEPOINT
        and name.requested not in known
        and value.retention.dropped < name.requested
    }
    by_time = {name.requested: [name] for name in strange.values()}
    dropped = session.run(dropped_by_restores(value, by_time, known | unfinished)) if strange else {}
    notes = session.run(notes_of_copies()) if strange else []
    copied = max((note.clock for note in notes), default=EPOCH)
    for path, name in strange.items():
        data = _read(session, path, names, report) if name.requested not in dropped else None
        if data is None or not bears_our_key(name, data, path):
            continue
        report.objects += 1
        if name.requested <= copied:
            report.is_ahead = True
        else:
            said = f"no version of the timeline completed this instant. instant={name.requested}"
            is_later = (name.completed or name.requested) > value.clock
            report.findings[path] = finding("lost version" if is_later else "unknown instant", path, said)


# --- the history ------------------------------------------------------------------------------------------------------


def _ask_history(
    session: Session, value: Timeline, own: Mapping[InstantTime, Completion], expected: _Expected, report: HudiReport
) -> None:
    folder = session.publisher.projector.archive
    if session.run(is_archived_by_others(session.publisher.projector, value)):
        return
    path = f"{folder}/{manifest_name(value.archive.manifest)}"
    try:
        names = _named_in(session, path, value, report)
        instants = [row for name in names for row in _rows_of(session, f"{folder}/{name}", report)]
    except FormatError as error:
        report.findings[path] = finding("Hudi's history", path, error)
        return
    held = {row.name.requested: row for row in instants}
    for completion in own.values():
        if completion.requested <= value.archive.watermark:
            row = held.get(completion.requested)
            said: str | None = "the history lacks an instant"
            if row is not None:
                said = expected.difference(completion, None, row.metadata, path)
            if said is not None:
                place = f"{path}#{completion.requested}"
                report.findings[place] = finding("Hudi's history", path, f"{said}. instant={completion.requested}")
    late = [time for time in held if time > value.archive.watermark]
    if late:
        above = (
            f"an instant of the history is above the watermark. instant={late[0]} watermark={value.archive.watermark}"
        )
        report.findings[path] = finding("Hudi's history", path, above)


def _named_in(session: Session, path: str, value: Timeline, report: HudiReport) -> tuple[str, ...]:
    names = read_decoded(session, path, decode_manifest)
    if names is None:
        raise FormatError(f"the manifest of the history is missing. file={path}")
    report.objects += 1
    if names != value.archive.files:
        raise FormatError(f"the manifest and the value name different files. file={path} names={names[:5]}")
    return names


def _rows_of(session: Session, path: str, report: HudiReport) -> list[ArchivedInstant]:
    instants = read_decoded(session, path, decode_instants)
    if instants is None:
        raise FormatError(f"a data file of the history is missing. file={path}")
    report.objects += 1
    return instants
