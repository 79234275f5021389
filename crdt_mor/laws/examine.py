"""Try each law on histories, and note the shortest counterexample of a broken law.

run     the states of one history, in the table's order
folds   each run, and each contiguous part of one, folded by `join`
cut     a run in two parts: states a compaction may have folded, and states merged with them later
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, groupby
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet

from crdt_mor.columns.shown_fields import stored_leaves
from crdt_mor.errors import SchemaMismatchError
from crdt_mor.laws.claims import settles
from crdt_mor.laws.describe import AUTHOR_ERRORS, described, error_line
from crdt_mor.laws.histories import History, Update
from crdt_mor.laws.trial import NO_STATE, Run, Trial
from crdt_mor.merge.kernel import polars_type

_GIVEN_MIN: Final = 3
"""Joins must give this many different states before a neutral one proves something."""


def examine(trial: Trial, histories: Iterable[History]) -> None:
    """Check the trial's payload on these histories; broken laws go to `trial.counterexamples`."""
    histories = list(histories)
    states = trial.lift(update for history in histories for update in history)
    whole = [history for history in histories if all(update in states for update in history)]
    runs = list(dict.fromkeys(run for history in whole for run in _runs_of(trial, history, states)))
    if not runs:
        return
    folds = _folds(trial, runs)
    _check_join(trial, runs, folds)
    if trial.payload.vectorised:
        _check_merge(trial, runs, folds)
    if settles(trial.payload):
        _check_settle(trial, runs, folds)
    if trial.payload.restores:
        cuts = dict.fromkeys(cut for history in whole for cut in _seen_prefixes(trial, history, states))
        _check_restore(trial, cuts, folds)
    trial.visible(range(len(trial)))
    _check_round_trip(trial)


def _runs_of(trial: Trial, history: History, states: dict[Update, int]) -> Iterator[Run]:
    """Yield the states of a history, with the updates of each commit folded into one."""
    commits: list[int] = []
    for commit, updates in groupby(history, key=lambda update: update.commit):
        rows = tuple(states[update] for update in updates)
        if commit and len(rows) > 1:
            yield rows
            rows = (trial.fold(rows),)
        commits += rows
    if len(commits) > 1 and NO_STATE not in commits:
        yield tuple(commits)


def _seen_prefixes(trial: Trial, history: History, states: dict[Update, int]) -> Iterator[tuple[Run, Run]]:
    """Yield the states of a history in two parts; each commit of the second has seen all of the first."""
    pending = {update.commit: update.pending for update in history}
    commits = list(pending)
    *_, run = ((), *_runs_of(trial, history, states))
    for i in range(1, len(run) if len(run) == len(commits) else 0):
        if not {p for commit in commits[i:] for p in pending[commit]} & set(commits[:i]):
            yield run[:i], run[i:]


def _folds(trial: Trial, runs: Sequence[Run]) -> dict[Run, int]:
    parts = dict.fromkeys(run[i:j] for run in runs for i, j in combinations(range(len(run) + 1), 2))
    folds: dict[Run, int] = {part: part[0] for part in parts if len(part) == 1}
    for length in range(2, max(map(len, runs)) + 1):
        level = [part for part in parts if len(part) == length]
        folds.update(zip(level, trial.join((folds[part[:-1]], part[-1]) for part in level), strict=True))
    return folds


