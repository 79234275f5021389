"""Try a payload: turn its results for written values into numbers for the laws.

    written value, dot ── lift ──► state, by number ── join, merge, settle ──► state, by number ── value ──► text

Equal states share a number, so no pair is joined twice. States are equal if they print alike: NaN equals NaN, but -0.0
differs from 0.0, as for readers. A failed state becomes `NO_STATE` and a counterexample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, get_args

import polars as pl
import pyarrow as pa

from crdt_mor.columns.shown_fields import stored_leaves
from crdt_mor.errors import InvalidInputError
from crdt_mor.laws.describe import AUTHOR_ERRORS, FIRST_TIME, abbreviated, described, error_line, error_of
from crdt_mor.laws.examples import examples_of, naming_mistakes, payload_name, same_value
from crdt_mor.laws.histories import Update
from crdt_mor.merge.kernel import polars_type
from crdt_mor.merge.payload import Dot, Kind, Nulls, NullsInside, Payload
from crdt_mor.merge.states import vectorised

EXAMPLES_MAX: Final = 12

NO_STATE: Final = -1
"""The number of a failed state."""

Run = tuple[int, ...]
"""States by number, in the table's order."""


class Counterexamples(dict[str, str]):
    """Broken laws, each with the shortest counterexample."""

    def add(self, law: str, text: str) -> None:
        if law not in self or (len(text), text) < (len(self[law]), self[law]):
            self[law] = text


