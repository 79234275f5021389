"""A payload on trial: what it makes of written values, as numbers that laws compare.

    written value, dot ── lift ──► state, by number ── join, merge, settle ──► state, by number ── value ──► text

Equal states have one number, so that no pair is joined twice. Two are equal if they print alike: NaN is NaN, but -0.0
is not 0.0, because a reader can tell them apart. What raises, or is not of its type, is a fault; its number is `NONE`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple

import polars as pl
import pyarrow as pa

from crdt_mor.errors import InvalidInputError
from crdt_mor.merge.kernel import polars_type
from crdt_mor.merge.payload import Dot, Payload, RecordPayload
from crdt_mor.merge.states import vectorised
from crdt_mor.model.types import stored_type

NONE: Final = -1
Run = tuple[int, ...]
"""States by number, in the table's order."""

RAISED: Final = (Exception, pl.exceptions.PanicException)
"""All that an author's code can do; a panic of polars is no `Exception`."""

_ZERO = 20260101000000000
_TIME = re.compile(r"20260101000000(\d{3})")
_TEXT_MAX = 120


class Write(NamedTuple):
    """One written value: `written` is its index, `pending` the numbers of the commits under way when its own began."""

    written: int
    commit: int = 0
    place: int = 0
    pending: tuple[int, ...] = ()


class Faults(dict[str, str]):
    """Broken laws, each with the shortest counterexample found."""

    def add(self, law: str, text: str) -> None:
        """Keep it if it is shorter than what is known."""
        if law not in self or (len(text), text) < (len(self[law]), self[law]):
            self[law] = text


