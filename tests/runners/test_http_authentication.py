"""Who is let in over HTTP: resolvers, bearer tokens, challenges, the metadata document; and what is logged of it."""

from __future__ import annotations

import json
import logging
from typing import Any

import anyio
import pytest

from mcp_tasks_core.access import Owner
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_http import RequestHead
from mcp_tasks_trio import (
    Application,
    BearerTokens,
    Challenge,
    Claims,
    Forbidden,
    ProtectedResource,
    ToolContext,
    Unauthorized,
    bearer,
    connect_http,
)
from runners.http_peer import call, http_served, post
from runners.served import both_loops, run

AUDIENCE = "https://mcp.example.com/mcp"
METADATA = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
TOKENS = {
    "ada": Claims(subject="ada", audience=AUDIENCE, scopes=["tasks:run", "tasks:read"]),
    "bob": Claims(
        subject="bob", audience=["https://other.example", "HTTPS://MCP.example.com/mcp/"], scopes=["tasks:run"]
    ),
    "foreign": Claims(subject="ada", audience="https://other.example/mcp", scopes=["tasks:run"]),
    "path": Claims(subject="ada", audience="https://mcp.example.com/MCP", scopes=["tasks:run"]),
    "weak": Claims(subject="ada", audience=AUDIENCE, scopes=["tasks:read"]),
    "tenant": Claims(subject="ada", audience=AUDIENCE, scopes=["tasks:run"], tenant="acme"),
}


def application() -> Application:
    app = Application("test", version="1")

    @app.tool()
    async def whoami(context: ToolContext) -> str:
        return f"{context.owner.tenant}/{context.owner.subject}"

    @app.tool(task="always")
    async def work() -> str:
        return "done"

    return app


def verify(token: str) -> Claims | None:
    return TOKENS.get(token)


async def verify_later(token: str) -> Claims | None:
    await anyio.lowlevel.checkpoint()
    return TOKENS.get(token)


def tokens(verifier: Any = verify) -> BearerTokens:
    return BearerTokens(
        verifier, audience=AUDIENCE, tenant="example", required_scopes=["tasks:run"], resource_metadata_url=METADATA
    )


