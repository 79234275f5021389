"""Timeline values of a migration, for the source table and the target table. Pure functions."""

from __future__ import annotations

from dataclasses import replace

from crdt_mor.model.alteration import Alteration, Alterations
from crdt_mor.model.authors import Author
from crdt_mor.model.instant import InstantTime, begin_after, tick_after
from crdt_mor.model.layout import with_layout
from crdt_mor.model.migration import Moving, Origin
from crdt_mor.model.names import DELTA_COMMIT
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Token
from crdt_mor.model.tokens import Tokens
from crdt_mor.planners.restore import UNKNOWN


def moving_to(value: Timeline, nonce: str, wall_ms: int, moving: Moving | None) -> Timeline:
    """Announce a migration to another table, or give it up (None)."""
    announced = replace(moving, since=value.clock) if moving is not None else None
    return value.following(nonce, tick_after(value.clock, wall_ms), moving=announced)


def closed(value: Timeline, nonce: str, wall_ms: int) -> Timeline:
    assert value.moving is not None, "a migration is announced before it closes the table"
    clock = tick_after(value.clock, wall_ms)
    return value.following(nonce, clock, moving=replace(value.moving, closed=clock))


def arriving(value: Timeline, nonce: str, wall_ms: int, origin: Origin) -> Timeline:
    return value.following(nonce, tick_after(value.clock, wall_ms), origin=origin)


def opened(value: Timeline, nonce: str, wall_ms: int, source: Timeline, author: Author | None = None) -> Timeline:
    """Open this table for writes, after all rows of the closed `source` have arrived.

    The clock moves past the source's clock. The event adds an empty delta commit, to which the source's tokens refer.
    Properties (except the order of rows), rules and column names come from the source. Earlier history is not kept,
    because it showed only a part of the source.
    """
    assert value.origin is not None, "rows of another table arrive"
    requested = begin_after(max(value.clock, source.clock), wall_ms)
    clock = tick_after(requested, wall_ms)
    version = value.version + 1
    completion = Completion(requested, clock, version, nonce, DELTA_COMMIT, "UPSERT", author=author)
    others = {t.application for t in source.tokens}
    arrived = (replace(t, requested=_noted_at(t, requested), completed=clock, version=version) for t in source.tokens)
    stable = min([clock, *(p.requested for p in value.pending)])  # a migrating process may have stalled
    return value.following(
        nonce,
        clock,
        origin=replace(value.origin, opened=clock),
        completions=(*value.completions, completion),
        properties=with_layout(source.properties, value.properties),
        rules=source.rules,
        alterations=_named_as_in(source, value, clock),
        retention=replace(value.retention, since=clock, stable_since=max(value.retention.stable_since, stable)),
        tokens_noted=clock if others else value.tokens_noted,
        tokens=Tokens((*(t for t in value.tokens if t.application not in others), *arrived)),
    )


def _noted_at(token: Token, opening: InstantTime) -> InstantTime:
    """Return the commit that a token of the source refers to here. A number unknown in the source stays unknown."""
    return UNKNOWN if token.requested == UNKNOWN else opening


def _named_as_in(source: Timeline, value: Timeline, at: InstantTime) -> Alterations:
    if not (source.alterations or value.alterations):
        return ()
    names, columns = source.names, value.columns
    alteration = Alteration(
        at,
        renamed=tuple((name, names.shown(name)) for name in columns if names.shown(name) != value.names.shown(name)),
        dropped=tuple(name for name in names.hidden if name in columns),
        comments=tuple((name, text) for name, text in names.comments if name in columns),
    )
    return (*value.alterations, alteration) if alteration != Alteration(at) else value.alterations