class Trial:
    """One payload, the values written to it, and all the states met so far."""

    def __init__(self, payload: Payload, written: Sequence[tuple[pa.DataType, Any]] | None = None) -> None:
        self.payload = payload
        self.faults = Faults()
        self.column = stored_type(payload.column(), "column()")
        payload.check(self.column)
        self.state = payload.state(self.column)
        self.dtype = polars_type(self.state)
        self.written = examples_of(payload) if written is None else written
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
        """States as a column."""
        if len(self._chunks) > 1:
            self._chunks = [pl.concat(self._chunks, rechunk=True)]
        return self._chunks[0].gather(list(numbers))

    def _frame(self, numbers: Iterable[int]) -> pl.DataFrame:
        return self.series(numbers).to_frame()

    def number(self, states: pl.Series) -> Run:
        """The numbers of states."""
        found, new = [], []
        for i, value in enumerate(states.to_list()):
            text = repr(value)
            if (number := self._numbers.get(text)) is None:
                number = self._numbers[text] = len(self._values)
                self._values.append(value)
                self._texts.append(text)
                new.append(i)
            found.append(number)
        if new:
            self._chunks.append(states.gather(new).alias("state"))
        return tuple(found)

    def show(self, number: int) -> str:
        """A state in words."""
        return words(self._values[number])

    def shown(self, run: Iterable[int]) -> str:
        """States in words, as a list."""
        return f"[{', '.join(self.show(n) for n in run)}]"

    def origin(self, *runs: Run) -> str:
        """Which written values the states of a counterexample come from, where that is not plain to see."""
        said = [self._origin[n] for n in dict.fromkeys(n for run in runs for n in run) if n in self._origin]
        return f" ({'; '.join(said)})" if said else ""

    # --- lift, value, settle --------------------------------------------------------------------------------------

    def asks(self) -> set[str]:
        """What `lift` looks at of a dot: `time`, `place`, `pending`."""
        try:
            lifted = self.payload.lift(pl.col("written"), Dot(pl.col("time"), pl.col("place"), pl.col("pending")))
            return {"time", "place", "pending"} & set(lifted.meta.root_names())
        except RAISED:
            return set()  # `lift` below finds it again, and says so

    def lift(self, writes: Iterable[Write]) -> dict[Write, int]:
        """The state of each write; without those that have none."""
        groups: dict[tuple[pa.DataType, tuple[int, ...]], list[Write]] = {}
        for write in dict.fromkeys(writes):
            groups.setdefault((self.written[write.written][0], write.pending), []).append(write)
        found: dict[Write, int] = {}
        for (kind, pending), group in groups.items():
            given = [self.written[write.written][1] for write in group]
            times, places = [_ZERO + write.commit for write in group], [write.place for write in group]
            frame = pl.DataFrame({"written": pl.Series(given, dtype=polars_type(kind)), "time": times, "place": places})
            frame = frame.cast({"place": pl.Int32})
            text = pl.lit(",".join(str(_ZERO + commit) for commit in pending))
            states = self._lifted(frame, Dot(pl.col("time"), pl.col("place"), text), alone=not found)
            if states is None:
                continue
            for write, number in zip(group, self.number(states), strict=True):
                value = self.written[write.written][1]
                if value is not None and self._values[number] is None and self.payload.nulls == "skip":
                    self.faults.add("total", f"lift({words(value)}) is null, which this payload skips")
                    continue
                found[write] = number
                if repr(value) != self._texts[number]:
                    self._origin.setdefault(number, _told(value, write))
        return found

    def visible(self, numbers: Sequence[int]) -> list[Any] | None:
        """What readers see of states."""
        made = self._each("value", "value", self.payload.value, self._frame(numbers), polars_type(self.column))
        return None if made is None else made.to_list()

    def settle(self, numbers: Sequence[int]) -> Run | None:
        """What a compaction keeps of states."""
        made = self._each("settled", "settle", self.payload.settle, self._frame(numbers), self.dtype)
        return None if made is None else self.number(made)

    def restore(self, numbers: Sequence[int]) -> Run | None:
        """States made again of what readers see of them."""
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
        """An expression of a frame's first column; None where it raises, gives another type, or mixes the rows.

        `alone`: see whether rows count alone, by giving half of them at a time.
        """
        given = frame.columns[0]

        def on(rows: pl.DataFrame) -> pl.Series:
            return rows.with_columns(make(pl.col(given)).alias("made"))["made"]

        def show(i: int) -> str:
            return f"{name}({words(frame[given].slice(i, 1).to_list()[0])})"

        try:
            made = on(frame)
            if made.dtype != dtype:
                self.faults.add(law, f"{show(0)} is of type {made.dtype}, not {dtype}")
                return None
            half = frame.height // 2
            apart = pl.concat([on(frame[:half]), on(frame[half:])]) if half and alone else made
        except RAISED as error:
            text = f"{name} of {frame.height} rows raises {said(error)}"
            for i in range(frame.height):
                if (what := said_by(partial(on, frame[i : i + 1]))) is not None:
                    text = f"{show(i)} raises {what}"
                    break
            self.faults.add(law, text)
            return None
        if not made.equals(apart, null_equal=True):
            pairs = enumerate(zip(made.to_list(), apart.to_list(), strict=True))
            i = next((i for i, (a, b) in pairs if repr(a) != repr(b)), 0)
            self.faults.add(law, f"{show(i)} depends on the rows beside it")
            return None
        return made

    # --- join, merge ----------------------------------------------------------------------------------------------

    def join(self, pairs: Iterable[tuple[int, int]]) -> list[int]:
        """The joins of pairs of states."""
        pairs = list(pairs)
        new = [p for p in dict.fromkeys(pairs) if p not in self._joined and NONE not in p]
        values: list[Any] = []
        made: list[tuple[int, int]] = []
        for a, b in new:
            try:
                values.append(self.payload.join(self._values[a], self._values[b]))
                made.append((a, b))
            except RAISED as error:
                self._joined[a, b] = NONE
                text = f"join({self.show(a)}, {self.show(b)}) raises {said(error)}"
                self.faults.add("total", text + self.origin((a, b)))
        self._unchanged(made)
        self._joined.update(zip(made, self._stored(made, values), strict=True))
        return [self._joined.get(pair, NONE) for pair in pairs]

    def fold(self, run: Run) -> int:
        """The join of all states of a run."""
        found = run[0]
        for number in run[1:]:
            (found,) = self.join([(found, number)])
        if found != NONE:
            self._origin.setdefault(found, "; ".join(self._origin[n] for n in run if n in self._origin))
        return found

    def _unchanged(self, pairs: Iterable[tuple[int, int]]) -> None:
        """A join that changes what it is given would answer by who is asked first."""
        if not self.dtype.is_nested():
            return
        for number in {n for pair in pairs for n in pair}:
            if repr(self._values[number]) != self._texts[number]:
                text = f"join changes a state that it is given, {_tidy(self._texts[number])}: give a new one"
                self.faults.add("total", text)
                self._values[number] = self.series([number]).to_list()[0]

    def _stored(self, pairs: Sequence[tuple[int, int]], values: list[Any]) -> Run:
        """The numbers of joined states, as a column of their type gives them back."""
        try:
            states = self._column(values)
            kept = [_same(value, back) for value, back in zip(values, states.to_list(), strict=True)]
        except RAISED:
            if len(values) > 1:
                return tuple(n for p, v in zip(pairs, values, strict=True) for n in self._stored([p], [v]))
            kept = [False]
        if self.payload.nulls == "skip":
            kept = [fine and value is not None for fine, value in zip(kept, values, strict=True)]
        if all(kept):
            return self.number(states)
        for fine, value, (a, b) in zip(kept, values, pairs, strict=True):
            if not fine:
                why = "which this payload skips" if value is None else f"which is no {self.state}"
                text = f"join({self.show(a)}, {self.show(b)}) is {words(value)}, {why}"
                self.faults.add("total", text + self.origin((a, b)))
        numbers = iter(self.number(self._column([v for v, fine in zip(values, kept, strict=True) if fine])))
        return tuple(next(numbers) if fine else NONE for fine in kept)

    def _column(self, values: list[Any]) -> pl.Series:
        """States as a column; of nested values Arrow makes one ten times faster, and is stricter."""
        if not self.dtype.is_nested():
            return pl.Series("state", values, self.dtype)
        arrow = self._chunks[0].to_arrow(compat_level=pl.CompatLevel.oldest()).type
        return pl.Series("state", pl.from_arrow(pa.array(values, arrow)))

    def merge(self, runs: Sequence[Run], *, mixed: bool) -> Run | None:
        """What `merge` makes of every run, all in one frame; `mixed`: their rows alternate."""
        rows = [(i, n) for i, run in enumerate(runs) for n in run]
        if mixed:
            longest = max(map(len, runs))
            rows = [(i, run[at]) for at in range(longest) for i, run in enumerate(runs) if at < len(run)]
        try:
            made = self._merged(rows)
            if made.dtype != self.dtype:
                self.faults.add("kernel-exact", f"merge gives {made.dtype} for a key, not one {self.dtype}")
                return None
        except RAISED as error:
            text = f"merge of {len(runs)} keys raises {said(error)}"
            for run in sorted(runs, key=len)[:100]:
                if (what := said_by(partial(self._merged, [(0, n) for n in run]))) is not None:
                    text = f"merge({self.shown(run)}) raises {what}"
                    break
            self.faults.add("kernel-exact", text)
            return None
        return self.number(made)

    def _merged(self, rows: Sequence[tuple[int, int]]) -> pl.Series:
        frame = pl.DataFrame({"code": [i for i, _ in rows], "state": self.series(n for _, n in rows)})
        return vectorised(self.payload, frame).sort("code")["state"]  # as tables do it


