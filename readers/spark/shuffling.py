"""Number the rows of a frame by some columns, to choose the task for each row.

Since Spark 4.1, Python receives only these columns. Spark 4.0 passes all columns and needs pandas for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import IntegerType, StructField, StructType

from crdt_mor.readers.spark.versions import HANDS_KEYS_ALONE, SPARK

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_GROUP = "_file_group"
_ADAPTIVE = ("enabled", "coalescePartitions.enabled")

Numbers = Callable[[pa.RecordBatch], pa.Array]
"""Returns the number of each row."""


def shuffled(df: DataFrame, names: Sequence[str], tasks: int, make: Callable[[], Numbers]) -> DataFrame:
    """Shuffle a frame so that one task has all rows with the same number."""
    counts_first = _counts_first(df)
    if SPARK >= HANDS_KEYS_ALONE:
        number = _number(df, names, make)
        return df.repartition(number) if counts_first else df.repartitionById(tasks, number)
    rows = numbered(df, names, _GROUP, make)
    return (rows.repartition(_GROUP) if counts_first else by_number(rows, _GROUP, tasks)).drop(_GROUP)


def _counts_first(df: DataFrame) -> bool:
    """Return True if Spark joins small shuffle parts into one task by their bytes.

    Spark decides once, between the two sides of a shuffle, and keeps parts whole. A repeated task therefore gets the
    same parts.
    """
    adaptive, coalesced = (df.sparkSession.conf.get(f"spark.sql.adaptive.{name}") for name in _ADAPTIVE)
    return not df.isStreaming and adaptive == coalesced == "true"


def numbered(df: DataFrame, names: Sequence[str], column: str, make: Callable[[], Numbers]) -> DataFrame:
    if SPARK >= HANDS_KEYS_ALONE:
        return df.withColumn(column, _number(df, names, make))

    def with_numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = make()
        for batch in batches:
            yield batch.append_column(column, numbers(batch.select(list(names))))

    return df.mapInArrow(with_numbers, StructType([*df.schema, StructField(column, IntegerType())]))


def by_number(df: DataFrame, column: str, tasks: int) -> DataFrame:
    return df.repartitionById(tasks, df[column]) if SPARK >= HANDS_KEYS_ALONE else df.repartition(tasks, column)


def quoted(name: str) -> str:
    """Quote the name of a column for Spark."""
    return f"`{name.replace('`', '``')}`"


def _number(df: DataFrame, names: Sequence[str], make: Callable[[], Numbers]) -> Column:
    from pyspark.sql.functions import struct
    from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

    def of_batches(batches: Iterator[pa.StructArray]) -> Iterator[pa.Array]:
        numbers = make()
        for rows in batches:
            yield numbers(pa.RecordBatch.from_struct_array(rows))

    # pyspark would rather read the kind from annotations, and warns; but for that it imports pandas.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "It is preferred to specify type hints for arrow UDF", UserWarning)
        number: Any = arrow_udf(of_batches, "int", ArrowUDFType.SCALAR_ITER)
    column: Column = number(struct(*(df[quoted(name)] for name in names)))
    return column
