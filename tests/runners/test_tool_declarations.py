"""What is refused where a tool, a method or a source is declared."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.request_state import RequestStateKey
from mcp_tasks_core.server.protocol import ServerProtocol
from mcp_tasks_trio import Application, TaskClaim
from mcp_tasks_trio.tools import duration_ms

KEYS = (RequestStateKey("k", b"0" * 32),)


def application(**options: Any) -> Application:
    return Application("test", version="1", **options)


def test_a_declared_function_stays_as_it_is() -> None:
    app = application()

    def greet(name: str) -> str:
        """Greet somebody."""
        return name

    assert app.tool()(greet) is greet
    assert app.tools["greet"].definition["description"] == "Greet somebody."


def test_a_definition_shows_what_was_said() -> None:
    app = application()

    @app.tool(
        "get.it-now_2",
        title="Get it",
        description="Gets it.",
        annotations={"readOnlyHint": True, "title": "Now"},
        meta={"example.org/cost": 3},
    )
    def get() -> None:
        """Not this."""

    assert app.tools["get.it-now_2"].definition == {
        "name": "get.it-now_2",
        "title": "Get it",
        "description": "Gets it.",
        "inputSchema": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
        "annotations": {"readOnlyHint": True, "title": "Now"},
        "_meta": {"example.org/cost": 3},
    }


@pytest.mark.parametrize("name", ["", "a b", "a,b", "ä", "a/b", "x" * 129, "a\n", "<lambda>"])
def test_a_name_against_the_rules_is_refused(name: str) -> None:
    with pytest.raises(LocalProtocolError, match="1 to 128 ASCII letters"):
        application().tool(name)(lambda: None)


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(LocalProtocolError, match="name="):
        application().tool()(lambda: None)
    application().tool("x" * 128)(lambda: None)


def test_a_decorator_without_its_parentheses_says_so() -> None:
    def tool() -> None: ...

    with pytest.raises(LocalProtocolError, match="parentheses"):
        application().tool(tool)  # type: ignore[arg-type]


def test_two_tools_cannot_have_one_name() -> None:
    app = application()
    app.tool("a")(lambda: None)
    with pytest.raises(LocalProtocolError, match="two tools"):
        app.tool("a")(lambda: None)


BAD_DURATIONS = [
    timedelta(0),
    timedelta(seconds=-1),
    timedelta(microseconds=500),
    timedelta(milliseconds=1, microseconds=1),
    timedelta.max,
    0,
    1000,
    math.nan,
    0.5,
    2**63,
    "1h",
    True,
]


@pytest.mark.parametrize("duration", BAD_DURATIONS, ids=repr)
def test_a_duration_that_cannot_be_is_refused_where_it_is_written(duration: Any) -> None:
    with pytest.raises(LocalProtocolError, match="ttl is"):
        application().tool("a", task="always", ttl=duration)
    with pytest.raises(LocalProtocolError, match="poll_interval is"):
        application().tool("a", task="always", poll_interval=duration)
    with pytest.raises(LocalProtocolError, match="default_ttl is"):
        application(default_ttl=duration)


def test_the_longest_duration_is_what_json_readers_keep_exactly() -> None:
    longest = timedelta(milliseconds=2**53 - 1)
    assert duration_ms(longest, "ttl") == 2**53 - 1
    with pytest.raises(LocalProtocolError, match="say ttl=None"):
        duration_ms(longest + timedelta(milliseconds=1), "ttl")


def test_unlimited_is_said_with_none_and_silence_means_the_default() -> None:
    app = application(default_ttl=timedelta(minutes=5))
    app.tool("silent", task="always")(lambda: None)
    app.tool("unlimited", task="always", ttl=None)(lambda: None)
    app.tool("short", task="always", ttl=timedelta(milliseconds=1))(lambda: None)
    assert [app.tools[name].terms.ttl_ms for name in ("silent", "unlimited", "short")] == [300_000, None, 1]


def test_a_claim_checks_its_durations() -> None:
    with pytest.raises(LocalProtocolError, match="ttl is"):
        TaskClaim("job-1", ttl=timedelta(0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task": "optional"}, "task is one of 'never', 'always', 'required'"),
        ({"task": None}, "task is one of"),
        ({"recovery": "again"}, "recovery is one of"),
        ({"annotations": {"readOnlyHint": "yes"}}, "readOnlyHint"),
        ({"annotations": {"x": math.nan}}, "annotations"),
        ({"annotations": ["x"]}, "annotations"),
        ({"meta": {"x": object()}}, "meta"),
        ({"title": 3}, "title"),
        ({"description": b"x"}, "description"),
    ],
)
def test_other_settings_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words):
        application().tool("a", **options)(lambda: None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"title": ""}, "title"),
        ({"worker_threads": 0}, "worker_threads"),
        ({"worker_threads": True}, "worker_threads"),
        ({"description": 3}, "description"),
        ({"list_ttl": timedelta(seconds=-1)}, "list_ttl"),
        ({"list_cache_scope": "shared"}, "list_cache_scope"),
        ({"call_limit": timedelta(0)}, "call_limit"),
        ({"input_extension": 60}, "input_extension"),
    ],
)
def test_an_application_refuses_settings_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words):
        application(**options)
    with pytest.raises(LocalProtocolError, match="name"):
        Application("", version="1")


@pytest.mark.spec("C10")
@pytest.mark.parametrize(
    "name",
    [
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
        "tasks/list",
        "tasks/anything",
        "notifications/tasks",
        "notifications/cancelled",
        "server/discover",
        "tools/call",
        "tools/list",
        "tools/other",
        "subscriptions/listen",
        "initialize",
    ],
)
def test_methods_of_the_core_and_the_extension_are_never_an_applications(name: str) -> None:
    with pytest.raises(LocalProtocolError, match="not an application's"):
        application().method(name)


def test_a_method_is_declared_once_and_is_a_function() -> None:
    app = application()
    app.method("prompts/list")(lambda params, context: {})
    with pytest.raises(LocalProtocolError, match="twice"):
        app.method("prompts/list")
    with pytest.raises(LocalProtocolError, match="function"):
        app.method("prompts/get")(3)  # type: ignore[type-var]
    with pytest.raises(LocalProtocolError, match="1 character"):
        app.method("")


@pytest.mark.spec("N3")
def test_families_are_advertised_for_the_methods_that_are_served() -> None:
    app = application()
    for name in ("prompts/list", "resources/read", "completion/complete"):
        app.method(name)(lambda params, context: {})
    app.method("example/run", capability="example")(lambda params, context: {})
    config = app.server_config(KEYS)
    assert set(config.capabilities) == {"prompts", "resources", "completions", "example", "logging"}
    assert config.tools is None
    assert not config.tasks
    assert "logging" not in application(logging=False).server_config(KEYS).capabilities


@pytest.mark.spec("D25")
def test_tasks_are_configured_where_a_tool_or_a_source_makes_them() -> None:
    app = application()
    app.tool("a")(lambda: None)
    assert not app.server_config(KEYS).tasks
    app.tool("b", task="always")(lambda: None)
    assert app.server_config(KEYS).tasks
    assert application(tasks=True).server_config(KEYS).tasks
    assert not application(tasks=False).server_config(KEYS).tasks


@pytest.mark.spec("C3")
def test_a_tool_that_requires_a_task_is_told_to_the_core() -> None:
    app = application()
    app.tool("a", task="required")(lambda: None)
    app.tool("b", task="always")(lambda: None)
    assert [entry.requires_task for entry in app.server_config(KEYS).tools or ()] == [True, False]


def test_the_prefixes_of_sources_do_not_overlap() -> None:
    app = application()
    app.source("job-", object())  # type: ignore[arg-type]
    for prefix in ("job-", "job-a", "j", "", "ä", "a b"):
        with pytest.raises(LocalProtocolError):
            app.source(prefix, object())  # type: ignore[arg-type]
    app.source("run-", object())  # type: ignore[arg-type]
    assert list(app.sources) == ["job-", "run-"]


@pytest.mark.spec("N9")
def test_other_settings_reach_the_core_in_its_units() -> None:
    config = application(
        list_ttl=timedelta(0),
        list_cache_scope="public",
        call_limit=timedelta(seconds=2),
        input_extension=timedelta(minutes=1),
    ).server_config(KEYS)
    assert (config.list_ttl_ms, config.list_cache_scope) == (0, "public")
    assert (config.call_limit_ms, config.input_extension_ms) == (2_000, 60_000)
    assert application().server_config(KEYS).list_ttl_ms == 60_000


def test_a_configuration_makes_a_protocol_core() -> None:
    app = application(limits=Limits(tools_per_page=1), instructions="Do.", request_state_keys=KEYS)
    app.tool("a")(lambda: None)
    config = app.server_config(())
    assert config.request_state_keys == KEYS
    assert ServerProtocol(config).open_tickets == 0
