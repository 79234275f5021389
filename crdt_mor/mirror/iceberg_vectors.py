"""Deletion vectors of Iceberg version 3: a Puffin file for each refresh, with a blob for each base file."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from crdt_mor.log.steps import Put
from crdt_mor.mirror.bitmaps import framed, vector
from crdt_mor.mirror.files import FOLDER, Blob, DeadFile
from crdt_mor.mirror.refresh import Written
from crdt_mor.mirror.slices import Positions

_MAGIC: Final = b"PFA1"
_NO_FLAGS: Final = 0


def with_vectors(root: str, slices: tuple[Written, ...], name: str) -> tuple[list[Put], tuple[Written, ...]]:
    """Return the file of the slices' vectors, and the slices with a place in it. name: with a nonce."""
    bases = [(one.shown.base.path, one.shown.dead) for one in slices if one.shown.base and len(one.shown.dead)]
    if not bases:
        return [], slices
    data, blobs = puffin([(f"{root}/{path}", dead) for path, dead in bases])
    path = f"{FOLDER}/m-vectors_{name}.puffin"
    places = {base: DeadFile(path, len(data), blob) for (base, _), blob in zip(bases, blobs, strict=True)}
    placed = [replace(one, dead=places.get(one.shown.base.path)) if one.shown.base else one for one in slices]
    return [Put(path, data, durable="content")], tuple(placed)


def puffin(vectors: Sequence[tuple[str, Positions]]) -> tuple[bytes, list[Blob]]:
    """Return a Puffin file of base files' addresses and dead positions, and the place of each."""
    content, blobs, described = _MAGIC, list[Blob](), []
    for address, dead in vectors:
        one = framed(vector(dead))
        blobs.append(Blob(len(content), len(one)))
        described.append(_described(address, dead, blobs[-1]))
        content += one
    footer = json.dumps({"blobs": described, "properties": {"created-by": "crdt_mor"}}).encode()
    return content + _MAGIC + footer + struct.pack("<ii", len(footer), _NO_FLAGS) + _MAGIC, blobs


def _described(address: str, dead: Positions, blob: Blob) -> dict[str, object]:
    return {
        "type": "deletion-vector-v1", "fields": [], "snapshot-id": -1, "sequence-number": -1,
        "offset": blob.offset, "length": blob.length,
        "properties": {"referenced-data-file": address, "cardinality": str(len(dead))},
    }  # fmt: skip
