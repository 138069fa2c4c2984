"""What a server is, and which tools it has."""

from __future__ import annotations

import pytest

from mcp_tasks_core.client.config import ClientConfig, ClientLimits
from mcp_tasks_core.client.events import ConnectionLost, DiscoverStarted, OperationId, ToolsListStarted
from mcp_tasks_core.client.outcomes import (
    Disconnected,
    Discovered,
    InvalidResponse,
    LegacyServer,
    RemoteError,
    TimedOut,
    ToolsListed,
    UnsupportedVersion,
)
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.testing.client import ClientBench

VERSION = "2026-07-28"
RESULT = {"supportedVersions": [VERSION], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"}


def discover(bench: ClientBench, timeout_ms: int | None = None) -> OperationId:
    operation = bench.next_operation()
    bench.feed(DiscoverStarted(operation_id=operation, timeout_ms=timeout_ms))
    return operation


def test_a_server_says_what_it_is() -> None:
    bench = ClientBench()
    operation = discover(bench)
    info = {"name": "s", "version": "1"}
    result = {**RESULT, "instructions": "Ask.", "_meta": {"io.modelcontextprotocol/serverInfo": info}}
    bench.answer("server/discover", result)
    assert bench.outcome(operation) == Discovered(
        supported_versions=(VERSION,),
        capabilities={"tools": {}},
        instructions="Ask.",
        server_info=info,
        result={"resultType": "complete", **result},
    )


@pytest.mark.spec("N8")
@pytest.mark.parametrize(("timeout_ms", "waited_ms"), [(300, 300), (None, 10_000)])
def test_a_silent_server_is_a_legacy_one_after_a_bounded_time(timeout_ms: int | None, waited_ms: int) -> None:
    bench = ClientBench()
    operation = discover(bench, timeout_ms=timeout_ms)
    bench.pass_time(waited_ms - 1)
    assert bench.outcome(operation) is None
    bench.pass_time(1)
    outcome = bench.outcome(operation)
    assert isinstance(outcome, LegacyServer)
    assert "did not answer server/discover" in outcome.evidence


@pytest.mark.spec("N8")
@pytest.mark.parametrize("code", [-32601, -32602, -32603, -32600, -32002, 5])
def test_an_error_of_another_revision_means_a_legacy_server(code: int) -> None:
    bench = ClientBench()
    operation = discover(bench)
    bench.refuse("server/discover", code, "Before initialize")
    outcome = bench.outcome(operation)
    assert isinstance(outcome, LegacyServer)
    assert f"error {code}: Before initialize" in outcome.evidence
    assert [message["method"] for message in bench.sent] == ["server/discover"]


@pytest.mark.spec("N8")
def test_a_server_that_ends_instead_of_answering_is_reported_with_what_it_left() -> None:
    bench = ClientBench()
    operation = discover(bench)
    bench.feed(ConnectionLost(reason="stdout was closed", exit_status=1, stderr_tail="unknown method"))
    outcome = bench.outcome(operation)
    assert isinstance(outcome, LegacyServer)
    assert (outcome.exit_status, outcome.stderr_tail) == (1, "unknown method")


def test_a_connection_that_this_side_closed_says_nothing_about_the_server() -> None:
    bench = ClientBench()
    operation = discover(bench)
    bench.feed(ConnectionLost(reason="the client was closed", closed_here=True))
    assert bench.outcome(operation) == Disconnected(reason="the client was closed")


@pytest.mark.spec("N8")
def test_a_modern_error_is_not_taken_for_a_legacy_server() -> None:
    bench = ClientBench()
    operation = discover(bench)
    bench.refuse("server/discover", -32021, "Missing capability", {"requiredCapabilities": {"roots": {}}})
    assert isinstance(bench.outcome(operation), RemoteError)


@pytest.mark.spec("N8")
def test_a_server_that_lists_our_version_in_its_refusal_is_asked_again() -> None:
    bench = ClientBench()
    operation = discover(bench)
    bench.refuse("server/discover", -32022, "version", {"supported": [VERSION], "requested": VERSION})
    bench.answer("server/discover", RESULT)
    assert isinstance(bench.outcome(operation), Discovered)


@pytest.mark.spec("N8")
def test_no_common_version_is_a_clear_end_whichever_way_it_shows() -> None:
    bench = ClientBench()
    refused, told = discover(bench), discover(bench)
    bench.refuse("server/discover", -32022, "version", {"supported": ["2025-11-25"], "requested": VERSION})
    first = bench.requests("server/discover")[0]["id"]
    result = {**RESULT, "resultType": "complete", "supportedVersions": ["2099-01-01"]}
    bench.receive({"jsonrpc": "2.0", "id": first, "result": result})
    assert bench.outcome(told) == UnsupportedVersion(supported=("2025-11-25",), requested=VERSION)
    assert bench.outcome(refused) == UnsupportedVersion(supported=("2099-01-01",), requested=VERSION)


@pytest.mark.parametrize(
    "change",
    [
        {"supportedVersions": None},
        {"supportedVersions": "x"},
        {"supportedVersions": [1]},
        {"capabilities": []},
        {"instructions": 5},
    ],
)
def test_a_discover_result_of_the_wrong_shape_is_an_invalid_response(change: dict[str, object]) -> None:
    bench = ClientBench()
    operation = discover(bench)
    bench.answer("server/discover", {**RESULT, **change})
    assert isinstance(bench.outcome(operation), InvalidResponse)


def list_tools(bench: ClientBench, timeout_ms: int | None = None) -> OperationId:
    operation = bench.next_operation()
    bench.feed(ToolsListStarted(operation_id=operation, timeout_ms=timeout_ms))
    return operation


def page(*names: str, **members: object) -> dict[str, object]:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    return {"tools": tools, "ttlMs": 0, "cacheScope": "private", **members}


@pytest.mark.spec("N10")
def test_every_page_is_followed_and_an_empty_cursor_is_not_the_end() -> None:
    bench = ClientBench()
    operation = list_tools(bench)
    bench.answer("tools/list", page("a", "b", nextCursor=""))
    bench.answer("tools/list", page(nextCursor="p3"))
    bench.answer("tools/list", page("c"))
    outcome = bench.outcome(operation)
    assert isinstance(outcome, ToolsListed)
    assert [tool["name"] for tool in outcome.tools] == ["a", "b", "c"]
    cursors = [message["params"].get("cursor", "absent") for message in bench.requests("tools/list")]
    assert cursors == ["absent", "", "p3"]


@pytest.mark.spec("N10")
def test_a_cursor_that_comes_again_ends_the_listing() -> None:
    bench = ClientBench()
    operation = list_tools(bench)
    bench.answer("tools/list", page("a", nextCursor="p2"))
    bench.answer("tools/list", page("b", nextCursor="p3"))
    bench.answer("tools/list", page("c", nextCursor="p2"))
    outcome = bench.outcome(operation)
    assert isinstance(outcome, InvalidResponse)
    assert "second time" in outcome.reason


@pytest.mark.spec("N10")
def test_a_list_has_a_bounded_number_of_pages() -> None:
    bench = ClientBench(ClientConfig(client_limits=ClientLimits(pages_max=3)))
    operation = list_tools(bench)
    for number in range(3):
        bench.answer("tools/list", page("a", nextCursor=str(number)))
    outcome = bench.outcome(operation)
    assert isinstance(outcome, InvalidResponse)
    assert "more than 3 pages" in outcome.reason
    assert len(bench.sent) == 3


@pytest.mark.parametrize(
    "bad",
    [{"tools": None}, {"tools": [{}]}, {"tools": [{"name": "x"}]}, {"tools": ["x"]}, page("a", nextCursor=7)],
)
def test_a_page_of_the_wrong_shape_is_an_invalid_response(bad: dict[str, object]) -> None:
    bench = ClientBench()
    operation = list_tools(bench)
    bench.answer("tools/list", bad)
    assert isinstance(bench.outcome(operation), InvalidResponse)


def test_a_bad_cursor_is_the_servers_error_and_one_deadline_holds_for_all_pages() -> None:
    bench = ClientBench()
    refused, slow = list_tools(bench), list_tools(bench, timeout_ms=1_000)
    bench.receive({"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "cursor"}})
    assert isinstance(bench.outcome(refused), RemoteError)
    bench.pass_time(900)
    bench.answer("tools/list", page("a", nextCursor="n"))
    bench.pass_time(100)
    assert bench.outcome(slow) == TimedOut(method="tools/list")


@pytest.mark.parametrize("timeout_ms", [0, -5, 0.5, True])
def test_a_timeout_is_a_positive_integer(timeout_ms: object) -> None:
    bench = ClientBench()
    with pytest.raises(LocalProtocolError, match="timeout_ms"):
        discover(bench, timeout_ms)  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError, match="timeout_ms"):
        list_tools(bench, timeout_ms)  # type: ignore[arg-type]
