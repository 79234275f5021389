"""Families of types: the page of types names their samples, and other files do not ask what a type is."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from crdt_mor.columns.kinds import FAMILIES, KINDS, UNKNOWN, kind_of, type_id, type_named
from tests.model.types_page import REFUSED, SUPPORTED, arrow_type
from tests.parsed import text_of

ROOT = Path(__file__).parents[2]

ALLOWED = {
    "crdt_mor/api/files_csv.py": "the types that Arrow's CSV reader guesses",
    "crdt_mor/api/files_json.py": "the types that Arrow's JSON reader guesses",
    "crdt_mor/api/files_json_values.py": "the doubles that Arrow's JSON reader guesses",
    "crdt_mor/cdc/connect.py": "the encodings of Kafka Connect",
    "crdt_mor/cdc/maxwell.py": "the encoding of bytes in Maxwell",
    "crdt_mor/cdc/values.py": "the texts of values in feeds",
    "crdt_mor/columns/casts.py": "casts between numbers, and messages about moments",
    "crdt_mor/columns/decimals.py": "a fault of Arrow's decimals",
    "crdt_mor/columns/kind.py": "the types without a family",
    "crdt_mor/columns/kinds_numbers.py": "the families themselves",
    "crdt_mor/columns/kinds_texts.py": "the families themselves",
    "crdt_mor/columns/kinds_times.py": "the families themselves",
    "crdt_mor/columns/kinds_variants.py": "the families themselves",
    "crdt_mor/columns/text_types.py": "the doubles that Arrow's CSV reader guesses",
    "crdt_mor/columns/texts.py": "arrays of the types of partition values, made without pandas",
    "crdt_mor/format/avro_rows.py": "the form in which polars returns Avro's lengths",
    "crdt_mor/format/base_file.py": "NaN, a value of floats alone",
    "crdt_mor/format/deletes_ordering.py": "the twelve types of Hudi's deletes, a list that only Hudi changes",
    "crdt_mor/hudi/catalog_entry.py": "types of Hive and Spark for the nine stored types",
    "crdt_mor/laws/check.py": "rounding of floats",
    "crdt_mor/laws/edges.py": "values of the nine stored types",
    "crdt_mor/laws/strategies.py": "values of the nine stored types",
    "crdt_mor/laws/values.py": "values of the nine stored types",
    "crdt_mor/mirror/bounds.py": "the stored types whose bounds in a footer are exact",
    "crdt_mor/mirror/delta_types.py": "Delta's types",
    "crdt_mor/mirror/iceberg_bounds.py": "Iceberg's bytes of the nine stored types",
    "crdt_mor/mirror/iceberg_types.py": "Iceberg's types",
    "crdt_mor/model/config_merge.py": "rows expire at a timestamp",
    "crdt_mor/model/partition_values.py": "the types that Iceberg's transforms take",
    "crdt_mor/write/held.py": "NaN, a value of floats alone",
    "payloads/booleans.py": "the types that a payload merges",
    "payloads/counters.py": "the types that a payload merges",
    "payloads/scalars.py": "the types that a payload merges",
    "readers/spark/filters.py": "the literals of Spark's filters",
    "readers/spark/native.py": "the types that Spark's Parquet reader reads alike",
    "readers/spark/types.py": "Spark's types, behind the public interface",
}
"""The files that ask what a type without inner types is, and the reason why a new type changes none of them, but
Spark's, which names the new type's type in Spark. Remove a file that asks no more. Ask `kind_of` instead of adding one.
"""

STRUCTURE = {
    "is_nested", "is_struct", "is_map", "is_list", "is_large_list", "is_fixed_size_list", "is_list_view",
    "is_large_list_view", "is_dictionary", "is_null",
}  # fmt: skip


ASKED = re.compile(r"\b(?:pt|types)\.(is_\w+)|\bpa\.(JsonType|UuidType|BaseExtensionType)\b")


def asks(file: Path) -> bool:
    return any({*match.groups()} - STRUCTURE - {None} for match in ASKED.finditer(text_of(file)))


def test_files_that_ask_for_types_are_the_listed_ones() -> None:
    files = [file for room in ("crdt_mor", "payloads", "readers") for file in sorted((ROOT / room).rglob("*.py"))]
    assert {str(file.relative_to(ROOT)) for file in files if asks(file)} == ALLOWED.keys()


def test_page_of_types_lists_the_samples_of_all_families() -> None:
    listed = [kind for kind in (arrow_type(row[0]) for row in SUPPORTED) if kind_of(kind) is not UNKNOWN]
    assert listed == [sample for family in FAMILIES for sample in family.samples]


@pytest.mark.parametrize("row", SUPPORTED, ids=lambda row: row[0])
def test_page_of_types_says_what_the_families_answer(row: list[str]) -> None:
    kind = arrow_type(row[0])
    family = kind_of(kind)
    if family is UNKNOWN:
        return
    assert family.stored(kind, "c") == arrow_type(row[1])
    assert family.declared(kind, "c") == (kind if row[3] == "same" else arrow_type(row[3]))
    stored = arrow_type(row[1])
    assert pa.types.is_nested(stored) or kind_of(stored).is_stored(stored)
    if not isinstance(kind, pa.BaseExtensionType):
        assert type_named(family.spelled(kind)) == type_named(str(kind)) == kind


def test_families_share_no_type_and_miss_the_refused_ones() -> None:
    assert len(KINDS) == len({(type_id(sample), family) for family in FAMILIES for sample in family.samples})
    refused = [kind for kind in (arrow_type(row[0]) for row in REFUSED) if not pa.types.is_decimal(kind)]
    assert {kind_of(kind) for kind in refused} == {UNKNOWN}


def test_type_name_with_too_many_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="UTC"):
        type_named("timestamp[us, UTC, junk]")
