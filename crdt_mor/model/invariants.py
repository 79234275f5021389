"""What is true of each version of the timeline and the one that follows it, whatever event lies between.

Each invariant is a named predicate over (previous, following). All of them are asked before a version is put, so that a
mistake in a transition stops the process that makes it, and never becomes the history of a table. Each
predicate says what breaking it would do. Those of a table's history, of posts, of declarations, of handovers, of file
groups and of moving completions to segments are in the modules `model.invariants_…`; the lists below name all of them.

Not here, since the values do not tell: that no two open plans share a file group (the plans' own objects name the
groups, and `events.plan.schedule` asserts it), and that a version stands where the previous one does (rule 3 of
`log.publish`).
"""

from __future__ import annotations

import json
from collections.abc import Callable

from crdt_mor.model import (
    invariants_declared,
    invariants_groups,
    invariants_history,
    invariants_posts,
    invariants_sealing,
)
from crdt_mor.model.instant import InstantTime, is_claimable
from crdt_mor.model.invariants_handover import nothing_begins_in_a_table_that_is_handed_over
from crdt_mor.model.overwrite import replaced_by, still_noted, void_files
from crdt_mor.model.timeline import Timeline

Invariant = Callable[[Timeline, Timeline], bool]


class BrokenInvariantError(AssertionError):
    """A version was about to be published that must not follow its previous one: a mistake in this program."""


def require_invariants(previous: Timeline, following: Timeline) -> None:
    """Raise `BrokenInvariantError`, naming the first invariant of an event that does not hold.

    following: what the event made of `previous`, before completions are moved to segments.
    """
    _require(INVARIANTS, previous, following)


def require_sealed(event: Timeline, sealed: Timeline) -> None:
    """Raise `BrokenInvariantError`, naming the first invariant that moving completions to segments has broken."""
    _require(SEALING_INVARIANTS, event, sealed)


def _require(invariants: tuple[Invariant, ...], previous: Timeline, following: Timeline) -> None:
    for holds in invariants:
        if not holds(previous, following):
            raise BrokenInvariantError(
                "this is a mistake in crdt-mor, and nothing was published: please report it. "
                f"invariant={holds.__name__} previous={previous.version} following={following.version}"
            )


# --- the version ------------------------------------------------------------------------------------------------------


def versions_are_consecutive(previous: Timeline, following: Timeline) -> bool:
    """The number is one more. A gap would look like the tail to a process that probes upward, and hide what follows."""
    return following.version == previous.version + 1


def nonces_differ(previous: Timeline, following: Timeline) -> bool:
    """The nonce is another one. It is what tells a version from a late copy of another attempt at its place."""
    return following.nonce != previous.nonce


def the_table_keeps_its_id(previous: Timeline, following: Timeline) -> bool:
    """The id of the table stays; a table without one gets it with its first event.

    A process that has the table open would refuse to go on, taking it for another table.
    """
    return following.table_id is not None and following.table_id == (previous.table_id or following.table_id)


# --- the clock --------------------------------------------------------------------------------------------------------


def the_clock_moves_on(previous: Timeline, following: Timeline) -> bool:
    """The clock is later and even. Two events at one time would be in no order, and odd times belong to plans."""
    return following.clock > previous.clock and not _is_odd(following.clock)


def new_instants_are_later_than_the_previous_clock(previous: Timeline, following: Timeline) -> bool:
    """What begins gets a time between the two clocks: a write an even one, a plan an odd one.

    An earlier one may have been taken, or lie below the barrier of a plan that counts on knowing all writes before it.
    """
    known = {p.requested for p in previous.pending} | {p.barrier for p in previous.plans}
    begun = [(p.requested, False) for p in following.pending if p.requested not in known]
    begun += [(p.barrier, True) for p in following.plans if p.barrier not in known]
    return all(previous.clock < time <= following.clock and _is_odd(time) == odd for time, odd in begun)