# --- written values ---------------------------------------------------------------------------------------------------


def examples_of(payload: Payload) -> list[tuple[pa.DataType, Any]]:
    """The examples, and null where it is a value; each with the type in which it is written."""
    found = payload.examples()
    column = stored_type(payload.column(), "column()")
    kinds = [stored_type(kind, "accepts()") for kind in payload.accepts(column)]
    if isinstance(found, pa.Array):
        kinds = [stored_type(found.type, "examples()")]
        values = pl.Series(pl.from_arrow(found.cast(kinds[0]))).to_list()
    else:
        values = list(found)
    nulls = payload.nulls == "value" and not isinstance(payload, RecordPayload)
    given = [_typed(value, kinds) for value in values if value is not None]
    if not given:
        raise InvalidInputError(f"examples() must give a few written values. payload={name_of(payload)}")
    return [*given, (given[0][0], None)] if nulls else given


def _typed(value: Any, kinds: Sequence[pa.DataType]) -> tuple[pa.DataType, Any]:
    """A value as polars gives it back, with the first type that holds it."""
    for kind in kinds:
        try:
            back = pl.Series(pl.from_arrow(pa.array([value], kind))).to_list()[0]
            if _same(value, back):
                return kind, back
        except RAISED:
            continue
    raise InvalidInputError(f"an example is of none of the types {[str(k) for k in kinds]}. example={value!r}")


def name_of(payload: Payload) -> str:
    """Its name, or the class if it has none."""
    return str(getattr(payload, "name", type(payload).__name__))


# --- words ------------------------------------------------------------------------------------------------------------


def words(value: Any) -> str:
    """A value as a user would write it, with short names for dots."""
    return _tidy(_plain(value))


def _plain(value: Any) -> str:
    match value:
        case None:
            return "null"
        case date() | datetime():
            return value.isoformat()
        case Decimal():
            return str(value)
        case list():
            return f"[{', '.join(map(_plain, value))}]"
        case dict():
            return f"{{{', '.join(f'{key}: {_plain(inner)}' for key, inner in value.items())}}}"
    return repr(value)


def _tidy(text: str) -> str:
    """Times as t1, t2; the middle of what is long left out."""
    text = _TIME.sub(lambda m: f"t{int(m[1])}", text)
    half = _TEXT_MAX // 2
    return text if len(text) <= _TEXT_MAX else f"{text[:half]} … {text[-half:]}"


def _told(value: Any, write: Write) -> str:
    """A written value and its place."""
    if not write.commit:
        return f"written {words(value)}"
    place = f".{write.place}" if write.place else ""
    unseen = f" beside {', '.join(f't{commit}' for commit in write.pending)}" if write.pending else ""
    return f"written {words(value)} at t{write.commit}{place}{unseen}"


def said(error: BaseException) -> str:
    """An error in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {_tidy(lines[0])}" if lines else type(error).__name__


def said_by(call: Callable[[], object]) -> str | None:
    """What a call raises, in one line."""
    try:
        call()
    except RAISED as error:
        return said(error)
    return None


def _same(given: Any, back: Any) -> bool:
    """Whether a column gives back what was put into it; a tuple comes back as a list, an int as a float.

    A time without a zone is in UTC, and a map may be given as its pairs.
    """
    if given == back:
        return True
    if isinstance(given, dict) and isinstance(back, dict):
        return given.keys() == back.keys() and all(_same(given[key], back[key]) for key in given)
    if isinstance(given, list | tuple) and isinstance(back, list):
        return len(given) == len(back) and all(map(_same, given, back))
    if isinstance(given, list | tuple) and isinstance(back, dict):
        return _same(dict(given), back)
    if isinstance(given, datetime) and isinstance(back, datetime):
        return given.replace(tzinfo=UTC) == back
    return bool(given != given and back != back)  # NaN
