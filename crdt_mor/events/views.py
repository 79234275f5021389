"""What readers of one table see: the newest value sealed, with Hudi's commits in it, and the completions it shows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from crdt_mor.errors import (
    CommitUnknownError,
    FutureSnapshotError,
    SnapshotExpiredError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from crdt_mor.events import decide as moments
from crdt_mor.ground.bounded import Bounded
from crdt_mor.ground.threads import in_threads
from crdt_mor.hudi import adoption
from crdt_mor.hudi.adoption import Foreign, foreign_completions
from crdt_mor.hudi.adoption_instants import InstantCache
from crdt_mor.hudi.adoption_pending import begun_files, heard_of_hudi
from crdt_mor.hudi.projection import is_told
from crdt_mor.log.outcome import newer_value
from crdt_mor.log.segments import SegmentGoneError, read_segment
from crdt_mor.model.cut import Cut
from crdt_mor.model.file_ids import live_groups
from crdt_mor.model.instant import InstantTime, from_ms
from crdt_mor.model.restore import restored_since
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Segment
from crdt_mor.store.protocol import Stat, side_by_side

if TYPE_CHECKING:
    from crdt_mor.events.session import Session

LOOK_EVERY_MS: Final = 60_000
"""How often an open table looks for commits that Hudi itself wrote."""

LOOK_AT_END_MS: Final = 1_000
"""A write looks once more before its end where its last look is so long ago."""

LOOK_NAMES_MAX: Final = 60
"""A writer on a disk looks before each write into a timeline of so many files: that takes little beside a commit."""

LOOK_SHARE: Final = 80
"""Into a longer one it looks again once so many times as long has passed as its last look took, and as many times that
as there are writers that post, who look by turns."""

LOOK_BY_TURNS_MS: Final = 500
"""How long writers that post leave at most between their looks for that: a statement of Hudi's takes longer."""

FOUND_OUT_BYTES: Final = 32 << 20
"""How many bytes a process keeps of what its reads found out of a table's files: one bit a row for 250 million rows."""

LOG_KEYS_BYTES: Final = 32 << 20
"""How many bytes a process keeps of the keys of a table's log files: eight a key, for four million of them."""

_SEGMENTS_CACHED: Final = 256
_SEGMENTS_AT_ONCE: Final = 16


