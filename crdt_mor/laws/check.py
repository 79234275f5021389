"""The laws that a payload is held to, on all short histories of its own examples, and on some of other values.

States are compared, not visible values: whoever comes later can tell them apart. They are the states of written values
and of joins of them. Where a state depends on its dot, commits overlap: each has seen those before it but for the ones
still under way. The first examples meet in every way in which three commits can overlap, the others in one or more.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, groupby, product
from typing import Any, Final, NamedTuple, get_args

import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pyarrow.types as pt

from crdt_mor.errors import InvalidInputError, LawError, SchemaMismatchError
from crdt_mor.laws.trial import NONE, RAISED, Faults, Run, Trial, Write, name_of, said, words
from crdt_mor.laws.values import values
from crdt_mor.merge.kernel import polars_type
from crdt_mor.merge.payload import Kind, Nulls, Payload, RecordPayload
from crdt_mor.model.types import stored_type

EXAMPLES_MAX: Final = 12
HISTORIES_MAX: Final = 200
DRAWN: Final = 8
DRAWN_OF_DOTS: Final = 5
"""How many values besides the examples are tried; fewer where states depend on their dots, which takes far longer."""

RAISES: Final = frozenset({"total", "value"})
"""The laws that a payload breaks on a value that it does not take."""

ROUNDING: Final = (0.1, 0.2, 0.3, 1e16, 1.0, -1e16)
"""Written values that show whether floating point numbers are added up."""

History = tuple[Write, ...]


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
    "kernel-exact": Law("merge is the fold of join", "the vectorised merge gives another answer than join"),
    "regrouping": Law("merging parts first changes nothing", "a compaction would change the answer"),
    "round-trip": Law("a file gives a state back as it was", "a compaction would write what no reader reads back"),
    "settled": Law(
        "what settle forgets no later value needs", "a compaction would forget what later commits still need"
    ),
    "restored": Law(
        "restore(value(x)) does for x to whoever has seen x", "a compaction would forget what later commits still need"
    ),
}
_CLAIMS: Final = {"semilattice": "a semilattice", "delta": "a delta", "ordered": "ordered"}


def laws_of(payload: Payload) -> tuple[str, ...]:
    """The laws of its kind and of what it says."""
    absent = set()
    if payload.kind != "semilattice":
        absent.add("idempotent")
    if payload.kind == "ordered":
        absent.add("commutative")
    if not payload.vectorised:
        absent |= {"kernel-exact", "regrouping"}
    if not _settles(payload):
        absent.add("settled")
    if not payload.restores:
        absent.add("restored")
    return tuple(law for law in LAWS if law not in absent)


def broken(payload: Payload) -> Faults:
    """The laws that it breaks on its examples, each with the shortest counterexample."""
    trial = start(payload)
    trial.written = [*trial.written, *_more_nulls(payload, trial)]
    examine(trial, _histories(range(len(trial.written)), trial.asks()))
    kinds = dict.fromkeys(kind for kind, _ in trial.written)
    rounding = [(kind, value) for kind in kinds for value in _rounding(kind, trial)]
    if rounding:
        other = Trial(payload, rounding)
        examine(other, _histories(range(len(rounding)), other.asks()))
        _also(trial.faults, other.faults, " (values of the checker, on which floating point numbers round)")
    return trial.faults


def look_further(payload: Payload, faults: Faults) -> None:
    """Add the laws that it breaks on other values than its examples, and which are not in `faults` yet."""
    trial = start(payload)
    kinds = list(dict.fromkeys(kind for kind, _ in trial.written))
    _also(faults, _on_drawn_values(trial, kinds).faults, " (values of the checker, which the examples do not show)")


def _also(faults: Faults, others: Faults, note: str) -> None:
    """What other values break that the examples have not shown."""
    for law in others.keys() - faults.keys():
        faults.add(law, others[law] + note)


def _on_drawn_values(examples: Trial, kinds: Sequence[pa.DataType]) -> Trial:
    """The payload on values of the types of its examples, and the first example.

    A payload need not take every value of a type: those that it raises on are no concern of the laws, as a write or a
    read that meets one ends with an error that says so. (The deep check tells of them.)
    """
    payload, (first, *_) = examples.payload, examples.written
    count = max(3, (DRAWN_OF_DOTS if examples.asks() else DRAWN) // len(kinds))
    other = Trial(payload, [first, *_drawn(examples, kinds, count)])
    examine(other, _some_histories(len(other.written), other.asks()))
    if not RAISES.isdisjoint(other.faults):
        taken = [one for one in _drawn(examples, kinds, 3 * count) if _takes(payload, first, one)]
        other = Trial(payload, [first, *taken[: count * len(kinds)]])
        examine(other, _some_histories(len(other.written), other.asks()))
        other.faults.pop("total", None)
    return other


def _drawn(examples: Trial, kinds: Sequence[pa.DataType], count: int) -> list[tuple[pa.DataType, Any]]:
    """Values of each kind; a record says something."""
    record = isinstance(examples.payload, RecordPayload)
    return [
        (kind, value)
        for kind in kinds
        for value in values(kind, count, [known for of, known in examples.written if of == kind])
        if not (record and all(field is None for field in value.values()))
    ]


def _takes(payload: Payload, first: tuple[pa.DataType, Any], one: tuple[pa.DataType, Any]) -> bool:
    """Whether nothing is raised where a value meets itself and the first example."""
    trial = Trial(payload, [first, one])
    examine(trial, _some_histories(2, trial.asks()))
    return RAISES.isdisjoint(trial.faults)


def _some_histories(count: int, asks: set[str]) -> list[History]:
    """Every pair of values, with a third; of the ways in which commits overlap each in its turn."""
    ways = list(contexts([1, 2, 3])) if "pending" in asks else [next(contexts([1, 2, 3]))]
    rows = [(i, j, (i + 2 * j + 1) % count) for i, j in product(range(count), repeat=2)]
    if not asks:
        return [tuple(map(Write, row)) for row in rows]
    return [history for n, row in enumerate(rows) for history in _written([ways[n % len(ways)]], [row])]


def start(payload: Payload) -> Trial:
    """A trial of its examples; raises `InvalidInputError` for what is no payload to begin with."""
    if payload.kind not in get_args(Kind) or payload.nulls not in get_args(Nulls):
        raise InvalidInputError(
            f"kind is one of {get_args(Kind)} and nulls one of {get_args(Nulls)}. payload={name_of(payload)} "
            f"kind={payload.kind!r} nulls={payload.nulls!r}"
        )
    try:
        trial = Trial(payload)
    except (NotImplementedError, pa.ArrowException, TypeError) as error:
        raise InvalidInputError(f"{error}. payload={name_of(payload)}") from error
    if (count := sum(value is not None for _, value in trial.written)) > EXAMPLES_MAX:
        raise InvalidInputError(
            f"examples() is a small world, as every three of its values are tried: give at most {EXAMPLES_MAX}. "
            f"payload={name_of(payload)} examples={count}"
        )
    return trial


def law_error(payload: Payload, faults: Faults) -> LawError:
    """The error that names every broken law."""
    laws = tuple(law for law in LAWS if law in faults)
    lines = [f"{name_of(payload)} claims to be {_CLAIMS[payload.kind]}, but"]
    lines += [f"  {law}: {faults[law]}: {LAWS[law].broken}" for law in laws]
    weaker = {"semilattice": ("delta", "ordered"), "delta": ("ordered",), "ordered": ()}[payload.kind]
    waived = {"delta": {"idempotent"}, "ordered": {"idempotent", "commutative"}}
    for kind in weaker:
        if set(laws) <= waived[kind]:
            lines.append(f'It keeps the laws of the kind "{kind}": say kind = "{kind}".')
            break
    return LawError("\n".join(lines), laws)


# --- histories --------------------------------------------------------------------------------------------------------


def contexts(commits: Sequence[int]) -> Iterator[list[Write]]:
    """All ways in which commits can overlap; `commits` says which commit each write is of, ascending from 1."""
    last = commits[-1]
    for ends in product(*(range(commit + 1, last + 2) for commit in range(1, last + 1))):
        yield placed(commits, ends)


def placed(commits: Sequence[int], ends: Sequence[int]) -> list[Write]:
    """Writes without values. Commit c is under way when those below `ends[c - 1]` begin, and over for the others."""
    pending = {commit: tuple(c for c in range(1, commit) if ends[c - 1] > commit) for commit in commits}
    return [Write(NONE, c, list(commits[:i]).count(c), pending[c]) for i, c in enumerate(commits)]


def _histories(written: range, asks: set[str]) -> list[History]:
    """All of three writes, and some that are longer."""
    long = [[written[(i + k) % len(written)] for k in range(6)] for i in written]
    if not asks:
        values = [*product(written, repeat=3), *product(written[:3], repeat=4), *map(tuple, long)]
        return [tuple(map(Write, run)) for run in values]
    two, three, four = (list(contexts(range(1, n + 1))) for n in (2, 3, 4))
    same = [way for commits in ([1, 1], [1, 1, 2], [1, 2, 2], [1, 1, 1]) for way in contexts(commits)]
    six = [placed(range(1, 7), ends) for ends in (range(2, 8), [7] * 6)]
    if "pending" not in asks:
        two, three, four, six = two[:1], three[:1], four[:1], six[:1]
        same = [way for way in same if not any(write.pending for write in way)]
    few = next(n for n in range(len(written), 0, -1) if n == 1 or n**3 * len(three) <= HISTORIES_MAX)
    return [
        *_written(two, product(written, repeat=2)),
        *_written(three, product(written[:few], repeat=3)),
        *(h for row in product(written, repeat=3) for h in _written([three[sum(row) % len(three)]], [row])),
        *_written(same, product(written[:2], repeat=3)),
        *_written(four, (row * 2 for row in product(written[:2], repeat=2))),
        *_written(six, long),
    ]


def _written(ways: Sequence[list[Write]], values: Iterable[Sequence[int]]) -> Iterator[History]:
    for row in values:
        for way in ways:
            yield tuple(write._replace(written=value) for write, value in zip(way, row, strict=False))


def _rounding(kind: pa.DataType, trial: Trial) -> Iterator[Any]:
    """Values of a float column, or of a struct with float fields, that show rounding."""
    if pt.is_float64(kind) or pt.is_float32(kind):
        yield from ROUNDING
    elif pt.is_struct(kind):
        base = next(value for of, value in trial.written if of == kind and value is not None)
        floats = [field.name for field in kind if pt.is_floating(field.type)]
        yield from (base | dict.fromkeys(floats, value) for value in ROUNDING[:3] if floats)


def _more_nulls(payload: Payload, trial: Trial) -> list[tuple[pa.DataType, Any]]:
    """A record may lack any of its columns."""
    if not isinstance(payload, RecordPayload):
        return []
    kind, first = trial.written[0]
    return [(kind, first | {name: None}) for name in first if len(first) > 1 and first[name] is not None]


# --- the laws ---------------------------------------------------------------------------------------------------------


def examine(trial: Trial, histories: Iterable[History]) -> None:
    """Hold a payload to its laws on these histories; what it breaks is in `trial.faults`."""
    histories = list(histories)
    states = trial.lift(write for history in histories for write in history)
    whole = [history for history in histories if all(write in states for write in history)]
    runs = list(dict.fromkeys(run for history in whole for run in _runs(trial, history, states)))
    if not runs:
        return
    folds = _folds(trial, runs)
    _orders(trial, runs, folds)
    if trial.payload.vectorised:
        _kernel(trial, runs, folds)
    if _settles(trial.payload):
        _settled(trial, runs, folds)
    if trial.payload.restores:
        _restored(trial, dict.fromkeys(cut for history in whole for cut in _seen_cuts(trial, history, states)), folds)
    trial.visible(range(len(trial)))
    _round_trip(trial)


def _runs(trial: Trial, history: History, states: dict[Write, int]) -> Iterator[Run]:
    """The states of a history. What one commit writes of a key is folded first, so that a commit is one state."""
    commits: list[int] = []
    for commit, writes in groupby(history, key=lambda write: write.commit):
        rows = tuple(states[write] for write in writes)
        if commit and len(rows) > 1:
            yield rows
            rows = (trial.fold(rows),)
        commits += rows
    if len(commits) > 1 and NONE not in commits:
        yield tuple(commits)


def _seen_cuts(trial: Trial, history: History, states: dict[Write, int]) -> Iterator[tuple[Run, Run]]:
    """A history's states in two parts, where each commit of the second has seen all of the first."""
    pending = {write.commit: write.pending for write in history}
    commits = list(pending)
    *_, run = ((), *_runs(trial, history, states))
    for i in range(1, len(run) if len(run) == len(commits) else 0):
        if not {p for commit in commits[i:] for p in pending[commit]} & set(commits[:i]):
            yield run[:i], run[i:]


