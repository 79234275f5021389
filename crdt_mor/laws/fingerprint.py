"""Fingerprint a payload's meaning as 16 hex digits of its results on its examples.

The bytes of a state do not count, so a library may pack a sketch differently. The state's type counts, because files
contain it.
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
    """Return the digest of a payload's kind, types, and visible values of its examples and their pairs.

    Pairs are merged by `merge`, or else by `join`, so a lawful payload may add a `merge` and keep its fingerprint.
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
