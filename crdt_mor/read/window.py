"""Compute the changes between two cuts of a table's commits.

    commits that only one cut shows ─► the keys that they wrote ─► their merged state at either cut

A small commit thus costs little in a large table. If a commit rewrote base files or replaced file groups, as Hudi's
copy-on-write does, the two states are compared instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from operator import attrgetter
from typing import Final, Literal

import polars as pl

from crdt_mor.errors import CheckpointExpiredError, UnsupportedFeatureError
from crdt_mor.events.session import Session
from crdt_mor.ground.threads import groups_in_threads
from crdt_mor.merge.blocks import COMMIT_TIME
from crdt_mor.model.committed import Committed
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.slices import FileSlice, Slices, balanced_parts, files_within, fold_slices, log_order
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup
from crdt_mor.planners.clean import is_commit
from crdt_mor.read.images import DELETE, INSERT, UPSERT, Versions, images_in_turn, images_of, with_change, with_commit
from crdt_mor.read.lapses import expired_images, lapsed_unwritten, untouched
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.read.window_states import Scope, States, TouchedGroups, expired_start

Mode = Literal["merged", "difference", "images", "raw"]
IN_TURN_BYTES_MAX: Final = 64 << 20
"""Maximum bytes of log files whose images are computed together."""


@dataclass(frozen=True)
class Window:
    """The changes between two cuts.

    Attributes:
        between: completions that exactly one cut shows.
        history: completions of the file slices between the cuts; None to read them from the value.
        expired: merged changes and images contain expiries as deletes.
    """

    session: Session
    value: Timeline
    start: Cut
    end: Cut
    between: Sequence[Completion]
    history: Sequence[Completion] | None = None
    expired: bool = False

    @classmethod
    def seal(cls, session: Session, value: Timeline, start: Cut, end: Cut, *, expired: bool = False) -> Window:
        require_times(session)
        first, last = sorted((start.time, end.time))
        # Segments are sorted by completion: ordered by request, a later segment may contain commits of the window.
        closed = end.by == "completed"
        completions = session.views.completions(value, lambda s: s.last > first and not (closed and s.first > last))
        between = tuple(c for c in completions if start.shows(c) != end.shows(c))
        return cls(session, value, start, end, between, expired=expired and session.config.merge.expiry is not None)

    @cached_property
    def commits(self) -> list[Completion]:
        commits = [c for c in self.between if is_commit(c)]
        return sorted(commits, key=lambda c: c.completed if self.end.by == "completed" else c.requested)

    # --- parts ------------------------------------------------------------------------------------------------------

    def until(self, end: Cut) -> Window:
        """Return this window with an earlier end. A window from the empty table ends where the kept history begins, or
        later.
        """
        if self._whole and end.time < self.value.retention.since:
            end = replace(end, time=min(self.value.retention.since, self.end.time))
        between = tuple(c for c in self.between if self.start.shows(c) != end.shows(c))
        return replace(self, end=end, between=between)

    def parts(self, mode: Mode, size: int) -> list[Window]:
        if mode == "merged" and self._whole:
            history = self._completions(self.end)
            weights: list[tuple[Scope, int]] = [(slice_.group, slice_.weight) for slice_ in self._slices(self.end)]
        else:
            history = self._completions(self.start, self.end)
            touched = self._touched()
            weights = [(groups.scope, groups.weight(raw=mode == "raw")) for groups in touched]
            if self.expired and mode != "raw":
                weights += [(slice_.group, slice_.weight) for slice_ in untouched(self._earlier.slices, touched)]
        light = replace(self, value=self.value.header)
        parts = [frozenset(scopes) for scopes in balanced_parts(weights, size)]
        return [replace(light, between=within(self.between, part), history=within(history, part)) for part in parts]

    @property
    def _whole(self) -> bool:
        """True if the changes are a snapshot."""
        return self.start.time == EPOCH

    # --- forms of changes -------------------------------------------------------------------------------------------

    def frames(self, mode: Mode, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield the changes in a form, with stored types; for an empty `select`, the key."""
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
        """Yield each changed key once, in its state at the end."""
        if self._whole:
            for frame in Snapshot(self.session, self.value, self.end, self._slices(self.end)).frames(select, None):
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

        yield from self._each(changed)
        if self.expired:
            for frame in self._lapsed(select):
                yield with_change(states.identities(frame.select(select)), DELETE)

    def difference(self, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield the images of all rows that differ between the two ends."""
        yield from self._compared(select, self._states)
        if self.expired:
            change = DELETE if self.start.time <= self.end.time else INSERT
            for frame in self._lapsed(select):
                yield with_change(frame.select(select), change)

    def _compared(
        self, select: Sequence[str], states: States, known: dict[FileGroup, pl.DataFrame] | None = None
    ) -> Iterator[pl.DataFrame]:
        """Yield the images of the commits' keys that differ between the two ends.

        Args:
            known: rows at the start, by file group, of all keys that this or a later window wrote. Updated to the
                rows at the end.
        """

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

        yield from self._each(compared)

    def images(self, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield the changes of each commit, computed when it became visible."""
        if not self._is_in_order():
            yield from self.images_by_states(select)
            return
        for run in self._runs():
            found = run.images_in_turn(select)
            yield from run.images_by_states(select) if found is None else found

    def _is_in_order(self) -> bool:
        """Return True if each commit was requested after all commits visible before it: its rows are visible."""
        if self._states.merging.rule.kind != "latest" or self.start.time > self.end.time or self._written is not None:
            return False
        if self.session.config.merge.expiry is not None:
            return False
        touched = self._touched()
        if any(groups.written is None for groups in touched):
            return False
        earlier = (file.name.instant for groups in touched for slice_ in groups.before for file in slice_.files)
        return all(a < b for a, b in pairwise([max(earlier, default=EPOCH), *(c.requested for c in self.commits)]))

    def _runs(self) -> list[Window]:
        ends, size = list[Cut](), 0
        for commit, following in pairwise(self.commits):
            size += sum(file.size for file in commit.files)
            if size + sum(file.size for file in following.files) > IN_TURN_BYTES_MAX:
                ends.append(Cut.after(commit, self.end.by))
                size = 0
        cuts = [self.start, *ends, self.end]
        return [self._between(first, last) for first, last in pairwise(cuts)] if ends else [self]

    def images_in_turn(self, select: Sequence[str]) -> list[pl.DataFrame] | None:
        """Return `images` of ordered commits at once; None if any wrote partial rows."""
        states, numbered = self._states, enumerate(self._touched())
        limit = self.session.memory_limit
        versions = groups_in_threads(
            lambda item: states.versions(item[1], item[0], select), numbered, lambda item: item[1].bytes, limit
        )
        found = list(versions)
        some = [versions for versions in found if versions is not None]
        if len(some) < len(found) or not some:
            return None
        images, local = images_in_turn(Versions.joined(some), states.key, select), self.session.config.local_times
        return [with_commit(images[c.requested], c, local=local) for c in self.commits if c.requested in images]

    def images_by_states(self, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        states, expires = self._states, self.session.config.merge.expiry is not None
        known = {
            groups.written.group: states.before(groups, states.keys(groups), select)
            for groups in self._touched()
            if groups.written is not None and not expires
        }
        last = self
        for commit, window in self._steps():
            with expired_start() if window.end != self.end else nullcontext():
                yield from window.expired_images(select)
                # Rows that expired before the commit ended are not its changes.
                at_end = replace(states, before_at=window.end.time, after_at=window.end.time) if expires else states
                frames = [frame for frame in window._compared(select, at_end, known) if frame.height]  # noqa: SLF001
            if frames:
                yield with_commit(pl.concat(frames), commit, local=self.session.config.local_times)
            last = window._between(window.end, self.end)  # noqa: SLF001
        yield from last.expired_images(select)

    def expired_images(self, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        rows = expired_images(self._earlier, self.end.time, select) if self.expired else None
        if rows is not None:
            yield with_change(rows, DELETE)

    def raw(self, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        for commit, window in self._steps():
            for frame in window.contributions(select):
                yield with_commit(frame, commit, local=self.session.config.local_times)

    def contributions(self, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        states = self._stored
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
        return len(self.commits) == 1 and self.commits[0].overwriting is not None

    def _replaced(self, groups: TouchedGroups, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield an overwrite's rows in a file group, and a delete for each other key in it."""
        states = self._stored
        after = states.after(groups, None, select)
        before = states.before(groups, None, [])
        gone = before.join(after, on=states.key, how="anti")[states.key]
        yield with_change(after.select(select), UPSERT)
        yield with_change(states.deleted_rows(gone, groups, select), DELETE)

    def _rewriting_commits(self) -> list[InstantTime]:
        """Return the commits' requested times; raise if a commit's files do not record its deletes."""
        for commit in self.commits:
            if commit.replaced or commit.deletes:
                raise UnsupportedFeatureError(
                    "this Hudi commit rewrote files, so its deletes are not recorded: read changes without raw. "
                    f"requested_at={commit.requested} operation={commit.operation}"
                )
        return [commit.requested for commit in self.commits]

    def _steps(self) -> Iterator[tuple[Completion, Window]]:
        before = self.start
        for commit in self.commits:
            after = Cut.after(commit, self.end.by)
            yield commit, self._between(before, after)
            before = after

    def _between(self, start: Cut, end: Cut) -> Window:
        between = tuple(c for c in self.between if start.shows(c) != end.shows(c))
        return replace(self, start=start, end=end, between=between)

    def touched(self) -> tuple[States, list[TouchedGroups]]:
        return self._stored, self._touched()

    def _lapsed(self, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        later = max(self.start.time, self.end.time)
        return lapsed_unwritten(self._earlier, later, self._touched(), self._states, select)

    @property
    def _earlier(self) -> Snapshot:
        earlier = min(self.start, self.end, key=lambda cut: cut.time)
        return Snapshot(self.session, self.value, earlier, self._slices(earlier))

    def _each(self, work: Callable[[TouchedGroups], list[pl.DataFrame]]) -> Iterator[pl.DataFrame]:
        limit = self.session.memory_limit
        return chain.from_iterable(groups_in_threads(work, self._touched(), attrgetter("bytes"), limit))

    # --- touched file groups ----------------------------------------------------------------------------------------

    @property
    def _states(self) -> States:
        return replace(self._stored, before_at=self.start.time, after_at=self.end.time)

    @property
    def _stored(self) -> States:
        """The states with expired rows."""
        return States(self.session, self.value.schema, forward=self.start.time <= self.end.time)

    def _touched(self) -> list[TouchedGroups]:
        """Return the touched file groups with their slices at both cuts.

        Raises `CheckpointExpiredError` if their history was dropped.
        """
        self._require_kept()
        before, after = self._slices(self.start), self._slices(self.end)
        files: dict[FileGroup, list[DataFile]] = {}
        for commit in self.commits:
            for file in commit.files:
                files.setdefault(file.group, []).append(file)
        # A clustering changes no row, but moves the keys of its partition to other groups.
        written = {partition for partition, _ in files} | {p for c in self.commits for p, _ in c.replaced}
        replaced = written & {partition for c in self.between for partition, _ in c.replaced}
        touched = [
            TouchedGroups(partition, None, before.within([partition]), after.within([partition]))
            for partition in sorted(replaced)
        ]
        for group, group_files in sorted(files.items()):
            if group[0] not in replaced:
                rewritten = any(file.is_base for file in group_files)
                logs = None if rewritten else FileSlice(*group, None, _each_once(group_files), self._written)
                touched.append(TouchedGroups(*group, before.of_group(group), after.of_group(group), logs))
        return touched

    def _require_kept(self) -> None:
        oldest = self.value.retention.since
        if self._whole and oldest != EPOCH:
            raise CheckpointExpiredError(
                "a clean dropped the history of the table's first commits, so only merged changes can start at the "
                "empty table: omit images and raw, or pass since. "
                f"since={self.start} oldest={oldest}"
            )
        erased = {group: since for group, since in self.value.retention.groups if since > self.start.time}
        touched = {file.group for commit in self.commits for file in commit.files} if erased else set()
        for group in sorted(erased.keys() & touched):
            raise CheckpointExpiredError(
                "rows of these changes were erased, with the history of their file group: scan the table "
                "and continue from the scan's checkpoint (a Spark stream: with a new checkpointLocation). "
                f"since={self.start} oldest={erased[group]} partition={group[0]!r} file_group={group[1]}"
            )

    def _slices(self, cut: Cut) -> Slices:
        if self.history is None:
            return self.session.views.slices(self.value, cut, old_logs=self.session.config.was_upgraded)
        return self._folded(cut, self.history)

    def _folded(self, cut: Cut, history: Iterable[Completion]) -> Slices:
        return fold_slices((c for c in history if cut.shows(c)), old_logs=self.session.config.was_upgraded)

    @property
    def _written(self) -> Committed | None:
        """The commits to find in log files; upgraded tables' logs contain others."""
        upgraded = self.session.config.was_upgraded
        return Committed.only(commit.requested for commit in self.commits) if upgraded else None

    def _completions(self, first: Cut, last: Cut | None = None) -> Sequence[Completion]:
        """Return the completions of the slices at a cut; with `last`, also at all cuts up to it."""
        if self.history is not None:
            return self.history if last is not None else [c for c in self.history if first.shows(c)]
        if last is None:
            return self.session.views.snapshot_completions(self.value, first)
        first = min(first, last, key=lambda cut: cut.time)
        # Later cuts need the segments of the first cut and later ones.
        return self.session.views.completions(self.value, lambda s: s.last > first.time or first.needs(s))


def require_times(session: Session) -> None:
    if session.config.virtual_keys:
        raise UnsupportedFeatureError(
            "this table has no meta columns (hoodie.populate.meta.fields=false), so its rows have no commit times: "
            f"scan the table at both moments and compare. table={session.config.name}"
        )
    if session.config.layout_one:
        raise UnsupportedFeatureError(
            "changes cannot be read before version 8, because commits share log files: upgrade the table to "
            "version 9 with Hudi, or compare two scans. "
            f"version={session.config.version} table={session.config.name}"
        )


def _each_once(files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    return tuple(sorted({file.path: file for file in files}.values(), key=log_order))


def within(completions: Iterable[Completion], scopes: frozenset[Scope]) -> list[Completion]:
    def inside(group: FileGroup) -> bool:
        return group in scopes or (group[0], None) in scopes

    partitions = {partition for partition, _ in scopes}
    narrowed = (
        replace(
            c,
            files=tuple(file for file in files_within(c, partitions) if inside(file.group)),
            replaced=tuple(filter(inside, c.replaced)),
        )
        for c in completions
    )
    return [c for c in narrowed if c.files or c.replaced]


def by_group(completions: Iterable[Completion]) -> dict[FileGroup, list[Completion]]:
    """Return the parts of commits in each file group."""
    found: dict[FileGroup, list[Completion]] = {}
    for c in completions:
        replaced = {*c.replaced}
        files: dict[FileGroup, list[DataFile]] = {group: [] for group in c.replaced}
        for file in c.files:
            files.setdefault(file.group, []).append(file)
        for group, own in files.items():
            part = replace(c, files=tuple(own), replaced=(group,) if group in replaced else ())
            found.setdefault(group, []).append(part)
    return found