class Trial:
    """A payload, the values written to it, and all states met so far."""

    def __init__(self, payload: Payload, written: Sequence[tuple[pa.DataType, Any]] | None = None) -> None:
        self.payload = payload
        self.counterexamples = Counterexamples()
        self.written = examples_of(payload) if written is None else written
        self.column = stored_leaves(payload.column(), "column()")
        payload.check(self.column)
        self.state = payload.state(self.column)
        self.dtype = polars_type(self.state)
        self._values: list[Any] = []
        self._texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._joined: dict[tuple[int, int], int] = {}
        self._chunks = [pl.Series("state", [], self.dtype)]
        self._origin: dict[int, str] = {}

    # --- states ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._values)

    def series(self, numbers: Iterable[int]) -> pl.Series:
        if len(self._chunks) > 1:
            self._chunks = [pl.concat(self._chunks, rechunk=True)]
        return self._chunks[0].gather(list(numbers))

    def _frame(self, numbers: Iterable[int]) -> pl.DataFrame:
        return self.series(numbers).to_frame()

    def number(self, states: pl.Series) -> Run:
        numbers, new = [], []
        for i, value in enumerate(states.to_list()):
            text = repr(value)
            if (number := self._numbers.get(text)) is None:
                number = self._numbers[text] = len(self._values)
                self._values.append(value)
                self._texts.append(text)
                new.append(i)
            numbers.append(number)
        if new:
            self._chunks.append(states.gather(new).alias("state"))
        return tuple(numbers)

    def show(self, number: int) -> str:
        return described(self._values[number])

    def shown(self, run: Iterable[int]) -> str:
        return f"[{', '.join(self.show(n) for n in run)}]"

    def origin(self, *runs: Run) -> str:
        """Return the written values of a counterexample's states, unless they are obvious."""
        origins = [self._origin[n] for n in dict.fromkeys(n for run in runs for n in run) if n in self._origin]
        return f" ({'; '.join(origins)})" if origins else ""

    # --- lift, value, settle --------------------------------------------------------------------------------------

    def dot_fields(self) -> set[str]:
        """Return the fields of a dot that `lift` uses: some of `time`, `place` and `pending`."""
        try:
            lifted = self.payload.lift(pl.col("written"), Dot(pl.col("time"), pl.col("place"), pl.col("pending")))
            return {"time", "place", "pending"} & set(lifted.meta.root_names())
        except AUTHOR_ERRORS:
            return set()  # `lift` below notes the error

    def lift(self, updates: Iterable[Update]) -> dict[Update, int]:
        """Return the state of each update, without updates that `lift` refuses."""
        groups: dict[tuple[pa.DataType, tuple[int, ...]], list[Update]] = {}
        for update in dict.fromkeys(updates):
            groups.setdefault((self.written[update.written][0], update.pending), []).append(update)
        lifted: dict[Update, int] = {}
        for (kind, pending), group in groups.items():
            written = pl.Series([self.written[update.written][1] for update in group], dtype=polars_type(kind))
            times, places = [FIRST_TIME + update.commit for update in group], [update.place for update in group]
            frame = pl.DataFrame({"written": written, "time": times, "place": places})
            frame = frame.cast({"place": pl.Int32})
            text = pl.lit(",".join(str(FIRST_TIME + commit) for commit in pending))
            states = self._lifted(frame, Dot(pl.col("time"), pl.col("place"), text), alone=not lifted)
            if states is None:
                continue
            for update, number in zip(group, self.number(states), strict=True):
                value = self.written[update.written][1]
                if value is not None and self._values[number] is None and self.payload.nulls == "skip":
                    self.counterexamples.add("total", f"lift({described(value)}) is null, which this payload skips")
                    continue
                lifted[update] = number
                if repr(value) != self._texts[number]:
                    self._origin.setdefault(number, _origin_of(value, update))
        return lifted

    def visible(self, numbers: Sequence[int]) -> list[Any] | None:
        made = self._each("value", "value", self.payload.value, self._frame(numbers), polars_type(self.column))
        return None if made is None else made.to_list()

    def settle(self, numbers: Sequence[int]) -> Run | None:
        made = self._each("settled", "settle", self.payload.settle, self._frame(numbers), self.dtype)
        return None if made is None else self.number(made)

    def restore(self, numbers: Sequence[int]) -> Run | None:
        shown = self._each("value", "value", self.payload.value, self._frame(numbers), polars_type(self.column))
        if shown is None:
            return None
        made = self._each("restored", "restore", self.payload.restore, shown.to_frame("value"), self.dtype)
        return None if made is None else self.number(made)

    def _lifted(self, frame: pl.DataFrame, dot: Dot, *, alone: bool) -> pl.Series | None:
        return self._each("total", "lift", lambda w: self.payload.lift(w, dot), frame, self.dtype, alone=alone)

    def _each(
        self,
        law: str,
        name: str,
        make: Callable[[pl.Expr], pl.Expr],
        frame: pl.DataFrame,
        dtype: pl.DataType,
        *,
        alone: bool = True,
    ) -> pl.Series | None:
        """Return `make`'s result for a frame's first column; None if `make` raises, changes the type or mixes rows.

        alone: also pass half of the rows at a time.
        """
        column = frame.columns[0]

        def on(rows: pl.DataFrame) -> pl.Series:
            return rows.with_columns(make(pl.col(column)).alias("made"))["made"]

        def show(i: int) -> str:
            return f"{name}({described(frame[column].slice(i, 1).to_list()[0])})"

        try:
            made = on(frame)
            if made.dtype != dtype:
                self.counterexamples.add(law, f"{show(0)} is of type {made.dtype}, not {dtype}")
                return None
            half = frame.height // 2
            apart = pl.concat([on(frame[:half]), on(frame[half:])]) if half and alone else made
        except AUTHOR_ERRORS as error:
            text = f"{name} of {frame.height} rows raises {error_line(error)}"
            for i in range(frame.height):
                if (what := error_of(partial(on, frame[i : i + 1]))) is not None:
                    text = f"{show(i)} raises {what}"
                    break
            self.counterexamples.add(law, text)
            return None
        if not made.equals(apart, null_equal=True):
            pairs = enumerate(zip(made.to_list(), apart.to_list(), strict=True))
            i = next((i for i, (a, b) in pairs if repr(a) != repr(b)), 0)
            self.counterexamples.add(law, f"{show(i)} depends on the rows beside it")
            return None
        return made

    # --- join, merge ----------------------------------------------------------------------------------------------

    def join(self, pairs: Iterable[tuple[int, int]]) -> list[int]:
        pairs = list(pairs)
        new = [p for p in dict.fromkeys(pairs) if p not in self._joined and NO_STATE not in p]
        values: list[Any] = []
        made: list[tuple[int, int]] = []
        for a, b in new:
            try:
                values.append(self.payload.join(self._values[a], self._values[b]))
                made.append((a, b))
            except AUTHOR_ERRORS as error:
                self._joined[a, b] = NO_STATE
                text = f"join({self.show(a)}, {self.show(b)}) raises {error_line(error)}"
                self.counterexamples.add("total", text + self.origin((a, b)))
        self._check_unchanged(made)
        self._joined.update(zip(made, self._stored(made, values), strict=True))
        return [self._joined.get(pair, NO_STATE) for pair in pairs]

    def fold(self, run: Run) -> int:
        state = run[0]
        for number in run[1:]:
            (state,) = self.join([(state, number)])
        if state != NO_STATE:
            self._origin.setdefault(state, "; ".join(self._origin[n] for n in run if n in self._origin))
        return state

    def _check_unchanged(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Note a join that changed an argument: its answer would depend on earlier joins."""
        if not self.dtype.is_nested():
            return
        for number in {n for pair in pairs for n in pair}:
            if repr(self._values[number]) != self._texts[number]:
                text = f"join changes its argument {abbreviated(self._texts[number])}: return a new state"
                self.counterexamples.add("total", text)
                self._values[number] = self.series([number]).to_list()[0]

    def _stored(self, pairs: Sequence[tuple[int, int]], values: list[Any]) -> Run:
        """Store joined states in a column, and return the numbers of the states that the column returns.

        A state that the column changes or refuses is a counterexample.
        """
        try:
            states = self._column(values)
            kept = [same_value(value, back) for value, back in zip(values, states.to_list(), strict=True)]
        except AUTHOR_ERRORS:
            if len(values) > 1:
                return tuple(n for p, v in zip(pairs, values, strict=True) for n in self._stored([p], [v]))
            kept = [False]
        if self.payload.nulls == "skip":
            kept = [fine and value is not None for fine, value in zip(kept, values, strict=True)]
        if all(kept):
            return self.number(states)
        for fine, value, (a, b) in zip(kept, values, pairs, strict=True):
            if not fine:
                why = "which this payload skips" if value is None else f"not of type {self.state}"
                text = f"join({self.show(a)}, {self.show(b)}) is {described(value)}, {why}"
                self.counterexamples.add("total", text + self.origin((a, b)))
        numbers = iter(self.number(self._column([v for v, fine in zip(values, kept, strict=True) if fine])))
        return tuple(next(numbers) if fine else NO_STATE for fine in kept)

    def _column(self, values: list[Any]) -> pl.Series:
        """Return states as a column. For nested values Arrow is ten times as fast as polars, and stricter."""
        if not self.dtype.is_nested():
            return pl.Series("state", values, self.dtype)
        arrow = self._chunks[0].to_arrow(compat_level=pl.CompatLevel.oldest()).type
        return pl.Series("state", pl.from_arrow(pa.array(values, arrow)))

    def merge(self, runs: Sequence[Run], *, mixed: bool) -> Run | None:
        """Return `merge` of each run, all in one frame. mixed: the rows of the runs alternate."""
        rows = [(i, n) for i, run in enumerate(runs) for n in run]
        if mixed:
            longest = max(map(len, runs))
            rows = [(i, run[at]) for at in range(longest) for i, run in enumerate(runs) if at < len(run)]
        try:
            made = self._merged(rows)
            if made.dtype != self.dtype:
                self.counterexamples.add("kernel-exact", f"merge returns {made.dtype} for a key, not one {self.dtype}")
                return None
        except AUTHOR_ERRORS as error:
            text = f"merge of {len(runs)} keys raises {error_line(error)}"
            for run in sorted(runs, key=len)[:100]:
                if (what := error_of(partial(self._merged, [(0, n) for n in run]))) is not None:
                    text = f"merge({self.shown(run)}) raises {what}"
                    break
            self.counterexamples.add("kernel-exact", text)
            return None
        return self.number(made)

    def _merged(self, rows: Sequence[tuple[int, int]]) -> pl.Series:
        frame = pl.DataFrame({"code": [i for i, _ in rows], "state": self.series(n for _, n in rows)})
        return vectorised(self.payload, frame).sort("code")["state"]  # as tables do


def _origin_of(value: Any, update: Update) -> str:
    if not update.commit:
        return f"written {described(value)}"
    place = f".{update.place}" if update.place else ""
    unseen = f" beside {', '.join(f't{commit}' for commit in update.pending)}" if update.pending else ""
    return f"written {described(value)} at t{update.commit}{place}{unseen}"


def trial_of_examples(payload: Payload) -> Trial:
    """Return a trial of a payload's examples. Raises `InvalidInputError` for a wrong kind, nulls or examples."""
    allowed = {"kind": get_args(Kind), "nulls": get_args(Nulls), "nulls_inside": get_args(NullsInside)}
    for said, words in allowed.items():
        if (word := getattr(payload, said)) not in words:
            raise InvalidInputError(f"{said} is one of {words}. payload={payload_name(payload)} {said}={word!r}")
    with naming_mistakes(payload):
        trial = Trial(payload)
    if (count := sum(value is not None for _, value in trial.written)) > EXAMPLES_MAX:
        raise InvalidInputError(
            f"every three values of examples() are tried: return at most {EXAMPLES_MAX}. "
            f"payload={payload_name(payload)} examples={count}"
        )
    return trial
