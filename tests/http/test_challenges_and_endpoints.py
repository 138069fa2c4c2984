"""What a client reads beside messages: WWW-Authenticate, and the URL it was given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_http import Endpoint, parse_challenges

CHALLENGES = {
    "Bearer": [("bearer", {})],
    'Bearer realm="mcp"': [("bearer", {"realm": "mcp"})],
    'bearer Resource_Metadata = "https://a/b?c=d,e" , scope="a b"': [
        ("bearer", {"resource_metadata": "https://a/b?c=d,e", "scope": "a b"})
    ],
    'Bearer error=insufficient_scope, scope="x\\"y\\\\"': [
        ("bearer", {"error": "insufficient_scope", "scope": 'x"y\\'})
    ],
    'Basic, Bearer a=b, Digest c="d"': [("basic", {}), ("bearer", {"a": "b"}), ("digest", {"c": "d"})],
    'Negotiate YII/abc==, Bearer realm="x"': [("negotiate", {}), ("bearer", {"realm": "x"})],
    ', ,Bearer a="1",, b=2,': [("bearer", {"a": "1", "b": "2"})],
    'Bearer a="1", a="2"': [("bearer", {"a": "1"})],
    'Bearer a="unended': [("bearer", {})],
    'a=b, Bearer c="d"': [],
    '"quoted"': [],
    "": [],
}


@pytest.mark.parametrize(("value", "expected"), CHALLENGES.items())
def test_challenges_are_read_and_what_is_malformed_ends_the_reading(value, expected):
    assert [(found.scheme, dict(found.parameters)) for found in parse_challenges(value)] == expected


@given(st.text(st.sampled_from('Bearer a=b,"\\ \t;/=é'), max_size=60))
def test_no_value_makes_the_reading_fail_or_last(value):
    parse_challenges(value)


def test_a_long_value_is_read_in_time():
    parse_challenges('Bearer a="' + "\\" * 50_000)
    parse_challenges("Bearer " + "a" * 50_000 + " " * 50_000 + "!")
    parse_challenges("Bearer a = " * 10_000)


ENDPOINTS = {
    "http://127.0.0.1:8000/mcp": (False, "127.0.0.1", 8000, "127.0.0.1:8000", "/mcp"),
    "HTTP://Example.COM/Mcp": (False, "example.com", 80, "example.com", "/Mcp"),
    "https://example.com": (True, "example.com", 443, "example.com", "/"),
    "https://example.com:443/": (True, "example.com", 443, "example.com", "/"),
    "http://example.com:443/": (False, "example.com", 443, "example.com:443", "/"),
    "https://example.com?a=b": (True, "example.com", 443, "example.com", "/?a=b"),
    "http://[::1]:9/mcp?x": (False, "::1", 9, "[::1]:9", "/mcp?x"),
}


@pytest.mark.parametrize(("url", "parts"), ENDPOINTS.items())
def test_a_url_gives_where_to_connect_and_what_to_ask_for(url, parts):
    endpoint = Endpoint.parse(url)
    assert (endpoint.secure, endpoint.host, endpoint.port, endpoint.authority, endpoint.target) == parts


@pytest.mark.spec("H11")
@pytest.mark.parametrize(
    "url",
    [
        *("", "example.com/mcp", "ftp://example.com", "http://user:secret@example.com/", "http://example.com/a b"),
        *("http://example.com/#top", "http://exämple.com/", "http://example.com:0/", "http://example.com:70000/"),
        *("http://example.com/a\r\nX: b", "http:///mcp", "http://[::1/", "http://example.com:/", "http://a/\x7f"),
    ],
)
def test_a_url_that_is_no_endpoint_is_a_local_mistake_that_says_what_one_is(url):
    with pytest.raises(LocalProtocolError, match="one is http:// or https://"):
        Endpoint.parse(url)
