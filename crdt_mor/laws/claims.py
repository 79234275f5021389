"""The laws by name, which of them a payload claims to keep, and the error that names those that it breaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from crdt_mor.errors import LawError
from crdt_mor.laws.examples import payload_name
from crdt_mor.merge.payload import Payload


class Law(NamedTuple):
    """What a law says, and what follows for users where it is broken."""

    says: str
    broken: str


LAWS: Final = {
    "total": Law("lift and join raise nothing and give states", "a read or a compaction that meets them would fail"),
    "value": Law("every state has a value of the column's type", "readers could not be shown this state"),
    "idempotent": Law("join(x, x) is x", "a value written twice would count twice"),
    "commutative": Law("join(x, y) is join(y, x)", "the answer would depend on which commit lands first"),
    "associative": Law(
        "join(join(x, y), z) is join(x, join(y, z))", "the answer would depend on when a compaction ran"
    ),
    "unit": Law(
        "a value that stands alone is as join gives values", "it would look otherwise as soon as another joins it"
    ),
    "kernel-exact": Law("merge is the fold of join", "the vectorised merge gives another answer than join"),
    "regrouping": Law("merging parts first changes nothing", "a compaction would change the answer"),
    "round-trip": Law("a file gives a state back as it was", "a compaction would write what no reader reads back"),
    "settled": Law(
        "what settle forgets no later value needs", "a compaction would forget what later commits still need"
    ),
    "restored": Law(
        "restore(value(x)) does for x in writes that have seen x",
        "a compaction would forget what later commits still need",
    ),
}
_CLAIMS: Final = {"semilattice": "a semilattice", "delta": "a delta", "ordered": "ordered"}


def laws_of(payload: Payload) -> tuple[str, ...]:
    """The laws that a payload is held to: those of its kind, and those of the optional methods that it has."""
    absent = set()
    if payload.kind != "semilattice":
        absent.add("idempotent")
    if payload.kind == "ordered":
        absent.add("commutative")
    if not payload.vectorised:
        absent |= {"kernel-exact", "regrouping"}
    if not settles(payload):
        absent.add("settled")
    if not payload.restores:
        absent.add("restored")
    return tuple(law for law in LAWS if law not in absent)


def settles(payload: Payload) -> bool:
    """Whether a payload has a `settle` of its own."""
    return type(payload).settle is not Payload.settle


def law_error(payload: Payload, counterexamples: Mapping[str, str]) -> LawError:
    """The error that names every broken law, with its counterexample."""
    laws = tuple(law for law in LAWS if law in counterexamples)
    lines = [f"{payload_name(payload)} claims to be {_CLAIMS[payload.kind]}, but"]
    lines += [f"  {law}: {counterexamples[law]}: {LAWS[law].broken}" for law in laws]
    weaker = {"semilattice": ("delta", "ordered"), "delta": ("ordered",), "ordered": ()}[payload.kind]
    waived = {"delta": {"idempotent"}, "ordered": {"idempotent", "commutative"}}
    for kind in weaker:
        if set(laws) <= waived[kind]:
            lines.append(f'It keeps the laws of the kind "{kind}": say kind = "{kind}".')
            break
    return LawError("\n".join(lines), laws)
