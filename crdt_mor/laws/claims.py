"""The laws by name, the laws that a payload claims, and the error that names broken ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from crdt_mor.errors import LawError
from crdt_mor.laws.examples import payload_name
from crdt_mor.merge.payload import Payload


class Law(NamedTuple):
    """A law, and its users' loss if it is broken."""

    says: str
    broken: str


LAWS: Final = {
    "total": Law("lift and join return states without raising", "a read or a compaction that meets them would fail"),
    "value": Law("every state gives a value of the column's type", "readers could not see this state"),
    "idempotent": Law("join(x, x) is x", "a value written twice would count twice"),
    "commutative": Law("join(x, y) is join(y, x)", "the answer would depend on which commit lands first"),
    "associative": Law(
        "join(join(x, y), z) is join(x, join(y, z))", "the answer would depend on when a compaction ran"
    ),
    "unit": Law("a lone value equals join's result for it", "the next value would change it"),
    "kernel-exact": Law("merge is the fold of join", "the vectorised merge and join disagree"),
    "regrouping": Law("merging parts first changes nothing", "a compaction would change the answer"),
    "round-trip": Law("a state survives a file unchanged", "readers would see another state after a compaction"),
    "settled": Law(
        "settle forgets nothing that later values need", "a compaction would drop data that later commits need"
    ),
    "restored": Law(
        "restore(value(x)) replaces x in writes that have seen x",
        "a compaction would drop data that later commits need",
    ),
}
_CLAIMS: Final = {"semilattice": "a semilattice", "delta": "a delta", "ordered": "ordered"}


def laws_of(payload: Payload) -> tuple[str, ...]:
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
    return type(payload).settle is not Payload.settle


def law_error(payload: Payload, counterexamples: Mapping[str, str]) -> LawError:
    laws = tuple(law for law in LAWS if law in counterexamples)
    lines = [f"{payload_name(payload)} claims to be {_CLAIMS[payload.kind]}, but"]
    lines += [f"  {law}: {counterexamples[law]}: {LAWS[law].broken}" for law in laws]
    weaker = {"semilattice": ("delta", "ordered"), "delta": ("ordered",), "ordered": ()}[payload.kind]
    waived = {"delta": {"idempotent"}, "ordered": {"idempotent", "commutative"}}
    for kind in weaker:
        if set(laws) <= waived[kind]:
            lines.append(f'It keeps the laws of kind "{kind}": set kind = "{kind}".')
            break
    return LawError("\n".join(lines), laws)
