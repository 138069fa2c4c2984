"""What is a request and what is not: framing, control characters, bounds on heads, whatever way bytes are cut."""

from __future__ import annotations

import pytest

from mcp_tasks_core.errors import HEADER_MISMATCH, INVALID_REQUEST
from mcp_tasks_http import HttpLimits
from tests.http.wire import MESSAGE, OWN, chunked, head, post, server, talk, talk_in_every_way, ways_to_cut

# A second request that must never run, to be hidden in what the first one says is its body.
HIDDEN = post(body=b'{"marker":"hidden"}')

LENGTH = f"Content-Length: {len(MESSAGE)}"
DOUBTFUL_FRAMING = {
    "length and chunked": head(LENGTH, "Transfer-Encoding: chunked") + MESSAGE,
    "chunked and length": head("Transfer-Encoding: chunked", LENGTH) + chunked(MESSAGE),
    "two lengths": head("Content-Length: 5", LENGTH) + MESSAGE,
    "two equal lengths": head(LENGTH, LENGTH) + MESSAGE,
    "signed length": head(f"Content-Length: +{len(MESSAGE)}") + MESSAGE,
    "length list": head(f"Content-Length: {len(MESSAGE)},{len(MESSAGE)}") + MESSAGE,
    "negative length": head("Content-Length: -1") + MESSAGE,
    "length in hexadecimal": head("Content-Length: 0x10") + MESSAGE,
    "length in fullwidth digits": head("Content-Length: \xb2\xb3") + MESSAGE,
    "empty length": head("Content-Length:") + MESSAGE,
    "endless length": head("Content-Length: " + "9" * 30) + MESSAGE,
    "identity": head("Transfer-Encoding: identity") + MESSAGE,
    "gzip, chunked": head("Transfer-Encoding: gzip, chunked") + chunked(MESSAGE),
    "chunked, identity": head("Transfer-Encoding: chunked, identity") + chunked(MESSAGE),
    "chunked twice": head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + chunked(MESSAGE),
    "vertical tab before chunked": head("Transfer-Encoding: \x0bchunked") + chunked(MESSAGE),
    "chunked in HTTP/1.0": head("Transfer-Encoding: chunked", first="POST /mcp HTTP/1.0") + chunked(MESSAGE),
    "space before colon": head(f"Content-Length : {len(MESSAGE)}") + MESSAGE,
    "chunked with a space before its colon": head(LENGTH, "Transfer-Encoding : chunked") + MESSAGE,
    "folded field": head("X-Long: a\r\n b", LENGTH) + MESSAGE,
    "folded first field": b"POST /mcp HTTP/1.1\r\n Host: a\r\n\r\n",
    "line end without CR": head("X: a\nTransfer-Encoding: chunked", LENGTH) + MESSAGE,
    "CR inside a value": head("X: a\rTransfer-Encoding: chunked", LENGTH) + MESSAGE,
    "line ends of LF alone": head(LENGTH).replace(b"\r\n", b"\n") + MESSAGE,
    "head that ends with LF LF": head(LENGTH)[:-2] + b"\n" + MESSAGE,
    "field without a colon": head("Nonsense", LENGTH) + MESSAGE,
    "field without a name": head(": value", LENGTH) + MESSAGE,
    "two hosts": head(f"Host: {OWN}", LENGTH) + MESSAGE,
    "no host": head(LENGTH, without=["Host"]) + MESSAGE,
}


@pytest.mark.parametrize("request_bytes", DOUBTFUL_FRAMING.values(), ids=DOUBTFUL_FRAMING)
def test_doubtful_framing_is_refused_and_nothing_hidden_behind_it_runs(request_bytes):
    done = talk_in_every_way(request_bytes + HIDDEN)
    assert done.bodies == []
    assert [response.status for response in done.responses] == [400]
    assert done.responses[0].fields["connection"] == "close"
    assert done.connection.closing


NO_REQUESTS = {
    "HTTP/0.9": b"GET /mcp\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/2.0": head(first="POST /mcp HTTP/2.0"),
    "HTTP/3.1": head(first="POST /mcp HTTP/3.1"),
    "lower-case version": head(first="POST /mcp http/1.1"),
    "two spaces": head(first="POST  /mcp HTTP/1.1"),
    "tab": head(first="POST\t/mcp HTTP/1.1"),
    "trailing blank": head(first="POST /mcp HTTP/1.1 "),
    "no target": head(first="POST HTTP/1.1"),
    "target of another host's shape": head(first="POST example.com:80 HTTP/1.1"),
    "asterisk": head(first="POST * HTTP/1.1"),
    "fragment": head(first="POST /mcp#top HTTP/1.1"),
    "bytes beyond ASCII in the target": head(first="POST /mcp\xe9 HTTP/1.1"),
    "control character in the target": head(first="POST /m\x01cp HTTP/1.1"),
    "colon in the method": head(first="PO:ST /mcp HTTP/1.1"),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    "two empty lines first": b"\r\n\r\n" + post(),
}


@pytest.mark.parametrize("request_bytes", NO_REQUESTS.values(), ids=NO_REQUESTS)
def test_what_is_no_request_is_refused_and_ends_the_connection(request_bytes):
    done = talk_in_every_way(request_bytes + HIDDEN)
    assert done.bodies == []
    assert [response.status for response in done.responses] == [400]
    assert done.responses[0].error["code"] == INVALID_REQUEST
    assert "id" not in done.responses[0].body.decode().split('"error"')[0]
    assert done.connection.closing


CONTROLS = [*range(0x09), *range(0x0A, 0x20), 0x7F]


