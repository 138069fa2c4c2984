"""Who sends an HTTP request: the owner of what it makes, or a challenge that says what is missing.

Source: authorization, Access Token Usage and Error Handling; RFC 6750, section 3; RFC 9728.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import attrs

from mcp_tasks_core.access import Owner
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_http import RequestHead

_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_TEXT: Final = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]*")
_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
_TOKEN_CHARS_MAX: Final = 16 * 1024
_WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"


@attrs.frozen(slots=True)
class Challenge:
    """Why a request is not let in, and how it would be. Make one with ``unauthorized`` or ``insufficient_scope``.

    Args:
        status: 401 or 403.
        www_authenticate: the value of that header.
        message: one sentence for people; it holds nothing of what the client sent.
    """

    status: int
    www_authenticate: str
    message: str

    @classmethod
    def unauthorized(
        cls,
        *,
        resource_metadata: str | None = None,
        error: str | None = None,
        description: str | None = None,
        scopes: Collection[str] = (),
    ) -> Challenge:
        """401: there are no credentials, or they do not count.

        Args:
            resource_metadata: URL of the protected-resource metadata.
            error: ``invalid_token`` or ``invalid_request``; ``None`` where the request held no credentials.
            description: for the developer of the client.
            scopes: what a token would need.

        Raises:
            LocalProtocolError: a value cannot stand in a header.
        """
        header = _bearer_challenge(resource_metadata, error, description, scopes)
        return cls(401, header, description or "this request needs an access token in its Authorization header")

    @classmethod
    def insufficient_scope(
        cls,
        *,
        scopes: Collection[str],
        resource_metadata: str | None = None,
        description: str | None = None,
    ) -> Challenge:
        """403: the token is good, and too weak; ``scopes`` are all that the request needs.

        Raises:
            LocalProtocolError: a value cannot stand in a header.
        """
        header = _bearer_challenge(resource_metadata, "insufficient_scope", description, scopes)
        return cls(403, header, description or "the access token lacks a scope that this request needs")


OwnerResolver: TypeAlias = Callable[[RequestHead], "Owner | Challenge | Awaitable[Owner | Challenge]"]
"""Sees the head of each request and says on whose behalf it comes. Asked anew for each."""


def _bearer_challenge(
    resource_metadata: str | None, error: str | None, description: str | None, scopes: Collection[str]
) -> str:
    parameters = [
        ("error", error),
        ("error_description", description),
        ("scope", " ".join(_checked_scopes(scopes)) or None),
        ("resource_metadata", resource_metadata),
    ]
    for name, value in parameters:
        if value is not None and not (isinstance(value, str) and _TEXT.fullmatch(value)):
            raise LocalProtocolError(f"{name} is printable ASCII without quotes and backslashes, not {value!r}")
    written = ", ".join(f'{name}="{value}"' for name, value in parameters if value is not None)
    return f"Bearer {written}".rstrip()


def _checked_scopes(scopes: Collection[str]) -> Sequence[str]:
    if isinstance(scopes, str) or not all(isinstance(scope, str) and _SCOPE.fullmatch(scope) for scope in scopes):
        raise LocalProtocolError(f"scopes are a collection of words of printable ASCII, not {scopes!r}")
    return sorted(scopes) if isinstance(scopes, (set, frozenset)) else list(scopes)


@attrs.frozen(kw_only=True)
class Claims:
    """What a verified token says.

    Args:
        subject: whose token it is.
        audience: whom it was issued for: one URI, or several.
        scopes: what it allows.
        tenant: where the subject belongs; ``None`` for the tenant of ``BearerTokens``.
    """

    subject: str
    audience: str | Collection[str]
    scopes: Collection[str] = ()
    tenant: str | None = None


Verifier: TypeAlias = Callable[[str], "Claims | None | Awaitable[Claims | None]"]
"""Gives what a token says; ``None`` where it is not valid: unknown, expired, revoked, or not signed as it should be."""


class BearerTokens:
    """An owner resolver for bearer tokens, which it takes from the Authorization header alone. It logs none of them.

    Args:
        verify: judges a token; never asked about a request without one.
        audience: the canonical URI of this server. A token that was issued for anybody else is not accepted.
        tenant: of the owners, where a token's claims name none.
        required_scopes: what every request needs.
        resource_metadata_url: told to clients that are challenged.

    Raises:
        LocalProtocolError: a value that no challenge could hold, or no audience.

    Source: authorization, Token Handling.
    """

    def __init__(
        self,
        verify: Verifier,
        *,
        audience: str,
        tenant: str = "bearer",
        required_scopes: Collection[str] = (),
        resource_metadata_url: str | None = None,
    ) -> None:
        if not isinstance(audience, str) or not audience:
            raise LocalProtocolError(f"audience is the URI of this server, not {audience!r}")
        self._verify = verify
        self._audience = _canonical(audience)
        self._tenant = tenant
        self._required = frozenset(_checked_scopes(required_scopes))
        url, scopes = resource_metadata_url, self._required
        self._without = Challenge.unauthorized(resource_metadata=url, scopes=scopes)
        self._invalid = Challenge.unauthorized(
            resource_metadata=url,
            error="invalid_token",
            description="the access token is not valid for this server",
            scopes=scopes,
        )
        self._too_weak = Challenge.insufficient_scope(scopes=scopes, resource_metadata=url)

    def __call__(self, head: RequestHead) -> Owner | Challenge | Awaitable[Owner | Challenge]:
        authorization = head.get("authorization")
        if authorization is None or not authorization.lower().startswith("bearer"):
            return self._without
        match = _BEARER.fullmatch(authorization)
        if match is None or len(authorization) > _TOKEN_CHARS_MAX:
            return self._invalid
        claims = self._verify(match[1])
        if inspect.isawaitable(claims):
            return self._judge_later(claims)
        return self._judge(claims)

    async def _judge_later(self, claims: Awaitable[Claims | None]) -> Owner | Challenge:
        return self._judge(await claims)

    def _judge(self, claims: Claims | None) -> Owner | Challenge:
        if claims is None:
            return self._invalid
        audience = (claims.audience,) if isinstance(claims.audience, str) else claims.audience
        if self._audience not in (_canonical(uri) for uri in audience):
            return self._invalid
        if not self._required <= set(claims.scopes):
            return self._too_weak
        return Owner(claims.tenant or self._tenant, claims.subject)


def _canonical(uri: str) -> str:
    """A URI as audiences are compared: scheme and host in lower case, no slash at the end."""
    parts = urlsplit(uri)
    return parts._replace(scheme=parts.scheme.lower(), netloc=parts.netloc.lower()).geturl().rstrip("/")


@attrs.frozen(kw_only=True)
class ProtectedResource:
    """The protected-resource metadata document, which tells clients where to get tokens.

    Args:
        resource: the canonical URI of this server, as clients name it when they ask for a token.
        authorization_servers: their issuer URLs, 1 or more.
        scopes_supported: what basic use needs.
        more: further members, raw, such as ``resource_name``.

    Raises:
        LocalProtocolError: the resource is no URI of a server, or no authorization server is named.

    Source: authorization, Authorization Server Discovery; RFC 9728, section 2.
    """

    resource: str
    authorization_servers: Sequence[str]
    scopes_supported: Sequence[str] = ()
    more: JSONObject = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        parts = urlsplit(self.resource)
        if parts.scheme not in ("https", "http") or not parts.netloc or parts.fragment:
            raise LocalProtocolError(f"resource is an http(s) URL without a fragment, not {self.resource!r}")
        if isinstance(self.authorization_servers, str) or not self.authorization_servers:
            raise LocalProtocolError("authorization_servers is a sequence of 1 issuer URL or more")
        _checked_scopes(self.scopes_supported)

    @property
    def url(self) -> str:
        """Where clients find the document."""
        parts = urlsplit(self.resource)
        return f"{parts.scheme}://{parts.netloc}{_WELL_KNOWN}{parts.path.rstrip('/')}"

    def documents(self, endpoint: str) -> dict[str, bytes]:
        """The document under each path at which clients look for it."""
        members: JSONObject = {
            "resource": self.resource,
            "authorization_servers": list(self.authorization_servers),
            "bearer_methods_supported": ["header"],
        }
        if self.scopes_supported:
            members["scopes_supported"] = list(self.scopes_supported)
        body = json.dumps({**self.more, **members}, separators=(",", ":")).encode()
        paths = (_WELL_KNOWN, _WELL_KNOWN + endpoint.rstrip("/"), urlsplit(self.url).path)
        return dict.fromkeys(paths, body)