def _settles(payload: Payload) -> bool:
    return type(payload).settle is not Payload.settle


def _folds(trial: Trial, runs: Sequence[Run]) -> dict[Run, int]:
    """Every contiguous part of every run, folded by `join`."""
    parts = dict.fromkeys(run[i:j] for run in runs for i, j in combinations(range(len(run) + 1), 2))
    folds: dict[Run, int] = {part: part[0] for part in parts if len(part) == 1}
    for length in range(2, max(map(len, runs)) + 1):
        level = [part for part in parts if len(part) == length]
        folds.update(zip(level, trial.join((folds[part[:-1]], part[-1]) for part in level), strict=True))
    return folds


def _orders(trial: Trial, runs: Sequence[Run], folds: dict[Run, int]) -> None:
    """Idempotent, commutative, associative: on every run cut in two and in three."""
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
    _associative(trial, {triple: run for triple, run in triples.items() if NONE not in triple})
    if kind != "ordered":
        pairs |= {pair: run for triple, run in triples.items() for pair in (triple[:2], triple[1:], triple[::2])}
        _commutative(trial, {pair: run for pair, run in pairs.items() if NONE not in pair})
    if kind == "semilattice":
        every = list(range(len(trial)))
        for x, found in zip(every, trial.join((x, x) for x in every), strict=True):
            if found not in (x, NONE):
                shown = trial.show(x)
                trial.faults.add("idempotent", f"join({shown}, {shown}) is {trial.show(found)}{trial.origin((x,))}")


