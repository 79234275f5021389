"""What is true of a table's history in each version and the one that follows it; asked with `model.invariants`.

History is given up, and leaves Hudi's active timeline, from its beginning on. A restore cuts off its end, and a
savepoint is a name for a moment of it.
"""

from __future__ import annotations

from crdt_mor.model.timeline import Timeline

# --- what is kept of it -----------------------------------------------------------------------------------------------


def history_is_only_given_up(previous: Timeline, following: Timeline) -> bool:
    """The marks of what history is kept move forward, and not past the clock.

    The files and completions of what was given up are gone: a mark that went back would promise what nobody has.
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


# --- what has left Hudi's active timeline -----------------------------------------------------------------------------


def the_watermark_moves_only_forward(previous: Timeline, following: Timeline) -> bool:
    """Only the version that moves the watermark changes what is said of the history, and says where it stood before.

    A helper of that version writes the next manifest. With a number that had been there, it would take an older one for
    its own, and remove from the active timeline what no manifest names.
    """
    old, new = previous.archive, following.archive
    if old.watermark == new.watermark:
        return old == new
    return (
        old.watermark == new.since < new.watermark
        and (new.version, new.manifest) == (following.version, old.manifest + 1)
        and new.count > old.count
    )


def nothing_unfinished_is_archived(previous: Timeline, following: Timeline) -> bool:  # noqa: ARG001
    """What is pending, planned, given up, or still carried by the value was requested after the watermark.

    Hudi's readers take every file whose instant is older than all that they know for one of an archived commit.
    """
    return all(time > following.archive.watermark for time in following.instants)


def only_what_is_in_segments_is_archived(previous: Timeline, following: Timeline) -> bool:  # noqa: ARG001
    """No more instants are archived than were moved to segments.

    Adoption counts the files of Hudi's active timeline: with a wrong number it would read all of them at every look.
    """
    return following.standing >= 0


# --- savepoints and restores ------------------------------------------------------------------------------------------


def a_restore_keeps_what_came_before(previous: Timeline, following: Timeline) -> bool:
    """A restore drops nothing that was completed by the moment to which it goes back, and nothing that is archived.

    It leaves nothing pending or planned, whose place in the order of what was dropped would have no meaning any more.
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


def names_are_only_altered_by_later_events(previous: Timeline, following: Timeline) -> bool:
    """What has become of the columns' names stays, as views of the past ask for it. One event adds one alteration.

    No two columns that people see have one name, also where names differ only in case; and no hidden column comes back.
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


def savepoints_never_change(previous: Timeline, following: Timeline) -> bool:
    """A savepoint that the value has is the very savepoint; a new one shows what the previous value shows."""
    before = {s.name: s for s in previous.savepoints}
    return len({s.name for s in following.savepoints}) == len(following.savepoints) and all(
        s == before[s.name] if s.name in before else s.at == previous.clock and s.version == following.version
        for s in following.savepoints
    )
