"""Entries of Hudi tables in a Hive metastore and in AWS Glue, through the clients that pyiceberg's catalogs hold.

A lost race raises nothing: the caller loads the entry again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from crdt_mor.errors import StorageUnavailableError, UnsupportedFeatureError
from crdt_mor.hudi.catalog_entry import EXTERNAL, INPUT_FORMAT, OUTPUT_FORMAT, SERDE, Columns, HudiEntry, Values

_BATCH: Final = 25
"""Most partitions of Glue's requests."""


class Metastore(Protocol):
    """The entry of a name."""

    def spelled(self, location: str) -> str:
        """Return an address as its engines do."""

    def table(self) -> HudiEntry | None:
        """Return the entry without partitions; None without one."""

    def partitions(self) -> Mapping[Values, tuple[str, Columns]]: ...

    def create(self, entry: HudiEntry) -> None: ...

    def alter(self, entry: HudiEntry) -> None:
        """Replace columns and add parameters."""

    def add(self, entry: HudiEntry, values: Iterable[Values]) -> None: ...

    def change(self, entry: HudiEntry, values: Iterable[Values]) -> None: ...

    def drop(self, values: Iterable[Values]) -> None:
        """Forget partitions, and keep their files."""


def metastore_of(catalog: Any, database: str, name: str) -> Metastore:
    kinds = {kind.__name__ for kind in type(catalog).__mro__}
    if "HiveCatalog" in kinds:
        return Hive(catalog, database, name)
    if "GlueCatalog" in kinds:
        return Glue(catalog, database, name)
    raise UnsupportedFeatureError(
        "entries of the Hudi table are for AWS Glue and Hive metastores: register the Iceberg mirror in other "
        f"catalogs. type={type(catalog).__name__}"
    )


def _batches(values: Iterable[Values]) -> Iterator[list[Values]]:
    left = list(values)
    yield from (left[start : start + _BATCH] for start in range(0, len(left), _BATCH))


class Hive:
    def __init__(self, catalog: Any, database: str, name: str) -> None:
        self._catalog, self._database, self._name = catalog, database, name

    def _client(self) -> Any:
        return self._catalog._client  # noqa: SLF001  with the catalog's own login

    def spelled(self, location: str) -> str:
        return f"s3a://{location.removeprefix('s3://')}" if location.startswith("s3://") else location

    def table(self) -> HudiEntry | None:
        from hive_metastore.ttypes import NoSuchObjectException

        with self._client() as client:
            try:
                found = client.get_table(self._database, self._name)
            except NoSuchObjectException:
                return None
        return HudiEntry(
            found.sd.location or "", _of_hive(found.sd.cols), _of_hive(found.partitionKeys or ()),
            found.parameters or {}, found.sd.serdeInfo.parameters or {}, {},
        )  # fmt: skip

    def partitions(self) -> Mapping[Values, tuple[str, Columns]]:
        with self._client() as client:
            found = client.get_partitions(self._database, self._name, -1)
        return {tuple(one.values): (one.sd.location, _of_hive(one.sd.cols)) for one in found}

    def create(self, entry: HudiEntry) -> None:
        from hive_metastore.ttypes import AlreadyExistsException, Table

        self._catalog.create_namespace_if_not_exists((self._database,))
        made = Table(
            tableName=self._name, dbName=self._database, sd=_hive_storage(entry, entry.location, entry.columns),
            partitionKeys=_to_hive(entry.partition_columns), parameters=dict(entry.parameters), tableType=EXTERNAL,
        )  # fmt: skip
        with self._client() as client:
            try:
                client.create_table(made)
            except AlreadyExistsException:
                return

    def alter(self, entry: HudiEntry) -> None:
        with self._client() as client:
            found = client.get_table(self._database, self._name)
            found.sd.cols = _to_hive(entry.columns)
            found.sd.serdeInfo.parameters = {**(found.sd.serdeInfo.parameters or {}), **entry.serde}
            found.parameters = {**(found.parameters or {}), **entry.parameters}
            client.alter_table(self._database, self._name, found)

    def add(self, entry: HudiEntry, values: Iterable[Values]) -> None:
        from hive_metastore.ttypes import AddPartitionsRequest

        with self._client() as client:
            for some in _batches(values):
                made = list(self._made(entry, some))
                client.add_partitions_req(
                    AddPartitionsRequest(
                        dbName=self._database, tblName=self._name, parts=made, ifNotExists=True, needResult=False
                    )
                )

    def change(self, entry: HudiEntry, values: Iterable[Values]) -> None:
        with self._client() as client:
            for some in _batches(values):
                client.alter_partitions(self._database, self._name, list(self._made(entry, some)))

    def drop(self, values: Iterable[Values]) -> None:
        from hive_metastore.ttypes import NoSuchObjectException

        with self._client() as client:
            for each in values:
                try:
                    client.drop_partition(self._database, self._name, list(each), False)
                except NoSuchObjectException:
                    continue

    def _made(self, entry: HudiEntry, values: Sequence[Values]) -> Iterator[Any]:
        from hive_metastore.ttypes import Partition

        for each in values:
            storage = _hive_storage(entry, *entry.partitions[each])
            yield Partition(values=list(each), dbName=self._database, tableName=self._name, sd=storage, parameters={})


def _of_hive(fields: Iterable[Any]) -> Columns:
    return tuple((field.name, field.type) for field in fields)


