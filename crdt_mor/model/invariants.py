"""Invariants of consecutive timeline versions.

Each is a predicate over (previous, following), checked before a version is put. So a bug in a transition stops its
process before the table is damaged. A docstring's first line states the rule, which `services.verify` prints. More
invariants are in `model.invariants_…`. `@of` names the fields of an invariant: only their change can break it.

Two rules need more than values. `events.plan.schedule` asserts that no two open plans share a file group. Rule 3 of
`log.publish` checks that a version follows the tail.
"""

from __future__ import annotations

import json
from dataclasses import replace

from crdt_mor.model import invariants_history, invariants_sealing
from crdt_mor.model.instant import EPOCH, InstantTime, is_claimable
from crdt_mor.model.invariants_fields import Invariant, concerned, of
from crdt_mor.model.names import DELTA_COMMIT, bucket_of_file_id
from crdt_mor.model.overwrite import still_noted
from crdt_mor.model.posts import Decided, is_open, still_kept
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Token, replaced_by
from crdt_mor.model.tokens import Tokens


class BrokenInvariantError(AssertionError):
    """A version must not follow its previous version: a bug in this program, raised before the put."""


def require_invariants(previous: Timeline, following: Timeline) -> None:
    """Raise `BrokenInvariantError` with the first violated invariant. following: before sealing."""
    _require(INVARIANTS, previous, following)


def require_sealed(event: Timeline, sealed: Timeline) -> None:
    """Raise `BrokenInvariantError` with the first invariant that sealing violated."""
    _require(SEALING_INVARIANTS, event, sealed)


def _require(invariants: tuple[Invariant, ...], previous: Timeline, following: Timeline) -> None:
    for holds in concerned(invariants, previous, following):
        if not holds(previous, following):
            raise BrokenInvariantError(
                "this is a bug in crdt-mor, and nothing was published: please report it. "
                f"invariant={holds.__name__} previous={previous.version} following={following.version}"
            )


# --- the version ------------------------------------------------------------------------------------------------------


def versions_are_consecutive(previous: Timeline, following: Timeline) -> bool:
    """The version number grows by exactly 1.

    A process that probes upward would take a gap for the tail.
    """
    return following.version == previous.version + 1


def nonces_differ(previous: Timeline, following: Timeline) -> bool:
    """Consecutive versions have different nonces.

    A nonce distinguishes a version from a late copy of another attempt at its number.
    """
    return following.nonce != previous.nonce


def the_table_keeps_its_id(previous: Timeline, following: Timeline) -> bool:
    """The table's id never changes; the first event adds a missing id.

    Open processes would take the table for another table.
    """
    return following.table_id is not None and following.table_id == (previous.table_id or following.table_id)


# --- the clock --------------------------------------------------------------------------------------------------------


def the_clock_moves_on(previous: Timeline, following: Timeline) -> bool:
    """The clock moves on to a later, even time.

    Odd times are for plans.
    """
    return following.clock > previous.clock and not _is_odd(following.clock)


@of("pending", "plans")
def new_instants_are_later_than_the_previous_clock(previous: Timeline, following: Timeline) -> bool:
    """New instants lie between the two clocks: writes at even times, plans at odd times.

    An earlier time may be in use, or below the barrier of a plan.
    """
    known = {p.requested for p in previous.pending} | {p.barrier for p in previous.plans}
    begun = [(p.requested, False) for p in following.pending if p.requested not in known]
    begun += [(p.barrier, True) for p in following.plans if p.barrier not in known]
    return all(previous.clock < time <= following.clock and _is_odd(time) == odd for time, odd in begun)


@of("pending", "completions")
def only_commits_that_are_alone_have_claimed_times(previous: Timeline, following: Timeline) -> bool:
    """Exactly the one-event commits have claimed times, see `model.instant`.

    Another write at a claimed time would find foreign files under its instant.
    """
    known = {p.requested for p in previous.pending}
    begun = [p.requested for p in following.pending if p.requested not in known]
    told = [c for c in following.completions_since(previous) if not c.adopted and c.requested > previous.clock]
    alone = {c.requested for c in told if c.files and c.overwriting is None}
    return not any(is_claimable(t) for t in begun) and all(
        is_claimable(c.requested) == (c.requested in alone) for c in told
    )


@of("completions")
def new_completions_are_later_than_the_previous_clock(previous: Timeline, following: Timeline) -> bool:
    """New completions lie between the two clocks, after their requested times.

    Increments up to the previous clock would miss earlier completions. Hudi's adopted instants keep their times.
    """
    return all(
        completion.completed <= following.clock
        and (completion.adopted or max(previous.clock, completion.requested) < completion.completed)
        for completion in following.completions_since(previous)
    )


