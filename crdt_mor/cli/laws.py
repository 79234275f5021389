"""`crdt-mor laws` and `simulate`: check merge functions, and tables with them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.failures import BROKEN
from crdt_mor.model.policies import plural

SHALLOW = (
    "this was the shallow check of create: all short histories of the payload's examples and some of other values, the "
    "same each time. For the deep check, with longer histories of random values: pip install 'crdt-mor[testing]'"
)


def laws(
    payload: Annotated[str, typer.Argument(metavar="MODULE:PAYLOAD", show_default=False)],
    examples: Annotated[int, typer.Option(metavar="N", min=1)] = 200,
) -> None:
    """Check a payload's laws, and print a counterexample for each broken law.

    Exit code 3 means a broken law. Without the package hypothesis the check is shallow.

    Example: crdt-mor laws crdt_mor.payloads:Counter

    Args:
        payload: A class or an instance: crdt_mor.payloads:Counter.
        examples: Random histories of the deep check.
    """
    from crdt_mor.laws.claims import LAWS, laws_of

    loaded = payload_at(payload)
    _leave_no_cache_here()
    deep = _has_hypothesis()
    error: mor.errors.LawError | None = None
    try:
        mor.check_laws(loaded, deep=deep, examples=examples)
    except mor.errors.LawError as broken:
        error = broken
    kept = {law: error is None or law not in error.laws for law in laws_of(loaded)}
    kept |= dict.fromkeys(error.laws if error else (), False)
    if render.is_json():
        name, message = str(loaded.name), str(error) if error else None
        check = "deep" if deep else "shallow"
        render.document({"payload": name, "kind": loaded.kind, "check": check, "laws": kept, "message": message})
    else:
        render.facts({f"{'✓' if fine else '✗'} {law}": LAWS[law].says for law, fine in kept.items()})
        render.note(str(error) if error else f"{loaded.name} keeps the laws of its kind, {loaded.kind}")
        if not deep:
            render.note(SHALLOW)
    if error:
        raise typer.Exit(BROKEN)


def _has_hypothesis() -> bool:
    return importlib.util.find_spec("hypothesis") is not None


def _leave_no_cache_here() -> None:
    if "hypothesis" not in sys.modules:
        folder = os.path.join(tempfile.gettempdir(), "crdt-mor-hypothesis")
        os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", folder)


if TYPE_CHECKING:
    from crdt_mor.testing.simulation import Outcome, Simulated

TOLD_EVERY: Final = 500
"""Seeds between progress lines."""


def simulate(
    seeds: Annotated[int | None, typer.Option(metavar="N", min=1)] = None,
    seed: Annotated[int | None, typer.Option(metavar="S", min=0)] = None,
    payload: Annotated[str | None, typer.Option(metavar="MODULE:PAYLOAD")] = None,
) -> None:
    """Run the engine on a failing store with dying processes, and check all promises.

    A table is in memory, and a seed always gives the same run. Exit code 3 means a broken promise, printed as a story.

    Example: crdt-mor simulate --seeds 1000

    Args:
        seeds: Number of seeds from --seed on, one run each; default 100.
        seed: The first seed; without --seeds only this seed.
        payload: Write examples of this payload: acme.sets:Longest.
    """
    from crdt_mor.testing.simulation import simulate as simulated

    loaded = None if payload is None else payload_at(payload, "--payload")
    first = seed or 0
    count = seeds or (100 if seed is None else 1)
    done = simulated(range(first, first + count), loaded, _telling(first) if not render.is_json() else None)
    words = _replaying(done, payload)
    if render.is_json():
        render.document(_document(done, words))
    else:
        _tell(done, words)
    if done.broken is not None:
        raise typer.Exit(BROKEN)


def _telling(first: int) -> Callable[[Outcome], None]:
    def tell(outcome: Outcome) -> None:
        ran = outcome.plan.seed - first + 1
        if ran % TOLD_EVERY == 0:
            render.note(f"{ran} seeds so far")

    return tell


def _replaying(done: Simulated, payload: str | None) -> str | None:
    """Return the command that reruns the broken seed."""
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


def payload_at(path: str, hint: str = "MODULE:PAYLOAD") -> mor.Payload:
    """Load the payload at `module:name`. hint: the argument's name in errors."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise typer.BadParameter(f"a payload is named like crdt_mor.payloads:Counter. got={path!r}", param_hint=hint)
    inputs.import_from_here()
    try:
        target: object = importlib.import_module(module)
        for part in name.split("."):
            target = getattr(target, part)
        loaded = target() if isinstance(target, type) else target
    except Exception as error:  # a module can raise anything
        raise mor.errors.UnknownPayloadError(
            f"cannot load the payload: {type(error).__name__}: {error}. A class is called without arguments; if it "
            f"needs some, name an instance. payload={path}"
        ) from error
    if not isinstance(loaded, mor.Payload):
        raise mor.errors.UnknownPayloadError(f"a payload must be a subclass of crdt_mor.Payload. payload={path}")
    return loaded
