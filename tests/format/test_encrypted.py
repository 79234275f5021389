"""Encrypted Parquet is not damage: it is refused by name, whether the footer or only a column is encrypted."""

from __future__ import annotations

import base64
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from crdt_mor import Table
from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.format.base_file import read_footer
from crdt_mor.format.log import BlockKind, read_log
from crdt_mor.ground.parquet import ParquetSource
from tests.format.helpers import T1, raw_block


class Kms(pe.KmsClient):  # type: ignore[misc]
    """Keys that are no secret."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)


def encrypt(data: pa.Table, column: str, *, plaintext_footer: bool) -> bytes:
    factory = pe.CryptoFactory(lambda _: Kms())
    settings = pe.EncryptionConfiguration(
        footer_key="f", column_keys={"c": [column]}, plaintext_footer=plaintext_footer, double_wrapping=False,
        data_key_length_bits=128,
    )  # fmt: skip
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), settings)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, data.schema, encryption_properties=properties) as writer:
        writer.write_table(data)
    encrypted: bytes = sink.getvalue().to_pybytes()
    return encrypted


ROWS = pa.table({"id": ["a"], "v": [1]})


def test_an_encrypted_footer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(encrypt(ROWS, "v", plaintext_footer=False))
    with pytest.raises(UnsupportedFeatureError, match=r"encrypted.*x\.parquet"):
        read_footer(ParquetSource.file(str(path)))


def test_an_encrypted_log_block_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"encrypted Parquet log blocks.*path=log offset=0"):
        read_log(raw_block(BlockKind.PARQUET, {0: T1}, encrypt(ROWS, "v", plaintext_footer=False)), "log")


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_an_encrypted_base_file_of_a_table_is_refused(tmp_path: Path, plaintext_footer: bool) -> None:
    table = Table.create(tmp_path / "t", ROWS.schema, key="id", buckets=1)
    table.append(ROWS)
    table.maintenance.compact()
    [base] = (tmp_path / "t").glob("*.parquet")
    base.write_bytes(encrypt(pq.read_table(base), "v", plaintext_footer=plaintext_footer))
    with pytest.raises(UnsupportedFeatureError, match=rf"encrypted.*{base.name}"):
        table.scan().to_arrow()
