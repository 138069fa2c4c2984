"""Results that no peer could read are refused where they are made."""

from __future__ import annotations

import attrs
import pytest

from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.effects import Report
from mcp_tasks_core.testing.harness import Defer, Reply, ServerHarness
from mcp_tasks_core.testing.messages import text_result

LIMIT_BYTES = 2_000


def server(reply: Reply) -> ServerHarness:
    limits = attrs.evolve(Limits(), result_bytes_max=LIMIT_BYTES)
    tool = ToolEntry(definition={"name": "write", "inputSchema": {"type": "object"}})
    return ServerHarness(ServerConfig(tools=[tool], limits=limits), tools={"write": lambda call: reply})


def result_of(size_bytes: int) -> JSONObject:
    """A tool's result that is this large on the wire."""
    empty = '{"content":[{"type":"text","text":""}],"resultType":"complete"}'
    return text_result("x" * (size_bytes - len(empty)))


@pytest.mark.parametrize(("size_bytes", "fits"), [(LIMIT_BYTES, True), (LIMIT_BYTES + 1, False)])
def test_an_inline_result_over_the_limit_is_an_error_that_names_the_limit(size_bytes: int, fits: bool) -> None:
    bench = server(result_of(size_bytes))
    answer = bench.request("tools/call", name="write")
    if fits:
        assert answer["result"]["content"][0]["text"].startswith("xxx")
        return
    assert answer["error"]["code"] == -32603
    assert answer["error"]["message"] == f"The result has {size_bytes} bytes; {LIMIT_BYTES} are allowed"
    assert answer["error"]["data"] == {"reason": "result_too_large"}
    assert any("bytes" in report.message for report in bench.effects_of(Report))


@pytest.mark.spec("T2")
@pytest.mark.parametrize(("size_bytes", "status"), [(LIMIT_BYTES, "completed"), (LIMIT_BYTES + 1, "failed")])
def test_a_task_whose_result_is_over_the_limit_fails_and_stays_readable(size_bytes: int, status: str) -> None:
    bench = server(Defer())
    task_id = bench.request("tools/call", name="write")["result"]["taskId"]
    bench.complete(task_id, result_of(size_bytes))
    state = bench.request("tasks/get", taskId=task_id)["result"]
    assert state["status"] == status
    if status == "failed":
        assert state["error"]["message"] == f"The result has {size_bytes} bytes; {LIMIT_BYTES} are allowed"
