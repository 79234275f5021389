"""What a table's readers see: the newest value with Hudi's commits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import is_
from typing import Any, Final, NoReturn, TypeVar, cast

from crdt_mor.errors import (
    CommitUnknownError,
    FutureSnapshotError,
    SnapshotExpiredError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from crdt_mor.events import decide as moments
from crdt_mor.events.handle import Handle
from crdt_mor.ground.bounded import Bounded
from crdt_mor.ground.threads import in_threads
from crdt_mor.hudi import adoption
from crdt_mor.hudi.adoption import HudiCompletions, foreign_completions
from crdt_mor.hudi.adoption_instants import InstantCache
from crdt_mor.hudi.adoption_pending import begun_files, heard_of_hudi
from crdt_mor.hudi.projection import is_projected
from crdt_mor.log.combining import Crowd
from crdt_mor.log.outcome import newer_value
from crdt_mor.log.segments import SegmentGoneError, read_segment
from crdt_mor.model.cut import Cut
from crdt_mor.model.file_ids import live_groups
from crdt_mor.model.instant import InstantTime, from_ms
from crdt_mor.model.restore import restored_since
from crdt_mor.model.slices import Fold, Slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Segment
from crdt_mor.store.protocol import Stat, numbered, side_by_side

T = TypeVar("T")

LOOK_EVERY_MS: Final = 60_000
"""How often an open table looks for Hudi's commits."""

LOOK_AT_END_MS: Final = 1_000
"""If the last look is older, a write looks once more before its end."""

LOOK_NAMES_MAX: Final = 60
"""Up to so many timeline files, a writer on a disk looks before each write."""

LOOK_SHARE: Final = 80
"""In a longer timeline, a writer pauses for this many times the duration of its last look, times the posting
writers."""

LOOK_BY_TURNS_MS: Final = 500
"""The longest pause for the turns of others. A statement of Hudi takes longer."""

RESOLUTIONS_BYTES: Final = 32 << 20
"""Memory for remembered facts about files: a bit per row for 250 million rows."""

LOG_KEYS_BYTES: Final = 32 << 20
"""Memory for keys of log files: eight bytes per key for four million keys."""

_SEGMENTS_CACHED: Final = 256
_SEGMENTS_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class HudiLook:
    """The last look at Hudi's timeline: its time and duration by this machine's clock, and its findings.

    tail, listed: the newest version, and the files listed after it; None before the first look. has_foreign: no
    version contains some commits of Hudi.
    """

    at_ms: int = 0
    took_ms: int = 0
    tail: Timeline | None = None
    listed: Sequence[Stat] = ()
    has_foreign: bool = False


