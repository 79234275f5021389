"""The timeline files of a rollback bear our key in their headers; `tests/interop` has Hudi read them."""

from __future__ import annotations

import io
from collections.abc import Callable

import fastavro
import pytest

from crdt_mor.errors import FormatError
from crdt_mor.format import avro
from crdt_mor.format.rollback import Rollback, encode_rollback, encode_rollback_plan
from crdt_mor.format.savepoint import notes
from crdt_mor.model.names import OWN_KEY

ROLLBACK = Rollback("20260101000000004", "20260101000000000", "deltacommit")


@pytest.mark.parametrize("encode", [encode_rollback_plan, encode_rollback])
def test_our_key_stands_in_the_header(encode: Callable[[Rollback], bytes]) -> None:
    data = encode(ROLLBACK)
    assert notes(data, "x").keys() == {"avro.schema", OWN_KEY}
    assert data == encode(Rollback("20260101000000004", "20260101000000000", "deltacommit"))
    assert list(fastavro.reader(io.BytesIO(data)))
    with pytest.raises(FormatError, match="path=x"):
        notes(data[:20], "x")


def test_a_header_without_notes_is_the_one_of_hudis_files() -> None:
    assert avro.container_header("{}") == b"Obj\x01\x02\x16avro.schema\x04{}\x00"
    assert avro.container_header("{}", {"k": "v"}) == b"Obj\x01\x04\x16avro.schema\x04{}\x02k\x02v\x00"
