"""A compaction writes no value of a page whose CRC is wrong, whatever the page's bytes decode to."""

from __future__ import annotations

import shutil
from io import BytesIO
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crdt_mor import Table
from crdt_mor.errors import FormatError
from crdt_mor.format.log import BlockKind, read_log
from crdt_mor.ground.pages import check_pages
from crdt_mor.ground.parquet import ParquetSource
from tests.table.damaged import bases, flipped, logs

ROWS = pl.DataFrame({"id": [f"k{i}" for i in range(200)], "n": range(200), "s": ["a", "b"] * 100})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A base file below a log."""
    path = tmp_path / "t"
    table = Table.create(str(path), ROWS.schema, key="id", buckets=1)
    table.upsert(ROWS)
    table.maintenance.compact()
    table.upsert(ROWS.head(50).with_columns(n=pl.col("n") + 1))
    return path


def page_bytes(data: bytes) -> list[int]:
    """Places within the values of each column's last page."""
    group = pq.ParquetFile(BytesIO(data)).metadata.row_group(0)
    chunks = [group.column(i) for i in range(group.num_columns)]
    return [
        chunk.data_page_offset + chunk.total_compressed_size - 1 for chunk in chunks if not chunk.has_dictionary_page
    ]


def places(folder: Path, kind: str) -> list[tuple[Path, int]]:
    if kind == "base":
        (file,) = bases(folder)
        return [(file, at) for at in page_bytes(file.read_bytes())]
    file = logs(folder)[-1]
    (block,) = [b for b in read_log(file.read_bytes(), file.name) if b.kind is BlockKind.PARQUET]
    start = file.read_bytes().index(bytes(block.content))
    return [(file, start + at) for at in page_bytes(bytes(block.content))]


@pytest.mark.parametrize("kind", ["base", "log"])
def test_a_changed_byte_of_a_page_is_not_compacted(folder: Path, kind: str) -> None:
    table, copy = Table(str(folder)), folder.parent / "copy"
    table.copy(str(copy))
    before = table.to_polars().sort("id")
    found = places(folder, kind)
    assert len(found) > 3
    for file, at in found:
        flipped(file, at)
        with pytest.raises(FormatError, match=rf"{file.name}.* column=\w+"):
            Table(str(folder)).maintenance.compact()
        shutil.copy(copy / file.name, file)
    assert Table(str(folder)).maintenance.compact()
    assert Table(str(folder)).to_polars().sort("id").equals(before)


def test_maintain_names_the_damaged_file_and_goes_on(folder: Path) -> None:
    file, at = places(folder, "base")[0]
    flipped(file, at)
    table = Table(str(folder))
    table.set_properties({"crdt_mor.compaction.log_files": "1"})
    done = table.maintenance.maintain()
    (failed,) = [action for action in done.actions if action.state == "failed"]
    assert (failed.service, file.name in str(failed.error)) == ("compaction", True)
    assert table.count() == 200


def test_what_arrow_refuses_for_a_crc_is_refused() -> None:
    """Each byte of all pages: the values, and headers, of which a CRC covers nothing."""
    out = BytesIO()
    pq.write_table(ROWS.head(5).to_arrow(), out, write_page_checksum=True, compression="zstd", data_page_size=8)
    data = out.getvalue()
    check_pages(ParquetSource.in_memory(data))
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    refused = 0
    for at in range(4, end):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        try:
            pq.ParquetFile(BytesIO(changed), page_checksum_verification=True).read()
        except (OSError, pa.ArrowException) as error:
            if "CRC" in str(error):
                refused += 1
                with pytest.raises(FormatError, match="another CRC"):
                    check_pages(ParquetSource.in_memory(changed))
    assert refused > 50