# --- the life of an instant -------------------------------------------------------------------------------------------


@of("pending", "plans", "rolled_back", "completions")
def an_instant_has_one_state(previous: Timeline, following: Timeline) -> bool:  # noqa: ARG001
    """Each instant is either pending, planned, rolled back or completed."""
    times = following.instants
    return len(times) == len(set(times))


@of("pending", "plans")
def nothing_pending_is_lost(previous: Timeline, following: Timeline) -> bool:
    """A write or plan that is no longer open was completed or given up by this version.

    A sweep deletes the files of unknown instants.
    """
    kept = {p.requested for p in following.pending} | {p.barrier for p in following.plans}
    ended = {c.requested for c in following.completions if c.version == following.version}
    ended |= {r.requested for r in following.rolled_back if r.version == following.version}
    return _open_instants(previous) <= kept | ended


@of("rolled_back", "completions")
def only_what_was_open_ends(previous: Timeline, following: Timeline) -> bool:
    """This version ends only open instants of the previous version, or instants that it begins itself.

    Otherwise a rolled-back instant could complete while its files are deleted.
    """
    opened = _open_instants(previous)
    given_up = {r.requested for r in following.rolled_back} - {r.requested for r in previous.rolled_back}
    return given_up <= opened and all(
        completion.adopted or completion.requested in opened or previous.clock < completion.requested
        for completion in following.completions_since(previous)
    )


@of("pending")
def what_is_pending_is_only_handed_over(previous: Timeline, following: Timeline) -> bool:
    """A pending write changes only its driver and author, and only when its number of drivers grows by 1.

    Otherwise a replaced driver could complete the write with deleted files. A release that does not know declared keys
    publishes the write without them, and it may touch any key then.
    """
    before = {p.requested: p for p in previous.pending}
    return all(
        (old.nonce, old.version, old.begun_ms) == (p.nonce, p.version, p.begun_ms)
        and p.declared in (old.declared, replace(old.declared, keys=None))
        and ((old.driver, old.drivers, old.author) == (p.driver, p.drivers, p.author) or p.drivers == old.drivers + 1)
        for p in following.pending
        if (old := before.get(p.requested)) is not None
    )


@of("plans")
def open_plans_never_change(previous: Timeline, following: Timeline) -> bool:
    """An open plan never changes.

    All executors of a barrier must write the same files.
    """
    before = {p.barrier: p for p in previous.plans}
    return all(p == before.get(p.barrier, p) for p in following.plans)


@of("pending", "plans", "rolled_back", "completions", about="rolled_back")
def what_was_given_up_never_changes(previous: Timeline, following: Timeline) -> bool:
    """A rolled-back write or cancelled plan stays unchanged until it is forgotten.

    Its files may be deleted at any moment. Exception: a plan that Hudi executed.
    """
    before = {r.requested: r for r in previous.rolled_back}
    ended = {c.requested for c in following.completions if not c.adopted}
    again = before.keys() & (_open_instants(following) | ended)
    return not again and all(r == before.get(r.requested, r) for r in following.rolled_back)


@of("rolled_back", "completions")
def rollbacks_are_of_writes_that_are_forgotten(previous: Timeline, following: Timeline) -> bool:
    """This version adds a rollback for each forgotten write, and no other.

    Otherwise Hudi would undo a write that may still commit, or undo a write twice.
    """
    kept = {r.requested for r in following.rolled_back}
    forgotten = sorted(r.requested for r in previous.rolled_back if not r.is_plan and r.requested not in kept)
    told = [c.undone for c in following.completions_since(previous) if not c.adopted]
    return sorted(undone for undone in told if undone is not None) == forgotten


# --- overwrites -------------------------------------------------------------------------------------------------------


@of("overwrites")
def overwrites_are_noted_while_they_void_something(previous: Timeline, following: Timeline) -> bool:
    """An overwrite stays noted while a write requested before its barrier is pending.

    Otherwise that write could complete with void files.
    """
    oldest = min((p.requested for p in following.pending), default=None)
    noted = following.overwrites
    of_hudi = replaced_by(c for c in following.completions_since(previous) if c.adopted)
    return all(
        any(o.barrier >= old.barrier and o.scope.includes(old.scope) for o in noted)
        for old in still_noted(previous.overwrites, oldest)
    ) and all(o in previous.overwrites or previous.clock < o.barrier <= following.clock or o in of_hudi for o in noted)


@of("completions", about="overwrites")
def what_is_void_is_not_committed(previous: Timeline, following: Timeline) -> bool:
    """No write completes with files in a scope that was overwritten after the write's request."""
    return not any(
        previous.void_files(completion.requested, completion.files)
        for completion in following.completions_since(previous)
        if not completion.adopted
    )