def only_commits_that_are_alone_have_claimed_times(previous: Timeline, following: Timeline) -> bool:
    """What is requested with this version is requested at a time of its own class: see `model.instant`.

    A write that begins at a claimed time would find files of another write under it.
    """
    known = {p.requested for p in previous.pending}
    begun = [p.requested for p in following.pending if p.requested not in known]
    told = [c for c in following.completions_since(previous) if not c.adopted and c.requested > previous.clock]
    alone = {c.requested for c in told if c.files and c.overwriting is None}
    return not any(is_claimable(t) for t in begun) and all(
        is_claimable(c.requested) == (c.requested in alone) for c in told
    )


def new_completions_are_later_than_the_previous_clock(previous: Timeline, following: Timeline) -> bool:
    """What is completed gets a time between the two clocks, later than its requested time.

    An increment that has been read up to the previous clock would never see it otherwise. Those of Hudi's own instants
    are what its writers made them; the clock only moves past them.
    """
    return all(
        completion.completed <= following.clock
        and (completion.adopted or max(previous.clock, completion.requested) < completion.completed)
        for completion in following.completions_since(previous)
    )


# --- the life of an instant -------------------------------------------------------------------------------------------


def an_instant_has_one_state(previous: Timeline, following: Timeline) -> bool:  # noqa: ARG001
    """Each instant is pending, planned, given up or completed, and only one of them: it has one outcome for good."""
    times = following.instants
    return len(times) == len(set(times))


def nothing_pending_is_lost(previous: Timeline, following: Timeline) -> bool:
    """A write that is no longer pending, or a plan that is no longer open, was completed or given up by this version.

    A sweep would take the files of an instant that the value does not know for rubbish.
    """
    kept = {p.requested for p in following.pending} | {p.barrier for p in following.plans}
    ended = {c.requested for c in following.completions if c.version == following.version}
    ended |= {r.requested for r in following.rolled_back if r.version == following.version}
    return _open_instants(previous) <= kept | ended


def only_what_was_open_ends(previous: Timeline, following: Timeline) -> bool:
    """What this version gives up was pending or open, and so was what it completes, unless that began with it.

    An instant that was given up, and whose files are being removed, could be completed otherwise.
    """
    opened = _open_instants(previous)
    given_up = {r.requested for r in following.rolled_back} - {r.requested for r in previous.rolled_back}
    return given_up <= opened and all(
        completion.adopted or completion.requested in opened or previous.clock < completion.requested
        for completion in following.completions_since(previous)
    )


def what_is_pending_is_only_handed_over(previous: Timeline, following: Timeline) -> bool:
    """A pending write keeps what its begin gave it; driver and author change only with the number of its drivers.

    A driver that was replaced would otherwise find itself in charge again, and complete with files that are gone.
    """
    before = {p.requested: p for p in previous.pending}
    return all(
        (old.nonce, old.version, old.begun_ms, old.declared) == (p.nonce, p.version, p.begun_ms, p.declared)
        and ((old.driver, old.drivers, old.author) == (p.driver, p.drivers, p.author) or p.drivers == old.drivers + 1)
        for p in following.pending
        if (old := before.get(p.requested)) is not None
    )


def open_plans_never_change(previous: Timeline, following: Timeline) -> bool:
    """A plan that stays open is the very plan. Executors of one barrier put files of one name, from one frozen plan."""
    before = {p.barrier: p for p in previous.plans}
    return all(p == before.get(p.barrier, p) for p in following.plans)


def what_was_given_up_never_changes(previous: Timeline, following: Timeline) -> bool:
    """What was given up stays so until it is forgotten. Its files may be removed at any moment.

    A plan that Hudi has executed before it knew is a compaction of Hudi's.
    """
    before = {r.requested: r for r in previous.rolled_back}
    ended = {c.requested for c in following.completions if not c.adopted}
    again = before.keys() & (_open_instants(following) | ended)
    return not again and all(r == before.get(r.requested, r) for r in following.rolled_back)


