"""Which error codes may leave this implementation, and in what shape."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_tasks_core import errors
from mcp_tasks_core.errors import ErrorObject, code_may_be_sent, problem_with_error

ALLOWED_RESERVED = {-32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022}


@pytest.mark.spec("B5", "B7")
def test_of_the_reserved_codes_only_those_of_json_rpc_and_of_this_revision_may_be_sent() -> None:
    assert {code for code in range(-32768, -31999) if code_may_be_sent(code)} == ALLOWED_RESERVED


@pytest.mark.spec("B5")
@pytest.mark.parametrize("code", [-32002, -32042, -32003, -32000, -32019, -32023, -32099, -32100, -32768])
def test_codes_of_other_revisions_and_of_nobody_may_not_be_sent(code: int) -> None:
    assert not code_may_be_sent(code)


@pytest.mark.spec("B5")
@pytest.mark.parametrize("code", [-31999, -32769, -1, 0, 1, 404, 2**53])
def test_codes_of_the_applications_own_lie_outside_the_reserved_range(code: int) -> None:
    assert code_may_be_sent(code)


@pytest.mark.spec("B5")
@pytest.mark.parametrize("code", [True, 1.0, -32603.0, "1", None])
def test_a_code_is_an_integer(code: object) -> None:
    assert not code_may_be_sent(code)


@pytest.mark.spec("N7", "N2")
@pytest.mark.parametrize(
    ("code", "data", "fit"),
    [
        (-32021, {"requiredCapabilities": {}}, True),
        (-32021, {"requiredCapabilities": {"roots": {}}, "extra": 1}, True),
        (-32021, None, False),
        (-32021, {}, False),
        (-32021, {"requiredCapabilities": []}, False),
        (-32021, "roots", False),
        (-32022, {"supported": ["2026-07-28"], "requested": "1"}, True),
        (-32022, {"supported": ["2026-07-28"]}, False),
        (-32022, {"requested": "1"}, False),
        (-32022, None, False),
        (-32020, None, True),
        (-32603, None, True),
        (5, [1], True),
    ],
)
def test_an_error_has_the_data_that_its_code_demands(code: int, data: Any, fit: bool) -> None:
    assert (problem_with_error(ErrorObject(code, "m", data)) is None) is fit


@pytest.mark.parametrize("message", [None, 5, b"m"])
def test_a_message_is_a_string(message: object) -> None:
    assert "message is a string" in str(problem_with_error(ErrorObject(-32603, message)))  # type: ignore[arg-type]


def test_an_error_shows_its_data_only_where_it_has_some() -> None:
    assert ErrorObject(1, "m").to_wire() == {"code": 1, "message": "m"}
    assert ErrorObject(1, "m", 0).to_wire() == {"code": 1, "message": "m", "data": 0}


@pytest.mark.spec("B7")
def test_the_names_of_the_codes() -> None:
    assert (errors.PARSE_ERROR, errors.INVALID_REQUEST, errors.METHOD_NOT_FOUND) == (-32700, -32600, -32601)
    assert (errors.INVALID_PARAMS, errors.INTERNAL_ERROR, errors.HEADER_MISMATCH) == (-32602, -32603, -32020)
    assert (errors.MISSING_REQUIRED_CLIENT_CAPABILITY, errors.UNSUPPORTED_PROTOCOL_VERSION) == (-32021, -32022)
