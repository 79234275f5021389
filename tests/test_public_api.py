"""What users may rely on, pinned: names, signatures, exceptions. A change here is a change of the product."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from types import FunctionType
from typing import get_args, get_origin

import pytest

import crdt_mor
from crdt_mor import errors, payloads
from docs.site.entries import MODULES as PUBLIC_MODULES
from docs.site.entries import public

ROOT = [
    "NULL", "ArrowArray", "ArrowDataset", "ArrowSchema", "ArrowStream", "AsOf", "Changes", "Commit",
    "Consistency", "CrdtMorError", "Data", "Dot", "Environment", "FileRows", "Inspect",
    "InvalidInputError", "Kind", "LoadSource", "Maintenance", "Merge", "MergeInto",
    "Merged", "Nulls", "Opening", "PartialUpdate", "PartitionFunction", "Payload", "Point", "Process", "RecordPayload",
    "Rules", "Scan", "SchemaLike", "SchemaMode", "SnapshotExpiredError", "StorageUnavailableError", "Table",
    "TableConfig", "TokenOrderError", "Transaction", "allow_payloads", "bucket", "check_laws", "check_store",
    "day", "doctor", "drop_table", "hour", "list_tables", "month", "observe", "parse_point", "read_files",
    "truncate", "year",
]  # fmt: skip
"""Names of `crdt_mor` itself: daily names of users. There are at most 64, so a new name needs a module or a reason."""

MODULES = {
    "errors": "CheckpointExpiredError ClockError CommitUnknownError ConstraintViolationError CrdtMorError "
    "EarlierWritePendingError ErasureUnfinishedError ForkedProcessError FormatError FutureSnapshotError "
    "InvalidInputError InvalidUseError LawError PartitionNotInKeyWarning PayloadError "
    "PayloadNotAllowedError RestoreUnfinishedError SchemaMismatchError SnapshotExpiredError "
    "StorageRefusedError StorageUnavailableError TableArrivingError TableExistsError TableMovedError "
    "TableMovedWarning TableNotFoundError TableReplacedError TokenOrderError UnknownPayloadError "
    "UnsupportedFeatureError UnsupportedVersionError UpkeepWarning WriterExpiredError",
    "observing": "AdoptionEvent CommitEvent Event Observation PartEvent PlanEvent RaceLostEvent RollbackEvent "
    "StreamEvent SweepEvent UpkeepEvent WaitEvent",
    "parts": "CompactionPlan DataFile FileGroup Jobs MergePart MergeSpread PartDone Plans Receipt SplitScan "
    "UpdatePart WriteJob",
    "results": "Archived Checkup Cleaned Compacted Copied CopyProgress Differences Dropped Erased Explanation Files "
    "Finding GivenUp ListedTable LoadProgress Maintained Metrics Migrated MigrationProgress MigrationStatus Mirrored "
    "OnProgress Registered Repaired Restored Savepoint StoreCheck TableList Upkeep Verification VerifyProgress",
    "store": "Chunks Content Durable LocalStore MemoryStore ParquetSource RangeReader Stat Store secret_options "
    "storage_options",
}
"""Names of each public module. The root exports five of the errors, too."""

PUBLIC = [*ROOT, *(name for names in MODULES.values() for name in names.split() if name not in ROOT)]

SIGNATURES = {
    "Table.create": "uri schema * key ordering partition_by hive_style buckets merge ttl rules "
    "cluster_by cluster_order compression name exist_ok storage_options opening",
    "Table.create_from": "uri source * key schema rename ordering partition_by hive_style buckets merge ttl rules "
    "compression name commit_info on_progress storage_options opening",
    "Table": "uri * payloads storage_options opening",
    "Opening": "* store writer_expiry maintain memory_limit environment",
    "Table.append": "self data * schema_mode token commit_info",
    "Table.upsert": "self data * schema_mode nulls token commit_info",
    "Table.delete": "self data * keys where plain execute_parts wait token commit_info",
    "Table.overwrite": "self data * partitions schema_mode token commit_info",
    "Table.delete_partitions": "self partitions * token commit_info",
    "Table.truncate": "self * token commit_info",
    "Table.transaction": "self * isolation wait partitions columns token commit_info",
    "Table.move": "self keys * partition parts execute_parts wait token commit_info",
    "Table.merge": "self source on * parts execute_parts source_alias target_alias wait token commit_info",
    "Table.update": "self set where * execute_parts wait token commit_info",
    "Jobs.plan": "self operation schema * partitions columns schema_mode plain nulls token commit_info",
    "Jobs.complete": "self job receipts * token commit_info",
    "Table.to_arrow": "self",
    "Table.to_pandas": "self * dtype_backend",
    "Table.to_polars": "self",
    "Table.count": "self",
    "Jobs.abandon": "self job",
    "Jobs.file_groups": "self data",
    "WriteJob.stage": "self data * task environment",
    "Table.scan": "self * columns filter as_of consistency meta limit names",
    "Table.add_columns": "self columns * default comment wait commit_info",
    "Table.alter": "self * rename drop comment widen commit_info",
    "Table.changes": "self since * columns images raw consistency until expired names reader",
    "Table.diff": "self before after * columns",
    "Table.history": "self limit * since until by",
    "Table.why": "self key * column as_of",
    "Table.mirror": "self format * deletes",
    "Maintenance.forget_reader": "self name",
    "Maintenance.register": "self catalog name * format",
    "Table.from_catalog": "catalog name * storage_options opening",
    "Table.verify": "self * partitions deep on_progress",
    "Maintenance.savepoint": "self name * comment",
    "Maintenance.savepoints": "self",
    "Maintenance.drop_savepoint": "self name",
    "Table.add_rules": "self rules * validate wait",
    "Table.drop_rules": "self rules",
    "Maintenance.repair": "self copy * on_progress",
    "Maintenance.restore": "self to * dry_run",
    "Table.set_properties": "self properties",
    "Maintenance.roll_back": "self instant",
    "Plans.schedule": "self * log_files_min logs_only rewrite",
    "Plans.open": "self",
    "Plans.execute": "self plan",
    "Plans.complete": "self plan files",
    "Plans.cancel": "self barrier",
    "Maintenance.maintain": "self * keep keep_commits dry_run execute_parts",
    "allow_payloads": "payloads",
    "check_laws": "payload * deep examples",
    "check_store": "uri * keys storage_options store environment",
    "doctor": "uri * storage_options store environment",
    "observe": "callback",
    "parse_point": "text * checkpoint name",
    "read_files": "paths * schema rename delimiter encoding storage_options",
    "secret_options": "options",
    "storage_options": "uri options",
    "Maintenance.erase": "self data * keys where columns wait dry_run",
    "Maintenance.migrate": "self to_uri * buckets partition_by hive_style merge ordering cluster_by cluster_order name "
    "pending on_progress storage_options store",
    "Maintenance.cancel_migration": "self * storage_options store removed",
    "Transaction.append": "self data * schema_mode",
    "Transaction.upsert": "self data * schema_mode nulls",
    "Transaction.delete": "self data * keys where plain",
    "Transaction.overwrite": "self data * partitions schema_mode",
    "Transaction.delete_partitions": "self partitions",
    "Transaction.truncate": "self",
    "Transaction.scan": "self * columns filter meta",
    "Transaction.move": "self keys * partition",
    "Scan.count": "self",
    "Scan.explain": "self",
    "Scan.frames": "self",
    "Scan.narrowed": "self * columns filter limit",
    "Scan.parts": "self size",
    "Scan.split": "self",
    "Scan.to_arrow": "self",
    "Scan.to_polars": "self",
    "Scan.to_pandas": "self * dtype_backend",
    "Scan.to_reader": "self",
    "Changes.limited": "self * commits files rows bytes",
    "Changes.parts": "self size",
    "Changes.to_arrow": "self",
    "Changes.to_polars": "self",
    "Changes.to_pandas": "self * dtype_backend",
    "Changes.to_reader": "self",
}
MEMBERS = {
    "Table": "add_columns add_rules alter append changes config copy count create create_from delete "
    "delete_partitions diff drop_rules environment from_catalog history inspect jobs maintenance merge mirror "
    "move overwrite properties rules scan schema set_properties storage_options to_arrow to_pandas to_polars "
    "transaction truncate update upsert verify version why",
    "Jobs": "abandon complete file_groups plan",
    "Plans": "cancel complete execute open schedule",
    "FileRows": "schema to_arrow to_pandas to_polars to_reader",
    "Observation": "is_active remove",
    "WriteJob": "expiry_ms job stage store uri",
    "Transaction": "append delete delete_partitions merge move overwrite requested_at scan truncate update upsert",
    "Changes": "checkpoint commits done limited parts schema since to_arrow to_pandas to_polars to_reader",
    "Scan": "as_of checkpoint count explain frames narrowed parts polars_schema schema split to_arrow to_pandas "
    "to_polars to_reader unopened version",
}
FIELDS = {
    "TableConfig": [
        "name",
        "key",
        "partition_by",
        "hive_style",
        "buckets",
        "ordering",
        "merge",
        "payloads",
        "hudi_version",
        "table_type",
        "local_times",
        "ttl",
    ],
    "Opening": ["store", "writer_expiry", "maintain", "memory_limit", "environment"],
    "Finding": ["check", "path", "partition", "file_group", "rows", "description", "means", "advice"],
    "Verification": [
        "version",
        "rows",
        "file_groups",
        "files",
        "bytes",
        "objects",
        "findings",
        "hints",
        "keys_in_several_partitions",
        "some_keys",
        "not_looked_at",
    ],
    "VerifyProgress": ["file_groups", "of", "bytes"],
    "Commit": ["version", "requested_at", "completed_at", "rows", "deletes", "repeated", "covered"],
    "Cleaned": ["since", "files", "bytes", "spared", "failed", "dry_run"],
    "Compacted": ["barrier", "file_groups", "rows", "bytes", "carried", "logs_only"],
    "Archived": ["instants", "until", "held_by", "left"],
    "Repaired": ["files", "bytes", "verification"],
    "Restored": ["to", "savepoint", "commits", "instants", "files", "pending", "plans", "dry_run"],
    "Savepoint": ["name", "at", "created", "comment", "application", "host", "pid"],
    "GivenUp": ["instant", "kind", "application", "host", "pid", "repeated", "left"],
    "Erased": ["rows", "versions", "groups", "files", "bytes", "retained_from", "columns", "open_readers", "dry_run"],
}
BASES = {
    "ConstraintViolationError": ValueError,
    "TableNotFoundError": FileNotFoundError,
    "TableExistsError": FileExistsError,
    "InvalidInputError": ValueError,
    "InvalidUseError": TypeError,
    "SchemaMismatchError": ValueError,
    "FutureSnapshotError": ValueError,
    "TokenOrderError": ValueError,
    "UnsupportedVersionError": crdt_mor.errors.FormatError,
    "LawError": ValueError,
    "PayloadNotAllowedError": crdt_mor.errors.UnknownPayloadError,
    "StorageRefusedError": crdt_mor.StorageUnavailableError,
}


def member(path: str) -> object:
    first, *rest = path.split(".")
    found = public(first)
    for name in rest:
        found = getattr(found, name)
    return found


def test_the_names_are_these_and_no_more() -> None:
    assert crdt_mor.__all__ == ROOT
    assert len(ROOT) <= 64
    for name, names in MODULES.items():
        module = import_module(f"crdt_mor.{name}")
        assert sorted(module.__all__) == module.__all__ == names.split()
    assert "PartialUpdate" in payloads.__all__


def test_each_public_name_has_one_home() -> None:
    listed = [*ROOT, *(name for names in MODULES.values() for name in names.split())]
    twice = {name for name in listed if listed.count(name) > 1}
    assert twice == {name for name in ROOT if name.endswith("Error")}
    assert len(twice) == 5
    assert set(MODULES) == set(PUBLIC_MODULES)


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


def test_a_table_has_at_most_40_members() -> None:
    """Expert calls have homes of their own: `table.jobs`, `table.inspect`, `table.maintenance` and its `plans`."""
    assert len(MEMBERS["Table"].split()) <= 40


def test_methods_of_a_table_take_at_most_150_parameters_together() -> None:
    """Count without `self`. A new parameter replaces another, or this line says why users need it.

    `scan` alone selects rows, columns and moments. Rules are one value. Options that programs seldom give are in
    `Opening`; `storage_options` is direct, as in polars and deltalake.
    """
    functions = [inspect.getattr_static(crdt_mor.Table, name) for name in MEMBERS["Table"].split()]
    methods = [getattr(found, "__func__", found) for found in functions if not isinstance(found, property)]
    taken = [name for method in methods for name in inspect.signature(method).parameters if name not in ("self", "cls")]
    assert len(taken) <= 150


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
        assert issubclass(getattr(errors, name), base)


def test_the_tree_of_exceptions_in_the_docs_names_each_of_them() -> None:
    assert errors.__doc__ is not None
    named = set(re.findall(r"\b\w+Error\b", errors.__doc__))
    ours = {c.__name__ for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.CrdtMorError)}
    assert ours <= named


@pytest.mark.parametrize("name", [*PUBLIC, *SIGNATURES])
def test_everything_public_says_what_it_is(name: str) -> None:
    assert is_alias(member(name)) or inspect.getdoc(member(name))


# --- what signatures name ---------------------------------------------------------------------------------------------

OPAQUE = {"Receipt.bases", "Receipt.files", "WriteJob.job"}
"""Fields that nobody but us reads, of values that users only pass on."""


def is_alias(found: object) -> bool:
    """Whether a name stands for a type that has no name of its own, such as a union or a Literal."""
    return get_origin(found) is not None


def is_ours(found: object) -> bool:
    return found.__module__.split(".")[0] == "crdt_mor" if isinstance(found, type) else is_alias(found)


def types_within(found: object) -> Iterator[type]:
    """The classes that a type is made of."""
    if isinstance(found, type) and not is_alias(found):
        yield found
    for inner in get_args(found):
        yield from types_within(inner)


def public_functions(cls: type) -> Iterator[tuple[str, FunctionType]]:
    inherited = {name: found for base in reversed(cls.__mro__) if is_ours(base) for name, found in vars(base).items()}
    for name, found in inherited.items():
        function = getattr(found, "__func__", found.fget if isinstance(found, property) else found)
        if not name.startswith("_") and isinstance(function, FunctionType):
            yield f"{cls.__name__}.{name}", function


def annotated(name: str) -> Iterator[tuple[str, str, str]]:
    """What a public name says of types: where, as text, and the module in which the text has its meaning."""
    found = member(name)
    if isinstance(found, FunctionType):
        yield from ((name, text, found.__module__) for text in found.__annotations__.values())
    elif isinstance(found, type):
        for where, function in public_functions(found):
            yield from ((where, text, function.__module__) for text in function.__annotations__.values())
        if dataclasses.is_dataclass(found):
            fields = [field for field in dataclasses.fields(found) if not field.name.startswith("_")]
            yield from ((f"{name}.{field.name}", str(field.type), found.__module__) for field in fields)


@pytest.mark.parametrize("name", PUBLIC)
def test_types_that_a_public_signature_names_are_public(name: str) -> None:
    """Export the type that a failure names, and add it to `PUBLIC`; or keep it out of the signature."""
    for where, text, module in annotated(name):
        words = {node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)}
        ours = {word for word in words if is_ours(vars(sys.modules[module]).get(word))}
        if where not in OPAQUE:
            assert ours <= set(PUBLIC), f"{where} names {sorted(ours - set(PUBLIC))}, which no public module exports"


@pytest.mark.parametrize("name", [name for name in PUBLIC if is_alias(public(name))])
def test_a_public_alias_is_made_of_public_types(name: str) -> None:
    ours = {found.__name__ for found in types_within(member(name)) if is_ours(found)}
    assert ours <= set(PUBLIC)
