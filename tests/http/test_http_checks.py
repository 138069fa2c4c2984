"""What a head must say: names, path, method, media types, size, and in which order faults are told."""

from __future__ import annotations

import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_http import HttpLimits, HttpServerConfig, NameRules, is_loopback
from mcp_tasks_http.media import accepted_forms
from tests.http.wire import MESSAGE, PORT, head, post, responses_of, server, talk, talk_in_every_way

ORIGINS = {
    "http://127.0.0.1:8000": True,
    "https://127.0.0.1:8000": True,
    "http://localhost:8000": True,
    "HTTP://LOCALHOST:8000": True,
    "http://[::1]:8000": True,
    "https://app.example.com": True,
    "https://APP.example.com:443": True,
    "http://dev.example.com:1234": True,
    "http://dev.example.com": True,
    "https://app.example.com:8443": False,
    "http://app.example.com": False,
    "https://dev.example.com": False,
    "http://localhost": False,
    "http://localhost:8001": False,
    "http://localhost:8000.evil.com": False,
    "http://localhost:8000@evil.com": False,
    "http://evil.example": False,
    "http://evil.example:8000": False,
    "http://localhost:8000/": False,
    "http://localhost:8000/path": False,
    "http://localhost:8000, http://localhost:8000": False,
    "http://localhost:8000 http://evil.example": False,
    "http://[::1:8000": False,
    "http://::1:8000": False,
    "http://localhost:99999": False,
    "http://localhost:": False,
    "http://l\xf6calhost:8000": False,
    "ftp://localhost:8000": False,
    "localhost:8000": False,
    "//localhost:8000": False,
    "null": False,
    "": False,
}


def rules() -> NameRules:
    return NameRules.for_server("127.0.0.1", PORT, origins=["https://app.example.com", "http://dev.example.com:*"])


@pytest.mark.spec("H2")
@pytest.mark.parametrize(("origin", "allowed"), ORIGINS.items(), ids=repr)
def test_a_page_is_let_in_only_from_an_allowed_origin(origin, allowed):
    done = talk_in_every_way(post(f"Origin: {origin}"), to=lambda: server(names=rules()))
    assert [response.status for response in done.responses] == [200 if allowed else 403]
    assert len(done.bodies) == allowed
    if not allowed:
        assert "id" not in done.responses[0].error
        assert done.responses[0].fields["content-type"] == "application/json"


@pytest.mark.spec("H2")
def test_two_origins_are_refused_although_each_is_allowed():
    done = talk_in_every_way(post("Origin: http://localhost:8000", "Origin: http://localhost:8000"))
    assert [response.status for response in done.responses] == [403]
    assert done.bodies == []


@pytest.mark.spec("H2")
@pytest.mark.parametrize("method", ["GET", "OPTIONS", "DELETE", "POST"])
def test_a_foreign_page_is_refused_whatever_it_sends(method):
    first = f"{method} /nowhere HTTP/1.1"
    done = talk(post("Origin: http://evil.example", first=first, without=["Content-Type"]))
    assert [response.status for response in done.responses] == [403]


HOSTS = {
    "127.0.0.1:8000": True,
    "localhost:8000": True,
    "LocalHost:8000": True,
    "[::1]:8000": True,
    "mcp.example.com": True,
    "mcp.example.com:443": True,
    "mcp.example.com:80": True,
    "any.example.com:9": True,
    "mcp.example.com:8000": False,
    "127.0.0.1": False,
    "127.0.0.1:8001": False,
    "localhost": False,
    "localhost.:8000": False,
    "evil.example.com:8000": False,
    "127.0.0.1.evil.com:8000": False,
    "user@127.0.0.1:8000": False,
    "127.0.0.1:8000, evil.com": False,
    "127.0.0.1 :8000": False,
    "": False,
}


@pytest.mark.spec("H2")
@pytest.mark.parametrize(("host", "allowed"), HOSTS.items(), ids=repr)
def test_a_server_on_loopback_answers_to_its_own_names_only(host, allowed):
    names = NameRules.for_server("127.0.0.1", PORT, hosts=["mcp.example.com", "any.example.com:*"])
    done = talk(post(f"Host: {host}", without=["Host"]), to=server(names=names))
    assert [response.status for response in done.responses] == [200 if allowed else 403]


@pytest.mark.spec("H2")
def test_the_authority_of_an_absolute_target_is_a_name_too():
    done = talk(post(first="POST http://evil.example/mcp HTTP/1.1"))
    assert [response.status for response in done.responses] == [403]