class Views:
    """What a session shows to readers. Safe to share between threads, as the session is."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._looked_at_ms = self._look_took_ms = self._names_seen = 0
        self._foreign = False
        self._untold = False  # whether the last look missed completed files of the newest version
        self._has_helped = False
        self._begun_files: list[Stat] | None = None  # of the last look
        self._hudi_instants: InstantCache = {}
        self._segments: OrderedDict[str, tuple[Completion, ...]] = OrderedDict()
        self.found_out: Bounded[Any] = Bounded(FOUND_OUT_BYTES)
        self._has_looked_up = False
        self._log_keys: Bounded[Any] = Bounded(LOG_KEYS_BYTES)

    @property
    def has_foreign(self) -> bool:
        """Whether Hudi has made commits that are part of no version yet."""
        return self._foreign

    def log_keys(self) -> Bounded[Any] | None:
        """Where a lookup of keys remembers which keys log files have; None for the first one of a session."""
        has_looked_up, self._has_looked_up = self._has_looked_up, True
        return self._log_keys if has_looked_up else None

    def hudi_is_writing(self) -> bool:
        """Whether Hudi has a write under way, as the last look at its directory says."""
        session = self._session
        if self._begun_files is None:
            self._begun_files = begun_files(session.known(), session.store.list(session.publisher.projector.folder))
        return bool(session.run(heard_of_hudi(self._begun_files, session.expiry_ms)))

    def look_before_end(self) -> None:
        """As `look_before_write`, where a write that began some time ago is about to end."""
        if abs(self._session.environment.now_ms() - self._looked_at_ms) >= LOOK_AT_END_MS:
            self.look_before_write()

    def look_before_write(self) -> None:
        """Look whether Hudi has written since the last look, before a write of ours that has to come after it.

        On a disk that is done as often as it takes little of the time. In a bucket it is more requests, made once a
        minute, but for tables in which Hudi takes turns with us.
        """
        since = abs(self._session.environment.now_ms() - self._looked_at_ms)
        takes_turns = not self._session.config.ours or bool(self._session.known().file_ids.groups)
        if since >= (LOOK_EVERY_MS if self._session.is_far and not takes_turns else self._pause_ms):
            self.with_hudi(self._session.tail(), None)
        if self._untold and not self._has_helped:  # the process that published it may have died before it told Hudi
            self._session.run(self._session.publisher.help_project(self._session.known()))
        self._has_helped = True

    @property
    def _pause_ms(self) -> int:
        """How long a writer on a disk leaves between its looks."""
        if self._names_seen <= LOOK_NAMES_MAX:
            return 0
        alone_ms = LOOK_SHARE * max(self._look_took_ms, 1)
        return max(alone_ms, min(LOOK_BY_TURNS_MS, alone_ms * (1 + self._session.pace.crowd.others)))

    def adopt(self) -> None:
        """Make what Hudi wrote part of the value for good."""
        session = self._session
        if self._foreign or adoption.may_be_led_to(session.known().foreign_group, session.config.buckets):
            session.remember(session.run(adoption.adopt(session.publisher, session.known())))
            self._foreign = False

    def sealed(self, *, look: bool = False, decided: bool = False, handed_out: Sequence[Cut] = ()) -> Timeline:
        """The newest value, with what Hudi wrote beside it adopted in memory.

        Hudi's directory is looked at when the session begins, when asked to, and then once a minute.

        decided: look, and leave out what Hudi completed at times that have not come yet, see `is_decided`.
        handed_out: cuts that some processes have handed out, by whose clocks their times had come: what Hudi completed
            before one of them is not left out.
        """
        found = self._session.found()
        tail = self._session.tail() if found is None else found.tail
        now_ms = self._session.environment.now_ms()
        if not (look or decided or self._foreign or abs(now_ms - self._looked_at_ms) > LOOK_EVERY_MS):
            return tail
        listed = None if found is None else found.hudi
        return self.with_hudi(tail, listed, decided=decided, handed_out=handed_out)

    def with_hudi(
        self, tail: Timeline, listed: Sequence[Stat] | None, *, decided: bool = False, handed_out: Sequence[Cut] = ()
    ) -> Timeline:
        """A value that was the newest a moment ago, with what Hudi wrote beside it adopted in memory.

        listed: Hudi's directory, where it was listed since the value was read. decided, handed_out: as in `sealed`.
        """
        began_ms = self._session.environment.now_ms()
        if listed is None:
            listed = self._session.store.list(self._session.publisher.projector.folder)
        foreign = self._foreign_completions(tail, listed)
        self._begun_files = begun_files(tail, listed)
        self._untold = not is_told(tail, listed)
        self._looked_at_ms, self._foreign = self._session.environment.now_ms(), bool(foreign.completions)
        self._look_took_ms, self._names_seen = abs(self._looked_at_ms - began_ms), len(listed)
        completions = [
            c for c in foreign.completions
            if not decided or self.is_decided(c.completed) or any(cut.reaches(c.completed) for cut in handed_out)
        ]  # fmt: skip
        if not completions:
            return tail
        # What is adopted in memory is part of no version yet, so that a version shows the same before and after.
        clock = max(tail.clock, *(c.completed for c in completions))
        groups = live_groups((*foreign.known, *completions), self._session.config.buckets)
        adopted = tail.adopt(tail.nonce, 0, completions, foreign.schema, groups)
        return replace(adopted, version=tail.version, clock=clock)

    def _foreign_completions(self, value: Timeline, listed: Sequence[Stat] | None = None) -> Foreign:
        """What Hudi has completed beside a value. listed: Hudi's directory, where it was listed just now."""
        steps = foreign_completions(self._session.publisher.projector, value, self._hudi_instants, listed)
        return self._session.run(steps)

    def sealed_beside(self, call: Callable[[Timeline], None]) -> Timeline:
        """As `sealed`. In a bucket, where a look takes round trips, a call gets the value that is known meanwhile.

        call: asks for what is wanted of the value, as it is seldom another one; it raises nothing.
        """
        if not self._session.has_known or not self._session.is_far:
            return self.sealed()
        calls: list[Callable[[], Timeline | None]] = [self.sealed, partial(call, self._session.known())]
        sealed, _ = side_by_side(self._session.store, calls)
        assert sealed is not None
        return sealed

    def decide(self, moment: InstantTime) -> None:
        """Have a moment decided that the table's clock has not reached, though it has passed: see `events.decide`.

        Raises `FutureSnapshotError` for a moment in the future of the store's clock, and where this process may not
        write, or the store fails.
        """
        if self._session.config.local_times or (self._session.known().version == 0 and not self._session.config.ours):
            self._refuse_undecided(moment, "only Hudi has written to this table, and reading it writes nothing", None)
        cause: Exception | None = None
        try:
            self._session.start()
            known = self._session.known()
            self._session.remember(self._session.run(moments.decide(self._session.publisher, known, moment)))
        except (StorageUnavailableError, CommitUnknownError) as error:
            cause = error
        if self._session.known().clock < moment:
            if cause is None:
                self._refuse_undecided(moment, "it lies in the future of the store's clock", None)
            self._refuse_undecided(
                moment,
                "it has passed, but no event of the table has a later time, and this process cannot publish one: let a "
                "process that may write here ask for the moment once",
                cause,
            )

    def _refuse_undecided(self, moment: InstantTime, why: str, cause: Exception | None) -> NoReturn:
        raise FutureSnapshotError(
            f"what this moment will show is not decided yet: {why}; or ask for one up to the newest moment that is "
            'decided, which as_of="now" names. '
            f"as_of={moment} newest_decided={self.sealed(decided=True).clock}" + (f" cause={cause}" if cause else "")
        ) from cause

    def is_decided(self, moment: InstantTime) -> bool:
        """Whether no later commit of ours can come before a moment: the table's clock or the wall clock has passed it.

        The clock of Hudi's writers may be ahead of ours, and the table's clock follows theirs only with our next event
        that has looked. Where nothing of ours was ever published, the first event looks.
        """
        known = self._session.known()
        return known.version == 0 or moment <= known.clock or moment < from_ms(self._session.environment.now_ms())

    def unseen(self, value: Timeline, cut: Cut) -> list[Completion]:
        """Commits that Hudi has made, that a cut shows, and that `value` does not have."""
        foreign = self._foreign_completions(value)
        missing = [completion for completion in foreign.completions if cut.shows(completion)]
        self._foreign |= bool(missing)
        return missing

    def completions(self, value: Timeline, needed: Callable[[Segment], bool] = lambda _: True) -> list[Completion]:
        """The completions of a value, those of the `needed` segments included, in completion order."""
        try:
            result = self._sealed([segment for segment in value.segments if needed(segment)])
            result += value.completions
        except SegmentGoneError:
            result = self._completions_by_now(value, needed)
        return sorted(result, key=lambda c: c.completed)

    def _completions_by_now(self, value: Timeline, needed: Callable[[Segment], bool]) -> list[Completion]:
        """The completions of a value that is no longer kept, of which a segment was swept, from the newest value.

        They are those that the newest value has of versions up to that one, and those that it has dropped, which views
        before `retention.dropped` alone may need.
        """
        newest = self._session.remember(self._session.run(newer_value(value)))
        cut = restored_since(newest.restores, value.version)
        if cut is not None and cut.first <= value.clock:
            raise SnapshotExpiredError(
                "the table was restored to an earlier moment while this snapshot was held, so that some of what it "
                f"shows is gone: take a new one. version={value.version} clock={value.clock} restored_to={cut.to}"
            )
        if newest.retention.dropped > value.clock:
            raise SnapshotExpiredError(
                "the table has dropped the history that this snapshot is of, while it was held: take a new one. "
                f"version={value.version} clock={value.clock} oldest={newest.retention.since}"
            )

        def wanted(segment: Segment) -> bool:
            return needed(segment) or (segment.superseded is not None and segment.superseded > value.clock)

        own = {c.requested: c for c in value.completions}
        now = {c.requested: c for c in self.completions(newest, wanted) if c.version <= value.version}
        return list((now | own).values())

    def snapshot_completions(self, value: Timeline, cut: Cut | None = None) -> list[Completion]:
        """The completions that a snapshot needs: segments that compactions have superseded by then are skipped."""
        if cut is None:
            return self.completions(value, lambda segment: segment.superseded is None)
        found = self.completions(value, cut.needs)
        shown = [c for c in found if cut.shows(c)]
        if len(shown) < len(found) and self._session.config.layout_one:
            raise UnsupportedFeatureError(
                "of a table from before version 8 the latest snapshot alone is read, as nothing tells which of the "
                "files of an earlier one Hudi's cleaner has removed: let Hudi upgrade the table to version 9, or ask "
                f"its own reader. version={self._session.config.version} as_of={cut.time}"
            )
        return shown

    def _sealed(self, segments: Sequence[Segment]) -> list[Completion]:
        """The completions in some segments. Those that are not in memory come side by side from a bucket."""
        contents = {s.name: known for s in segments if (known := self._segments.get(s.name)) is not None}
        missing = [segment for segment in segments if segment.name not in contents]

        def read(segment: Segment) -> tuple[Completion, ...]:
            return self._session.run(read_segment(segment))

        found = in_threads(read, missing, _SEGMENTS_AT_ONCE) if self._session.is_far else map(read, missing)
        for segment, completions in zip(missing, found, strict=True):
            contents[segment.name] = self._segments[segment.name] = completions
            if len(self._segments) > _SEGMENTS_CACHED:
                self._segments.popitem(last=False)
        return [completion for segment in segments for completion in contents[segment.name]]
