"""`Table.verify` of files that are whole and cannot be merged: a payload raises, or this release lacks a feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from unittest.mock import patch

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Payload, Table
from crdt_mor.errors import PayloadError, UnsupportedVersionError
from crdt_mor.format.log import BlockKind
from crdt_mor.model.instant import from_ms, to_ms
from crdt_mor.payloads import Counter
from crdt_mor.services import verify
from crdt_mor.testing.simulation.hudi_writer import hudi_commits
from tests.inside import look_for_hudi, session_of
from tests.simulation import foreign_commits
from tests.table.damaged import edited

GREATEST = 2**63 - 1


@dataclass(frozen=True)
class Shy(Payload):
    """Keeps a state whose value it cannot always show."""

    name: ClassVar[str] = "acme.shy/1"

    def join(self, a: int, b: int) -> int:
        return max(a, b)

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.max()

    def state(self, column: pa.DataType) -> pa.DataType:
        return column

    def value(self, states: pl.Expr) -> pl.Expr:
        return states.map_batches(_shown, pl.Int64(), is_elementwise=True)

    def examples(self) -> Sequence[int]:
        return [1, 2, 3]


def _shown(states: pl.Series) -> pl.Series:
    if (states == 666).any():
        raise RuntimeError("the number of the beast")
    return states


def overflowed(folder: Path) -> Table:
    """A counter whose total its column cannot hold, and a file group beside it that can be read."""
    table = Table.create(folder, {"id": pl.String, "n": pl.Int64}, key="id", buckets=2, merge={"n": Counter()})
    table.upsert(pl.DataFrame({"id": ["a", "b", "c", "d"], "n": [GREATEST, 1, 1, 1]}))
    table.upsert(pl.DataFrame({"id": ["a"], "n": [1]}))
    return table


@pytest.mark.parametrize("deep", [False, True])
def test_verify_a_counter_overflows_advises_no_backup_and_no_restore(fast_path: Path, deep: bool) -> None:
    found = overflowed(fast_path / "t").verify(deep=deep)
    (finding,) = found.findings
    assert finding.check == "payload"
    assert "key='a'" in finding.description
    assert "files are whole" in finding.means
    assert "no backup" in finding.advice
    assert "crdt-mor restore" not in finding.advice
    assert 0 < found.rows < 4


def test_verify_the_payloads_advice_is_followed_finds_a_sound_table(fast_path: Path) -> None:
    table = overflowed(fast_path / "t")
    table.delete(keys=["a"])
    table.upsert(pl.DataFrame({"id": ["a"], "n": [7]}))
    assert table.verify(deep=True).is_sound
    assert table.scan().to_polars().sort("id")["n"].to_list() == [7, 1, 1, 1]


def test_verify_a_value_cannot_be_shown_blames_the_payload_in_each_file(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", {"id": pl.String, "n": pl.Int64}, key="id", buckets=1, merge={"n": Shy()})
    with patch(f"{__name__}._shown", lambda states: states):
        table.upsert(pl.DataFrame({"id": ["a"], "n": [666]}))
    with pytest.raises(PayloadError):
        table.to_polars()
    assert {finding.check for finding in table.verify().findings} == {"payload"}


def test_verify_deep_only_the_join_raises_blames_the_payload(fast_path: Path) -> None:
    """Readers merge by `merge`, and the plain fold by `join`."""
    table = Table.create(fast_path / "t", {"id": pl.String, "n": pl.Int64}, key="id", buckets=1, merge={"n": Shy()})
    for number in (1, 2):
        table.upsert(pl.DataFrame({"id": ["a"], "n": [number]}))
    assert table.verify(deep=True).is_sound
    with patch.object(Shy, "join", side_effect=RuntimeError("no")):
        (finding,) = table.verify(deep=True).findings
    assert (finding.check, "acme.shy/1 failed: RuntimeError: no" in finding.description) == ("payload", True)


def test_verify_hudis_log_has_a_block_that_is_not_read_names_the_file_and_reads_the_others(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", foreign_commits.SCHEMA, key="k", buckets=1)
    first = table.upsert(foreign_commits.rows("a"))
    began = from_ms(to_ms(first.completed_at) + 2)
    hudi_commits(table, foreign_commits.rows("b"), began, from_ms(to_ms(began) + 2))
    look_for_hudi(table)
    (log,) = (path for path in (fast_path / "t").glob(".*.log.*") if str(began) in path.name)
    data = log.read_bytes()
    log.write_bytes(data.replace(bytes([0, 0, 0, BlockKind.PARQUET]), bytes([0, 0, 0, BlockKind.HFILE]), 1))
    (finding,) = table.verify().findings
    assert (finding.check, finding.path) == ("not supported", log.name)
    assert "not damaged" in finding.means


def test_verify_a_newer_release_wrote_the_newest_version_raises_and_reports_no_damage(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", foreign_commits.SCHEMA, key="k", buckets=1)
    table.upsert(foreign_commits.rows("a"))
    edited(fast_path / "t", lambda said: said.update(format=said["format"] + 1))
    with pytest.raises(UnsupportedVersionError, match="upgrade"):
        verify.verify(session_of(table))
