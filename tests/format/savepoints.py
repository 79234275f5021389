"""Savepoints as Hudi writes them."""

from __future__ import annotations

import io
from collections.abc import Mapping

import fastavro


def savepoint(partitions: dict[str, object]) -> bytes:
    """The record of a savepoint. partitions: by partition path, what it keeps."""
    files = {"type": "array", "items": "string"}
    fields = [{"name": "partitionPath", "type": "string"}, {"name": "savepointDataFile", "type": files}]
    partition = {"type": "record", "name": "HoodieSavepointPartitionMetadata", "fields": fields}
    schema: dict[str, object] = {
        "type": "record",
        "name": "HoodieSavepointMetadata",
        "fields": [
            {"name": "savepointedBy", "type": "string"},
            {"name": "savepointedAt", "type": "long"},
            {"name": "comments", "type": "string"},
            {"name": "partitionMetadata", "type": {"type": "map", "values": partition}},
            {"name": "version", "type": ["int", "null"], "default": 1},
        ],
    }
    said = {"savepointedBy": "u", "savepointedAt": 1, "comments": "", "version": 1}
    return avro_container(schema, {**said, "partitionMetadata": partitions})


def avro_container(schema: dict[str, object], datum: Mapping[str, object]) -> bytes:
    """One record as an Avro file of its own."""
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, [datum])
    return buffer.getvalue()
