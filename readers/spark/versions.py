"""Features by Spark release. Batch reads and writes need Spark 4.0.

4.0    batch reads and writes, SQL, compaction
4.1    every session finds the format by itself; all actions of a frame show one snapshot; streams are written;
       conditions are pushed down; the shuffle by file group passes only keys to Python; rows without columns are
       counted
4.2    streams of changes are read
"""

from __future__ import annotations

import pyspark

from crdt_mor.errors import UnsupportedVersionError

SPARK = tuple(int(part) for part in pyspark.__version__.split(".")[:2])

FINDS_SOURCES = (4, 1)
ONE_SNAPSHOT_A_FRAME = (4, 1)
PUSHES_CONDITIONS = (4, 1)
WRITES_STREAMS = (4, 1)
HANDS_KEYS_ALONE = (4, 1)
READS_NO_COLUMNS = (4, 1)
READS_STREAMS = (4, 2)


def require_spark(least: tuple[int, int], what: str) -> None:
    if least > SPARK:
        raise UnsupportedVersionError(
            f"{what} needs Spark {least[0]}.{least[1]} or later: install that pyspark on the driver and the workers. "
            f"found={pyspark.__version__}"
        )
