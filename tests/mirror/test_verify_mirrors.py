"""`verify` finds damage of mirrors, and none in mirrors of any shape."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from crdt_mor import Table
from crdt_mor.mirror import slices
from crdt_mor.results import Finding
from crdt_mor.services import mirror as mirroring
from tests.mirror.delta_reading import foreign_commit
from tests.mirror.shapes import RULES, SCHEMA, rows, written_over

FORMS: list[tuple[Any, Any]] = [
    ("delta", "vectors"), ("delta", "rewrite"), ("iceberg", "positions"), ("iceberg", "vectors")
]  # fmt: skip


def made(folder: Path, format: Any = "delta", deletes: Any = None, **settings: Any) -> Table:
    table = written_over(Table.create(str(folder / "t"), SCHEMA, key="id", buckets=1, **settings))
    table.mirror(format, deletes=deletes)
    return table


def only(table: Table, *, deep: bool = False) -> Finding:
    (found,) = table.verify(deep=deep).findings
    return found


def one_file(table: Table, pattern: str) -> Path:
    (path,) = Path(table.uri).glob(pattern)
    return path


@pytest.mark.costly
@pytest.mark.parametrize(("format", "deletes"), FORMS)
@pytest.mark.parametrize("rule", RULES)
def test_verify_of_a_right_mirror_finds_nothing(tmp_path: Path, format: Any, deletes: Any, rule: str) -> None:
    table = made(tmp_path, format, deletes, **RULES[rule])
    assert table.verify(deep=True).findings == ()
    table.upsert(rows([7], 40))
    table.maintenance.compact()
    assert table.verify(deep=True).findings == ()  # the mirror shows an older version
    table.mirror(format)
    assert table.verify(deep=True).findings == ()


DAMAGE: list[tuple[str, Any, str]] = [
    ("delta", None, ".mirror/m-*.parquet"),
    ("delta", None, "crdtmor/*.bin"),
    ("iceberg", "positions", ".mirror/m-*0_*[0-9a-f].parquet"),
    ("iceberg", "positions", ".mirror/m-*-del.parquet"),
    ("iceberg", "vectors", ".mirror/*.puffin"),
]


@pytest.mark.parametrize(("format", "deletes", "pattern"), DAMAGE)
@pytest.mark.parametrize("is_gone", [True, False])
def test_verify_finds_a_missing_or_damaged_file_of_a_mirror(
    tmp_path: Path, format: Any, deletes: Any, pattern: str, *, is_gone: bool
) -> None:
    table = made(tmp_path, format, deletes)
    path = one_file(table, pattern)
    data = bytearray(path.read_bytes())
    data[_in_a_page(path) if path.suffix == ".parquet" else 12] ^= 1
    path.unlink()
    if not is_gone:
        path.write_bytes(data)
    found = only(table)
    assert (found.check, found.path) == ("mirror", str(path.relative_to(table.uri)))
    Path(table.uri, "_delta_log" if format == "delta" else "metadata").rename(tmp_path / "removed")
    table.mirror(format, deletes=deletes)  # as the advice says
    assert table.verify(deep=True).findings == ()


def _in_a_page(path: Path) -> int:
    """The last byte of the first column's pages."""
    column = pq.read_metadata(path).row_group(0).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    return int(start + column.total_compressed_size - 1)


def rewritten(path: Path, change: Callable[[Mapping[str, Any]], Any]) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("\n".join(json.dumps({kind: change(fields) if kind == "add" else fields})
                              for line in lines for kind, fields in line.items()))  # fmt: skip


STATED: list[tuple[str, Callable[[Mapping[str, Any]], Any]]] = [
    ("another number of rows", lambda add: {**add, "stats": add["stats"].replace('"numRecords":', '"numRecords":1')}),
    ("size differs", lambda add: {**add, "size": add["size"] + 1} if add["path"].startswith(".mirror") else add),
    ("other files of a file group", lambda add: {**add, "tags": {**add["tags"], "crdt_mor.files": "0"}}),
    ("unreadable", lambda add: []),
]


@pytest.mark.parametrize(("said", "change"), STATED)
def test_verify_compares_the_statements_of_a_mirror(
    tmp_path: Path, said: str, change: Callable[[Mapping[str, Any]], Any]
) -> None:
    table = made(tmp_path)
    rewritten(one_file(table, "_delta_log/*.json"), change)
    found = table.verify().findings
    assert found
    assert {one.check for one in found} == {"mirror"}
    assert all(said in one.description for one in found)


@pytest.mark.parametrize("kind", ["manifest", "metadata"])
def test_verify_finds_unreadable_metadata_of_an_iceberg_mirror(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path, "iceberg")
    path = one_file(table, "metadata/*-m0.avro" if kind == "manifest" else "metadata/v1.metadata.json")
    path.write_bytes(path.read_bytes()[:50])
    assert only(table).check == ("mirror" if kind == "manifest" else "mirror head")


@pytest.mark.parametrize("change", ["manifest", "foreign", "moved", "foreign delta", "overtaken"])
def test_verify_finds_a_head_that_the_next_refresh_replaces(tmp_path: Path, change: str) -> None:
    kind: Any = "delta" if change in ("foreign delta", "overtaken") else "iceberg"
    table = made(tmp_path, kind)
    if change == "manifest":
        one_file(table, "metadata/*-m0.avro").unlink()
    elif change == "foreign":
        shutil.copy(one_file(table, "metadata/v1.metadata.json"), Path(table.uri, "metadata/v2.metadata.json"))
    elif change == "moved":
        table = Table(str(Path(table.uri).rename(tmp_path / "elsewhere")))
    elif change == "foreign delta":
        foreign_commit(table)
    else:  # by a clean of a release that looked at no mirrors
        table.maintenance.compact()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mirroring, "files_needed", lambda *_: frozenset())
            table.maintenance.clean(keep=timedelta(0), readers=timedelta(0))
    checks = {one.check for one in table.verify().findings}
    assert "mirror head" in checks
    assert table.mirror(kind).objects > 0  # as the advice says
    assert not [one for one in table.verify().findings if one.check == "mirror head"]


def test_deep_verify_compares_the_rows_of_a_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(slices, "_places", lambda *_: np.array([0], dtype=np.int64))  # a planted bug
        table = made(tmp_path)
    assert table.verify().findings == ()
    assert "shows other rows" in only(table, deep=True).description


def test_verify_ignores_another_table_of_delta(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), SCHEMA, key="id")
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not in this environment")
    deltalake.write_deltalake(table.uri, rows([1], 1))
    assert table.verify().findings == ()