def rollbacks_are_of_writes_that_are_forgotten(previous: Timeline, following: Timeline) -> bool:
    """Each rollback that Hudi is told of is of one write that this version forgets, and no such write goes untold.

    Hudi would be told that a write is undone that may still commit, or that has; or the same twice.
    """
    kept = {r.requested for r in following.rolled_back}
    forgotten = sorted(r.requested for r in previous.rolled_back if not r.is_plan and r.requested not in kept)
    told = [c.undone for c in following.completions_since(previous) if not c.adopted]
    return sorted(undone for undone in told if undone is not None) == forgotten


# --- overwrites -------------------------------------------------------------------------------------------------------


def overwrites_are_noted_while_they_void_something(previous: Timeline, following: Timeline) -> bool:
    """What an overwrite covers stays noted as long as a write is pending that was requested before its barrier.

    Such a write would complete with files that readers must not see, and Hudi's readers would see them. The barrier of
    what a commit of Hudi's has replaced is its requested time.
    """
    oldest = min((p.requested for p in following.pending), default=None)
    noted = following.overwrites
    of_hudi = replaced_by(c for c in following.completions_since(previous) if c.adopted)
    return all(
        any(o.barrier >= old.barrier and o.scope.includes(old.scope) for o in noted)
        for old in still_noted(previous.overwrites, oldest)
    ) and all(o in previous.overwrites or previous.clock < o.barrier <= following.clock or o in of_hudi for o in noted)


def what_is_void_is_not_committed(previous: Timeline, following: Timeline) -> bool:
    """No write completes with a file of what an overwrite has replaced since it was requested."""
    if not previous.overwrites:
        return True
    return not any(
        void_files(previous, completion.requested, completion.files)
        for completion in following.completions_since(previous)
        if not completion.adopted
    )


# --- what is committed ------------------------------------------------------------------------------------------------


def completions_never_change(previous: Timeline, following: Timeline) -> bool:
    """A completion that the value still carries is the very completion, with the very files.

    Everybody who helps projects it to Hudi's readers, with the same bytes, and a snapshot that was read stays true.
    """
    if following.carries(previous):
        return True
    before = {c.requested: c for c in previous.completions}
    return all(c is before.get(c.requested, c) or c == before[c.requested] for c in following.completions)


def completions_bear_the_version_that_published_them(previous: Timeline, following: Timeline) -> bool:
    """What is new bears the number of this version, by which a helper finds the events to be projected."""
    return all(c.version == following.version for c in following.completions_since(previous))


def an_event_only_adds_completions(previous: Timeline, following: Timeline) -> bool:
    """What the previous value carries is carried in the same order, and the segments are the same.

    Only what follows, the sealing, moves completions; and it is asked for itself that it loses none. A restore drops
    some, see `a_restore_keeps_what_came_before`.
    """
    if following.is_restore_of(previous):
        return True
    return following.carries(previous) and previous.segments == following.segments


# --- what writers count on --------------------------------------------------------------------------------------------


def tokens_grow(previous: Timeline, following: Timeline) -> bool:
    """Each application's numbers go back only with a restore, which drops the commits that carried the later ones.

    Else each application's last number stays, or grows with a commit of this version, or is forgotten by the mark.

    Without the mark a repeated write would be taken for a new one, and a counter would count it twice. The mark moves
    forward, to a moment that has passed; what it forgets is older, and nothing that is so old stays.
    """
    if following.is_restore_of(previous):
        before = {t.application: t.number for t in previous.tokens}
        return all(t.number <= before.get(t.application, -1) for t in following.tokens)
    since = following.tokens_since
    if not previous.tokens_since <= since <= following.clock:
        return False
    if since > previous.tokens_since and any(t.completed < since for t in following.tokens):
        return False
    after = {t.application: t for t in following.tokens}
    return len(after) == len(following.tokens) and all(
        (now := after.get(last.application)) == last
        or (now is not None and now.number > last.number and now.version == following.version)
        or (now is None and last.completed < since and since > previous.tokens_since)
        for last in previous.tokens
    )


def the_schema_loses_no_column(previous: Timeline, following: Timeline) -> bool:
    """A table's columns stay, and so does what is noted of columns that were added; files have them already.

    The schema of a table that only Hudi has written to so far is what Hudi's last commit says.
    """
    added = following.added[: len(previous.added)] == previous.added
    if previous.schema == following.schema or previous.version == 0:
        return added
    before, after = ({name for name, *_ in json.loads(value.schema)} for value in (previous, following))
    return added and before <= after


