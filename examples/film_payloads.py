"""Two payloads for own_payload.py. A payload is in a module of its own, as every process that merges must find it."""

import polars as pl
import pyarrow as pa

import crdt_mor as mor


class Mean(mor.Payload):
    """Wrong: what it shows depends on when somebody compacts."""

    name = "example.mean/1"

    def join(self, a, b):
        return (a + b) / 2

    def merge(self, states):
        return states.mean()

    def examples(self):
        return [0.0, 1.0, 4.0]


class Average(mor.Payload):
    """Right: integers are written, their sum and count are kept, and the average is shown."""

    name = "example.average/1"
    kind = "delta"  # order does not matter, but a value that is written twice counts twice

    def accepts(self, column):
        return [pa.int64()]

    def column(self):
        return pa.float64()

    def state(self, column):
        return pa.struct([("sum", pa.int64()), ("count", pa.int64())])

    def lift(self, written, dot):
        return pl.struct(sum=written, count=pl.lit(1, pl.Int64))

    def join(self, a, b):
        return {"sum": a["sum"] + b["sum"], "count": a["count"] + b["count"]}

    def merge(self, states):
        return pl.struct(states.struct.field("sum").sum(), states.struct.field("count").sum())

    def value(self, states):
        return states.struct.field("sum") / states.struct.field("count")

    def examples(self):
        return [0, 1, -1, 4]
