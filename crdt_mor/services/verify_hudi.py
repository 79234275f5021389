"""Check Hudi's timeline directory and history against the value.

    each completed instant above the watermark ─► its completed file, and the record of a service's plan
    each instant up to the watermark ─► its row in the history, with equal contents
    each completed file with our key ─► a known instant of the value
    each savepoint told to Hudi ─► its files, for that savepoint

Missing files of the newest version's events are hints: later publishers or `maintain` put them. Findings are checked
again with the newest version, which may have archived meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Final

from crdt_mor.errors import CrdtMorError, FormatError
from crdt_mor.events.copy import notes as notes_of_copies
from crdt_mor.events.session import Session
from crdt_mor.format.archive import ArchivedInstant, decode_instants, decode_manifest, manifest_name
from crdt_mor.hudi.actions import WRITE, Action, FrozenAction, action_ending_as, bears_our_key, planned_action
from crdt_mor.hudi.adoption import is_archived_by_others
from crdt_mor.hudi.adoption_instants import read_active
from crdt_mor.hudi.restore import dropped_by_restores
from crdt_mor.hudi.restore_records import own_savepoint_time
from crdt_mor.laws.merging import merging_of
from crdt_mor.log.paths import PLANS, plan_path
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.names import SAVEPOINT, TimelineFileName, timeline_file_name
from crdt_mor.model.savepoint import Savepoint
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, completed_name
from crdt_mor.services.verify_findings import Finding, finding
from crdt_mor.services.verify_given import ahead, read_decoded, read_object, twice
from crdt_mor.services.verify_told import Schemas, completed_fault, needs_plan, record_fault, savepoint_fault
from crdt_mor.store.protocol import side_by_side

_COMMIT: Final = "Hudi's commit"
_HISTORY: Final = "Hudi's history"


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

    def add(self, part: HudiReport) -> None:
        self.findings |= part.findings
        self.objects += part.objects
        self.hints += part.hints


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
    if value.version == 0 or session.config.layout_one:
        return HudiReport()
    look = _Look.of(session, value, session.views.completions(value))
    look.ask_active()
    look.ask_plans()
    look.ask_savepoints()
    look.ask_strangers()
    if value.archive.manifest and value.archive.version < value.version:
        look.ask_history()
    return look.report


def unreadable_commits(session: Session, value: Timeline, error: FormatError) -> list[Finding]:
    """Return the unreadable commits of Hudi that the value lacks; the history, if `error` is about a file of it."""
    projector, found = session.publisher.projector, []
    known = {completion.requested for completion in session.views.completions(value)}
    for stat in session.store.list(projector.folder):
        name = timeline_file_name(stat.path) or TimelineFileName.parse_layout_one(stat.path.rpartition("/")[2])
        if name is None or name.state != "completed" or name.requested in known:
            continue
        try:
            twice(session, partial(_read_commit, session, stat.path, name))
        except FormatError as fault:
            found.append(finding(_COMMIT, stat.path, fault))
    return found or [finding(_COMMIT, projector.archive, error)]


def _read_commit(session: Session, path: str, name: TimelineFileName) -> None:
    session.run(read_active(path, name, {}))


@dataclass(frozen=True, slots=True)
class _Look:
    """A look at Hudi's files. names: of the active timeline, by path. plans: paths of frozen plans."""

    session: Session
    value: Timeline
    commits: Sequence[Completion]
    names: Mapping[str, TimelineFileName]
    schemas: Schemas
    plans: frozenset[str]
    report: HudiReport = field(default_factory=HudiReport)

    @classmethod
    def of(cls, session: Session, value: Timeline, commits: Sequence[Completion]) -> _Look:
        folders = session.publisher.projector.folder, PLANS
        listed, plans = side_by_side(session.store, [partial(session.store.list, folder) for folder in folders])
        named = ((stat.path, timeline_file_name(stat.path)) for stat in listed)
        names = {path: name for path, name in named if name is not None}
        schemas = Schemas(session.config.name, merging_of(session.config, value.schema).schema.stored)
        return cls(session, value, commits, names, schemas, frozenset(stat.path for stat in plans))

    @property
    def own(self) -> list[Completion]:
        return [completion for completion in self.commits if not completion.adopted]

    def ask_active(self) -> None:
        active = [completion for completion in self.own if completion.requested > self.value.archive.watermark]
        for report in ahead(self.session, self._report_of, active):
            self.report.add(report)

    def _report_of(self, completion: Completion) -> HudiReport:
        look = replace(self, report=HudiReport())
        look.ask_commit(completion)
        return look.report

    def ask_commit(self, completion: Completion) -> None:
        path = self.session.publisher.projector.path(completed_name(completion))
        gone = f"Hudi is not told of a commit: its file is missing. instant={completion.requested}"
        data = self._file_of(completion.version, path, gone)
        record = self._ask_record(completion)
        if data is not None and (differs := self._difference(completion, record, data, path)) is not None:
            self._note(path, f"{differs}. instant={completion.requested}")

    def _ask_record(self, completion: Completion) -> bytes | None:
        """Check and return the record of a service's plan; None for a write, because nobody reads its record."""
        action = action_ending_as(completion.action)
        if action is WRITE:
            return None
        path = self._begin_path(completion.requested, action)
        data = self._read(path)
        if data is None:
            return None
        self.report.objects += 1
        plan = self._plan(completion) if isinstance(action, FrozenAction) else None
        self._hold(path, completion.requested, lambda: record_fault(action, completion, plan, data, path))
        return data

    def ask_plans(self) -> None:
        for plan in self.value.plans:
            action = planned_action(plan.action)
            if not action.shown_while_open:
                continue
            path = self._begin_path(plan.barrier, action)
            frozen = self.session.store.read(plan.path)
            gone = f"Hudi is not told of an open plan: its file is missing. instant={plan.barrier}"
            data = self._file_of(plan.version, path, gone)
            if data is not None and frozen is not None:
                self._hold(path, plan.barrier, partial(record_fault, action, None, frozen, data, path))

    def ask_savepoints(self) -> None:
        """Check the savepoints told to Hudi. Hudi may have deleted our savepoint and made its own there."""
        for savepoint in self.value.savepoints:
            if not savepoint.is_in_hudi:
                continue
            path, inflight = self.session.publisher.projector.savepoint_paths(savepoint)
            if path not in self.names and savepoint.version < self.value.version:
                begun = self._read(inflight)
                if begun is None or not _is_of(savepoint, begun, inflight):
                    continue
            gone = f"Hudi is not told of a savepoint: its file is missing. name={savepoint.name}"
            data = self._file_of(savepoint.version, path, gone)
            if data is None:
                continue
            if not _is_of(savepoint, data, path):
                self._note(path, f"the file of another savepoint. name={savepoint.name}")
                continue
            shown = [commit for commit in self.commits if Cut("completed", savepoint.at).shows(commit)]
            self._hold(path, savepoint.marks, partial(savepoint_fault, savepoint, shown, data, path))
            begun = self._read(inflight)
            if begun and begun != data:  # Hudi leaves the inflight file empty
                self._note(inflight, f"the inflight file differs from the completed file. name={savepoint.name}")

    def ask_strangers(self) -> None:
        """Check that each completed file with our key belongs to a known instant, or to one dropped by a restore.

        A commit is published before Hudi is told of it, so a later instant than the newest version shows a lost
        version.
        """
        session, value, known = self.session, self.value, {c.requested for c in self.commits}
        unfinished = {p.requested for p in value.pending} | {p.barrier for p in value.plans}
        unfinished |= {r.requested for r in value.rolled_back}
        strange = {
            path: name
            for path, name in self.names.items()
            if name.state == "completed"
            and name.action != SAVEPOINT
            and name.requested not in known
            and value.retention.dropped < name.requested
        }
        by_time = {name.requested: [name] for name in strange.values()}
        dropped = session.run(dropped_by_restores(value, by_time, known | unfinished)) if strange else {}
        notes = session.run(notes_of_copies()) if strange else []
        copied = max((note.clock for note in notes if note.table_id == value.table_id), default=EPOCH)
        for path, name in strange.items():
            data = self._read(path) if name.requested not in dropped else None
            if data is None or not bears_our_key(name, data, path):
                continue
            self.report.objects += 1
            if name.requested <= copied:
                self.report.is_ahead = True
            else:
                said = f"no version of the timeline completed this instant. instant={name.requested}"
                is_later = (name.completed or name.requested) > value.clock
                self._note(path, said, "lost version" if is_later else "unknown instant")

    def ask_history(self) -> None:
        session, archive = self.session, self.value.archive
        folder = session.publisher.projector.archive
        if session.run(is_archived_by_others(session.publisher.projector, self.value)):
            return
        path = f"{folder}/{manifest_name(archive.manifest)}"
        try:
            files = self._named_in(path)
            instants = list(chain.from_iterable(ahead(self.session, self._rows_of, [f"{folder}/{n}" for n in files])))
            self.report.objects += len(files)
        except FormatError as error:
            self._note(path, error, _HISTORY)
            return
        held = {row.name.requested: row for row in instants}
        for completion in self.own:
            if completion.requested <= archive.watermark:
                row = held.get(completion.requested)
                said: str | None = "the history lacks an instant"
                if row is not None:
                    said = self._difference(completion, None, row.metadata, path)
                if said is not None:
                    place = f"{path}#{completion.requested}"
                    self.report.findings[place] = finding(_HISTORY, path, f"{said}. instant={completion.requested}")
        late = [time for time in held if time > archive.watermark]
        if late:
            above = f"an instant of the history is above the watermark. instant={late[0]} watermark={archive.watermark}"
            self._note(path, above, _HISTORY)

    def _named_in(self, path: str) -> tuple[str, ...]:
        names = read_decoded(self.session, path, decode_manifest)
        if names is None:
            raise FormatError(f"the manifest of the history is missing. file={path}")
        self.report.objects += 1
        if names != self.value.archive.files:
            raise FormatError(f"the manifest and the value name different files. file={path} names={names[:5]}")
        return names

    def _rows_of(self, path: str) -> list[ArchivedInstant]:
        instants = read_decoded(self.session, path, decode_instants)
        if instants is None:
            raise FormatError(f"a data file of the history is missing. file={path}")
        return instants

    def _plan(self, completion: Completion) -> bytes | None:
        """Return the frozen plan of a service, if intact. Damage is reported for open plans only."""
        path = plan_path(completion.requested, completion.nonce)
        with suppress(FormatError):
            return read_object(self.session, path) if path in self.plans else None
        return None

    def _difference(self, completion: Completion, record: bytes | None, data: bytes, path: str) -> str | None:
        plan = self._plan(completion) if needs_plan(completion) else None
        try:
            return completed_fault(completion, plan, record, data, path, self.schemas)
        except CrdtMorError as error:
            return str(error)

    def _begin_path(self, requested: InstantTime, action: Action) -> str:
        return self.session.publisher.projector.path(TimelineFileName(requested, action.name, action.begin_states[0]))

    def _file_of(self, version: int, path: str, gone: str) -> bytes | None:
        """Return a file that tells Hudi of an event; None, with a finding or hint, if it cannot be read."""
        data = self._read(path)
        if data is not None:
            self.report.objects += 1
        elif path not in self.report.findings and version >= self.value.version:
            said = f"Hudi was not told of the newest version yet. version={version}"
            self.report.hints.append(finding("unprojected", path, said))
        elif path not in self.report.findings:
            self._note(path, gone)
        return data

    def _read(self, path: str) -> bytes | None:
        try:
            return read_object(self.session, path) if path in self.names else None
        except FormatError as error:
            self._note(path, error)
            return None

    def _hold(self, path: str, instant: InstantTime, fault: Callable[[], str | None]) -> None:
        try:
            said = fault()
        except CrdtMorError as error:
            said = str(error)
        if said is not None:
            self._note(path, f"{said}. instant={instant}")

    def _note(self, path: str, said: str | CrdtMorError, check: str = "Hudi's timeline") -> None:
        self.report.findings[path] = finding(check, path, said)


def _is_of(savepoint: Savepoint, data: bytes, path: str) -> bool:
    return own_savepoint_time(data, path) == savepoint.saved
