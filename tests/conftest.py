"""What every test may use: a store of either kind, and a hypothesis profile that a busy machine does not fail."""

from __future__ import annotations

import gc
import math
import shutil
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer.main
import typer.testing
from hypothesis import HealthCheck, __version_info__, settings

from crdt_mor.events import session
from crdt_mor.planners.upkeep_budget import Budget
from crdt_mor.store.protocol import Store
from tests import bytecode
from tests.stores import SERVED, STORES
from tests.tiers import left_out, said_sample, spread, thin_out, turn_of

if TYPE_CHECKING:
    from tests.simulated import Simulated

bytecode.keep()

# A writer's own upkeep depends on the time that writes took, so that a slow machine would see other files.
vars(session)["Budget"] = partial(Budget, credit_ms=-math.inf)

# Typer makes every command of a program anew for each call in a test, which takes longer than most of them run.
vars(typer.testing)["_get_command"] = cache(typer.main.get_command)

# Deadlines measure the machine, not the code; a failing example is printed so that it can be pasted into a test.
settings.register_profile("crdt_mor", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("crdt_mor")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--store", choices=SERVED, help="run the tests of tables over this object store, on loopback")
    parser.addoption("--screenshots", metavar="FOLDER", help="where tests of the page put their screenshots")
    parser.addoption("--one-in", type=int, default=1, metavar="N", help="of the chosen tests, run one in N")
    parser.addoption("--turn", type=int, metavar="T", help="the sample of --one-in; default: the number of commits")

    parser.addoption("--within", type=float, metavar="S", help="skip the tests that would begin S seconds from now")


def pytest_configure(config: pytest.Config) -> None:
    """Settle the sample and the end once: the processes of pytest-xdist get the same options."""
    if config.option.turn is None:
        config.option.turn = turn_of(config.rootpath) if config.option.one_in > 1 else 0
    if config.option.within is not None and not hasattr(config.option, "ends"):
        config.option.ends = time.time() + config.option.within


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test, before its fixtures, when the time of `--within` is over."""
    if time.time() > getattr(item.config.option, "ends", math.inf):
        pytest.skip("its time was over: --within")


def pytest_report_header(config: pytest.Config) -> list[str]:
    return said_sample(config.option.one_in, config.option.turn)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Repeat the header's line: `-q` prints no header."""
    for line in pytest_report_header(config):
        terminalreporter.line(line)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The garbage collector finds nothing while thousands of tests are collected, and took a tenth of that time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Tiers are told before those that are not asked for are left out; a sample is one of the rest."""
    thin_out(items)
    spread(items)
    yield
    config.hook.pytest_deselected(items=left_out(items, config.option.one_in, config.option.turn))


def pytest_collection_finish() -> None:
    """Thousands of tests and the modules behind them stay to the end: the garbage collector looks at them no more, and
    looks less often at what a test makes, which took a tenth of the time.

    Old releases of hypothesis take one example for another where objects are frozen.
    """
    gc.collect()
    if __version_info__ >= (6, 150):
        gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_sessionfinish() -> None:
    """What extension modules hold is let go in the end, as they would complain else."""
    gc.unfreeze()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of each kind."""
    return STORES[request.param](tmp_path / "table")


MEMORY = Path("/dev/shm")


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """A folder in memory where the machine has one, else on its disk; removed in the end."""
    path = Path(tempfile.mkdtemp(prefix="crdt-mor-", dir=MEMORY if MEMORY.is_dir() else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def fast_path() -> Iterator[Path]:
    """A folder in memory: for tests of many small commits, not of the disk."""
    with folder_in_memory() as path:
        yield path


@pytest.fixture(scope="module")
def fast_module_path() -> Iterator[Path]:
    """A folder in memory for the tables that the tests of a module share, and none of them changes."""
    with folder_in_memory() as path:
        yield path


@pytest.fixture
def simulated() -> Simulated:
    """A place for a table whose time is simulated."""
    from tests.simulated import Simulated

    return Simulated()