def _associative(trial: Trial, triples: dict[Run, Run]) -> None:
    ab = trial.join((a, b) for a, b, _ in triples)
    bc = trial.join((b, c) for _, b, c in triples)
    left = trial.join((first, c) for first, (_, _, c) in zip(ab, triples, strict=True))
    right = trial.join((a, last) for last, (a, _, _) in zip(bc, triples, strict=True))
    for ((a, b, c), run), x, y in zip(triples.items(), left, right, strict=True):
        if x != y and NONE not in (x, y):
            a_, b_, c_ = trial.show(a), trial.show(b), trial.show(c)
            text = f"join(join({a_}, {b_}), {c_}) is {trial.show(x)}, join({a_}, join({b_}, {c_})) is {trial.show(y)}"
            trial.faults.add("associative", text + trial.origin(run))


def _commutative(trial: Trial, pairs: dict[Run, Run]) -> None:
    one = trial.join((a, b) for a, b in pairs)
    other = trial.join((b, a) for a, b in pairs)
    for ((a, b), run), x, y in zip(pairs.items(), one, other, strict=True):
        if x != y and NONE not in (x, y):
            a_, b_ = trial.show(a), trial.show(b)
            text = f"join({a_}, {b_}) is {trial.show(x)}, join({b_}, {a_}) is {trial.show(y)}"
            trial.faults.add("commutative", text + trial.origin(run))


