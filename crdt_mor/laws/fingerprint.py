"""What a payload means, as 16 hex digits that depend on what it does to its examples, not on how it is written.

Two payloads with one fingerprint show readers the same answers on the examples of both. The bytes of a state do not
count, so that a library may pack a sketch in another way; the type of the state counts, because files hold it.
"""

from __future__ import annotations

import hashlib
import json
from datetime import date, datetime
from itertools import product
from typing import Any

from crdt_mor.columns.shown_fields import stored_leaves
from crdt_mor.columns.types import type_to_json
from crdt_mor.laws.describe import described
from crdt_mor.laws.histories import Update
from crdt_mor.laws.trial import NO_STATE, Trial
from crdt_mor.merge.payload import Payload


def fingerprint(payload: Payload) -> str:
    """The digest of a payload's kind, its types, and the visible values of its examples and of each pair of them.

    Pairs are merged as tables merge them: by `merge`, or by `join` where the payload has no `merge`. A lawful payload
    may thus gain a `merge` and keep its fingerprint.
    """
    trial = Trial(payload)
    count = range(len(trial.written))
    concurrent = "pending" in trial.dot_fields()
    firsts = [Update(i, 1) for i in count]
    seconds = [Update(i, 2, 0, pending) for pending in ((), (1,))[: 1 + concurrent] for i in count]
    states = trial.lift([*firsts, *seconds])
    pairs = [(states.get(a, NO_STATE), states.get(b, NO_STATE)) for a, b in product(firsts, seconds)]
    numbers = [*(states.get(a, NO_STATE) for a in firsts), *_merged(trial, pairs)]
    known = [n for n in numbers if n != NO_STATE]
    visible = dict(zip(known, trial.visible(known) or (), strict=False))
    answers = [_canonical(visible[n]) if n in visible else "!" for n in numbers]
    types = [type_to_json(trial.column), type_to_json(stored_leaves(trial.state, "state()"))]
    text = json.dumps([payload.kind, payload.nulls, *types, *answers], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _merged(trial: Trial, pairs: list[tuple[int, int]]) -> list[int]:
    if not trial.payload.vectorised:
        return trial.join(pairs)
    whole = [pair for pair in pairs if NO_STATE not in pair]
    merged = dict(zip(whole, trial.merge(whole, mixed=False) or (), strict=False))
    return [merged.get(pair, NO_STATE) for pair in pairs]


def _canonical(value: Any) -> Any:
    """A value in JSON, the same on every machine."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return {"float": value.hex()}
        case bytes():
            return {"bytes": value.hex()}
        case list():
            return [_canonical(inner) for inner in value]
        case dict():
            return {"struct": [[key, _canonical(inner)] for key, inner in value.items()]}
        case date() | datetime():
            return {"time": value.isoformat()}
    return {"other": described(value)}