# --- completions ------------------------------------------------------------------------------------------------------


@of("completions")
def completions_bear_the_version_that_published_them(previous: Timeline, following: Timeline) -> bool:
    """New completions contain this version's number, by which helpers find the events to project."""
    return all(c.version == following.version for c in following.completions_since(previous))


@of("completions", "segments")
def an_event_only_adds_completions(previous: Timeline, following: Timeline) -> bool:
    """An event keeps the completions of the previous version unchanged and in order, and its segments.

    All helpers must project a completion with the same bytes. Only sealing moves completions, and a restore drops
    some: `a_restore_keeps_what_came_before`.
    """
    if following.is_restore_of(previous):
        before = {c.requested: c for c in previous.completions}
        return all(c == before.get(c.requested, c) for c in following.completions)
    return following.carries(previous) and previous.segments == following.segments


# --- tokens and schema -----------------------------------------------------------------------------------------------


@of("tokens", "tokens_since")
def tokens_grow(previous: Timeline, following: Timeline) -> bool:
    """An application's token number never decreases, except in a restore, which drops the later commits.

    Otherwise a repeated write would count as new, and a counter would add it twice. A token is forgotten only if it is
    older than `tokens_since`, which moves forward up to the clock.
    """
    if following.is_restore_of(previous):
        numbers = {t.application: t.number for t in previous.tokens}
        return all(t.number <= numbers.get(t.application, -1) for t in following.tokens)
    since = following.tokens_since
    if not previous.tokens_since <= since <= following.clock:
        return False
    if since > previous.tokens_since and any(t.completed < since for t in following.tokens):
        return False
    before, now_last = _compared_tokens(previous.tokens, following.tokens)
    after = {t.application: t for t in now_last}
    return len(after) == len(now_last) and all(
        (now := after.get(last.application)) == last
        or (now is not None and now.number > last.number and now.version == following.version)
        or (now is None and last.completed < since and since > previous.tokens_since)
        for last in before
    )


def _compared_tokens(before: Tokens, after: Tokens) -> tuple[list[Token], list[Token]]:
    """Return the tokens that may differ."""
    if before.stored != after.stored:
        return list(before), list(after)
    known = {token.application for token in before.recent}
    back = (before.find(token.application) for token in after.recent if token.application not in known)
    return [*before.recent, *(token for token in back if token is not None)], list(after.recent)


@of("schema", "added")
def the_schema_loses_no_column(previous: Timeline, following: Timeline) -> bool:
    """Columns, and the list of added columns, are never removed, because files contain them.

    Exception: version 0 of a table written only by Hudi.
    """
    added = following.added[: len(previous.added)] == previous.added
    if previous.schema == following.schema or previous.version == 0:
        return added
    before, after = ({name for name, *_ in json.loads(value.schema)} for value in (previous, following))
    return added and before <= after


# --- migrations -------------------------------------------------------------------------------------------------------


@of("moving", "pending", "plans", "completions", about="moving")
def nothing_begins_in_a_closed_table(previous: Timeline, following: Timeline) -> bool:
    """A closed table of a migration gets no new write or plan, and stays closed until it is reopened.

    A write after the migration copied the last rows would be lost.
    """
    before, now = previous.moving, following.moving
    if before is None or not before.is_closed or now is None:
        return True
    commits = any(is_claimable(c.requested) for c in following.completions_since(previous))
    return now == before and not commits and _open_instants(following) <= _open_instants(previous)


