"""Deletion vectors of Delta: positions of dead rows in a file.

One file contains the vectors of a commit. Trino refuses inline ones, and folders not named with letters.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from crdt_mor.log.steps import Nonce, Put, Steps, put_surely
from crdt_mor.mirror.bitmaps import framed, vector
from crdt_mor.mirror.slices import Positions

FOLDER: Final = "crdtmor"

_FORMAT: Final = b"\1"
_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


@dataclass(frozen=True, slots=True)
class VectorFile:
    """The file of a commit's vectors, and a descriptor for each."""

    path: str
    size: int
    descriptors: tuple[Mapping[str, Any], ...]


def digest(positions: Positions) -> str:
    return hashlib.sha256(positions.tobytes()).hexdigest()[:32]


def put_vectors(found: Sequence[Positions]) -> Steps[VectorFile]:
    """Put a file with these vectors in the folder of vectors."""
    nonce = yield Nonce()
    content, descriptors = _FORMAT, []
    for positions in found:
        one = vector(positions)
        descriptors.append(
            {
                "storageType": "u",
                "pathOrInlineDv": FOLDER + _z85(bytes.fromhex(nonce)),
                "offset": len(content),
                "sizeInBytes": len(one),
                "cardinality": len(positions),
            }
        )
        content += framed(one)
    path = path_of(descriptors[0])
    yield from put_surely(Put(path, content, durable="content"))
    return VectorFile(path, len(content), tuple(descriptors))


def path_of(descriptor: Mapping[str, Any]) -> str:
    """Return the path of the file with a vector, below the table."""
    text = str(descriptor["pathOrInlineDv"])
    prefix, encoded = text[:-20], text[-20:]
    name = _unz85(encoded).hex()
    uuid = "-".join((name[:8], name[8:12], name[12:16], name[16:20], name[20:]))
    return f"{prefix}/deletion_vector_{uuid}.bin" if prefix else f"deletion_vector_{uuid}.bin"


def _z85(data: bytes) -> str:
    words = struct.unpack(f">{len(data) // 4}I", data)
    return "".join(_Z85[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))


def _unz85(text: str) -> bytes:
    digits = [_Z85.index(char) for char in text]
    groups = [digits[at : at + 5] for at in range(0, len(digits), 5)]
    words = [sum(digit * 85**power for digit, power in zip(group, (4, 3, 2, 1, 0), strict=True)) for group in groups]
    return struct.pack(f">{len(words)}I", *words)