@pytest.mark.spec("H2")
def test_elsewhere_host_is_checked_where_names_were_given():
    request_bytes = post("Host: whatever.example:1", without=["Host"])
    assert talk(request_bytes, to=server(names=NameRules.for_server("192.0.2.1", PORT))).payloads == [MESSAGE]
    assert talk(request_bytes, to=server(names=NameRules.for_server(None))).payloads == [MESSAGE]
    named = NameRules.for_server("0.0.0.0", PORT, hosts=["mcp.example.com"])
    assert talk(request_bytes, to=server(names=named)).responses[0].status == 403
    own = post("Host: mcp.example.com", "Origin: https://mcp.example.com", without=["Host"])
    assert talk(own, to=server(names=named)).payloads == [MESSAGE]
    # Bound to every address it does not know its own name, so no page is its own.
    page = post("Origin: http://0.0.0.0:8000")
    assert talk(page, to=server(names=NameRules.for_server("0.0.0.0", PORT))).responses[0].status == 403


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.9.10", "::1", "[::1]", "LOCALHOST")),
        *((host, False) for host in ("0.0.0.0", "::", "127.0.0.1.example.com", "10.0.0.1", "")),
    ],
)
def test_loopback_is_told_from_everything_else(host, expected):
    assert is_loopback(host) is expected


@pytest.mark.parametrize("origin", ["app.example.com", "https://", "https://a/path", "null", "*", "ftp://a"])
def test_an_origin_rule_that_cannot_be_read_is_a_local_mistake(origin):
    with pytest.raises(LocalProtocolError, match="of the form https://name"):
        NameRules.for_server("127.0.0.1", PORT, origins=[origin])


@pytest.mark.parametrize("host", ["https://a", "a/b", "a b", "", "a:b"])
def test_a_host_rule_that_cannot_be_read_is_a_local_mistake(host):
    with pytest.raises(LocalProtocolError, match="of the form name"):
        NameRules.for_server("127.0.0.1", PORT, hosts=[host])


@pytest.mark.spec("H1")
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_other_methods_than_post_are_refused_and_told_which_is_allowed(method):
    first = f"{method} /mcp HTTP/1.1"
    done = talk_in_every_way(head(first=first, without=["Content-Type"]) + post())
    refused, served = done.responses
    assert (refused.status, refused.fields["allow"], served.status) == (405, "POST", 200)


@pytest.mark.spec("H1")
def test_head_is_refused_without_a_body():
    done = talk(head(first="HEAD /mcp HTTP/1.1") + post())
    refused, served = responses_of(done.sent, ["HEAD"])
    assert (refused.status, refused.body, served.status) == (405, b"", 200)


@pytest.mark.spec("H1")
@pytest.mark.parametrize("path", ["/", "/mcp/", "/MCP", "/mcp;a", "/%6dcp", "/x/../mcp", "//mcp"])
def test_there_is_one_endpoint(path):
    done = talk(post(first=f"POST {path} HTTP/1.1"))
    assert [response.status for response in done.responses] == [404]
    assert done.bodies == []


CONTENT_TYPES = {
    "application/json": 200,
    "Application/JSON": 200,
    "application/json; charset=utf-8": 200,
    "application/json;charset=UTF-8;x=y": 200,
    "text/plain": 415,
    "application/x-www-form-urlencoded": 415,
    "application/jsonp": 415,
    "application/json, text/plain": 415,
    "": 415,
}


@pytest.mark.parametrize(("content_type", "status"), CONTENT_TYPES.items(), ids=repr)
def test_a_body_says_that_it_is_json(content_type, status):
    done = talk(post(f"Content-Type: {content_type}", without=["Content-Type"]))
    assert [response.status for response in done.responses] == [status]


def test_a_body_that_does_not_say_what_it_is_is_refused():
    assert talk(post(without=["Content-Type"])).responses[0].status == 415


ACCEPTS = {
    "application/json, text/event-stream": (True, True),
    "application/json": (True, False),
    "text/event-stream": (False, True),
    "*/*": (True, True),
    "application/*, text/*": (True, True),
    "text/*": (False, True),
    "application/json;q=0, text/event-stream": (False, True),
    "application/json;q=0.000, */*": (False, True),
    "*/*, text/event-stream; q=0": (True, False),
    "application/json;q=0.001": (True, False),
    "APPLICATION/JSON; Q=0.5": (True, False),
    "application/json;charset=utf-8;q=1.0": (True, False),
    "text/html, */*;q=0": (False, False),
    "text/html": (False, False),
    ", ,": (False, False),
    "": (True, True),
}