def with_token(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


both_verifiers = pytest.mark.parametrize("verifier", [verify, verify_later], ids=["sync", "async"])


@both_loops
@both_verifiers
@pytest.mark.spec("H11")
def test_each_request_is_asked_for_its_own_token(backend: str, verifier: Any) -> None:
    async def test() -> None:
        async with http_served(application(), owner_resolver=tokens(verifier)) as server:
            async with server.peer() as peer:
                for token, owner in (("ada", "example/ada"), ("bob", "example/bob"), ("tenant", "acme/ada")):
                    assert (await peer.answer(call("whoami", headers=with_token(token)))).text == owner
                lower = {"Authorization": "bearer   ada"}
                assert (await peer.answer(call("whoami", headers=lower))).text == "example/ada"
                assert (await peer.answer(call("whoami"))).status == 401
                assert (await peer.answer(call("whoami", headers=with_token("bob")))).text == "example/bob"
            await server.is_clean()

    run(backend, test)


@both_loops
@both_verifiers
@pytest.mark.spec("H11")
def test_challenges_say_what_is_missing_and_where_to_get_it(backend: str, verifier: Any) -> None:
    async def test() -> None:
        async with http_served(application(), owner_resolver=tokens(verifier)) as server:
            response = await server.ask(call("whoami"))
            assert response.status == 401
            assert response.fields["www-authenticate"] == f'Bearer scope="tasks:run", resource_metadata="{METADATA}"'
            assert response.json["error"]["code"] == -32600
            for token in ("foreign", "path", "unknown", "two words", "", "é".encode().decode("latin-1")):
                response = await server.ask(call("whoami", headers=with_token(token)))
                assert response.status == 401, token
                assert 'error="invalid_token"' in response.fields["www-authenticate"]
                assert METADATA in response.fields["www-authenticate"]
            response = await server.ask(call("whoami", headers=with_token("weak")))
            assert response.status == 403
            challenge = response.fields["www-authenticate"]
            assert challenge.startswith('Bearer error="insufficient_scope", scope="tasks:run"')
            assert METADATA in challenge

    run(backend, test)


@both_loops
@pytest.mark.spec("H11")
def test_a_token_counts_in_its_header_alone(backend: str) -> None:
    async def test() -> None:
        async with http_served(application(), owner_resolver=tokens()) as server:
            for request in (
                call("whoami", path="/mcp?access_token=ada"),
                call("whoami", headers={"Cookie": "access_token=ada"}),
                call("whoami", headers={"Authorization": "Basic YWRhOmFkYQ=="}),
                call("whoami", headers={"Authorization": "Bearer ada, Bearer bob"}),
                call("whoami", headers={"Authorization": "Bearer ada"}).replace(
                    b"Host:", b"Authorization: Bearer bob\r\nHost:"
                ),
            ):
                assert (await server.ask(request)).status == 401, request

    run(backend, test)


@both_loops
@pytest.mark.spec("H11", "A1", "A2")
def test_a_task_is_its_owners_alone(backend: str) -> None:
    async def test() -> None:
        async with http_served(application(), owner_resolver=tokens()) as server:
            handle = (await server.ask(call("work", headers=with_token("ada")))).result
            ask = {"taskId": handle["taskId"]}
            response = await server.ask(post("tasks/get", ask, headers=with_token("bob")))
            assert (response.status, response.json["error"]["code"]) == (400, -32602)
            response = await server.ask(post("tasks/get", ask, headers=with_token("tenant")))
            assert (response.status, response.json["error"]["code"]) == (400, -32602)
            assert (await server.ask(post("tasks/get", ask, headers=with_token("ada")))).result["taskId"] == ask[
                "taskId"
            ]

    run(backend, test)


@both_loops
@pytest.mark.spec("D24", "H2")
def test_names_are_checked_before_credentials_and_credentials_before_the_body(backend: str) -> None:
    asked: list[str] = []

    def resolver(head: RequestHead) -> Owner | Challenge:
        asked.append(head.path)
        return Challenge.unauthorized()

    async def test() -> None:
        async with http_served(application(), owner_resolver=resolver) as server:
            assert (await server.ask(call("whoami", headers={"Origin": "http://evil.example"}))).status == 403
            assert (await server.ask(post("tools/list", path="/other"))).status == 404
            assert (await server.ask(call("whoami", headers={"Content-Type": "text/plain"}))).status == 415
            assert asked == []
            async with server.peer() as peer:
                await peer.send(call("whoami").partition(b"{")[0])  # no body yet
                assert (await peer.response()).status == 401
            response = await server.ask(call("whoami").replace(b'"jsonrpc"', b'"jsonrpx"'))
            assert (response.status, response.fields["www-authenticate"]) == (401, "Bearer")
            assert asked == ["/mcp", "/mcp"]

    run(backend, test)


@both_loops
def test_a_client_that_goes_away_while_its_owner_is_looked_up_leaves_nothing(backend: str) -> None:
    async def test() -> None:
        begun, go_on, ended = anyio.Event(), anyio.Event(), anyio.Event()

        async def resolver(head: RequestHead) -> Owner | Challenge:
            begun.set()
            await go_on.wait()
            ended.set()
            return Owner("t", "s")

        async with http_served(application(), owner_resolver=resolver) as server:
            async with server.peer() as peer:
                await peer.send(call("whoami"))
                await begun.wait()
                await peer.reset()
                await server.until(lambda: server.listener.connections == 0)
            go_on.set()
            await ended.wait()
            assert (await server.ask(call("whoami"))).text == "t/s"
            await server.is_clean()

    run(backend, test)


def _raises(head: RequestHead) -> Owner | Challenge:
    raise RuntimeError(f"no such token: {head.get('authorization')}")


async def _raises_later(head: RequestHead) -> Owner | Challenge:
    await anyio.lowlevel.checkpoint()
    raise RuntimeError(f"no such token: {head.get('authorization')}")


def _answers_nonsense(head: RequestHead) -> Any:
    return "ada"


@both_loops
@pytest.mark.parametrize("resolver", [_raises, _raises_later, _answers_nonsense])
def test_a_resolver_that_fails_lets_nobody_in_and_tells_no_token(
    backend: str, resolver: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with http_served(application(), owner_resolver=resolver) as server, server.peer() as peer:
            for _ in range(2):
                response = await peer.answer(call("whoami", headers=with_token("s3cret")))
                assert (response.status, response.json["error"]["code"]) == (500, -32603)
                assert b"s3cret" not in response.body

    with caplog.at_level(logging.DEBUG):
        run(backend, test)
    assert caplog.records
    assert "s3cret" not in caplog.text


@both_loops
@pytest.mark.spec("H11")
def test_nothing_is_logged_of_a_token(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with http_served(application(), owner_resolver=tokens()) as server:
            assert (await server.ask(call("whoami", headers=with_token("s3cret")))).status == 401
            with pytest.raises(Unauthorized) as caught:
                async with connect_http(server.url, headers=bearer("s3cret")):
                    pass
            assert "s3cret" not in str(caught.value)

    with caplog.at_level(logging.DEBUG):
        run(backend, test)
    assert "s3cret" not in caplog.text


@both_loops
@pytest.mark.spec("H11")
def test_the_metadata_document_is_served_to_anybody(backend: str) -> None:
    resource = ProtectedResource(
        resource=AUDIENCE,
        authorization_servers=["https://login.example.com"],
        scopes_supported=["tasks:run"],
        more={"resource_name": "Reports"},
    )
    assert resource.url == METADATA

    async def test() -> None:
        async with http_served(application(), owner_resolver=tokens(), protected_resource=resource) as server:
            for path in ("/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"):
                response = await server.ask(f"GET {path} HTTP/1.1\r\nHost: localhost:80\r\n\r\n".encode())
                assert (response.status, response.fields["content-type"]) == (200, "application/json")
                assert json.loads(response.body) == {
                    "resource": AUDIENCE,
                    "authorization_servers": ["https://login.example.com"],
                    "bearer_methods_supported": ["header"],
                    "scopes_supported": ["tasks:run"],
                    "resource_name": "Reports",
                }

    run(backend, test)


@both_loops
@pytest.mark.spec("H11")
def test_the_client_asks_for_a_token_before_every_request_and_tells_what_was_refused(backend: str) -> None:
    async def test() -> None:
        given = iter(["ada", "bob", "bob", "weak", "gone"])

        async def next_token() -> str:
            return next(given)

        async with (
            http_served(application(), owner_resolver=tokens(), allowed_hosts=()) as server,
            connect_http(server.url, headers=bearer(next_token)) as client,
        ):
            assert (await client.call_tool("whoami")).text == "example/bob"
            assert (await client.call_tool("whoami")).text == "example/bob"
            with pytest.raises(Forbidden) as forbidden:
                await client.call_tool("whoami")
            assert (forbidden.value.status, forbidden.value.scopes) == (403, ("tasks:run",))
            with pytest.raises(Unauthorized) as unauthorized:
                await client.call_tool("whoami")
            assert unauthorized.value.status == 401
            assert unauthorized.value.resource_metadata == METADATA
            assert unauthorized.value.challenges[0].parameters["error"] == "invalid_token"

    run(backend, test)


def test_values_that_no_challenge_can_hold_are_refused_where_they_are_given() -> None:
    for wrong in ('quo"te', "new\nline", "back\\slash", "é"):
        with pytest.raises(LocalProtocolError):
            Challenge.unauthorized(description=wrong)
        with pytest.raises(LocalProtocolError):
            Challenge.unauthorized(resource_metadata=wrong)
        with pytest.raises(LocalProtocolError):
            Challenge.insufficient_scope(scopes=[wrong])
    with pytest.raises(LocalProtocolError):
        Challenge.insufficient_scope(scopes="tasks:run")
    with pytest.raises(LocalProtocolError):
        BearerTokens(verify, audience="")
    for resource in ("mcp.example.com", "https://mcp.example.com#fragment", "ftp://mcp.example.com"):
        with pytest.raises(LocalProtocolError):
            ProtectedResource(resource=resource, authorization_servers=["https://login.example.com"])
    with pytest.raises(LocalProtocolError):
        ProtectedResource(resource=AUDIENCE, authorization_servers=[])