def _check_join(trial: Trial, runs: Sequence[Run], folds: dict[Run, int]) -> None:
    """Check that `join` is idempotent, commutative and associative."""
    kind = trial.payload.kind
    pairs: dict[Run, Run] = {}
    triples: dict[Run, Run] = {}
    for run in runs:
        for i in range(1, len(run)):
            pairs.setdefault((folds[run[:i]], folds[run[i:]]), run)
        for i, j in combinations(range(1, len(run)), 2):
            a, b, c = folds[run[:i]], folds[run[i:j]], folds[run[j:]]
            for triple in ((a, b, c), (b, a, c), (a, c, b)) if kind != "ordered" else ((a, b, c),):
                triples.setdefault(triple, run)
    if kind == "semilattice":
        for (a, b), run in pairs.items():
            for triple in ((a, a, b), (a, b, a), (a, b, b)):
                triples.setdefault(triple, run)
    _check_associative(trial, {triple: run for triple, run in triples.items() if NO_STATE not in triple})
    if kind != "ordered":
        pairs |= {pair: run for triple, run in triples.items() for pair in (triple[:2], triple[1:], triple[::2])}
        _check_commutative(trial, {pair: run for pair, run in pairs.items() if NO_STATE not in pair})
    if kind == "semilattice":
        every = list(range(len(trial)))
        for x, twice in zip(every, trial.join((x, x) for x in every), strict=True):
            if twice not in (x, NO_STATE):
                text = f"join({trial.show(x)}, {trial.show(x)}) is {trial.show(twice)}"
                trial.counterexamples.add("idempotent", text + trial.origin((x,)))


def _check_associative(trial: Trial, triples: dict[Run, Run]) -> None:
    ab = trial.join((a, b) for a, b, _ in triples)
    bc = trial.join((b, c) for _, b, c in triples)
    left = trial.join((first, c) for first, (_, _, c) in zip(ab, triples, strict=True))
    right = trial.join((a, last) for last, (a, _, _) in zip(bc, triples, strict=True))
    for ((a, b, c), run), x, y in zip(triples.items(), left, right, strict=True):
        if x != y and NO_STATE not in (x, y):
            a_, b_, c_ = trial.show(a), trial.show(b), trial.show(c)
            text = f"join(join({a_}, {b_}), {c_}) is {trial.show(x)}, join({a_}, join({b_}, {c_})) is {trial.show(y)}"
            trial.counterexamples.add("associative", text + trial.origin(run))


def _check_commutative(trial: Trial, pairs: dict[Run, Run]) -> None:
    one = trial.join((a, b) for a, b in pairs)
    other = trial.join((b, a) for a, b in pairs)
    for ((a, b), run), x, y in zip(pairs.items(), one, other, strict=True):
        if x != y and NO_STATE not in (x, y):
            a_, b_ = trial.show(a), trial.show(b)
            text = f"join({a_}, {b_}) is {trial.show(x)}, join({b_}, {a_}) is {trial.show(y)}"
            trial.counterexamples.add("commutative", text + trial.origin(run))


def _check_merge(trial: Trial, runs: Sequence[Run], folds: dict[Run, int]) -> None:
    """Check that `merge` is the fold of `join`."""
    parts = list(folds)
    whole_runs = trial.merge(parts, mixed=True)
    if whole_runs is None:
        return
    merged = dict(zip(parts, whole_runs, strict=True))
    _check_against_fold(trial, merged, folds)
    merged |= {part: part[0] for part in parts if len(part) == 1}  # the engine never merges a lone state
    cuts: list[tuple[Run, ...]] = [(run[:i], run[i:]) for run in runs for i in range(1, len(run))]
    for run in runs:
        if len(run) > 3:
            cuts += [(run[:i], run[i:j], run[j:]) for i, j in combinations(range(1, len(run)), 2)]
    again = list(dict.fromkeys(tuple(merged[part] for part in cut) for cut in cuts))
    results = trial.merge(again, mixed=False)
    if results is None:
        return
    regrouped = dict(zip(again, results, strict=True))
    for cut in cuts:
        whole = tuple(n for part in cut for n in part)
        if (got := regrouped[tuple(merged[part] for part in cut)]) != merged[whole]:
            inner = ", ".join(trial.show(p[0]) if len(p) == 1 else f"merge({trial.shown(p)})" for p in cut)
            text = f"merge([{inner}]) is {trial.show(got)}, merge({trial.shown(whole)}) is {trial.show(merged[whole])}"
            trial.counterexamples.add("regrouping", text + trial.origin(whole))