@pytest.mark.parametrize(("accept", "expected"), ACCEPTS.items(), ids=repr)
def test_wildcards_count_and_a_weight_of_zero_is_a_refusal(accept, expected):
    forms = accepted_forms(accept)
    assert (forms.json, forms.event_stream) == expected
    done = talk_in_every_way(post(f"Accept: {accept}", without=["Accept"]))
    (response,) = done.responses
    assert response.status == (200 if any(expected) else 406)
    if response.status == 200:
        kind = response.fields["content-type"]
        assert kind == ("application/json" if expected[0] else "text/event-stream")
        assert response.body.startswith(b'{"asked":' if expected[0] else b'data: {"asked":')


def test_without_accept_anything_is_accepted():
    assert talk(post(without=["Accept"])).responses[0].fields["content-type"] == "application/json"


def test_a_subscription_needs_a_client_that_takes_event_streams():
    listen = ["Mcp-Method: subscriptions/listen", "Accept: application/json"]
    assert talk(post(*listen, without=["Mcp-Method", "Accept"])).responses[0].status == 406
    assert talk(post(listen[0], without=["Mcp-Method"])).payloads == [MESSAGE]


ORDER = (
    ("403 Host", ("Host: evil.example",), 403),
    ("404 path", (), 404),
    ("405 method", (), 405),
    ("415 type", ("Content-Type: text/plain",), 415),
    ("406 accept", ("Accept: text/html",), 406),
    ("413 size", ("Content-Length: 99999999",), 413),
)


@pytest.mark.spec("D24")
@pytest.mark.parametrize("first_fault", range(len(ORDER)))
def test_of_many_faults_the_first_in_order_is_told(first_fault):
    """Every fault from one on, all of them together: the answer is about the first."""
    faults = {name[:3] for name, _, _ in ORDER[first_fault:]}
    lines = [line for _, given, _ in ORDER[first_fault:] for line in given]
    method = "PUT" if "405" in faults else "POST"
    path = "/nowhere" if "404" in faults else "/mcp"
    without = [line.partition(":")[0] for line in lines]
    if not any(line.startswith("Content-Length") for line in lines):
        lines.append("Content-Length: 0")
    done = talk(head(*lines, first=f"{method} {path} HTTP/1.1", without=without))
    assert done.responses[0].status == ORDER[first_fault][2]


def test_documents_are_served_to_whoever_may_ask():
    path, document = "/.well-known/oauth-protected-resource/mcp", b'{"resource":"https://mcp.example.com/mcp"}'

    def documented():
        return server(documents={path: document}, announce_heads=True)

    get = head(first=f"GET {path} HTTP/1.1", without=["Content-Type", "Accept"])
    found, refused = talk_in_every_way(get + post(first=f"POST {path} HTTP/1.1"), to=documented).responses
    assert (found.status, found.fields["content-type"], found.body) == (200, "application/json", document)
    assert (refused.status, refused.fields["allow"]) == (405, "GET, HEAD")
    asked = talk(get.replace(b"GET", b"HEAD"), to=documented())
    (empty,) = responses_of(asked.sent, ["HEAD"])
    assert (empty.fields["content-length"], empty.body) == (str(len(document)), b"")
    foreign = head("Origin: http://evil.example", first=f"GET {path} HTTP/1.1")
    assert talk(foreign, to=documented()).responses[0].status == 403


@pytest.mark.parametrize(
    ("path", "documents"), [("mcp", {}), ("/a?b", {}), ("/mcp", {"x": b""}), ("/mcp", {"/mcp": b""})]
)
def test_a_configuration_that_cannot_work_is_a_local_mistake(path, documents):
    with pytest.raises(LocalProtocolError):
        HttpServerConfig(names=rules(), path=path, documents=documents)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "1"])
def test_bounds_are_integers_of_one_or_more(value):
    with pytest.raises(LocalProtocolError, match="idle_wait_ms is an integer of 1 or more"):
        HttpLimits(idle_wait_ms=value)


def test_verdicts_of_many_different_heads_are_not_kept_for_ever():
    served = server()
    for number in range(2000):
        talk(post(f"Origin: http://evil{number}.example", f"X-{number}: {number}"), to=served)
        talk(post(f"Accept: application/json, x/{number}", without=["Accept"]), to=served)
    assert len(served.judge._known) <= 256
    assert len(served.reader._plain._known_lines) <= 512
    long = "x/" + "y" * 5000
    talk(post(f"Accept: */*, {long}", without=["Accept"]), to=served)
    assert not any(long.encode() in question for question in served.judge._known)
