"""A folder with a table of Delta Lake, Iceberg or Lance is recognised when it is opened or created upon."""

from __future__ import annotations

import pytest

from crdt_mor import Table
from crdt_mor.errors import TableExistsError, TableNotFoundError
from tests.table.helpers import SCHEMA, Place, files

FILES = {
    "Delta Lake": "_delta_log/00000000000000000000.json",
    "Delta Lake, from a checkpoint": "_delta_log/00000000000000000010.checkpoint.parquet",
    "Apache Iceberg": "metadata/00001-b1e80155-0d07-40c1-b7ad-28bb7cf15bd3.metadata.json",
    "Lance": "_versions/18446744073709551614.manifest",
}
READS = {"Delta Lake": "", "Apache Iceberg": "", "Lance": r"lance\.dataset\("}


@pytest.mark.parametrize("name", FILES)
def test_a_table_of_another_format_is_neither_opened_nor_written_into(place: Place, name: str) -> None:
    lake = name.partition(",")[0]
    assert place.store.put(FILES[name], b"{}")
    before = files(place)
    why = rf"a table of {lake} here.*Table\.create_from\(elsewhere, {READS[lake]}'.*key="
    with pytest.raises(TableNotFoundError, match=why):
        place.open()
    for exist_ok in (False, True):
        with pytest.raises(TableExistsError, match=why):
            place.create(schema=SCHEMA, key="id", exist_ok=exist_ok)
    assert files(place) == before


def test_folders_of_such_names_and_tables_of_ours_are_what_they_were(place: Place) -> None:
    assert place.store.put("metadata/notes.json", b"{}")
    assert place.store.put("_versions/1.txt", b"")
    table = place.create(schema=SCHEMA, key="id")
    for path in FILES.values():  # as tools put it that translate between the formats
        assert place.store.put(path, b"{}")
    assert place.open().count() == table.count() == 0
    with pytest.raises(TableExistsError, match="there is a table already; open it"):
        place.create(schema=SCHEMA, key="id")
    assert isinstance(place.create(schema=SCHEMA, key="id", exist_ok=True), Table)
