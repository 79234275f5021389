"""Invariants of a table's history, checked with `model.invariants`."""

from __future__ import annotations

from crdt_mor.model.field_ids import field_ids, has_ids
from crdt_mor.model.invariants_fields import of
from crdt_mor.model.timeline import Timeline

# --- retention --------------------------------------------------------------------------------------------------------


@of("retention")
def history_is_only_given_up(previous: Timeline, following: Timeline) -> bool:
    """The retention marks only move forward, up to the clock.

    History before them is gone.
    """
    old, new = previous.retention, following.retention
    if old == new:
        return True
    return (
        old.since <= new.since <= following.clock
        and old.dropped <= new.dropped <= max(new.stable_since, old.dropped)
        and old.dropped_count == new.dropped_count
        and old.stable_since <= new.stable_since <= new.since
        and all(new.since_of(group) >= since for group, since in old.groups)
        and all(since <= following.clock for _, since in new.groups)
    )


# --- columns ----------------------------------------------------------------------------------------------------------


@of("schema")
def a_field_keeps_its_id(previous: Timeline, following: Timeline) -> bool:
    """Each column and nested field keeps its id for good, because files contain it.

    Exceptions: version 0 of a table written only by Hudi, and growth by an earlier release, which knew no ids. It put
    none in files, and default ids follow from the columns.
    """
    if previous.schema == following.schema or previous.version == 0:
        return True
    if not has_ids(previous.schema) and not has_ids(following.schema):
        return True
    return field_ids(previous.schema).items() <= field_ids(following.schema).items()


# --- archiving --------------------------------------------------------------------------------------------------------


@of("archive")
def the_watermark_moves_only_forward(previous: Timeline, following: Timeline) -> bool:
    """The archive changes only with the watermark, which moves forward; the event notes the previous watermark.

    With a reused number, a helper would take an older manifest for its own, and delete active instants that no manifest
    contains.
    """
    old, new = previous.archive, following.archive
    if old.watermark == new.watermark:
        return old == new
    return (
        old.watermark == new.since < new.watermark
        and (new.version, new.manifest) == (following.version, old.manifest + 1)
        and new.count > old.count
    )


@of("pending", "plans", "rolled_back", "completions", "archive", about="archive")
def nothing_unfinished_is_archived(previous: Timeline, following: Timeline) -> bool:  # noqa: ARG001
    """Every instant in the value, finished or not, was requested after the watermark.

    Hudi's readers take any older file for committed.
    """
    return all(time > following.archive.watermark for time in following.instants)


@of("segments", "retention", "archive")
def only_what_is_in_segments_is_archived(previous: Timeline, following: Timeline) -> bool:  # noqa: ARG001
    """No more instants are archived than were sealed.

    With a wrong count, adoption would read all files of Hudi's active timeline every time.
    """
    return following.standing >= 0


# --- savepoints and restores ------------------------------------------------------------------------------------------


@of("restores")
def a_restore_keeps_what_came_before(previous: Timeline, following: Timeline) -> bool:
    """A restore keeps all commits up to its moment and all archived instants, and leaves nothing pending or planned.

    Pending instants would have no place in the order.
    """
    if not following.is_restore_of(previous):
        return previous.restores == following.restores
    restore = following.restores[-1]
    carried = {c.requested for c in following.completions}
    return (
        following.restores[:-1] == previous.restores
        and restore.version == following.version
        and restore.to <= previous.clock < restore.at == following.clock
        and restore.to < restore.first
        and not (following.pending or following.plans)
        and all(c.requested in carried for c in previous.completions if c.completed <= restore.to)
        and all(s.at < restore.first for s in following.savepoints)
        and following.standing >= 0
    )


@of("alterations")
def names_are_only_altered_by_later_events(previous: Timeline, following: Timeline) -> bool:
    """An event adds at most one alteration of names and keeps the earlier alterations, which views of the past need.

    Visible names differ even without case, and a hidden column never returns.
    """
    before, after = previous.alterations, following.alterations
    if before == after:
        return True
    new = after[len(before) :]
    names, columns = following.names, following.columns
    shown = [names.shown(name).lower() for name in names.visible(columns)]
    named = {stored for stored, _ in (*new[0].added, *new[0].renamed, *new[0].comments)} if new else set[str]()
    return (
        after[: len(before)] == before
        and len(new) == 1
        and new[0].at == following.clock
        and len(set(shown)) == len(shown)
        and (named | {*new[0].dropped}) <= set(columns)
        and named.isdisjoint(previous.names.hidden)
    )


@of("savepoints")
def savepoints_never_change(previous: Timeline, following: Timeline) -> bool:
    """A savepoint never changes, and a new savepoint names the previous version's moment."""
    before = {s.name: s for s in previous.savepoints}
    return len({s.name for s in following.savepoints}) == len(following.savepoints) and all(
        s == before[s.name] if s.name in before else s.at == previous.clock and s.version == following.version
        for s in following.savepoints
    )
