"""Check a payload's laws on all short histories of its examples, and on some of other values.

States are compared, because later commits can tell states apart even with equal visible values. If a state depends on
its dot, the commits of a history overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.errors import InvalidInputError
from crdt_mor.laws.claims import law_error
from crdt_mor.laws.edges import empty, extremes, has_nulls, long, with_nulls
from crdt_mor.laws.examine import examine, examine_units
from crdt_mor.laws.histories import Update, histories_of, some_histories
from crdt_mor.laws.trial import Counterexamples, Trial, trial_of_examples
from crdt_mor.laws.values import values
from crdt_mor.merge.payload import Payload, RecordPayload

_OTHER_VALUES: Final = 8
_OTHER_VALUES_OF_DOTS: Final = 5
"""Tried values besides the examples; fewer for states that depend on dots, which take far longer."""

_ALONE: Final = 5
"""Examples that are joined with each other to find a value that changes no result."""

_RAISING: Final = frozenset({"total", "value"})

_ROUNDING: Final = (0.1, 0.2, 0.3, 1e16, 1.0, -1e16)
"""Written values that reveal sums of floats."""


_NULLS: Final = ' (a null inside a value: to refuse such values, set nulls_inside = "refuse")'


def check_laws(payload: Payload, *, deep: bool = False, examples: int = 200) -> None:
    """Raise `LawError` if a payload breaks a law of its kind.

    Tries every short history of its `examples()` and some histories of other values, on which it may raise. Each check
    gives the same answer every time.

    Args:
        payload: The payload.
        deep: Also try longer histories of drawn values; needs `pip install "crdt-mor[testing]"`.
        examples: Number of histories of the deep check.

    Raises:
        LawError: Names each broken law with its smallest counterexample.
    """
    if not isinstance(payload, Payload):
        raise InvalidInputError(
            f"pass a payload object such as crdt_mor.payloads.Counter(), not a class or a name. got={payload!r}"
        )
    counterexamples = _on_examples(payload)
    if deep:
        try:
            from crdt_mor.laws import search
        except ImportError as error:
            if error.name != "hypothesis":
                raise
            raise InvalidInputError('the deep check needs hypothesis: run pip install "crdt-mor[testing]"') from error
        search.search(payload, counterexamples, examples)
    _look_further(payload, counterexamples)
    _look_at_edges(payload, counterexamples)
    if counterexamples:
        raise law_error(payload, counterexamples)


def _on_examples(payload: Payload) -> Counterexamples:
    trial = trial_of_examples(payload)
    trial.written = [*trial.written, *_records_with_nulls(payload, trial)]
    examine(trial, histories_of(range(len(trial.written)), trial.dot_fields()))
    kinds = dict.fromkeys(kind for kind, _ in trial.written)
    rounding = [(kind, value) for kind in kinds for value in _rounding(kind, trial)]
    if rounding:
        other = Trial(payload, rounding)
        examine(other, histories_of(range(len(rounding)), other.dot_fields()))
        note = " (the checker's values, on which floats round)"
        _add_others(trial.counterexamples, other.counterexamples, note)
    return trial.counterexamples


def _look_further(payload: Payload, counterexamples: Counterexamples) -> None:
    trial = trial_of_examples(payload)
    kinds = list(dict.fromkeys(kind for kind, _ in trial.written))
    others = _on_other_values(trial, kinds).counterexamples
    _add_others(counterexamples, others, " (the checker's values, not the examples)")


def _add_others(counterexamples: Counterexamples, others: Counterexamples, note: str) -> None:
    for law in others.keys() - counterexamples.keys():
        counterexamples.add(law, others[law] + note)


def _on_other_values(examples: Trial, kinds: Sequence[pa.DataType]) -> Trial:
    """Return a trial on the first example and other values of the examples' types.

    Values on which the payload raises are left out.
    """
    payload, (first, *_) = examples.payload, examples.written
    count = max(3, (_OTHER_VALUES_OF_DOTS if examples.dot_fields() else _OTHER_VALUES) // len(kinds))
    other = Trial(payload, [first, *_other_values(examples, kinds, count)])
    examine(other, some_histories(len(other.written), other.dot_fields()))
    if not _RAISING.isdisjoint(other.counterexamples):
        taken = [one for one in _other_values(examples, kinds, 3 * count) if _takes(payload, first, one)]
        other = Trial(payload, [first, *taken[: count * len(kinds)]])
        examine(other, some_histories(len(other.written), other.dot_fields()))
        other.counterexamples.pop("total", None)
    return other


def _other_values(examples: Trial, kinds: Sequence[pa.DataType], count: int) -> list[tuple[pa.DataType, Any]]:
    """Return values of each type, without records of nulls."""
    record = isinstance(examples.payload, RecordPayload)
    refused = examples.payload.nulls_inside == "refuse"
    return [
        (kind, value)
        for kind in kinds
        for value in values(kind, count, [example for of, example in examples.written if of == kind])
        if not (record and all(field is None for field in value.values())) and not (refused and has_nulls(value))
    ]


# --- the edges of a type ----------------------------------------------------------------------------------------------


def _look_at_edges(payload: Payload, counterexamples: Counterexamples) -> None:
    examples = trial_of_examples(payload)
    firsts = _firsts(examples)
    if payload.nulls_inside != "refuse":
        nulls = [(kind, value) for kind, first in firsts for value in with_nulls(kind, first)]
        for law, text in _raised(payload, firsts[0], _presentable(payload, nulls)).items():
            counterexamples.setdefault(law, text + _NULLS)
    alone = [(kind, value) for kind, first in firsts for value in (*empty(kind), *long(kind))]
    trial = Trial(payload, [*examples.written[:_ALONE], *alone, *_other_values(examples, [k for k, _ in firsts], 3)])
    examine_units(trial, _lifting(trial))
    _add_others(counterexamples, Counterexamples({k: v for k, v in trial.counterexamples.items() if k == "unit"}), "")


def raised_at_edges(payload: Payload) -> list[str]:
    """Return the payload's errors on empty, greatest and least values, NaN and infinities.

    Such errors are lawful, but the written key cannot be read. Errors of `lift` do not count, because they refuse the
    write; nor does an intended `PayloadError`.
    """
    firsts = _firsts(trial_of_examples(payload))
    far = [(kind, value) for kind, first in firsts for value in extremes(kind, first)]
    return list(_raised(payload, firsts[0], far).values())


def _firsts(examples: Trial) -> list[tuple[pa.DataType, Any]]:
    first: dict[pa.DataType, Any] = {}
    for kind, value in examples.written:
        first.setdefault(kind, value)
    return list(first.items())


def _presentable(payload: Payload, ones: list[tuple[pa.DataType, Any]]) -> list[tuple[pa.DataType, Any]]:
    record = isinstance(payload, RecordPayload)
    return [one for one in ones if not (record and all(field is None for field in one[1].values()))]


def _raised(payload: Payload, first: tuple[pa.DataType, Any], ones: list[tuple[pa.DataType, Any]]) -> dict[str, str]:
    if not ones:
        return {}
    trial = Trial(payload, [first, *ones])
    lifting = _lifting(trial)
    if len(lifting) < len(trial.written):
        trial = Trial(payload, [first, *(ones[i - 1] for i in lifting if i)])
    count, dots = len(trial.written), trial.dot_fields()
    pairs = [pair for i in range(count) for pair in ((0, i), (i, 0), (i, i))]
    examine(trial, some_histories(count, dots) if dots else [tuple(map(Update, pair)) for pair in pairs])
    broken = trial.counterexamples.items()
    return {law: text for law, text in broken if " raises " in text and " raises PayloadError" not in text}


def _lifting(trial: Trial) -> list[int]:
    every = [Update(i, i + 1) for i in range(len(trial.written))]
    if len(trial.lift(every)) == len(every):
        return [update.written for update in every]
    return [u.written for u in every if Trial(trial.payload, [trial.written[u.written]]).lift([Update(0, 1)])]


def _takes(payload: Payload, first: tuple[pa.DataType, Any], one: tuple[pa.DataType, Any]) -> bool:
    trial = Trial(payload, [first, one])
    examine(trial, some_histories(2, trial.dot_fields()))
    return _RAISING.isdisjoint(trial.counterexamples)


def _rounding(kind: pa.DataType, trial: Trial) -> Iterator[Any]:
    """Yield values of a float column or of a struct's float fields that reveal rounding."""
    if pt.is_float64(kind) or pt.is_float32(kind):
        yield from _ROUNDING
    elif pt.is_struct(kind):
        base = next(value for of, value in trial.written if of == kind and value is not None)
        floats = [field.name for field in kind if pt.is_floating(field.type)]
        yield from (base | dict.fromkeys(floats, value) for value in _ROUNDING[:3] if floats)


def _records_with_nulls(payload: Payload, trial: Trial) -> list[tuple[pa.DataType, Any]]:
    if not isinstance(payload, RecordPayload) or payload.nulls_inside == "refuse":
        return []
    kind, first = trial.written[0]
    return [(kind, first | {name: None}) for name in first if len(first) > 1 and first[name] is not None]