@pytest.mark.spec("H5")
@pytest.mark.parametrize("name", ["Mcp-Name", "MCP-PARAM-REGION", "mcp-protocol-version", "X-Other"])
def test_no_control_character_gets_through_in_a_value(name):
    for byte in CONTROLS:
        done = talk(post(f"{name}: a{chr(byte)}b"))
        assert done.bodies == []
        assert [response.status for response in done.responses] == [400], byte
        # A line end is no character of the value: there the line after it is what is malformed.
        ours = name.lower().startswith("mcp-") and byte != 0x0A
        assert done.responses[0].error["code"] == (HEADER_MISMATCH if ours else INVALID_REQUEST), byte


@pytest.mark.spec("H6")
def test_what_http_allows_in_a_value_reaches_the_core_as_it_was_sent():
    value = "in the\tmiddle " + "".join(map(chr, range(0x80, 0x100))) + " =?base64?SGVsbG8=?="
    done = talk_in_every_way(post(f"Mcp-Name:  \t {value} \t", "MCP-PARAM-Region-X: West", "mcp-param-empty:"))
    headers = done.bodies[0].headers
    assert headers.name == value
    assert headers.params == {"region-x": "West", "empty": ""}
    assert (headers.protocol_version, headers.method) == ("2026-07-28", "tools/list")


@pytest.mark.spec("H5")
def test_absent_headers_are_told_from_empty_ones_and_repeated_ones_are_not_swallowed():
    done = talk(post("mcp-method: tools/call", "Mcp-Name:", without=["MCP-Protocol-Version"]))
    headers = done.bodies[0].headers
    assert headers.protocol_version is None
    assert headers.name == ""
    assert headers.method == "tools/list, tools/call"


def padded_request(head_bytes: int) -> bytes:
    """A request whose head has exactly this size."""
    length = f"Content-Length: {len(MESSAGE)}"
    missing = head_bytes - len(head("X-Padding: ", length))
    return head("X-Padding: " + "p" * missing, length) + MESSAGE


LIMIT = 1024


@pytest.mark.parametrize(
    ("head_bytes", "served"), [(LIMIT - 1, True), (LIMIT, True), (LIMIT + 1, False), (2 * LIMIT, False)]
)
@pytest.mark.parametrize("plain", [True, False])
def test_a_head_is_bounded_by_its_bytes_and_not_by_how_they_were_cut(head_bytes, served, plain):
    request_bytes = padded_request(head_bytes)
    assert request_bytes.index(b"\r\n\r\n") + 4 == head_bytes
    if not plain:  # h11 reads it, and not the fast path
        request_bytes = request_bytes.replace(b"Host", b"Upgrade: x\r\nHost").replace(b"p" * 12, b"", 1)
    several = [*ways_to_cut(request_bytes), *([head_bytes - back] for back in range(1, 5)), [head_bytes], [LIMIT]]
    for cuts in several:
        done = talk(request_bytes, cuts=cuts, to=server(HttpLimits(head_bytes_max=LIMIT)))
        assert done.payloads == ([MESSAGE] if served else []), cuts
        assert [response.status for response in done.responses] == [200 if served else 431], cuts
        assert done.connection.closing is not served


def test_an_endless_head_is_refused_at_the_limit_and_not_kept():
    connection = server(HttpLimits(head_bytes_max=LIMIT)).connect(0)
    connection.receive_data(b"POST /mcp HTTP/1.1\r\nX: " + b"a" * (LIMIT - 24), 0)
    assert not connection.closing
    connection.receive_data(b"a", 0)
    assert connection.data_to_send().startswith(b"HTTP/1.1 431 ")
    assert connection.closing


@pytest.mark.parametrize("separator", ["", "Upgrade: h2c"])
def test_the_number_of_fields_is_bounded(separator):
    more = [separator] if separator else []
    fields = [*more, *(f"X-{n}: 1" for n in range(14 - len(more)))]

    def limited():
        return server(HttpLimits(head_fields_max=20))

    assert talk_in_every_way(post(*fields), to=limited).payloads == [MESSAGE]
    done = talk_in_every_way(post(*fields, "X-Last: 1"), to=limited)
    assert [response.status for response in done.responses] == [431]


def test_one_empty_line_before_a_request_is_ignored():
    done = talk_in_every_way(post() + b"\r\n" + post(body=b'{"second":1}') + b"\r\n")
    assert done.payloads == [MESSAGE, b'{"second":1}']


SERVED = {
    "plain": post(),
    "field names in any case": post().replace(b"Content-Type", b"CONTENT-type").replace(b"Mcp-Method", b"MCP-METHOD"),
    "absolute target": post(first=f"POST http://{OWN}/mcp HTTP/1.1"),
    "query": post(first="POST /mcp?x=1 HTTP/1.1"),
    "two fields of one name": post("X-Forwarded-For: a", "X-Forwarded-For: b"),
    "upgrade that is not taken": post("Upgrade: websocket", "Connection: Upgrade"),
    "HTTP/1.0": post(first="POST /mcp HTTP/1.0"),
    "HTTP/1.0 without a host": post(first=f"POST http://{OWN}/mcp HTTP/1.0", without=["Host"]),
    "chunked": head("Transfer-Encoding: CHUNKED") + chunked(MESSAGE),
    "session and last event ids": post("Mcp-Session-Id: 7", "Last-Event-ID: 8"),
}


@pytest.mark.spec("H1")
@pytest.mark.parametrize("request_bytes", SERVED.values(), ids=SERVED)
def test_what_is_unusual_and_clear_is_served(request_bytes):
    done = talk_in_every_way(request_bytes)
    assert done.payloads == [MESSAGE]
    assert [response.status for response in done.responses] == [200]
    assert not any("session" in name for name in done.responses[0].fields)
