"""The comparison of an engine's rows with those of `scan()` finds each kind of difference."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.engines.__main__ import judge
from tests.engines.jobs import JOBS
from tests.engines.judging import bare, difference
from tests.engines.keepers import KEEPERS
from tests.engines.known import KNOWN
from tests.engines.reading import engines
from tests.engines.registering import CHECKS
from tests.engines.shapes import Shape, shapes

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
WANT = pa.table({"id": [1, 2], "n": [Decimal(5), None], "at": pa.array([AT, None], pa.timestamp("us", "UTC"))})


def test_difference_of_equal_cells_in_other_types_is_empty() -> None:
    got = pa.table({"id": pa.array([2, 1], pa.int32()), "n": [None, 5], "at": pa.array([None, AT], pa.timestamp("us"))})
    assert not difference(got, WANT)
    assert not difference(
        pa.table({"id": [1], "x": [b"a"], "l": pa.array([[]], pa.list_(pa.string()))}),
        pa.table({"id": [1], "x": ["a"], "l": pa.array([None], pa.list_(pa.string()))}),
        bare,
    )


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (WANT.slice(1), "1 ids missing [1]"),
        (pa.concat_tables([WANT, WANT]), "2 ids more than once"),
        (WANT.set_column(1, "n", pa.array([5, 0])), "n: 1 cells, such as 0 instead of None at id 2"),
        (WANT.set_column(1, "n", pa.nulls(2)), "n: 1 cells"),
        (WANT.drop_columns("at"), "columns"),
        (WANT.set_column(2, "at", pa.array([AT.astimezone(), AT])), "at: 1 cells"),
    ],
    ids=["missing", "twice", "zero for null", "null for a value", "column", "time"],
)
def test_difference_of_other_rows_names_them(got: pa.Table, words: str) -> None:
    assert words in difference(got, WANT)


def test_judge_of_an_unlisted_refusal_is_a_problem() -> None:
    read = {"mirror": "delta", "shape": "empty", "filtered": True, "text": "OSError: no", "verdict": "refused"}
    assert judge("pyiceberg", [{"version": "1"}, read]) == [
        "pyiceberg delta empty filtered: refused instead of equal: OSError: no"
    ]


def test_names_of_jobs_engines_and_shapes_agree() -> None:
    for module, names in (("reading", {each.name for each in engines()}), ("keeping", {each.name for each in KEEPERS})):
        assert {job.name for job in JOBS.values() if job.module == module} == names
    every = {shape.name for shape in shapes()}
    named = {(engine.name, mirror): every for engine in engines() for mirror in engine.mirrors}
    named |= {(keeper.name, keeper.mirror): {*keeper.statements} for keeper in KEEPERS}
    checks = {check.__name__ for check in CHECKS}
    named |= {(job.name, "checks"): checks for job in JOBS.values() if job.module == "registering"}
    for known in KNOWN:
        names = named[known.engine, known.mirror]
        assert (known.shapes or names) | known.but <= names


@pytest.mark.parametrize("shape", shapes(), ids=lambda shape: shape.name)
@pytest.mark.slow
def test_every_shape_has_rows_for_both_reads(shape: Shape, tmp_path: Path) -> None:
    table = shape.build(tmp_path, lambda table: None)
    whole, some = table.scan().to_arrow(), table.scan(filter=shape.where).to_arrow()
    assert whole["id"].to_pylist() == [] if shape.name == "empty" else 0 < some.num_rows < whole.num_rows