def _check_against_fold(trial: Trial, merged: dict[Run, int], folds: dict[Run, int]) -> None:
    for run, got in merged.items():
        if got != folds[run] and folds[run] != NO_STATE:
            one = len(run) == 1
            wanted = "it must return that state" if one else f"the fold of join is {trial.show(folds[run])}"
            text = f"merge({trial.shown(run)}) is {trial.show(got)}, {wanted}"
            trial.counterexamples.add("kernel-exact", text + trial.origin(run))


Traces = dict[tuple[int, int], tuple[str, Run, Run]]
"""Pairs of states with the same value: one folded whole, one settled or restored on its way. The trace contains a
formula for the latter, its states, and the run."""


def _check_settle(trial: Trial, runs: Sequence[Run], folds: dict[Run, int]) -> None:
    """Check values after compactions settle states."""
    kept = _settle_each(trial, folds.values())
    traces: Traces = {(state, kept[state]): ("settle({})", (state,), part) for part, state in folds.items()}
    cuts = [(run[:i], run[i:]) for run in runs for i in range(1, len(run))]
    after = dict(zip(cuts, trial.join((kept[folds[s]], folds[rest]) for s, rest in cuts), strict=True))
    for (s, rest), state in after.items():
        traces.setdefault((folds[s + rest], state), ("join(settle({}), {})", (folds[s], folds[rest]), s + rest))
    again = _settle_each(trial, after.values())
    ends = [(s, rest[:i], rest[i:]) for s, rest in cuts for i in range(1, len(rest)) if (s, rest[:i]) in after]
    last = trial.join((again[after[s, mid]], folds[rest]) for s, mid, rest in ends)
    for (s, mid, rest), state in zip(ends, last, strict=True):
        whole, parts = s + mid + rest, (folds[s], folds[mid], folds[rest])
        traces.setdefault((folds[whole], state), ("join(settle(join(settle({}), {})), {})", parts, whole))
    _check_values(trial, {pair: trace for pair, trace in traces.items() if NO_STATE not in pair}, "settled")
    if trial.payload.vectorised:
        starts = dict.fromkeys((kept[folds[s]], *rest) for s, rest in cuts if kept[folds[s]] != NO_STATE)
        _check_merge_after_settle(trial, list(starts))


def _check_restore(trial: Trial, cuts: Iterable[tuple[Run, Run]], folds: dict[Run, int]) -> None:
    """Check values after compactions keep only visible values."""
    cuts = [(s, rest) for s, rest in cuts if NO_STATE not in (folds[s], folds[rest], folds[s + rest])]
    numbers = list(dict.fromkeys(folds[s] for s, _ in cuts))
    again = trial.restore(numbers)
    if again is None:
        return
    kept = dict(zip(numbers, again, strict=True))
    traces: Traces = {(state, kept[state]): ("restore(value({}))", (state,), (state,)) for state in numbers}
    after = trial.join((kept[folds[s]], folds[rest]) for s, rest in cuts)
    for (s, rest), state in zip(cuts, after, strict=True):
        parts = (folds[s], folds[rest])
        traces.setdefault((folds[s + rest], state), ("join(restore(value({})), {})", parts, s + rest))
    _check_values(trial, {pair: trace for pair, trace in traces.items() if NO_STATE not in pair}, "restored")
    if trial.payload.vectorised:
        _check_merge_after_settle(trial, list(dict.fromkeys((kept[folds[s]], *rest) for s, rest in cuts)))


def _settle_each(trial: Trial, numbers: Iterable[int]) -> dict[int, int]:
    states = [n for n in dict.fromkeys(numbers) if n != NO_STATE]
    return dict(zip(states, trial.settle(states) or [NO_STATE] * len(states), strict=True)) | {NO_STATE: NO_STATE}


