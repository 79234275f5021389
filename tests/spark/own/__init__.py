"""Modules of payloads that every process of Spark's can import, each for one test: a process imports a module once."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from crdt_mor import Payload


class Longest(Payload):
    """The longest text; of two that are equally long, the greater."""

    def join(self, a: str, b: str) -> str:
        return max(a, b, key=lambda text: (len(text), text))

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.sort_by(states.str.len_chars(), states).last()

    def examples(self) -> Sequence[str]:
        return ["", "a", "b", "ab"]


def mark(module: str) -> Path:
    """The file by which a module says that it has run, in whatever process."""
    return Path(tempfile.gettempdir()) / f"{Path(__file__).parent}/{module}".replace("/", "_").lstrip("_")