@of("origin")
def a_migration_ends_once(previous: Timeline, following: Timeline) -> bool:
    """An opened target of a migration stays open, and the target of a cancelled migration never opens.

    With source and target open, each would miss the other's writes.
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


# --- declared writes --------------------------------------------------------------------------------------------------


@of("completions", about="pending")
def a_write_keeps_to_what_it_has_declared(previous: Timeline, following: Timeline) -> bool:
    """A write completes only with files in the partitions declared at its begin.

    A later update of other partitions did not wait for this write, and would miss its rows.
    """
    declared = {pending.requested: pending.declared for pending in previous.pending}
    ended = [c for c in following.completions if c.version == following.version and c.requested in declared]
    return not any(declared[c.requested].outside(file.partition for file in c.files) for c in ended)


# --- file groups of buckets -------------------------------------------------------------------------------------------


@of("foreign_group")
def foreign_file_groups_are_not_forgotten(previous: Timeline, following: Timeline) -> bool:
    """A foreign file group, outside the bucket index, stays noted, so no release writes to the table.

    Otherwise a key could live in two groups.
    """
    return previous.foreign_group is None or following.foreign_group is not None or _may_differ(previous, following)


@of("file_ids")
def file_ids_change_with_hudis_commits(previous: Timeline, following: Timeline) -> bool:
    """The live file groups of buckets change only with adopted commits of Hudi or a restore.

    Otherwise two writers could open two groups for one bucket, and a key would live twice.
    """
    return previous.file_ids == following.file_ids or _may_differ(previous, following)


@of("completions")
def rows_are_written_to_live_file_groups(previous: Timeline, following: Timeline) -> bool:
    """Our writes commit only files of the live file group of each bucket.

    Readers skip a file group that Hudi has replaced. A key in a second group lives twice.
    """
    written = [c for c in _new(following) if not c.adopted and (c.action == DELTA_COMMIT or c.overwriting is not None)]
    return not any(previous.file_ids.misplaced(c.files) for c in written)


def _may_differ(previous: Timeline, following: Timeline) -> bool:
    adopts = any(c.adopted for c in _new(following))
    was_foreign = previous.foreign_group is not None and bucket_of_file_id(previous.foreign_group) is not None
    return adopts or was_foreign or following.is_restore_of(previous)


def _new(following: Timeline) -> list[Completion]:
    return [c for c in following.completions if c.version == following.version]


# --- posts ------------------------------------------------------------------------------------------------------------


@of("completions")
def a_post_is_taken_once_and_in_time(previous: Timeline, following: Timeline) -> bool:
    """A taken post was open, was neither taken nor voided before, and is noted from now on.

    Otherwise a write would commit twice, or after its caller saw it fail.
    """
    taken = [m.post for c in _new(following) for m in c.members if m.post is not None]
    if not taken:
        return True
    noted = Decided.of(following.posts)
    kept = all(post in noted for post in taken if is_open(post, following.version))
    return kept and len(taken) == len(set(taken)) and all(map(previous.may_take, taken))


@of("posts")
def posts_are_noted_while_they_are_open(previous: Timeline, following: Timeline) -> bool:
    """A taken or voided post stays noted while a later version could take it."""
    if previous.posts == following.posts:
        return True
    return Decided.of(following.posts).includes(Decided.of(still_kept(previous.posts, following.version)))


# --- handover to Hudi's writers ---------------------------------------------------------------------------------------


@of("handed_over", "pending", "plans", "completions", about="handed_over")
def nothing_begins_in_a_table_that_is_handed_over(previous: Timeline, following: Timeline) -> bool:
    """A table handed over to Hudi has no pending write and no open plan, and gets only Hudi's commits.

    Our instant could have the requested time of a Hudi commit, or hide that commit.
    """
    if following.handed_over == EPOCH:
        return True
    quiet = not following.pending and not following.plans
    if previous.handed_over == EPOCH:
        return quiet
    adopts_alone = all(c.adopted for c in following.completions_since(previous))
    return quiet and adopts_alone and following.handed_over == previous.handed_over


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
    completions_bear_the_version_that_published_them,
    an_event_only_adds_completions,
    tokens_grow,
    the_schema_loses_no_column,
    invariants_history.a_field_keeps_its_id,
    foreign_file_groups_are_not_forgotten,
    file_ids_change_with_hudis_commits,
    rows_are_written_to_live_file_groups,
    invariants_history.history_is_only_given_up,
    invariants_history.the_watermark_moves_only_forward,
    invariants_history.nothing_unfinished_is_archived,
    invariants_history.only_what_is_in_segments_is_archived,
    invariants_history.a_restore_keeps_what_came_before,
    invariants_history.savepoints_never_change,
    invariants_history.names_are_only_altered_by_later_events,
    a_post_is_taken_once_and_in_time,
    posts_are_noted_while_they_are_open,
    a_write_keeps_to_what_it_has_declared,
    nothing_begins_in_a_closed_table,
    a_migration_ends_once,
    nothing_begins_in_a_table_that_is_handed_over,
)
"""Of an event, simplest first."""

SEALING_INVARIANTS: tuple[Invariant, ...] = (
    invariants_sealing.sealing_changes_nothing_else,
    invariants_sealing.completions_are_carried_or_sealed,
    invariants_sealing.segments_never_change,
    invariants_sealing.only_what_may_go_is_dropped,
    invariants_sealing.tokens_are_carried_or_stored,
)
"""Of an event's value before and after sealing."""


def _open_instants(value: Timeline) -> set[InstantTime]:
    return {p.requested for p in value.pending} | {p.barrier for p in value.plans}


def _is_odd(time: InstantTime) -> bool:
    return time[-1] in "13579"
