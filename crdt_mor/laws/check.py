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
from crdt_mor.laws.examine import examine
from crdt_mor.laws.histories import histories_of, some_histories
from crdt_mor.laws.trial import Counterexamples, Trial, trial_of_examples
from crdt_mor.laws.values import values
from crdt_mor.merge.payload import Payload, RecordPayload

_OTHER_VALUES: Final = 8
_OTHER_VALUES_OF_DOTS: Final = 5
"""How many values besides the examples are tried; fewer where states depend on their dots, which takes far longer."""

_RAISING: Final = frozenset({"total", "value"})
"""The laws that a payload breaks by raising on a value that it does not take."""

_ROUNDING: Final = (0.1, 0.2, 0.3, 1e16, 1.0, -1e16)
"""Written values that show whether floating point numbers are added up."""


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
    return [
        (kind, value)
        for kind in kinds
        for value in values(kind, count, [example for of, example in examples.written if of == kind])
        if not (record and all(field is None for field in value.values()))
    ]


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
    if not isinstance(payload, RecordPayload):
        return []
    kind, first = trial.written[0]
    return [(kind, first | {name: None}) for name in first if len(first) > 1 and first[name] is not None]