def _to_hive(columns: Columns) -> list[Any]:
    from hive_metastore.ttypes import FieldSchema

    return [FieldSchema(name, kind, "") for name, kind in columns]


def _hive_storage(entry: HudiEntry, location: str, columns: Columns) -> Any:
    from hive_metastore.ttypes import SerDeInfo, StorageDescriptor

    serde = SerDeInfo(serializationLib=SERDE, parameters=dict(entry.serde))
    return StorageDescriptor(
        cols=_to_hive(columns), location=location, inputFormat=INPUT_FORMAT, outputFormat=OUTPUT_FORMAT,
        compressed=False, numBuckets=0, serdeInfo=serde, bucketCols=[], sortCols=[], parameters={},
    )  # fmt: skip


class Glue:
    def __init__(self, catalog: Any, database: str, name: str) -> None:
        self._catalog, self._glue = catalog, catalog.glue
        self._names = {"DatabaseName": database, "TableName": name}

    def spelled(self, location: str) -> str:
        return location

    def _table(self) -> Any:
        try:
            found = self._glue.get_table(DatabaseName=self._names["DatabaseName"], Name=self._names["TableName"])
        except self._glue.exceptions.EntityNotFoundException:
            return None
        return found["Table"]

    def table(self) -> HudiEntry | None:
        found = self._table()
        if found is None:
            return None
        storage = found.get("StorageDescriptor", {})
        return HudiEntry(
            storage.get("Location", ""), _of_glue(storage.get("Columns", ())), _of_glue(found.get("PartitionKeys", ())),
            found.get("Parameters", {}), storage.get("SerdeInfo", {}).get("Parameters", {}), {},
        )  # fmt: skip

    def partitions(self) -> Mapping[Values, tuple[str, Columns]]:
        pages = self._glue.get_paginator("get_partitions").paginate(**self._names)
        found = ((one["Values"], one["StorageDescriptor"]) for page in pages for one in page["Partitions"])
        return {tuple(values): (stored["Location"], _of_glue(stored["Columns"])) for values, stored in found}

    def create(self, entry: HudiEntry) -> None:
        self._catalog.create_namespace_if_not_exists((self._names["DatabaseName"],))
        try:
            self._glue.create_table(DatabaseName=self._names["DatabaseName"], TableInput=self._input(entry, {}))
        except self._glue.exceptions.AlreadyExistsException:
            return

    def alter(self, entry: HudiEntry) -> None:
        found = self._table()
        if found is None:
            return
        try:
            self._glue.update_table(
                DatabaseName=self._names["DatabaseName"],
                TableInput=self._input(entry, found.get("Parameters", {})),
                VersionId=found["VersionId"],
            )
        except self._glue.exceptions.ConcurrentModificationException:
            return

    def _input(self, entry: HudiEntry, parameters: Mapping[str, str]) -> dict[str, Any]:
        return {
            "Name": self._names["TableName"],
            "TableType": EXTERNAL,
            "Parameters": {**parameters, **entry.parameters},
            "PartitionKeys": _to_glue(entry.partition_columns),
            "StorageDescriptor": _glue_storage(entry, entry.location, entry.columns),
        }

    def add(self, entry: HudiEntry, values: Iterable[Values]) -> None:
        for some in _batches(values):
            done = self._glue.batch_create_partition(**self._names, PartitionInputList=[_glue(entry, v) for v in some])
            _raise_others(done, "AlreadyExistsException")

    def change(self, entry: HudiEntry, values: Iterable[Values]) -> None:
        for some in _batches(values):
            entries = [{"PartitionValueList": list(v), "PartitionInput": _glue(entry, v)} for v in some]
            done = self._glue.batch_update_partition(**self._names, Entries=entries)
            _raise_others(done, "EntityNotFoundException")

    def drop(self, values: Iterable[Values]) -> None:
        for some in _batches(values):
            listed = [{"Values": list(each)} for each in some]
            done = self._glue.batch_delete_partition(**self._names, PartitionsToDelete=listed)
            _raise_others(done, "EntityNotFoundException")


def _raise_others(done: Mapping[str, Any], lost_race: str) -> None:
    """Raise the first error of a batch, except lost races."""
    details = (error.get("ErrorDetail", {}) for error in done.get("Errors", ()))
    if others := [detail for detail in details if detail.get("ErrorCode") != lost_race]:
        raise StorageUnavailableError(f"Glue refused partitions: check permissions. cause={others[0]}")


def _of_glue(columns: Iterable[Mapping[str, str]]) -> Columns:
    return tuple((column["Name"], column["Type"]) for column in columns)


def _to_glue(columns: Columns) -> list[dict[str, str]]:
    return [{"Name": name, "Type": kind, "Comment": ""} for name, kind in columns]


def _glue(entry: HudiEntry, values: Values) -> dict[str, Any]:
    return {"Values": list(values), "StorageDescriptor": _glue_storage(entry, *entry.partitions[values])}


def _glue_storage(entry: HudiEntry, location: str, columns: Columns) -> dict[str, Any]:
    return {
        "Columns": _to_glue(columns),
        "Location": location,
        "InputFormat": INPUT_FORMAT,
        "OutputFormat": OUTPUT_FORMAT,
        "SerdeInfo": {"SerializationLibrary": SERDE, "Parameters": dict(entry.serde)},
    }
