"""Tell a run in words: the table, a line per event, and the broken promise."""

from __future__ import annotations

from crdt_mor.model.policies import plural
from crdt_mor.testing.simulation.invariants import INVARIANTS
from crdt_mor.testing.simulation.plan import Settings
from crdt_mor.testing.simulation.running import Outcome


def story(outcome: Outcome) -> str:
    """Indented lines happened in a pause of the line above."""
    lines = [f"seed {outcome.plan.seed}: {_table(outcome.plan.settings)}", *outcome.story]
    broken = outcome.violation
    if broken is not None:
        lines += ["", f"{broken.invariant} is broken: {broken.text}"]
        lines.append(f"The promise: {INVARIANTS[broken.invariant]}")
    return "\n".join(lines)


def _table(settings: Settings) -> str:
    rules = {
        "latest": "the latest write of a key wins", "ordering": "the greatest v wins",
        "partial": "a write gives some columns", "payloads": "columns have payloads",
        "partial, payloads": "a write gives some columns, and some have payloads",
    }  # fmt: skip
    payload = "" if settings.payload is None else f", value is {settings.payload.name}"
    expiry = ", rows expire" if settings.expires else ""
    parts = ", with partitions" if settings.partitioned else ""
    return f"a table in which {rules[settings.rule]}{payload}{expiry}{parts}, {plural(settings.buckets, 'bucket')}"
