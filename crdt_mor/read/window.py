"""From two cuts of a table's commits to what changed between them.

    commits that one cut shows and the other does not ─► the keys that they wrote ─► their merged state at either cut

Which keys changed is what the commits' own log files say, so that a small commit costs little in a large table. Where a
commit rewrote base files or replaced file groups, as Hudi's copy-on-write and insert_overwrite do, its files say too
little, and the two states are compared instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Final, Literal

import polars as pl

from crdt_mor.errors import CheckpointExpiredError, UnsupportedFeatureError
from crdt_mor.events.session import Session
from crdt_mor.ground.threads import in_threads
from crdt_mor.merge.blocks import COMMIT_TIME
from crdt_mor.model.committed import Committed
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.slices import FileSlice, balanced_parts, fold_slices, log_order
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup
from crdt_mor.planners.clean import is_commit
from crdt_mor.read.images import DELETE, UPSERT, Versions, images_in_turn, images_of, with_change, with_commit
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.read.window_states import Scope, States, TouchedGroups, expired_start

Mode = Literal["merged", "difference", "images", "raw"]
"""The ways to see a window; see the methods of `Window` of these names."""

IN_TURN_BYTES_MAX: Final = 64 << 20
"""The most bytes of log files whose rows are made images together."""


@dataclass(frozen=True)
class Window:
    """What happened between two cuts: `between` are the completions that one of them shows and the other does not.

    history: those that the file slices at both cuts, and between them, consist of; None: to be looked up in the value.
    """

    session: Session
    value: Timeline
    start: Cut
    end: Cut
    between: Sequence[Completion]
    history: Sequence[Completion] | None = None

    @classmethod
    def seal(cls, session: Session, value: Timeline, start: Cut, end: Cut) -> Window:
        """The window between two cuts of `value`."""
        require_times(session)
        first, last = sorted((start.time, end.time))
        # By completion, a segment says whether it has anything between; by request, only that it may.
        closed = end.by == "completed"
        completions = session.views.completions(value, lambda s: s.last > first and not (closed and s.first > last))
        return cls(session, value, start, end, tuple(c for c in completions if start.shows(c) != end.shows(c)))

    @cached_property
    def commits(self) -> list[Completion]:
        """Those that wrote something, in the order of the cuts."""
        commits = [c for c in self.between if is_commit(c)]
        return sorted(commits, key=lambda c: c.completed if self.end.by == "completed" else c.requested)

    # --- less of it -------------------------------------------------------------------------------------------------

    def until(self, end: Cut) -> Window:
        """This window, ended earlier; where it begins with the empty table, not before the history that is kept."""
        if self._whole and end.time < self.value.retention.since:
            end = replace(end, time=min(self.value.retention.since, self.end.time))
        between = tuple(c for c in self.between if self.start.shows(c) != end.shows(c))
        return replace(self, end=end, between=between)

    def parts(self, mode: Mode, size: int) -> list[Window]:
        """The window cut by file groups, for processes that know nothing else of the table.

        mode: the way in which they will be seen, which decides what has to be read.
        """
        if mode == "merged" and self._whole:
            history = self._completions(self.end)
            weights: list[tuple[Scope, int]] = [(slice_.group, slice_.weight) for slice_ in self._folded(history)]
        else:
            history = self._completions(self.start, self.end)
            weights = [(groups.scope, groups.weight(raw=mode == "raw")) for groups in self._touched()]
        light = replace(self, value=self.value.header)
        parts = [frozenset(scopes) for scopes in balanced_parts(weights, size)]
        return [replace(light, between=within(self.between, part), history=within(history, part)) for part in parts]

    @property
    def _whole(self) -> bool:
        """Whether it begins with the empty table, so that what is merged is a snapshot."""
        return self.start.time == EPOCH

    # --- the ways to see it -----------------------------------------------------------------------------------------

    def frames(self, mode: Mode, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        """The changes in one of the ways to see them; stored types.

        Where `select` names no column, the frames have the key, so that they have rows.
        """
        select = select or [self._states.key]
        match mode:
            case "merged":
                return self.merged(select)
            case "difference":
                return self.difference(select)
            case "images":
                return self.images(select)
            case "raw":
                return self.raw(select)

    def merged(self, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Each changed key once, as it is at the end; stored types."""
        if self._whole:
            slices = tuple(self._folded(self._completions(self.end)))
            for frame in Snapshot(self.session, self.value, self.end, slices).frames(select, None):
                yield with_change(frame, UPSERT)
            return
        states = self._states

        def changed(groups: TouchedGroups) -> list[pl.DataFrame]:
            keys = states.keys(groups)
            after = states.after(groups, keys, select)
            if keys is None:
                before = states.before(groups, None, select)
                upserted = after.join(before, on=[states.key, COMMIT_TIME], how="anti")
                deleted = before.join(after, on=states.key, how="anti")[states.key]
            else:
                upserted, deleted = after, keys.filter(~keys.is_in(after[states.key].implode()))
            return [
                with_change(upserted.select(select), UPSERT),
                with_change(states.deleted_rows(deleted, groups, select), DELETE),
            ]

        for frames in in_threads(changed, self._touched()):
            yield from frames

    def difference(
        self, select: Sequence[str], known: dict[FileGroup, pl.DataFrame] | None = None
    ) -> Iterator[pl.DataFrame]:
        """The rows in which the two ends differ, as images.

        known: by file group, the rows at the start of all keys that this window and later ones write; the rows become
            those at the end of this window.
        """
        states = self._states

        def compared(groups: TouchedGroups) -> list[pl.DataFrame]:
            keys = states.keys(groups)
            after = states.after(groups, keys, select)
            group = groups.written and groups.written.group
            if keys is None or group is None or known is None or group not in known:
                return images_of(states.before(groups, keys, select), after, states.key, select)
            touched = known[group][states.key].is_in(keys.implode())
            before, others = known[group].filter(touched), known[group].filter(~touched)
            known[group] = pl.concat([others, after])
            return images_of(before, after, states.key, select)

        for frames in in_threads(compared, self._touched()):
            yield from frames

    def images(self, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Changes commit by commit: what each of them changed when it became visible."""
        if not self._is_in_order():
            yield from self.images_by_states(select)
            return
        for run in self._runs():
            found = run.images_in_turn(select)
            yield from run.images_by_states(select) if found is None else found

    def _is_in_order(self) -> bool:
        """Whether all that was seen before a commit is older than it, so that what it wrote is what is seen then."""
        if self._states.merging.rule.kind != "latest" or self.start.time > self.end.time or self._written is not None:
            return False
        touched = self._touched()
        if any(groups.written is None for groups in touched):
            return False
        there = (file.name.instant for groups in touched for slice_ in groups.before for file in slice_.files)
        return all(a < b for a, b in pairwise([max(there, default=EPOCH), *(c.requested for c in self.commits)]))

    def _runs(self) -> list[Window]:
        """This window as several, one after another, of as many commits as may be in memory together."""
        ends, size = list[Cut](), 0
        for commit, following in pairwise(self.commits):
            size += sum(file.size for file in commit.files)
            if size + sum(file.size for file in following.files) > IN_TURN_BYTES_MAX:
                ends.append(Cut.after(commit, self.end.by))
                size = 0
        cuts = [self.start, *ends, self.end]
        return [self._between(first, last) for first, last in pairwise(cuts)] if ends else [self]

    def images_in_turn(self, select: Sequence[str]) -> list[pl.DataFrame] | None:
        """`images` of commits that are in order, of all of them at once; None where some wrote parts of rows."""
        states, numbered = self._states, enumerate(self._touched())
        found = list(in_threads(lambda item: states.versions(item[1], item[0], select), numbered))
        some = [versions for versions in found if versions is not None]
        if len(some) < len(found) or not some:
            return None
        images, local = images_in_turn(Versions.joined(some), states.key, select), self.session.config.local_times
        return [with_commit(images[c.requested], c, local=local) for c in self.commits if c.requested in images]

    def images_by_states(self, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        """`images` of any commits: the states before and after each are compared."""
        states = self._states
        known = {
            groups.written.group: states.before(groups, states.keys(groups), select)
            for groups in self._touched()
            if groups.written is not None
        }
        for commit, window in self._steps():
            with expired_start() if window.end != self.end else nullcontext():
                frames = [frame for frame in window.difference(select, known) if frame.height]
            if frames:
                yield with_commit(pl.concat(frames), commit, local=self.session.config.local_times)

    def raw(self, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        """The rows and deletes of each commit as it wrote them."""
        for commit, window in self._steps():
            for frame in window.contributions(select):
                yield with_commit(frame, commit, local=self.session.config.local_times)

    def contributions(self, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        """The rows and deletes that the commits wrote, as they wrote them."""
        states = self._states
        for groups in self._touched():
            if self._overwriting:
                yield from self._replaced(groups, select)
                continue
            if groups.written is None:
                rows = states.merged(groups.after, None, select)
                rewritten = pl.col(COMMIT_TIME).is_in(self._rewriting_commits())
                yield with_change(rows.filter(rewritten).select(select), UPSERT)
                continue
            rows, deleted = states.written(groups.written, select)
            yield with_change(rows, UPSERT)
            yield with_change(states.deleted_rows(deleted, groups, select), DELETE)

    @property
    def _overwriting(self) -> bool:
        """Whether the one commit of this window is an overwrite."""
        return len(self.commits) == 1 and self.commits[0].overwriting is not None

    def _replaced(self, groups: TouchedGroups, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        """What an overwrite wrote to a file group: its rows, and a delete of each other key that was there."""
        states = self._states
        after = states.after(groups, None, select)
        before = states.before(groups, None, [])
        gone = before.join(after, on=states.key, how="anti")[states.key]
        yield with_change(after.select(select), UPSERT)
        yield with_change(states.deleted_rows(gone, groups, select), DELETE)

    def _rewriting_commits(self) -> list[InstantTime]:
        """The requested times of the commits; refuses those of which no file says what they deleted."""
        for commit in self.commits:
            if commit.replaced or commit.deletes:
                raise UnsupportedFeatureError(
                    "this commit of Hudi rewrote files, which do not say what it deleted: ask for changes without raw. "
                    f"requested_at={commit.requested} operation={commit.operation}"
                )
        return [commit.requested for commit in self.commits]

    def _steps(self) -> Iterator[tuple[Completion, Window]]:
        """Each commit, and the window that it alone makes."""
        before = self.start
        for commit in self.commits:
            after = Cut.after(commit, self.end.by)
            yield commit, self._between(before, after)
            before = after

    def _between(self, start: Cut, end: Cut) -> Window:
        """A part of this window."""
        between = tuple(c for c in self.between if start.shows(c) != end.shows(c))
        return replace(self, start=start, end=end, between=between)

    def touched(self) -> tuple[States, list[TouchedGroups]]:
        """The file groups that the commits touched, and what reads them at both ends."""
        return self._states, self._touched()

    # --- where it happened ------------------------------------------------------------------------------------------

    @property
    def _states(self) -> States:
        return States(self.session, self.value.schema, forward=self.start.time <= self.end.time)

    def _touched(self) -> list[TouchedGroups]:
        """The file groups that the commits touched, and their slices at both cuts.

        Raises `CheckpointExpiredError` where their history has been given up.
        """
        self._require_kept()
        before, after = self._slices(self.start), self._slices(self.end)
        files: dict[FileGroup, list[DataFile]] = {}
        for commit in self.commits:
            for file in commit.files:
                files.setdefault(file.group, []).append(file)
        # A clustering changes no row, but the keys of its partition are in other groups afterwards.
        written = {partition for partition, _ in files} | {p for c in self.commits for p, _ in c.replaced}
        replaced = written & {partition for c in self.between for partition, _ in c.replaced}
        touched = [
            TouchedGroups(partition, None, _slices_of(before, partition), _slices_of(after, partition))
            for partition in sorted(replaced)
        ]
        for group, group_files in sorted(files.items()):
            if group[0] not in replaced:
                rewritten = any(file.is_base for file in group_files)
                logs = None if rewritten else FileSlice(*group, None, _each_once(group_files), self._written)
                touched.append(TouchedGroups(*group, _slices_of(before, *group), _slices_of(after, *group), logs))
        return touched

    def _require_kept(self) -> None:
        oldest = self.value.retention.since
        if self._whole and oldest != EPOCH:
            raise CheckpointExpiredError(
                "what the first commits of this table wrote is gone, a clean has given that history up, so that "
                "changes since the empty table can only be had merged: leave images and raw out, or give since. "
                f"since={self.start} oldest={oldest}"
            )
        erased = {group: since for group, since in self.value.retention.groups if since > self.start.time}
        touched = {file.group for commit in self.commits for file in commit.files} if erased else set()
        for group in sorted(erased.keys() & touched):
            raise CheckpointExpiredError(
                "rows that these changes would show were erased, with the history of their file group: scan the table, "
                "and go on from the scan's checkpoint (a Spark stream: start it with a new checkpointLocation). "
                f"since={self.start} oldest={erased[group]} partition={group[0]!r} file_group={group[1]}"
            )

    def _slices(self, cut: Cut) -> dict[FileGroup, FileSlice]:
        return {slice_.group: slice_ for slice_ in self._folded(self._completions(cut))}

    def _folded(self, completions: Iterable[Completion]) -> list[FileSlice]:
        return fold_slices(completions, old_logs=self.session.config.was_upgraded)

    @property
    def _written(self) -> Committed | None:
        """The commits whose blocks in their logs are looked for: in a table that was upgraded, others may be there."""
        upgraded = self.session.config.was_upgraded
        return Committed.only(commit.requested for commit in self.commits) if upgraded else None

    def _completions(self, first: Cut, last: Cut | None = None) -> Sequence[Completion]:
        """What the file slices at a cut consist of; with `last`, those at two cuts and at all cuts between them."""
        if self.history is not None:
            return self.history if last is not None else [c for c in self.history if first.shows(c)]
        if last is None:
            return self.session.views.snapshot_completions(self.value, first)
        first = min(first, last, key=lambda cut: cut.time)
        # Later cuts need no segment that this one can do without, but those that complete after it.
        return self.session.views.completions(self.value, lambda s: s.last > first.time or first.needs(s))


def require_times(session: Session) -> None:
    """Raise `UnsupportedFeatureError` of a table whose rows, or log files, do not say when each commit wrote them."""
    if session.config.virtual_keys:
        raise UnsupportedFeatureError(
            "this table has no meta columns (hoodie.populate.meta.fields=false), so that no row says when it was "
            f"written: scan it as of both moments, and compare them. table={session.config.name}"
        )
    if session.config.layout_one:
        raise UnsupportedFeatureError(
            "changes are not read of a table from before version 8, whose commits share their log files: let Hudi "
            "upgrade the table to version 9, or scan it now and then and compare. "
            f"version={session.config.version} table={session.config.name}"
        )


def _each_once(files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    """Files, each once, though several commits name one, in the order of a slice."""
    return tuple(sorted({file.path: file for file in files}.values(), key=log_order))


def within(completions: Iterable[Completion], scopes: frozenset[Scope]) -> list[Completion]:
    """What the completions did to some file groups."""

    def inside(group: FileGroup) -> bool:
        return group in scopes or (group[0], None) in scopes

    narrowed = [
        replace(c, files=tuple(f for f in c.files if inside(f.group)), replaced=tuple(filter(inside, c.replaced)))
        for c in completions
    ]
    return [c for c in narrowed if c.files or c.replaced]


def _slices_of(
    slices: Mapping[FileGroup, FileSlice], partition: str, file_id: str | None = None
) -> tuple[FileSlice, ...]:
    """The slices of a partition, or of one file group."""
    return tuple(s for s in slices.values() if s.partition == partition and file_id in (None, s.file_id))
