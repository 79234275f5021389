"""What users may rely on, pinned: names, signatures, exceptions. A change here is a change of the product."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest

import crdt_mor
from crdt_mor import errors, payloads

PUBLIC = [
    "Changes", "CheckpointExpiredError", "ClockError", "Commit", "CommitUnknownError", "Compacted", "CompactionPlan",
    "CrdtMorError",
    "Dot", "Explanation", "FormatError", "FutureSnapshotError", "InvalidInputError", "LawError", "PartialUpdate",
    "Payload", "PayloadError", "PayloadNotAllowedError",
    "Receipt", "RecordPayload", "Scan", "SchemaMismatchError", "SnapshotExpiredError",
    "StorageUnavailableError", "Table", "TableExistsError", "TableNotFoundError",
    "TableReplacedError", "TokenOrderError", "Transaction",
    "UnknownPayloadError", "UnsupportedFeatureError", "UnsupportedVersionError", "WriteJob", "WriterExpiredError",
    "allow_payloads", "check_laws", "parse_point",
]  # fmt: skip

SIGNATURES = {
    "Table.create": "uri schema * key ordering partition_by hive_style buckets merge name exist_ok writer_expiry "
    "environment",
    "Table.open": "uri * payloads writer_expiry environment",
    "Table.append": "self data * schema_mode token",
    "Table.upsert": "self data * schema_mode token",
    "Table.delete": "self data * keys filter plain token",
    "Table.transaction": "self * token",
    "Table.plan_write": "self operation schema * schema_mode plain token",
    "Table.complete_write": "self job receipts * token",
    "Table.abandon_write": "self job",
    "Table.file_groups": "self data",
    "WriteJob.stage": "self data * task environment",
    "Table.scan": "self * columns filter as_of consistency meta limit",
    "Table.changes": "self since * columns images raw consistency until",
    "Table.diff": "self before after * columns",
    "Table.refresh": "self",
    "allow_payloads": "payloads",
    "check_laws": "payload * deep examples",
    "parse_point": "text * checkpoint name",
    "Transaction.append": "self data * schema_mode",
    "Transaction.upsert": "self data * schema_mode",
    "Transaction.delete": "self data * keys filter plain",
    "Transaction.scan": "self * columns filter meta",
    "Scan.count": "self",
    "Scan.explain": "self",
    "Scan.frames": "self",
    "Scan.narrowed": "self * columns filter limit",
    "Scan.parts": "self size",
    "Scan.to_arrow": "self",
    "Scan.to_polars": "self",
    "Scan.to_pandas": "self",
    "Scan.to_reader": "self",
    "Changes.limited": "self * commits files bytes",
    "Changes.parts": "self size",
    "Changes.to_arrow": "self",
    "Changes.to_polars": "self",
    "Changes.to_pandas": "self",
    "Changes.to_reader": "self",
}
MEMBERS = {
    "Table": "abandon_write append changes complete_write config create delete diff file_groups inspect maintenance "
    "open plan_write refresh scan schema transaction upsert version",
    "WriteJob": "expiry_ms job stage uri",
    "Transaction": "append delete scan upsert",
    "Changes": "checkpoint commits limited parts schema since to_arrow to_pandas to_polars to_reader",
    "Scan": "as_of checkpoint count explain frames narrowed parts polars_schema schema to_arrow to_pandas to_polars "
    "to_reader version",
}
FIELDS = {
    "Commit": ["version", "requested_at", "completed_at", "rows", "deletes", "repeated"],
    "Compacted": ["barrier", "file_groups", "rows", "bytes", "carried"],
}
BASES = {
    "TableNotFoundError": FileNotFoundError,
    "TableExistsError": FileExistsError,
    "InvalidInputError": ValueError,
    "SchemaMismatchError": ValueError,
    "FutureSnapshotError": ValueError,
    "TokenOrderError": ValueError,
    "UnsupportedVersionError": crdt_mor.FormatError,
    "LawError": ValueError,
    "PayloadNotAllowedError": crdt_mor.UnknownPayloadError,
}


def member(path: str) -> object:
    found: object = crdt_mor
    for name in path.split("."):
        found = getattr(found, name)
    return found


def test_the_names_are_these_and_no_more() -> None:
    assert sorted(crdt_mor.__all__) == crdt_mor.__all__ == PUBLIC
    assert "PartialUpdate" in payloads.__all__


@pytest.mark.parametrize("path", SIGNATURES)
def test_parameters_are_named_and_ordered_like_this(path: str) -> None:
    words = []
    parameters = inspect.signature(member(path)).parameters.values()  # type: ignore[arg-type]
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        words.append(parameter.name)
    expected = SIGNATURES[path].split()
    assert [word for word in words if word != "cls"] == expected


@pytest.mark.parametrize("name", MEMBERS)
def test_methods_and_properties_are_these(name: str) -> None:
    cls = member(name)
    assert sorted(n for n in dir(cls) if not n.startswith("_")) == MEMBERS[name].split()


@pytest.mark.parametrize("name", FIELDS)
def test_results_are_frozen_values_with_these_fields(name: str) -> None:
    cls = member(name)
    assert isinstance(cls, type)
    assert dataclasses.is_dataclass(cls)
    assert [field.name for field in dataclasses.fields(cls)] == FIELDS[name]
    assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_every_exception_is_public_ours_and_a_kind_of_what_python_users_catch() -> None:
    ours = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.CrdtMorError)]
    assert {c.__name__ for c in ours} <= set(PUBLIC)
    for name, base in BASES.items():
        assert issubclass(getattr(crdt_mor, name), base)


def test_the_tree_of_exceptions_in_the_docs_names_each_of_them() -> None:
    assert errors.__doc__ is not None
    named = set(re.findall(r"\b\w+Error\b", errors.__doc__))
    ours = {c.__name__ for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.CrdtMorError)}
    assert ours <= named


@pytest.mark.parametrize("name", [*PUBLIC, *SIGNATURES])
def test_everything_public_says_what_it_is(name: str) -> None:
    assert inspect.getdoc(member(name))