def _kernel(trial: Trial, runs: Sequence[Run], folds: dict[Run, int]) -> None:
    """`merge` against the fold of `join`, and against itself on parts."""
    parts = list(folds)
    found = trial.merge(parts, mixed=True)
    if found is None:
        return
    merged = dict(zip(parts, found, strict=True))
    _same_as_fold(trial, merged, folds)
    merged |= {part: part[0] for part in parts if len(part) == 1}  # the engine leaves what stands alone as it is
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
            trial.faults.add("regrouping", text + trial.origin(whole))


def _same_as_fold(trial: Trial, merged: dict[Run, int], folds: dict[Run, int]) -> None:
    for run, got in merged.items():
        if got != folds[run] and folds[run] != NONE:
            one = len(run) == 1
            wanted = "it is to give that one state" if one else f"the fold of join is {trial.show(folds[run])}"
            text = f"merge({trial.shown(run)}) is {trial.show(got)}, {wanted}"
            trial.faults.add("kernel-exact", text + trial.origin(run))


Traces = dict[tuple[int, int], tuple[str, Run, Run]]
"""A whole state and one that was settled on its way: how that came about (words, and the states in them), the run."""


def _settled(trial: Trial, runs: Sequence[Run], folds: dict[Run, int]) -> None:
    """A compaction settles what it folded, and a later one settles that again; then come the writes after them."""
    kept = _kept(trial, folds.values())
    seen: Traces = {(state, kept[state]): ("settle({})", (state,), part) for part, state in folds.items()}
    cuts = [(run[:i], run[i:]) for run in runs for i in range(1, len(run))]
    after = dict(zip(cuts, trial.join((kept[folds[s]], folds[rest]) for s, rest in cuts), strict=True))
    for (s, rest), state in after.items():
        seen.setdefault((folds[s + rest], state), ("join(settle({}), {})", (folds[s], folds[rest]), s + rest))
    again = _kept(trial, after.values())
    ends = [(s, rest[:i], rest[i:]) for s, rest in cuts for i in range(1, len(rest)) if (s, rest[:i]) in after]
    last = trial.join((again[after[s, mid]], folds[rest]) for s, mid, rest in ends)
    for (s, mid, rest), state in zip(ends, last, strict=True):
        whole, parts = s + mid + rest, (folds[s], folds[mid], folds[rest])
        seen.setdefault((folds[whole], state), ("join(settle(join(settle({}), {})), {})", parts, whole))
    _same_values(trial, {pair: trace for pair, trace in seen.items() if NONE not in pair}, "settled")
    if trial.payload.vectorised:
        starts = dict.fromkeys((kept[folds[s]], *rest) for s, rest in cuts if kept[folds[s]] != NONE)
        _settled_kernel(trial, list(starts))


