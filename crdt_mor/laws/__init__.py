"""`check_laws`: a payload held to the laws that it claims, for its author's tests.

The laws are in `crdt_mor.laws.check`, where a table asks for them when it is made; the deep search needs hypothesis.
"""

from __future__ import annotations

from crdt_mor.errors import InvalidInputError
from crdt_mor.laws import check
from crdt_mor.laws.check import LAWS, laws_of
from crdt_mor.merge.payload import Payload

__all__ = ["LAWS", "check_laws", "laws_of"]


def check_laws(payload: Payload, *, deep: bool = False, examples: int = 200) -> None:
    """Raise `LawError` if a payload breaks a law of its kind; the message names each with a smallest counterexample.

    Every short history of its `examples()` is tried, and some of other values of their types; a payload that raises on
    one of the latter need not take it. `deep`: as many as `examples` longer ones besides, of values that its author may
    not have thought of; needs `pip install "crdt-mor[testing]"`. Either finds the same every time.
    """
    faults = check.broken(payload)
    if deep:
        try:
            from crdt_mor.laws import search
        except ImportError as error:
            if error.name != "hypothesis":
                raise
            raise InvalidInputError('the deep check needs hypothesis: pip install "crdt-mor[testing]"') from error
        search.search(payload, faults, examples)
    check.look_further(payload, faults)
    if faults:
        raise check.law_error(payload, faults)
