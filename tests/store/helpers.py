"""The columns of the tables in these tests."""

from __future__ import annotations

from typing import Final

import polars as pl

COLUMNS: Final = {"id": pl.String, "n": pl.Int64}
