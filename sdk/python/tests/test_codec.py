from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from ramet import DecodeError, RametError
from ramet._codec import decode, encode
from ramet._generated import models as m
from ramet.results import Result, parse_event


@pytest.mark.parametrize(
    "text, want",
    [
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)),
        ("2026-01-02T03:04:05.123456789Z", datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=timezone.utc)),
        ("2026-01-02t03:04:05.1-02:30", datetime(2026, 1, 2, 3, 4, 5, 100000, tzinfo=timezone(-timedelta(hours=2, minutes=30)))),
    ],
)
def test_times(text: str, want: datetime) -> None:
    assert decode(datetime, text) == want


@pytest.mark.parametrize("value", ["", "2026-01-02", "2026-13-02T03:04:05Z", 1, None, "2026-01-02T03:04:05"])
def test_times_that_are_none(value: Any) -> None:
    with pytest.raises(DecodeError):
        decode(datetime, value)


def test_models() -> None:
    raw = {"error": "e", "code": "c", "request_id": "r", "new": [1]}
    body = decode(m.ErrorBody, raw)
    assert body == m.ErrorBody(error="e", code="c", request_id="r") and encode(body) == {k: v for k, v in raw.items() if k != "new"}
    assert decode(m.Diff, {"added": ["a"], "removed": [], "modified": [], "truncated": False}).added == ["a"]
    assert encode(m.MoveFile(from_="a", to="b")) == {"from": "a", "to": "b"}
    assert encode(m.SandboxUpdate(metadata={"a": None, "b": "1"})) == {"metadata": {"a": None, "b": "1"}}
    assert decode(m.SandboxUpdate, {"metadata": {"a": None}}).metadata == {"a": None}


@pytest.mark.parametrize(
    "value", [[], None, "x", {"error": 1, "code": "c", "request_id": "r"}, {"code": "c", "request_id": "r"}]
)
def test_models_that_are_none(value: Any) -> None:
    with pytest.raises(DecodeError):
        decode(m.ErrorBody, value)


def test_numbers() -> None:
    assert decode(float, 1) == 1.0
    for kind, value in ((int, True), (int, 1.5), (float, True), (bool, 1), (str, 1)):
        with pytest.raises(DecodeError):
            decode(kind, value)


@pytest.mark.parametrize(
    "line",
    [
        {"type": "stdout", "data": "x", "data_b64": "%"},
        {"type": "exit", "data": "x"},
        {"type": "result", "data": 1},
        {"type": "exit", "data": 0, "duration_ms": "x"},
        {"type": "truncated"},
    ],
)
def test_events_that_are_none(line: Any) -> None:
    with pytest.raises(DecodeError):
        parse_event(line)


def test_events_of_later_versions_are_skipped() -> None:
    assert parse_event({"type": "new", "data": 1}) is None and parse_event({}) is None


def test_an_answer_that_cannot_be_read_is_one_of_our_errors() -> None:
    with pytest.raises(RametError) as caught:
        parse_event({"type": "exit"})
    assert caught.value.code == "unreadable_answer" and isinstance(caught.value, ValueError)


def test_a_result_shows_itself() -> None:
    assert str(Result({"text/plain": "1"})) == "1" and str(Result({"image/png": "x"})) == "<image/png>"
    with pytest.raises(DecodeError):
        _ = Result({"application/json": "{"}).json
