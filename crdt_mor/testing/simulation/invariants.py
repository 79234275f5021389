"""The promises of every run, by name. A broken one raises `BrokenPromiseError`."""

from __future__ import annotations

from typing import Final

INVARIANTS: Final = {
    "nothing-lost": "A write that was acknowledged is in the history, and its rows are in every view from then on.",
    "nothing-twice": "A write is committed once, however often it is repeated, and a view has each key once.",
    "given-up-stays-away": "A write that was told that nothing is written never shows, however late its puts arrive.",
    "one-moment": "A view shows all commits that had completed by its moment and no other, whenever it is read.",
    "readers-agree": "Snapshots, counts and lookups, by every process, show the fold of the commits.",
    "increments-add-up": "Increments and updates in place are each counted once, whatever was under way beside them.",
    "bank": "A transfer is never half visible: the accounts add up to 0 in every view.",
    "convergence": "A follower that applies the changes equals the table at each of its checkpoints.",
    "merged-as-joined": "A column with a payload shows the fold of the payload's `join`, before and after compactions.",
    "saved-stays": "A savepoint's rows stay the same until the savepoint is dropped.",
    "erased-stays-erased": "Erased rows are in no view.",
    "laws": "The payload keeps the laws of its kind, else no table is made with it.",
    "no-surprise": "Calls raise only documented errors, and only with a cause.",
}


class BrokenPromiseError(AssertionError):
    """A broken promise. `invariant`: its name in `INVARIANTS`."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
        self.text = text
