"""Points of a table's history, from what users write to versions, instants and checkpoints."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import polars as pl
import pytest

from crdt_mor import InvalidInputError, parse_point
from crdt_mor.model.instant import EPOCH, LAST
from crdt_mor.model.points import Point, check_point, is_checkpoint

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
CHECKPOINT = "completed:20260131120000000:0b3d1c6f2a4e4f0f9d8c7b6a59483726"


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("0", 0),
        ("17", 17),
        ("20260131", 20260131),  # digits are a version unless there are 17 of them
        ("20260131120000000", "20260131120000000"),
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31 13:00:00+01:00", NOON),
        ("20260131T120000Z", NOON),
    ],
)
def test_a_text_names_a_version_an_instant_or_a_moment(text: str, point: Point) -> None:
    assert parse_point(text) == parse_point(text, checkpoint=True) == point


@pytest.mark.parametrize("text", [CHECKPOINT, "requested:20260131120000000"])
def test_a_checkpoint_is_a_point_only_where_a_window_begins_or_ends(text: str) -> None:
    assert parse_point(text, checkpoint=True) == text
    assert is_checkpoint(text)
    with pytest.raises(InvalidInputError, match="--as-of must be a version, an instant of 17 digits, a time like"):
        parse_point(text, name="--as-of")


@pytest.mark.parametrize("text", ["", "in a day", "-1", "1.5", "2026-13-01T00:00:00Z", "started:1", "٣", "9" * 18])
def test_any_other_text_is_refused_by_the_name_of_the_option(text: str) -> None:
    with pytest.raises(InvalidInputError, match="until must be a checkpoint, a version, an instant of 17 digits"):
        parse_point(text, checkpoint=True, name="until")


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-01-31T12:00:00", "20260131120000000"),
        ("2026-01-31T12:00:00.0019", "20260131120000001"),
        ("2026-01-31", "20260131000000000"),
        ("2026-W05-6", "20260131000000000"),
    ],
)
def test_a_time_without_its_zone_is_in_utc_and_a_date_is_midnight_at_its_start(text: str, instant: str) -> None:
    naive = datetime.fromisoformat(text)
    assert check_point(text) == check_point(parse_point(text)) == check_point(naive) == instant
    assert parse_point(text) == naive.replace(tzinfo=UTC)
    assert check_point(naive.date()) == check_point(date(2026, 1, 31)) == "20260131000000000"


def test_text_is_the_same_point_in_a_program_as_on_a_command_line() -> None:
    for text in ("now", "20260131120000000", "2026-01-31T12:00:00Z", "2026-01-31 13:00:00+01:00", "2026-01-31"):
        assert check_point(text) == check_point(parse_point(text)), text
    assert parse_point("now") == "now"


@pytest.mark.parametrize("text", ["before-backfill", "v1.2", "_", "Now", "completed"])
def test_what_begins_with_a_letter_is_the_name_of_a_savepoint(text: str) -> None:
    assert parse_point(text) == parse_point(text, checkpoint=True) == text


def test_moments_that_no_instant_can_name_are_the_first_and_the_last_one() -> None:
    for zone in (None, UTC, timezone(timedelta(hours=9)), timezone(timedelta(hours=-9))):
        assert check_point(datetime.min.replace(tzinfo=zone)) == EPOCH
        assert check_point(datetime.max.replace(tzinfo=zone)) <= LAST  # type: ignore[operator]
    assert check_point(date.min) == EPOCH


def test_a_time_of_pandas_is_a_moment_and_its_missing_time_is_none() -> None:
    pandas = pytest.importorskip("pandas")
    assert check_point(pandas.Timestamp("2026-01-31 13:00:00.001999", tz="Europe/Berlin")) == "20260131120000001"
    with pytest.raises(InvalidInputError, match="until must be a commit"):
        check_point(pandas.NaT, "until")


@pytest.mark.parametrize(
    ("point", "checked"),
    [
        (0, 0),
        (5, 5),
        ("20260131120000000", "20260131120000000"),
        (NOON, "20260131120000000"),
        (NOON.astimezone(timezone(timedelta(hours=9))), "20260131120000000"),
    ],
)
def test_a_program_passes_versions_instants_and_moments(point: Point, checked: object) -> None:
    assert check_point(point) == checked
    assert not is_checkpoint(point)


@pytest.mark.parametrize(
    ("point", "message"),
    [
        (-1, "versions count from 0"),
        (True, "as_of must be a commit, a version, 17 digits, a datetime, .* as_of=True"),
        (None, "as_of must be a commit, a version, 17 digits, a datetime, .* as_of=None"),
        (1.0, "as_of must be a commit, a version, 17 digits, a datetime, .* as_of=1.0"),
        ("3", "an instant is 17 digits"),
        ("20261331120000000", "no such moment"),
        (pl.DataFrame({"a": ["now"]}), "as_of must be a commit"),
        (pl.Series([1]), "as_of must be a commit"),
    ],
)
def test_what_is_no_point_is_refused(point: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        check_point(point)
