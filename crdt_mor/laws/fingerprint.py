"""What a payload means, as 16 hex digits: of what it does to its examples, not of how it is written.

Two payloads of one fingerprint show readers the same answers on the examples of both. The bytes of a state do not
count, so that a library that packs a sketch in another way changes nothing; its type does, because files hold it.
"""

from __future__ import annotations

import hashlib
import json
from datetime import date, datetime
from itertools import product
from typing import Any

from crdt_mor.laws.trial import NONE, Trial, Write, words
from crdt_mor.merge.payload import Payload
from crdt_mor.model.types import stored_type, type_to_json


def fingerprint(payload: Payload) -> str:
    """Of its kind, its types, and the visible value of each example and of each pair of them, merged as tables merge
    them: by `merge`, or by `join` where that is all it says. A lawful payload may thus gain a `merge`."""
    trial = Trial(payload)
    count = range(len(trial.written))
    concurrent = "pending" in trial.asks()
    firsts = [Write(i, 1) for i in count]
    seconds = [Write(i, 2, 0, pending) for pending in ((), (1,))[: 1 + concurrent] for i in count]
    states = trial.lift([*firsts, *seconds])
    pairs = [(states.get(a, NONE), states.get(b, NONE)) for a, b in product(firsts, seconds)]
    numbers = [*(states.get(a, NONE) for a in firsts), *_merged(trial, pairs)]
    known = [n for n in numbers if n != NONE]
    seen = dict(zip(known, trial.visible(known) or (), strict=False))
    said = [_canonical(seen[n]) if n in seen else "!" for n in numbers]
    types = [type_to_json(trial.column), type_to_json(stored_type(trial.state, "state()"))]
    text = json.dumps([payload.kind, payload.nulls, *types, *said], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _merged(trial: Trial, pairs: list[tuple[int, int]]) -> list[int]:
    if not trial.payload.vectorised:
        return trial.join(pairs)
    whole = [pair for pair in pairs if NONE not in pair]
    merged = dict(zip(whole, trial.merge(whole, mixed=False) or (), strict=False))
    return [merged.get(pair, NONE) for pair in pairs]


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
    return {"other": words(value)}