def _restored(trial: Trial, cuts: Iterable[tuple[Run, Run]], folds: dict[Run, int]) -> None:
    """A compaction keeps what is visible alone, of what everybody has seen; then come the writes after it."""
    cuts = [(s, rest) for s, rest in cuts if NONE not in (folds[s], folds[rest], folds[s + rest])]
    numbers = list(dict.fromkeys(folds[s] for s, _ in cuts))
    again = trial.restore(numbers)
    if again is None:
        return
    kept = dict(zip(numbers, again, strict=True))
    seen: Traces = {(state, kept[state]): ("restore(value({}))", (state,), (state,)) for state in numbers}
    after = trial.join((kept[folds[s]], folds[rest]) for s, rest in cuts)
    for (s, rest), state in zip(cuts, after, strict=True):
        parts = (folds[s], folds[rest])
        seen.setdefault((folds[s + rest], state), ("join(restore(value({})), {})", parts, s + rest))
    _same_values(trial, {pair: trace for pair, trace in seen.items() if NONE not in pair}, "restored")
    if trial.payload.vectorised:
        _settled_kernel(trial, list(dict.fromkeys((kept[folds[s]], *rest) for s, rest in cuts)))


def _kept(trial: Trial, numbers: Iterable[int]) -> dict[int, int]:
    """What settle leaves of each state."""
    states = [n for n in dict.fromkeys(numbers) if n != NONE]
    return dict(zip(states, trial.settle(states) or [NONE] * len(states), strict=True)) | {NONE: NONE}


def _same_values(trial: Trial, seen: Traces, law: str) -> None:
    numbers = list(dict.fromkeys(n for pair in seen for n in pair))
    found = trial.visible(numbers)
    if found is None:
        return
    values = dict(zip(numbers, found, strict=True))
    for (whole, state), (how, parts, run) in seen.items():
        if repr(values[whole]) != repr(values[state]):
            text = f"value({how.format(*map(trial.show, parts))}) is {words(values[state])}"
            without = {"settled": "settle", "restored": "restore"}[law]
            trial.faults.add(law, f"{text}, without {without} it is {words(values[whole])}{trial.origin(run)}")


def _settled_kernel(trial: Trial, runs: Sequence[Run]) -> None:
    """`merge` meets settled states, too, in front of others."""
    folds = [run[0] for run in runs]
    for i in range(1, max(map(len, runs), default=1)):
        longer = [k for k, run in enumerate(runs) if len(run) > i]
        for k, state in zip(longer, trial.join((folds[k], runs[k][i]) for k in longer), strict=True):
            folds[k] = state
    merged = trial.merge(runs, mixed=True) if runs else None
    if merged is not None:
        _same_as_fold(trial, dict(zip(runs, merged, strict=True)), dict(zip(runs, folds, strict=True)))


def _round_trip(trial: Trial) -> None:
    """All states through a file, in the types that files hold."""
    try:
        stored = stored_type(trial.state, "state()")
    except SchemaMismatchError as error:
        trial.faults.add("round-trip", f"a state is {trial.state}: {error}")
        return
    if polars_type(stored) != trial.dtype:
        trial.faults.add("round-trip", f"a state is {trial.state}, which files hold as {stored}: say that one")
        return
    states = trial.series(range(len(trial)))
    try:
        table = states.to_frame().to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.schema({"state": stored}))
        file = io.BytesIO()
        pa.parquet.write_table(table, file)
        back = pl.read_parquet(file.getvalue())["state"]
    except RAISED as error:
        trial.faults.add("round-trip", f"writing or reading a file of states raises {said(error)}")
        return
    for number, value in enumerate(back.to_list()):
        if words(value) != trial.show(number):
            trial.faults.add("round-trip", f"the state {trial.show(number)} is read back as {words(value)}")
