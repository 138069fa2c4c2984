"""What a request says about itself."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_tasks_core.capabilities import (
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_PROTOCOL_VERSION,
    TASKS_EXTENSION,
)
from mcp_tasks_core.wire.converter import DecodeError
from mcp_tasks_core.wire.meta import LOG_LEVELS, read_request_meta

META: dict[str, Any] = {META_PROTOCOL_VERSION: "2026-07-28", META_CLIENT_CAPABILITIES: {}}


def refused(params: dict[str, Any]) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        read_request_meta(params)
    return caught.value


@pytest.mark.spec("N1")
def test_version_and_capabilities_are_enough() -> None:
    meta = read_request_meta({"_meta": META})
    assert meta.protocol_version == "2026-07-28"
    assert not meta.capabilities.declares_tasks
    assert (meta.client_info, meta.log_level, meta.progress_token) == (None, None, None)
    assert meta.raw is META


@pytest.mark.spec("N1", "B12")
def test_everything_is_read_and_foreign_members_stay() -> None:
    raw = {
        **META,
        META_CLIENT_CAPABILITIES: {"extensions": {TASKS_EXTENSION: {}}, "tasks": 5},
        META_CLIENT_INFO: {"name": "a", "version": "1", "title": 5},
        META_LOG_LEVEL: "warning",
        "progressToken": 0,
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
    }
    meta = read_request_meta({"_meta": raw})
    assert meta.capabilities.declares_tasks
    assert meta.client_info is raw[META_CLIENT_INFO]
    assert (meta.log_level, meta.progress_token) == ("warning", 0)
    assert meta.raw["traceparent"] == raw["traceparent"]


@pytest.mark.spec("N5", "D37")
@pytest.mark.parametrize(
    ("capabilities", "declares"),
    [
        ({"extensions": {TASKS_EXTENSION: {}}}, True),
        ({"extensions": {TASKS_EXTENSION: {"anything": [1]}}}, True),
        ({"extensions": {}}, False),
        ({"tasks": {"requests": {"tools": {"call": {}}}}}, False),
        ({"experimental": {TASKS_EXTENSION: {}}}, False),
        ({}, False),
    ],
)
def test_tasks_are_declared_by_the_extensions_key_alone(capabilities: dict[str, Any], declares: bool) -> None:
    meta = read_request_meta({"_meta": {**META, META_CLIENT_CAPABILITIES: capabilities}})
    assert meta.capabilities.declares_tasks is declares


@pytest.mark.spec("N1")
@pytest.mark.parametrize("params", [{}, {"_meta": None}, {"_meta": []}, {"_meta": "x"}])
def test_meta_is_required(params: dict[str, Any]) -> None:
    assert refused(params).path == "params._meta"


@pytest.mark.spec("N1", "N5", "L2")
@pytest.mark.parametrize(
    ("name", "values"),
    [
        (META_PROTOCOL_VERSION, [None, 20260728, [], True]),
        (META_CLIENT_CAPABILITIES, [None, [], "x", True, 0]),
        (
            META_CLIENT_CAPABILITIES,
            [
                {"extensions": []},
                {"extensions": {TASKS_EXTENSION: True}},
                {"extensions": {TASKS_EXTENSION: None}},
                {"elicitation": True},
                {"elicitation": {"form": True}},
                {"sampling": {"tools": None}},
                {"roots": []},
                {"experimental": {"x": 1}},
            ],
        ),
        (META_CLIENT_INFO, [None, "name", {}, {"name": "a"}, {"name": "a", "version": 1}, {"version": "1"}]),
        (META_LOG_LEVEL, [None, "", "WARNING", "trace", 3, True, []]),
        ("progressToken", [None, True, 1.5, 1.0, [], {}]),
    ],
)
def test_defined_members_have_their_type_or_the_request_is_refused(name: str, values: list[Any]) -> None:
    for value in values:
        error = refused({"_meta": {**META, name: value}})
        assert name in error.path
        assert error.message


@pytest.mark.spec("N1")
@pytest.mark.parametrize("name", [META_PROTOCOL_VERSION, META_CLIENT_CAPABILITIES])
def test_what_is_missing_is_named(name: str) -> None:
    error = refused({"_meta": {key: value for key, value in META.items() if key != name}})
    assert name in error.path
    assert "missing" in error.message


def test_levels_ascend() -> None:
    assert LOG_LEVELS == ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
    for level in LOG_LEVELS:
        assert read_request_meta({"_meta": {**META, META_LOG_LEVEL: level}}).log_level == level
