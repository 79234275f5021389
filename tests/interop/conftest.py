"""What the interop tests share: a maker of tables, and one Spark process for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.format.hudi_files import MADE_BY_HUDI, unpack
from tests.interop.readers import HudiSpark, spark_is_possible
from tests.interop.shapes import Maker


@pytest.fixture
def make(fast_path: Path) -> Iterator[Maker]:
    """Makes a table in a folder in memory; writes left pending are rolled back when the test is over."""
    with ExitStack() as stack:
        yield Maker(fast_path / "t", stack)


@pytest.fixture(scope="session")
def spark_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiSpark]:
    """The process that all modules share, as starting it takes long."""
    if not spark_is_possible():
        pytest.skip("no Java or no Maven here")
    reader = HudiSpark(tmp_path_factory.mktemp("spark"))
    yield reader
    reader.close()


@pytest.fixture(scope="module")
def spark(spark_process: HudiSpark) -> Iterator[HudiSpark]:
    """Hudi's own Spark; the tests that use it are marked `spark`. What a module sets in the session ends with it."""
    yield spark_process
    spark_process.sql("reset")


@pytest.fixture(params=MADE_BY_HUDI)
def made_by_hudi(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of one of the tables that Hudi made."""
    return unpack(request.param, tmp_path)
