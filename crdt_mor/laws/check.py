"""The law check: a payload is held to its laws on all short histories of its examples, and on some of other values.

States are compared, not visible values, because later commits can tell states apart. They are the states of written
values and of joins of them. Where a state depends on its dot, the commits of a history overlap. The first examples meet
in every way in which three commits can overlap, the others in one or more.
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
"""How many values besides the examples are tried; fewer where states depend on their dots, which takes far longer."""

_ALONE: Final = 5
"""How many examples are joined with each other to find a value that changes none of the results."""

_RAISING: Final = frozenset({"total", "value"})
"""The laws that a payload breaks by raising on a value that it does not take."""

_ROUNDING: Final = (0.1, 0.2, 0.3, 1e16, 1.0, -1e16)
"""Written values that show whether floating point numbers are added up."""


_NULLS: Final = (
    ' (a null inside a value: where such are none of the payload\'s values, say nulls_inside = "refuse", and writes '
    "refuse them)"
)


def check_laws(payload: Payload, *, deep: bool = False, examples: int = 200) -> None:
    """Raise `LawError` if a payload breaks a law of its kind; the message names each with a smallest counterexample.

    Every short history of its `examples()` is tried, and some histories of other values of their types; a payload may
    raise on those. `deep`: up to `examples` longer histories are tried besides, of values that the author may not have
    thought of; needs `pip install "crdt-mor[testing]"`. Each of the two checks gives the same answer every time.
    """
    if not isinstance(payload, Payload):
        raise InvalidInputError(
            "the laws are those of a payload, an object like crdt_mor.payloads.Counter(), no class and no name. "
            f"got={payload!r}"
        )
    counterexamples = _on_examples(payload)
    if deep:
        try:
            from crdt_mor.laws import search
        except ImportError as error:
            if error.name != "hypothesis":
                raise
            raise InvalidInputError('the deep check needs hypothesis: pip install "crdt-mor[testing]"') from error
        search.search(payload, counterexamples, examples)
    _look_further(payload, counterexamples)
    _look_at_edges(payload, counterexamples)
    if counterexamples:
        raise law_error(payload, counterexamples)


def _on_examples(payload: Payload) -> Counterexamples:
    """The laws that a payload breaks on its examples, each with the shortest counterexample."""
    trial = trial_of_examples(payload)
    trial.written = [*trial.written, *_records_with_nulls(payload, trial)]
    examine(trial, histories_of(range(len(trial.written)), trial.dot_fields()))
    kinds = dict.fromkeys(kind for kind, _ in trial.written)
    rounding = [(kind, value) for kind in kinds for value in _rounding(kind, trial)]
    if rounding:
        other = Trial(payload, rounding)
        examine(other, histories_of(range(len(rounding)), other.dot_fields()))
        note = " (values of the checker, on which floating point numbers round)"
        _add_others(trial.counterexamples, other.counterexamples, note)
    return trial.counterexamples


def _look_further(payload: Payload, counterexamples: Counterexamples) -> None:
    """Add the laws that a payload breaks on other values than its examples, as far as `counterexamples` lacks them."""
    trial = trial_of_examples(payload)
    kinds = list(dict.fromkeys(kind for kind, _ in trial.written))
    others = _on_other_values(trial, kinds).counterexamples
    _add_others(counterexamples, others, " (values of the checker, which the examples do not show)")


def _add_others(counterexamples: Counterexamples, others: Counterexamples, note: str) -> None:
    """Add the laws that only other values break."""
    for law in others.keys() - counterexamples.keys():
        counterexamples.add(law, others[law] + note)


def _on_other_values(examples: Trial, kinds: Sequence[pa.DataType]) -> Trial:
    """A trial of a payload on its first example and on other values of its examples' types.

    A payload need not take every value of a type. Values that it raises on are left out, because a write or a read that
    meets one ends with an error that says so. (The deep check reports them.)
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
    """Values of each type; of a record, only values in which some column is not null."""
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
    """Add that a payload raises on nulls inside of its values, and that it is no unit for some of them."""
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
    """What a payload raises on the empty, greatest and least values of its types, on NaN and infinities.

    That is lawful, as a payload need not take every value. But a write of such a value leaves a key that cannot be
    read. Errors that `lift` raises are left out, since then the write is refused, and so is a `PayloadError`, which is
    meant.
    """
    firsts = _firsts(trial_of_examples(payload))
    far = [(kind, value) for kind, first in firsts for value in extremes(kind, first)]
    return list(_raised(payload, firsts[0], far).values())


def _firsts(examples: Trial) -> list[tuple[pa.DataType, Any]]:
    """The first example of each type."""
    first: dict[pa.DataType, Any] = {}
    for kind, value in examples.written:
        first.setdefault(kind, value)
    return list(first.items())


def _presentable(payload: Payload, ones: list[tuple[pa.DataType, Any]]) -> list[tuple[pa.DataType, Any]]:
    """Without the values that say nothing: rows of a record payload of which all columns are null."""
    record = isinstance(payload, RecordPayload)
    return [one for one in ones if not (record and all(field is None for field in one[1].values()))]


def _raised(payload: Payload, first: tuple[pa.DataType, Any], ones: list[tuple[pa.DataType, Any]]) -> dict[str, str]:
    """What a payload raises where one of some values meets itself or the first example, by law."""
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
    """The numbers of the written values on which `lift` does not raise."""
    every = [Update(i, i + 1) for i in range(len(trial.written))]
    if len(trial.lift(every)) == len(every):
        return [update.written for update in every]
    return [u.written for u in every if Trial(trial.payload, [trial.written[u.written]]).lift([Update(0, 1)])]


def _takes(payload: Payload, first: tuple[pa.DataType, Any], one: tuple[pa.DataType, Any]) -> bool:
    """Whether a payload raises nothing where a value meets itself and the first example."""
    trial = Trial(payload, [first, one])
    examine(trial, some_histories(2, trial.dot_fields()))
    return _RAISING.isdisjoint(trial.counterexamples)


def _rounding(kind: pa.DataType, trial: Trial) -> Iterator[Any]:
    """Values of a float column, or of a struct with float fields, that show rounding."""
    if pt.is_float64(kind) or pt.is_float32(kind):
        yield from _ROUNDING
    elif pt.is_struct(kind):
        base = next(value for of, value in trial.written if of == kind and value is not None)
        floats = [field.name for field in kind if pt.is_floating(field.type)]
        yield from (base | dict.fromkeys(floats, value) for value in _ROUNDING[:3] if floats)


def _records_with_nulls(payload: Payload, trial: Trial) -> list[tuple[pa.DataType, Any]]:
    """The first example of a record payload, each time without one of its columns."""
    if not isinstance(payload, RecordPayload) or payload.nulls_inside == "refuse":
        return []
    kind, first = trial.written[0]
    return [(kind, first | {name: None}) for name in first if len(first) > 1 and first[name] is not None]
