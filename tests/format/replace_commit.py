"""`.replacecommit` files as Hudi writes them. We read them, and write none yet."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import fastavro

from crdt_mor.format import avro
from crdt_mor.format.commit import CommitMetadata, encode_commit


def _schema(data: bytes) -> dict[str, object]:
    """The schema of a replacecommit: that of a commit, another name, and the replaced file groups at the end."""
    schema = json.loads(fastavro.block_reader(io.BytesIO(data)).metadata["avro.schema"])
    string = {"type": "string", "avro.java.string": "String"}
    file_ids = {"type": "map", "values": {"type": "array", "items": string}, "avro.java.string": "String"}
    schema["name"] = "HoodieReplaceCommitMetadata"
    del schema["fields"][2]["type"][1]["default"]  # of extraMetadata: there by an accident of Hudi's, in commits alone
    schema["fields"].append({"name": "partitionToReplaceFileIds", "type": ["null", file_ids], "default": None})
    return dict(schema)


def encode_replace_commit(metadata: CommitMetadata) -> bytes:
    """The bytes of a `.replacecommit` file."""
    commit = encode_commit(replace(metadata, replaced={}))
    [datum] = fastavro.reader(io.BytesIO(commit))
    assert isinstance(datum, dict)
    datum["partitionToReplaceFileIds"] = {name: list(file_ids) for name, file_ids in metadata.replaced.items()}
    schema = _schema(commit)
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), datum)
    header = avro.container_header(json.dumps(schema, separators=(",", ":")))
    return avro.encode_container(header, 1, body.getvalue())
