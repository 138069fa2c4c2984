"""Our client as the official suite starts it: ``python -m tests.conformance.client URL``.

The suite says in ``MCP_CONFORMANCE_SCENARIO`` what it wants to see, and in ``MCP_CONFORMANCE_CONTEXT`` what is needed
for it. A client that cannot go through with the scenario ends with a traceback and status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio

from mcp_tasks_trio import Client, InputRequest, connect_http

Scenario = Callable[[Client], Awaitable[None]]

_SECONDS: Final = 25  # the suite kills what takes 30


async def look_around(client: Client) -> None:
    """Nothing but requests that every server answers: the client was asked on the way what the server is."""
    await client.list_tools()


async def add_numbers(client: Client) -> None:
    names = [tool["name"] for tool in await client.list_tools()]
    assert names == ["add_numbers"], names
    result = await client.call_tool("add_numbers", {"a": 5, "b": 3})
    assert not result.is_error, result.raw
    assert "8" in result.text, result.raw


async def send_every_kind_of_request(client: Client) -> None:
    """The three lists, and one call, read and get of everything that they name."""
    for tool in await client.list_tools():
        await client.call_tool(tool["name"], least_arguments(tool["inputSchema"]))
    for listed in (await client.request("resources/list"))["resources"]:
        await client.request("resources/read", {"uri": listed["uri"]})
    for prompt in (await client.request("prompts/list"))["prompts"]:
        arguments = {argument["name"]: "any" for argument in prompt.get("arguments", ())}
        await client.request("prompts/get", {"name": prompt["name"], "arguments": arguments})


async def make_the_calls_of_the_context(client: Client) -> None:
    await client.list_tools()
    for call in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


async def call_every_tool_that_is_left(client: Client) -> None:
    """Tools whose annotations break the rules are not listed, so they cannot be called by mistake."""
    names = []
    for tool in await client.list_tools():
        names.append(tool["name"])
        await client.call_tool(tool["name"], least_arguments(tool["inputSchema"]))
    assert "valid_tool" in names, names


async def keep_the_state_of_each_call(client: Client) -> None:
    """Between the two rounds of one call another one is made; then rounds without a state, and a bare result."""

    async def answer_after_another_call(question: InputRequest) -> dict[str, Any]:
        await client.call_tool("test_mrtr_unrelated")
        return question.accept({"confirmed": True})

    def answer(question: InputRequest) -> dict[str, Any]:
        return question.accept({"confirmed": True})

    await client.list_tools()
    await client.call_tool("test_mrtr_echo_state", on_input=answer_after_another_call)
    await client.call_tool("test_mrtr_no_state", on_input=answer)
    await client.call_tool("test_mrtr_no_result_type")


async def give_a_schema_back(client: Client) -> None:
    schemas = {tool["name"]: tool["inputSchema"] for tool in await client.list_tools()}
    result = await client.call_tool("json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]})
    assert not result.is_error, result.raw


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "request-metadata": look_around,
    "tools_call": add_numbers,
    "http-standard-headers": send_every_kind_of_request,
    "http-custom-headers": make_the_calls_of_the_context,
    "http-invalid-tool-headers": call_every_tool_that_is_left,
    "sep-2322-client-request-state": keep_the_state_of_each_call,
    "json-schema-ref-no-deref": look_around,
    "json-schema-2020-12-preservation": give_a_schema_back,
}

_LEAST: Final[Mapping[str, Any]] = {"string": "any", "integer": 0, "number": 0, "boolean": False}


def least_arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A plain value for every property that has to be given."""
    properties = schema.get("properties", {})
    return {name: _LEAST[properties[name]["type"]] for name in schema.get("required", ())}


async def run(url: str, scenario: Scenario) -> None:
    with anyio.fail_after(_SECONDS):
        async with connect_http(url, capabilities={"elicitation": {}, "sampling": {}, "roots": {}}) as client:
            await scenario(client)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.client", description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument("url")
    options = parser.parse_args()
    name = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    if name not in SCENARIOS:
        parser.error(f"MCP_CONFORMANCE_SCENARIO is one of {', '.join(SCENARIOS)}; not {name!r}")
    anyio.run(run, options.url, SCENARIOS[name], backend=options.backend)
    return 0


if __name__ == "__main__":
    sys.exit(main())