# --- migrations -------------------------------------------------------------------------------------------------------


def nothing_begins_in_a_closed_table(previous: Timeline, following: Timeline) -> bool:
    """A table that is closed, as it moves, gets no new write and no new plan, and stays closed until it is reopened.

    What would begin there could complete after the migration has taken the last of the table's rows, and be lost.
    """
    before, now = previous.moving, following.moving
    if before is None or not before.is_closed or now is None:
        return True
    commits = any(is_claimable(c.requested) for c in following.completions_since(previous))
    return now == before and not commits and _open_instants(following) <= _open_instants(previous)


def a_migration_ends_once(previous: Timeline, following: Timeline) -> bool:
    """A table that was opened for writers stays so, and one whose migration was given up is never opened.

    The source of a migration that was given up takes writes again: with two open tables, each would lack what the other
    gets. Steps of the migration come one after another, so that the numbers of its commits grow.
    """
    before, now = previous.origin, following.origin
    if before is None:
        return now is None or not (now.is_opened or now.given_up)
    if before.is_opened or before.given_up or now is None:
        return now == before
    same = (now.table_id, now.uri) == (before.table_id, before.uri)
    step, last = now.step, before.step
    follows = step.since == last.until and step.first == last.next_number
    return same and (step == last or follows) and not (now.is_opened and now.given_up)


INVARIANTS: tuple[Invariant, ...] = (
    versions_are_consecutive,
    nonces_differ,
    the_table_keeps_its_id,
    the_clock_moves_on,
    new_instants_are_later_than_the_previous_clock,
    only_commits_that_are_alone_have_claimed_times,
    new_completions_are_later_than_the_previous_clock,
    an_instant_has_one_state,
    nothing_pending_is_lost,
    only_what_was_open_ends,
    what_is_pending_is_only_handed_over,
    open_plans_never_change,
    what_was_given_up_never_changes,
    rollbacks_are_of_writes_that_are_forgotten,
    overwrites_are_noted_while_they_void_something,
    what_is_void_is_not_committed,
    completions_never_change,
    completions_bear_the_version_that_published_them,
    an_event_only_adds_completions,
    tokens_grow,
    the_schema_loses_no_column,
    invariants_groups.foreign_file_groups_are_not_forgotten,
    invariants_groups.file_ids_change_with_hudis_commits,
    invariants_groups.rows_are_written_to_live_file_groups,
    invariants_history.history_is_only_given_up,
    invariants_history.the_watermark_moves_only_forward,
    invariants_history.nothing_unfinished_is_archived,
    invariants_history.only_what_is_in_segments_is_archived,
    invariants_history.a_restore_keeps_what_came_before,
    invariants_history.savepoints_never_change,
    invariants_history.names_are_only_altered_by_later_events,
    invariants_posts.a_post_is_taken_once_and_in_time,
    invariants_posts.posts_are_noted_while_they_are_open,
    invariants_declared.a_write_keeps_to_what_it_has_declared,
    nothing_begins_in_a_closed_table,
    a_migration_ends_once,
    nothing_begins_in_a_table_that_is_handed_over,
)
"""Those of an event, the simplest first."""

SEALING_INVARIANTS: tuple[Invariant, ...] = (
    invariants_sealing.sealing_changes_nothing_else,
    invariants_sealing.completions_are_carried_or_sealed,
    invariants_sealing.segments_never_change,
    invariants_sealing.only_what_may_go_is_dropped,
)
"""Those of moving the completions of an event's value to segments, asked of that value before and after."""


def _open_instants(value: Timeline) -> set[InstantTime]:
    """Writes that are pending, and plans that are open."""
    return {p.requested for p in value.pending} | {p.barrier for p in value.plans}


def _is_odd(time: InstantTime) -> bool:
    """Whether an instant time has an odd number of milliseconds, whose last digit is its own last digit."""
    return time[-1] in "13579"