class Views:
    """What a session shows to readers. Thread-safe."""

    def __init__(self, handle: Handle, crowd: Crowd) -> None:
        self._handle = handle
        self._crowd = crowd
        self._look = HudiLook()
        self._has_helped = False
        self._hudi_instants: InstantCache = {}
        self._fold = Fold()
        self._kept: dict[type, Any] = {}
        self._segments: OrderedDict[str, tuple[Completion, ...]] = OrderedDict()
        self.resolutions: Bounded[Any] = Bounded(RESOLUTIONS_BYTES)
        self._has_looked_up = False
        self._log_keys: Bounded[Any] = Bounded(LOG_KEYS_BYTES)

    @property
    def has_foreign(self) -> bool:
        """True if Hudi has commits that no version contains."""
        return self._look.has_foreign

    def log_keys(self) -> Bounded[Any] | None:
        """Return the memory for keys of log files; None at a session's first lookup."""
        has_looked_up, self._has_looked_up = self._has_looked_up, True
        return self._log_keys if has_looked_up else None

    def kept(self, kind: type[T]) -> T:
        """Return this session's only object of a type. Readers keep computed values in it."""
        return cast("T", self._kept.get(kind) or self._kept.setdefault(kind, kind()))

    def hudi_is_writing(self) -> bool:
        handle, tail, listed = self._handle, self._look.tail, self._look.listed
        if tail is None:
            tail, listed = handle.known_tail(), numbered(handle.store, handle.publisher.projector.folder)
            self._look = replace(self._look, tail=tail, listed=listed)
        begun = begun_files(tail, listed)
        return bool(begun) and bool(handle.run(heard_of_hudi(begun, handle.expiry_ms)))

    def look_before_end(self) -> None:
        if self._since_look_ms >= LOOK_AT_END_MS:
            self.look_before_write()

    def look_before_write(self, newest: Timeline | None = None, *, always: bool = False) -> None:
        """Look for Hudi's commits before a write of ours that must follow them. newest: if just read.

        On a disk, look as often as the cost is small; in a bucket, once a minute, or always if Hudi and we take turns.
        """
        takes_turns = not self._handle.config.ours or bool(self._handle.known_tail().file_ids.groups)
        pause_ms = LOOK_EVERY_MS if self._handle.is_far and not takes_turns else self._pause_ms
        if always or self._since_look_ms >= pause_ms:
            self.with_hudi(newest or self._handle.tail(), None)
        if self._has_helped:
            return
        tail = self._look.tail
        if tail is not None and not is_projected(tail, self._look.listed):  # its publisher may have died before that
            self._handle.run(self._handle.publisher.help_project(self._handle.known_tail()))
        self._has_helped = True

    @property
    def _since_look_ms(self) -> int:
        return abs(self._handle.environment.now_ms() - self._look.at_ms)

    @property
    def _pause_ms(self) -> int:
        """The least time until the next look; 0 for a short timeline."""
        look = self._look
        alone_ms = LOOK_SHARE * max(look.took_ms, 1) if len(look.listed) > LOOK_NAMES_MAX else 0
        return max(alone_ms, min(LOOK_BY_TURNS_MS, alone_ms * (1 + self._crowd.others)))

    def forget_hudi(self) -> None:
        """Let the next look read Hudi's commits again."""
        self._hudi_instants = {}

    def adopt(self) -> None:
        handle = self._handle
        if self.has_foreign or adoption.may_be_led_to(handle.known_tail().foreign_group, handle.config.buckets):
            handle.remember(handle.run(adoption.adopt(handle.publisher, handle.known_tail())))
            self._look = replace(self._look, has_foreign=False)

    def sealed(self, *, look: bool = False, decided: bool = False, handed_out: Sequence[Cut] = ()) -> Timeline:
        """Return the newest value, with Hudi's commits adopted in memory.

        Looks at Hudi's directory at the start, on request, and once a minute. decided: leave out Hudi's commits with
        future times, see `is_decided`. handed_out: keep commits before these cuts.
        """
        found = self._handle.take_opened_tail()
        tail = self._handle.tail() if found is None else found.tail
        if not (look or decided or self.has_foreign or self._since_look_ms > LOOK_EVERY_MS):
            return tail
        listed = None if found is None else found.hudi
        return self.with_hudi(tail, listed, decided=decided, handed_out=handed_out)

    def with_hudi(
        self, tail: Timeline, listed: Sequence[Stat] | None, *, decided: bool = False, handed_out: Sequence[Cut] = ()
    ) -> Timeline:
        """Return a recent value with Hudi's commits adopted in memory. listed: Hudi's directory, listed after reading
        the value.
        """
        foreign = self._look_at_hudi(tail, listed)
        completions = [
            c for c in foreign.completions
            if not decided or self.is_decided(c.completed) or any(cut.reaches(c.completed) for cut in handed_out)
        ]  # fmt: skip
        if not completions:
            return tail
        # The number stays, as a version must show the same before and after.
        clock = max(tail.clock, *(c.completed for c in completions))
        groups = live_groups((*foreign.value_completions, *completions), self._handle.config.buckets)
        adopted = tail.adopt(tail.nonce, 0, completions, foreign.schema, groups)
        return replace(adopted, version=tail.version, clock=clock)

    def _look_at_hudi(self, tail: Timeline, listed: Sequence[Stat] | None) -> HudiCompletions:
        began_ms = self._handle.environment.now_ms()
        if listed is None:
            listed = numbered(self._handle.store, self._handle.publisher.projector.folder)
        foreign = self._foreign_completions(tail, listed)
        now_ms = self._handle.environment.now_ms()
        self._look = HudiLook(
            at_ms=now_ms,
            took_ms=abs(now_ms - began_ms),
            tail=tail,
            listed=listed,
            has_foreign=bool(foreign.completions),
        )
        return foreign

    def _foreign_completions(self, value: Timeline, listed: Sequence[Stat] | None = None) -> HudiCompletions:
        steps = foreign_completions(self._handle.publisher.projector, value, self._hudi_instants, listed)
        return self._handle.run(steps)

    def sealed_beside(self, call: Callable[[Timeline], None]) -> Timeline:
        """Return `sealed`. In a bucket, call `call` meanwhile with the known value."""
        if not self._handle.has_known_tail or not self._handle.is_far:
            return self.sealed()
        calls: list[Callable[[], Timeline | None]] = [self.sealed, partial(call, self._handle.known_tail())]
        sealed, _ = side_by_side(self._handle.store, calls)
        assert sealed is not None
        return sealed

    def decide(self, moment: InstantTime) -> None:
        """Decide a past moment (`events.decide`).

        Raises `FutureSnapshotError` if the moment is in the future, this process may not write, or the store fails.
        """
        if self._handle.config.local_times or (self._handle.known_tail().version == 0 and not self._handle.config.ours):
            self._refuse_undecided(
                moment, "only Hudi wrote to this table, and crdt_mor writes nothing when reading it", None
            )
        cause: Exception | None = None
        try:
            self._handle.start()
            known_tail = self._handle.known_tail()
            self._handle.remember(self._handle.run(moments.decide(self._handle.publisher, known_tail, moment)))
        except (StorageUnavailableError, CommitUnknownError) as error:
            cause = error
        if self._handle.known_tail().clock < moment:
            if cause is None:
                self._refuse_undecided(moment, "the moment is ahead of the store's clock", None)
            self._refuse_undecided(
                moment,
                "the moment is over, but no later event exists and this process cannot publish one. Let a process "
                "with write access ask for the moment once",
                cause,
            )

    def _refuse_undecided(self, moment: InstantTime, why: str, cause: Exception | None) -> NoReturn:
        raise FutureSnapshotError(
            f'the snapshot at this moment is not decided yet: {why}. Or use as_of="now", the newest decided moment. '
            f"as_of={moment} newest_decided={self.sealed(decided=True).clock}" + (f" cause={cause}" if cause else "")
        ) from cause

    def is_decided(self, moment: InstantTime) -> bool:
        """Return True if no later commit of ours can come before a moment.

        The clock of Hudi's writers may be ahead; our next event that looks follows theirs.
        """
        known_tail = self._handle.known_tail()
        return (
            known_tail.version == 0 or moment <= known_tail.clock or moment < from_ms(self._handle.environment.now_ms())
        )

    def unadopted(self, value: Timeline, cut: Cut) -> list[Completion]:
        foreign = self._foreign_completions(value)
        missing = [completion for completion in foreign.completions if cut.shows(completion)]
        if missing:
            self._look = replace(self._look, has_foreign=True)
        return missing

    def completions(self, value: Timeline, needed: Callable[[Segment], bool] = lambda _: True) -> list[Completion]:
        """Return the completions of a value and its `needed` segments, in completion order."""
        try:
            result = self._sealed([segment for segment in value.segments if needed(segment)])
            result += value.completions
        except SegmentGoneError:
            result = self._completions_by_now(value, needed)
        return sorted(result, key=lambda c: c.completed)

    def newest(self, value: Timeline, is_wanted: Callable[[Completion], bool] = lambda _: True) -> Completion | None:
        """Return the newest wanted completion. Reads segments from the newest on."""
        newest_first = sorted(value.segments, key=lambda segment: segment.last, reverse=True)
        for chosen in (None, *newest_first):
            known = self.completions(value, partial(is_, chosen))
            wanted = [completion for completion in known if is_wanted(completion)]
            if wanted:
                return wanted[-1]
        return None

    def _completions_by_now(self, value: Timeline, needed: Callable[[Segment], bool]) -> list[Completion]:
        """Return an old value's completions from the newest value, after a sweep deleted segments."""
        newest = self._handle.remember(self._handle.run(newer_value(value)))
        cut = restored_since(newest.restores, value.version)
        if cut is not None and cut.first <= value.clock:
            raise SnapshotExpiredError(
                "the table was restored to an earlier moment, and some rows of this snapshot are gone. Take a new "
                f"snapshot. version={value.version} clock={value.clock} restored_to={cut.to}"
            )
        if newest.retention.dropped > value.clock:
            raise SnapshotExpiredError(
                f"the table dropped the history of this snapshot. Take a new snapshot. version={value.version} "
                f"clock={value.clock} oldest={newest.retention.since}"
            )

        def wanted(segment: Segment) -> bool:
            return needed(segment) or (segment.superseded is not None and segment.superseded > value.clock)

        own = {c.requested: c for c in value.completions}
        now = {c.requested: c for c in self.completions(newest, wanted) if c.version <= value.version}
        return list((now | own).values())

    def slices(self, value: Timeline, cut: Cut | None = None, *, old_logs: bool = False) -> Slices:
        """Return the file slices of a snapshot. For `old_logs` see `Fold.of`."""
        return self._fold.of(self.snapshot_completions(value, cut), old_logs=old_logs)

    def snapshot_completions(self, value: Timeline, cut: Cut | None = None) -> list[Completion]:
        """Return the completions of a snapshot, without superseded segments."""
        if cut is None:
            return self.completions(value, lambda segment: segment.superseded is None)
        found = self.completions(value, cut.needs)
        shown = [c for c in found if cut.shows(c)]
        if len(shown) < len(found) and self._handle.config.layout_one:
            raise UnsupportedFeatureError(
                "only the latest snapshot of a table before version 8 can be read, since Hudi's cleaner may have "
                "removed files of earlier ones. Upgrade the table to version 9 with Hudi, or use Hudi's own reader. "
                f"version={self._handle.config.version} as_of={cut.time}"
            )
        return shown

    def _sealed(self, segments: Sequence[Segment]) -> list[Completion]:
        contents = {s.name: held for s in segments if (held := self._segments.get(s.name)) is not None}
        missing = [segment for segment in segments if segment.name not in contents]

        def read(segment: Segment) -> tuple[Completion, ...]:
            return self._handle.run(read_segment(segment))

        found = in_threads(read, missing, _SEGMENTS_AT_ONCE) if self._handle.is_far else map(read, missing)
        for segment, completions in zip(missing, found, strict=True):
            contents[segment.name] = self._segments[segment.name] = completions
            if len(self._segments) > _SEGMENTS_CACHED:
                self._segments.popitem(last=False)
        return [completion for segment in segments for completion in contents[segment.name]]
