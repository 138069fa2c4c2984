"""What a head must say before its body is read, in the order in which faults are told.

Host and Origin, path, method, Content-Type, Accept, size; then comes authentication, and then the core's own order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import attrs

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_http.heads import Refusal, RequestHead, malformed, split_target
from mcp_tasks_http.limits import HttpLimits
from mcp_tasks_http.media import EVENT_STREAM, JSON, AcceptedForms, accepted_forms, media_type_of
from mcp_tasks_http.names import NameRules

# Verdicts remembered: one client's requests are all alike in what is looked at here.
_KNOWN_VERDICTS_MAX: Final = 256
_KNOWN_QUESTION_BYTES_MAX: Final = 1024

_LISTEN: Final = b"subscriptions/listen"


@attrs.frozen(kw_only=True, eq=False)
class HttpServerConfig:
    """What all connections of one HTTP server share.

    Args:
        names: which Host and Origin values are let in.
        path: of the one endpoint.
        documents: JSON documents by path, served to anybody who asks with GET or HEAD, such as the
            protected-resource metadata under ``/.well-known/``. The names are checked for these too.
        announce_heads: emit ``HeadReceived`` and wait for ``admit`` or ``refuse``, which is where authentication
            goes. Otherwise every request that passes the checks is admitted.

    Raises:
        LocalProtocolError: a path does not begin with a slash, or a document is under the endpoint's path.
    """

    names: NameRules
    path: str = "/mcp"
    documents: Mapping[str, bytes] = attrs.field(factory=dict)
    announce_heads: bool = False
    limits: HttpLimits = attrs.field(factory=HttpLimits)

    def __attrs_post_init__(self) -> None:
        for path in (self.path, *self.documents):
            if not path.startswith("/") or "?" in path or "#" in path:
                raise LocalProtocolError(f"a path begins with a slash and has neither query nor fragment, not {path!r}")
        if self.path in self.documents:
            raise LocalProtocolError(f"{self.path!r} is the endpoint, so no document can be there")


@attrs.frozen(slots=True)
class DocumentAsked:
    """A verdict: the request is for one of the documents."""

    body: bytes


Verdict: TypeAlias = AcceptedForms | DocumentAsked | Refusal

# Everything that a verdict depends on: method, target, Host, Origin, Content-Type, Accept, is it a subscription.
_Question: TypeAlias = tuple[str, str, bytes | None, bytes | None, bytes | None, bytes | None, bool]


class HeadJudge:
    """Judges heads by a server's configuration. One serves all connections."""

    def __init__(self, config: HttpServerConfig) -> None:
        self._config = config
        self._known: dict[_Question, Verdict] = {}

    def judge(self, head: RequestHead) -> Verdict:
        """In which forms the request may be answered, or why it is refused."""
        get = head.by_name.get
        listens = get(b"mcp-method") == _LISTEN
        key = (
            head.method, head.target, get(b"host"), get(b"origin"), get(b"content-type"), get(b"accept"), listens,
        )  # fmt: skip
        verdict = self._known.get(key)
        if verdict is None:
            verdict = self._judge(head, listens)
            self._remember(key, verdict)
        if head.body_bytes is not None and type(verdict) is AcceptedForms:
            limit = self._config.limits.body_bytes_max
            if head.body_bytes > limit:
                return body_too_large(limit)
        return verdict

    def _remember(self, question: _Question, verdict: Verdict) -> None:
        if sum(len(part) for part in question[:6] if part is not None) > _KNOWN_QUESTION_BYTES_MAX:
            return
        if len(self._known) >= _KNOWN_VERDICTS_MAX:
            self._known.clear()
        self._known[question] = verdict

    def _judge(self, head: RequestHead, listens: bool) -> Verdict:
        authority, path = split_target(head.target)
        fault = _fault_of_target(head, path) or self._fault_of_names(head, authority)
        if fault is not None:
            return fault
        if path in self._config.documents:
            if head.method not in ("GET", "HEAD"):
                return _method_not_allowed(head.method, "GET, HEAD")
            return DocumentAsked(self._config.documents[path])
        if path != self._config.path:
            return Refusal(status=404, message=f"nothing is at this path: the endpoint is {self._config.path}")
        if head.method != "POST":
            return _method_not_allowed(head.method, "POST")
        return _judge_media_types(head, listens)

    def _fault_of_names(self, head: RequestHead, authority: str | None) -> Refusal | None:
        names = self._config.names
        host = head.get("host")
        for named in (host, authority):
            if named is not None and not names.allows_host(named):
                return Refusal(status=403, message=f"this server is not known by the name {named!r} of Host")
        if host is None and authority is None and names.hosts is not None:
            return Refusal(status=403, message="Host is required, and names this server")
        origin = head.get("origin")
        if origin is not None and not names.allows_origin(origin):
            return Refusal(status=403, message=f"requests from the origin {origin!r} are not allowed here")
        return None


def _fault_of_target(head: RequestHead, path: str) -> Refusal | None:
    if (path.startswith("/") and "#" not in head.target) or (head.method == "OPTIONS" and path == "*"):
        return None
    return malformed("a request's target is a path that begins with a slash, or an absolute URL, without a fragment")


def _method_not_allowed(method: str, allowed: str) -> Refusal:
    return Refusal(status=405, message=f"{method} is not allowed here, but {allowed}", fields=(("Allow", allowed),))


def _judge_media_types(head: RequestHead, listens: bool) -> AcceptedForms | Refusal:
    if media_type_of(head.get("content-type")) != JSON:
        return Refusal(status=415, message=f"the body of a request is {JSON}, and Content-Type says so")
    forms = accepted_forms(head.get("accept"))
    if not (forms.json or forms.event_stream):
        return Refusal(status=406, message=f"answers are {JSON} or {EVENT_STREAM}, and Accept allows neither")
    if listens and not forms.event_stream:
        return Refusal(status=406, message=f"a subscription is answered as {EVENT_STREAM}, which Accept does not allow")
    return forms


def body_too_large(limit: int) -> Refusal:
    """The refusal of a body over the limit, known from its declared length or from its bytes."""
    return Refusal(status=413, message=f"the body is larger than the {limit} bytes that are allowed")
