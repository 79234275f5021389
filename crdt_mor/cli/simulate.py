"""`crdt-mor simulate`: lives of a table with everything that goes wrong, also with a payload of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from crdt_mor.cli import render
from crdt_mor.cli.failures import BROKEN
from crdt_mor.cli.options import Form
from crdt_mor.cli.own_payload import payload_at
from crdt_mor.cli.render import Output
from crdt_mor.model.policies import plural

if TYPE_CHECKING:
    from crdt_mor.testing.simulation import Outcome, Simulated

TOLD_EVERY: Final = 500
"""After how many seeds it is said how far the runs are."""


def simulate(
    seeds: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many runs, a seed each, from --seed on; by default 100.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="S", min=0, help="The first seed; without --seeds this one alone.")
    ] = None,
    payload: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:PAYLOAD", help="A class or an instance, whose examples are written: acme.sets:Longest."
        ),
    ] = None,
    output: Form = Output.text,
) -> None:
    """Run the engine over a store that fails, with processes that die; exit code 3 and a story where a promise breaks.

    Nothing is written anywhere: the table of a run is in memory. A seed is one run, the same each time.

    Example: crdt-mor simulate --seeds 1000
    """
    from crdt_mor.testing.simulation import simulate as simulated

    loaded = None if payload is None else payload_at(payload, "--payload")
    first = seed or 0
    count = seeds or (100 if seed is None else 1)
    done = simulated(range(first, first + count), loaded, _telling(first) if output is Output.text else None)
    words = _replaying(done, payload)
    if output is Output.json:
        render.document(_document(done, words))
    else:
        _tell(done, words)
    if done.broken is not None:
        raise typer.Exit(BROKEN)


def _telling(first: int) -> Callable[[Outcome], None]:
    """Says now and then how far the runs are."""

    def tell(outcome: Outcome) -> None:
        ran = outcome.plan.seed - first + 1
        if ran % TOLD_EVERY == 0:
            render.note(f"{ran} seeds so far")

    return tell


def _replaying(done: Simulated, payload: str | None) -> str | None:
    """The command that runs the seed again that broke a promise."""
    if done.broken is None:
        return None
    of = "" if payload is None else f" --payload {payload}"
    return f"crdt-mor simulate --seed {done.broken.plan.seed}{of}"


def _document(done: Simulated, words: str | None) -> dict[str, object]:
    broken = None
    if done.shortest is not None and done.shortest.violation is not None:
        found = done.shortest
        violation = done.shortest.violation
        broken = {
            "seed": found.plan.seed, "invariant": violation.invariant, "message": violation.text,
            "story": list(found.story), "replay": words,
        }  # fmt: skip
    return {"seeds": done.seeds, "calls": done.calls, "digest": done.digest, "broken": broken}


def _tell(done: Simulated, words: str | None) -> None:
    from crdt_mor.testing.simulation import story

    if done.shortest is not None:
        typer.echo(story(done.shortest))
        render.note(f"replay it: {words}")
    kept = "every promise was kept" if done.broken is None else f"seed {done.broken.plan.seed} breaks a promise"
    render.note(f"{plural(done.seeds, 'seed')}, {done.calls} calls of the store: {kept}. digest={done.digest}")
