"""Which source holds a task."""

from __future__ import annotations

import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.sources import SourceTable


@pytest.mark.spec("C7")
@pytest.mark.parametrize(
    ("task_id", "source"),
    [
        ("wf:1", "workflows"),
        ("wf:", "workflows"),
        ("batch/x/y", "batches"),
        ("wf", None),
        ("WF:1", None),
        ("xwf:1", None),
        (" wf:1", None),
        ("", None),
        ("batch", None),
    ],
)
def test_an_id_belongs_to_the_source_whose_prefix_it_begins_with(task_id: str, source: str | None) -> None:
    table = SourceTable({"wf:": "workflows", "batch/": "batches"})
    assert table.source_of(TaskId(task_id)) == source


def test_without_sources_every_id_is_managed() -> None:
    assert SourceTable().source_of(TaskId("anything")) is None


@pytest.mark.parametrize("prefix", ["", "a b", "é:", "a\n", "\x7f"])
def test_a_prefix_that_no_header_could_carry_is_refused(prefix: str) -> None:
    with pytest.raises(LocalProtocolError, match="printable ASCII without spaces"):
        SourceTable({prefix: "name"})


@pytest.mark.parametrize("names", [{"a": "x", "ab": "y"}, {"a:b": "x", "a:": "y"}])
def test_prefixes_that_overlap_are_refused(names: dict[str, str]) -> None:
    with pytest.raises(LocalProtocolError, match="overlap; each id has one source"):
        SourceTable(names)


def test_a_source_needs_a_name() -> None:
    with pytest.raises(LocalProtocolError, match="needs a name"):
        SourceTable({"a:": ""})


def test_two_prefixes_may_lead_to_one_source() -> None:
    table = SourceTable({"a:": "same", "b:": "same"})
    assert table.source_of(TaskId("a:1")) == table.source_of(TaskId("b:1")) == "same"
