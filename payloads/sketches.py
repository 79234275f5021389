"""Sketches: answers about many values, with bounded state and bounded error."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar, cast

import numpy as np
import polars as pl
import pyarrow as pa

from crdt_mor import Dot, InvalidInputError, Kind, Payload
from crdt_mor.errors import UnknownPayloadError
from crdt_mor.payloads import theta
from crdt_mor.payloads.flat import concatenated, each, first_of, last_of


@dataclass(frozen=True)
class Distinct(Payload):
    """The number of distinct values: exact up to 2^lg_k, then with a relative error of about 2^(-lg_k / 2).

    The theta sketch keeps the 2^lg_k least hashes and the fraction of the hash space that they cover. Dasgupta, Lang,
    Rhodes, Thaler, "A Framework for Estimating Stream Expression Cardinalities", ICDT 2016. The column is int64. Write
    text, integers, binary, or a list of texts or integers, always of one kind: 1 and "1" differ. The same library's
    HyperLogLog is no semilattice: its estimates depend on the order of unions.
    """

    name: ClassVar[str] = "distinct/1"
    lg_k: int = 12

    def __post_init__(self) -> None:
        if not 5 <= self.lg_k <= 26:
            raise InvalidInputError(f"lg_k is from 5 to 26. lg_k={self.lg_k}")

    def check(self, column: pa.DataType) -> None:
        _datasketches()
        if column != pa.int64():
            raise InvalidInputError(f"Distinct shows a count: declare the column int64. type={column}")

    def accepts(self, column: pa.DataType) -> Sequence[pa.DataType]:  # noqa: ARG002
        scalars = (pa.string(), pa.int64())
        return (*scalars, pa.binary(), *(pa.list_(scalar) for scalar in scalars))

    def state(self, column: pa.DataType) -> pa.DataType:  # noqa: ARG002
        return pa.binary()

    def join(self, a: bytes, b: bytes) -> bytes:
        return self._union([a, b])

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.implode().map_batches(self._unions, pl.Binary(), is_elementwise=True)

    def lift(self, written: pl.Expr, dot: Dot) -> pl.Expr:  # noqa: ARG002
        return _map(written, self._sketch, pl.Binary())

    def value(self, states: pl.Expr) -> pl.Expr:
        counts = states.fill_null(theta.EMPTY).map_batches(_counts, pl.Int64(), is_elementwise=True)
        return pl.when(states.is_not_null()).then(counts)

    def examples(self) -> Sequence[str]:
        return ["a", "b", "", "1", "ä"]

    def column(self) -> pa.DataType:
        return pa.int64()

    def _union(self, states: Iterable[bytes]) -> bytes:
        union = _datasketches().theta_union(self.lg_k)
        for state in states:
            union.update(_read(state))
        return bytes(union.get_result().serialize())

    def _unions(self, lists: pl.Series) -> pl.Series:
        made, large = theta.unions(lists, 2**self.lg_k)
        return made.scatter(large, [self._union(states) for states in lists[large].to_list()]) if large.size else made

    def _sketch(self, written: Any) -> bytes:
        sketch = _datasketches().update_theta_sketch(self.lg_k)
        for value in written if isinstance(written, list) else [written]:
            if value is not None:
                sketch.update(_hashable(value))
        state = bytes(sketch.compact().serialize())
        return self._union([state]) if sketch.is_estimation_mode() else state  # one that estimates can hold some more


def _counts(states: pl.Series) -> pl.Series:
    sizes, estimates, _ = theta.hashes(states)
    large = np.flatnonzero(estimates)
    sizes[large] = [round(_read(state).get_estimate()) for state in states[large].to_list()]
    return pl.Series(sizes)


def _hashable(value: str | bytes | int) -> str | int | float:
    """Return a value that the library hashes. It takes no bytes (use Latin-1) and ignores empty text (use NaN)."""
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    return math.nan if text == "" else text


def _datasketches() -> ModuleType:
    try:
        import datasketches
    except ImportError as error:
        raise UnknownPayloadError('Distinct needs datasketches: pip install "crdt-mor[sketches]"') from error
    return cast(ModuleType, datasketches)


def _read(state: bytes) -> Any:
    return _datasketches().compact_theta_sketch.deserialize(state)


def _map(values: pl.Expr, function: Callable[[Any], Any], kind: pl.DataType) -> pl.Expr:
    def mapped(series: pl.Series) -> pl.Series:
        return pl.Series([None if value is None else function(value) for value in series.to_list()], dtype=kind)

    return values.map_batches(mapped, kind, is_elementwise=True)


@dataclass(frozen=True)
class Quantiles(Payload):
    """Quantiles of all written numbers, in the order of `probabilities`, each within relative `accuracy`.

    DDSketch: counts in buckets that grow by a constant factor. Masson, Rim, Lee, "DDSketch: A Fast and Fully-Mergeable
    Quantile Sketch with Relative-Error Guarantees", VLDB 2019. Counts add up, so the result does not depend on the
    order; KLL is random and t-digest depends on the order. The column is list<float64>; write a number or a list of
    numbers. NaN is not counted, infinities are. Without a number the list is empty.

    State: the count of each bucket, sorted by bucket. Bucket 0 contains zero; bucket -b is bucket b with the other
    sign.
    """

    name: ClassVar[str] = "quantiles/1"
    kind: ClassVar[Kind] = "delta"
    accuracy: float = 0.01
    probabilities: tuple[float, ...] = (0.5, 0.9, 0.99)

    def __post_init__(self) -> None:
        object.__setattr__(self, "probabilities", tuple(self.probabilities))
        if not 1e-6 <= self.accuracy <= 0.5:
            raise InvalidInputError(f"accuracy is from 0.000001 to 0.5. accuracy={self.accuracy}")
        if not self.probabilities or not all(0 <= p <= 1 for p in self.probabilities):
            raise InvalidInputError(f"probabilities are from 0 to 1, at least one. probabilities={self.probabilities}")

    def parameters(self) -> Mapping[str, Any]:
        return {"accuracy": self.accuracy, "probabilities": list(self.probabilities)}

    def check(self, column: pa.DataType) -> None:
        if column != pa.list_(pa.float64()):
            raise InvalidInputError(f"Quantiles shows a list: declare the column pa.list_(pa.float64()). type={column}")

    def accepts(self, column: pa.DataType) -> Sequence[pa.DataType]:
        return (pa.float64(), pa.int64(), column)

    def state(self, column: pa.DataType) -> pa.DataType:  # noqa: ARG002
        return pa.list_(pa.struct([("bucket", pa.int32()), ("count", pa.int64())]))

    def join(self, a: list[dict[str, int]], b: list[dict[str, int]]) -> list[dict[str, int]]:
        counts: Counter[int] = Counter()
        for entry in [*a, *b]:
            counts[entry["bucket"]] += entry["count"]
        return [{"bucket": bucket, "count": count} for bucket, count in sorted(counts.items())]

    def merge(self, states: pl.Expr) -> pl.Expr:
        return concatenated(states, lambda items: _counted(items.unnest("item")))

    def lift(self, written: pl.Expr, dot: Dot) -> pl.Expr:  # noqa: ARG002
        lists = written.pipe_with_dtype(lambda w, kind: w if isinstance(kind, pl.List) else pl.concat_list(w))
        return pl.when(written.is_not_null()).then(each(lists.cast(pl.List(pl.Float64)), self._buckets))

    def value(self, states: pl.Expr) -> pl.Expr:
        return each(states, self._quantiles)

    def examples(self) -> pa.Array:
        return pa.array([0.0, 1.5, -2.0, float("nan"), float("inf")])

    def column(self) -> pa.DataType:
        return pa.list_(pa.float64())

    @property
    def _growth(self) -> float:
        """The logarithm of the factor between buckets: gamma in the paper."""
        return math.log((1 + self.accuracy) / (1 - self.accuracy))

    @property
    def _one(self) -> int:
        """The bucket that ends with the number 1. The least positive number is in a bucket above 0."""
        return math.ceil(745 / self._growth) + 1

    def _buckets(self, items: pl.DataFrame) -> pl.DataFrame:
        number = pl.col("item")
        size = (number.abs().log() / self._growth).ceil() + self._one
        bucket = pl.when(number == 0).then(0.0).otherwise(number.sign() * size.clip(upper_bound=2**31 - 1))
        numbers = items.filter(number.is_not_nan() & number.is_not_null())
        return _counted(numbers.select("row", bucket=bucket.cast(pl.Int32), count=pl.lit(1, pl.Int64)))

    def _quantiles(self, items: pl.DataFrame) -> pl.DataFrame:
        """The paper's Quantile(S, q): the middle of the first bucket with a cumulative count above q(n - 1)."""
        bucket, count = pl.col("bucket"), pl.col("count")
        size = ((bucket.abs() - self._one) * self._growth + math.log1p(-self.accuracy)).exp()
        upto = count.cum_sum()  # across all lists
        start = pl.when(first_of("row")).then(upto - count).forward_fill()
        end = pl.when(last_of("row")).then(upto).backward_fill()
        lines = items.unnest("item").select(
            "row", count, item=bucket.sign() * size, upto=upto - start, most=end - start - 1
        )
        before = pl.col("upto") - count
        of_probability = [
            lines.filter(before <= p * pl.col("most"), pl.col("upto") > p * pl.col("most")) for p in self.probabilities
        ]
        return pl.concat(of_probability).sort("row", maintain_order=True).select("row", "item")


def _counted(lines: pl.DataFrame) -> pl.DataFrame:
    """Sum `count` per bucket, as the growth of a cumulative sum."""
    sums = lines.sort("row", "bucket").with_columns(pl.col("count").cum_sum()).filter(last_of("row", "bucket"))
    count = pl.col("count") - pl.col("count").shift(fill_value=0)
    return sums.select("row", item=pl.struct("bucket", count))
