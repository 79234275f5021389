"""Conditions on merged rows that expire. Contributions never expire: an expired version still wins over older ones."""

from __future__ import annotations

from datetime import timedelta

import polars as pl

from crdt_mor.model.expiry import Expiry
from crdt_mor.model.instant import InstantTime, to_datetime


def alive(expiry: Expiry, at: InstantTime) -> pl.Expr:
    column = pl.col(expiry.column)
    return column.is_null() | (column > _bound(expiry, at))


def expired(expiry: Expiry, at: InstantTime) -> pl.Expr:
    column = pl.col(expiry.column)
    return column.is_not_null() & (column <= _bound(expiry, at))


def expires_at(expiry: Expiry) -> pl.Expr:
    return pl.col(expiry.column) + timedelta(milliseconds=expiry.after_ms)


def _bound(expiry: Expiry, at: InstantTime) -> pl.Expr:
    """Return the latest expired value. Files store microseconds in UTC."""
    return pl.lit(to_datetime(at) - timedelta(milliseconds=expiry.after_ms), pl.Datetime("us", "UTC"))