def _check_values(trial: Trial, traces: Traces, law: str) -> None:
    numbers = list(dict.fromkeys(n for pair in traces for n in pair))
    visible = trial.visible(numbers)
    if visible is None:
        return
    values = dict(zip(numbers, visible, strict=True))
    for (whole, state), (how, parts, run) in traces.items():
        if repr(values[whole]) != repr(values[state]):
            text = f"value({how.format(*map(trial.show, parts))}) is {described(values[state])}"
            without = {"settled": "settle", "restored": "restore"}[law]
            text = f"{text}, without {without} it is {described(values[whole])}"
            trial.counterexamples.add(law, text + trial.origin(run))


def _check_merge_after_settle(trial: Trial, runs: Sequence[Run]) -> None:
    folds = [run[0] for run in runs]
    for i in range(1, max(map(len, runs), default=1)):
        longer = [k for k, run in enumerate(runs) if len(run) > i]
        for k, state in zip(longer, trial.join((folds[k], runs[k][i]) for k in longer), strict=True):
            folds[k] = state
    merged = trial.merge(runs, mixed=True) if runs else None
    if merged is not None:
        _check_against_fold(trial, dict(zip(runs, merged, strict=True)), dict(zip(runs, folds, strict=True)))


def examine_units(trial: Trial, written: Sequence[int]) -> None:
    """Check that `merge` of a lone state is that state.

    Without `merge`, a state that changes no result of `join` must not change a written value either.
    """
    states = trial.lift(Update(i, i + 1) for i in written)
    alone = list(dict.fromkeys(states.values()))
    if trial.payload.vectorised and alone:
        merged = trial.merge([(state,) for state in alone], mixed=False)
        for state, again in zip(alone, merged or alone, strict=True):
            if again != state:
                text = f"merge([{trial.show(state)}]) is {trial.show(again)}"
                trial.counterexamples.add("unit", text + trial.origin((state,)))
    given = list(dict.fromkeys(n for n in trial.join((a, b) for a in alone for b in alone) if n != NO_STATE))
    if len(given) < _GIVEN_MIN:
        return
    for unit in alone:
        if _changes(trial, unit, given) is None and (changed := _changes(trial, unit, alone)) is not None:
            a, b, got = changed
            text = (
                f"join({trial.show(a)}, {trial.show(b)}) is {trial.show(got)}, although {trial.show(unit)} "
                "changes no result of join"
            )
            trial.counterexamples.add("unit", text + trial.origin((a, b)))


def _changes(trial: Trial, unit: int, states: Sequence[int]) -> tuple[int, int, int] | None:
    pairs = [pair for state in states for pair in ((unit, state), (state, unit))]
    same = [state for state in states for _ in range(2)]
    for (a, b), state, got in zip(pairs, same, trial.join(pairs), strict=True):
        if got not in (state, NO_STATE):
            return a, b, got
    return None


def _check_round_trip(trial: Trial) -> None:
    try:
        stored = stored_leaves(trial.state, "state()")
    except SchemaMismatchError as error:
        trial.counterexamples.add("round-trip", f"a state is {trial.state}: {error}")
        return
    if polars_type(stored) != trial.dtype:
        trial.counterexamples.add(
            "round-trip", f"a state is {trial.state}, but files store {stored}: declare that type"
        )
        return
    states = trial.series(range(len(trial)))
    try:
        table = states.to_frame().to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.schema({"state": stored}))
        file = io.BytesIO()
        pa.parquet.write_table(table, file)
        back = pl.read_parquet(io.BytesIO(file.getvalue()))["state"]
    except AUTHOR_ERRORS as error:
        trial.counterexamples.add("round-trip", f"writing or reading a file of states raises {error_line(error)}")
        return
    for number, value in enumerate(back.to_list()):
        if described(value) != trial.show(number):
            text = f"the state {trial.show(number)} is read back as {described(value)}"
            trial.counterexamples.add("round-trip", text)
