"""What a request declares, and which questions that admits."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_tasks_core.capabilities import (
    TASKS_EXTENSION,
    ClientCapabilities,
    advertise_tasks,
    declares_tasks,
    is_task_handle,
    problem_with_capabilities,
)
from mcp_tasks_core.testing.messages import (
    form_question,
    request_message,
    request_meta,
    roots_question,
    sampling_question,
    url_question,
)

FORM, URL, ROOTS = form_question(), url_question(), roots_question()
MODELESS = {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": {"type": "object"}}}
SAMPLING, WITH_TOOLS = sampling_question(), sampling_question(tools=[])
WITH_CHOICE = sampling_question(toolChoice={"mode": "auto"})

# By what was declared: what is missing for a form, a mode that is absent, a page, sampling, sampling with tools,
# roots. "-": nothing.
DECLARED: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
    ({}, ("form", "form", "url", {}, {"tools": {}}, "roots")),
    ({"elicitation": {}}, ("-", "-", "url", {}, {"tools": {}}, "roots")),
    ({"elicitation": {"form": {}}}, ("-", "-", "url", {}, {"tools": {}}, "roots")),
    ({"elicitation": {"url": {}}}, ("form", "form", "-", {}, {"tools": {}}, "roots")),
    ({"elicitation": {"form": {}, "url": {}}}, ("-", "-", "-", {}, {"tools": {}}, "roots")),
    ({"elicitation": {"novel": {}}}, ("-", "-", "url", {}, {"tools": {}}, "roots")),
    ({"sampling": {}}, ("form", "form", "url", "-", {"tools": {}}, "roots")),
    ({"sampling": {"context": {}}}, ("form", "form", "url", "-", {"tools": {}}, "roots")),
    ({"sampling": {"tools": {}}}, ("form", "form", "url", "-", "-", "roots")),
    ({"roots": {}}, ("form", "form", "url", {}, {"tools": {}}, "-")),
    ({"roots": {"listChanged": True}}, ("form", "form", "url", {}, {"tools": {}}, "-")),
]


def required(kind: str, cell: Any) -> Any:
    if cell == "-":
        return None
    if kind == "elicitation":
        return {"elicitation": {cell: {}}}
    return {"sampling": cell} if kind == "sampling" else {"roots": {}}


@pytest.mark.spec("U7", "R4", "N7")
@pytest.mark.parametrize(("declared", "cells"), DECLARED)
def test_a_kind_of_question_needs_exactly_its_capability(declared: dict[str, Any], cells: tuple[Any, ...]) -> None:
    capabilities = ClientCapabilities(declared)
    form, modeless, url, sampling, with_tools, roots = cells
    assert capabilities.missing_for(FORM) == required("elicitation", form)
    assert capabilities.missing_for(MODELESS) == required("elicitation", modeless)
    assert capabilities.missing_for(URL) == required("elicitation", url)
    assert capabilities.missing_for(SAMPLING) == required("sampling", sampling)
    assert capabilities.missing_for(WITH_TOOLS) == required("sampling", with_tools)
    assert capabilities.missing_for(WITH_CHOICE) == required("sampling", with_tools)
    assert capabilities.missing_for(ROOTS) == required("roots", roots)


@pytest.mark.spec("N5", "D37")
@pytest.mark.parametrize(
    ("declared", "counts"),
    [
        ({"extensions": {TASKS_EXTENSION: {}}}, True),
        ({"extensions": {TASKS_EXTENSION: {"anything": [1]}}}, True),
        ({"extensions": {}}, False),
        ({}, False),
        ({"tasks": {}}, False),
        ({"tasks": {"requests": {"tools": {"call": {}}}}}, False),
        ({"experimental": {TASKS_EXTENSION: {}}}, False),
        ({TASKS_EXTENSION: {}}, False),
        ({"extensions": {"io.modelcontextprotocol/Tasks": {}}}, False),
    ],
)
def test_tasks_are_declared_by_the_extension_and_by_nothing_else(declared: dict[str, Any], counts: bool) -> None:
    assert ClientCapabilities(declared).declares_tasks is counts
    message = request_message(1, "tools/call", {"_meta": request_meta(capabilities=declared, tasks=False)})
    assert declares_tasks(message) is counts


@pytest.mark.parametrize(
    "message", [{}, {"params": None}, {"params": []}, {"params": {"_meta": 1}}, {"params": {"_meta": {}}}]
)
def test_a_message_without_capabilities_declares_nothing(message: dict[str, Any]) -> None:
    assert declares_tasks(message) is False


@pytest.mark.spec("N5", "N1")
@pytest.mark.parametrize("value", [None, True, 1, "x", [], [{}]])
def test_a_capability_that_is_no_object_is_named(value: object) -> None:
    assert problem_with_capabilities(value) == "clientCapabilities is an object"
    for name in ("elicitation", "sampling", "roots", "extensions", "experimental"):
        assert f"clientCapabilities.{name} is an object" in str(problem_with_capabilities({name: value}))
    assert TASKS_EXTENSION in str(problem_with_capabilities({"extensions": {TASKS_EXTENSION: value}}))
    for name, part in (("elicitation", "form"), ("elicitation", "url"), ("sampling", "tools"), ("sampling", "context")):
        assert f"clientCapabilities.{name}.{part} is" in str(problem_with_capabilities({name: {part: value}}))


def test_unknown_capabilities_are_accepted() -> None:
    declared = {"novel": True, "elicitation": {"novel": 1}, "roots": {"listChanged": False}, "tasks": None}
    assert problem_with_capabilities(declared) is None


def test_advertising_tasks_keeps_what_is_there_and_changes_nothing_given() -> None:
    before: dict[str, Any] = {"roots": {}, "extensions": {"other": {"x": 1}}}
    after = advertise_tasks(before)
    assert after == {"roots": {}, "extensions": {"other": {"x": 1}, TASKS_EXTENSION: {}}}
    assert before == {"roots": {}, "extensions": {"other": {"x": 1}}}
    assert advertise_tasks({}) == {"extensions": {TASKS_EXTENSION: {}}}


@pytest.mark.spec("C4")
@pytest.mark.parametrize(
    ("result", "handle"),
    [({"resultType": "task"}, True), ({"resultType": "complete"}, False), ({}, False), (None, False), ([], False)],
)
def test_a_handle_is_told_by_its_result_type(result: object, handle: bool) -> None:
    assert is_task_handle(result) is handle
