"""``server/discover``, and what the errors of negotiation carry.

Source: discover; versioning; basic, Error Codes.
"""

from __future__ import annotations

from typing import Any, Literal

import attrs

from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.wire.converter import DecodeError, register, shown
from mcp_tasks_core.wire.tools import fresh_for_ms


@attrs.frozen(kw_only=True)
class DiscoverParams:
    """Params of ``server/discover``."""

    meta: JSONObject | None = None


@attrs.frozen(kw_only=True)
class DiscoverResult:
    """What a server speaks and offers.

    Args:
        capabilities: raw.
        ttl_ms: milliseconds; 0, stale at once, where a server wrote none.
        cache_scope: ``private`` where a server wrote none.

    Source: discover, DiscoverResult; caching.
    """

    result_type: Literal["complete"] = "complete"
    supported_versions: tuple[str, ...]
    capabilities: JSONObject
    instructions: str | None = None
    ttl_ms: int = attrs.field(default=0, converter=fresh_for_ms)
    cache_scope: Literal["public", "private"] = "private"
    meta: JSONObject | None = None


@attrs.frozen(kw_only=True)
class EmptyResult:
    """A result that says no more than that the request was accepted: of ``tasks/update`` and ``tasks/cancel``."""

    result_type: Literal["complete"] = "complete"
    meta: JSONObject | None = None


@attrs.frozen(kw_only=True)
class MissingCapabilityData:
    """Data of error -32021.

    Args:
        required_capabilities: a client capabilities object that would have sufficed, raw.
        others: further members that the sender added.

    Source: basic, Error Codes.
    """

    required_capabilities: JSONObject
    others: JSONObject = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class UnsupportedVersionData:
    """Data of error -32022.

    Args:
        supported: every version that the server speaks.
        others: further members that the sender added.

    Source: versioning.
    """

    supported: tuple[str, ...]
    requested: str
    others: JSONObject = attrs.field(factory=dict)


def _read_missing_capability(value: Any) -> MissingCapabilityData:
    others = _members(value)
    required = others.pop("requiredCapabilities", None)
    if type(required) is not dict:
        raise DecodeError(".requiredCapabilities", f"an object, not {shown(required)}")
    return MissingCapabilityData(required_capabilities=required, others=others)


def _write_missing_capability(data: MissingCapabilityData) -> JSONObject:
    return {"requiredCapabilities": data.required_capabilities, **data.others}


def _read_unsupported_version(value: Any) -> UnsupportedVersionData:
    others = _members(value)
    supported, requested = others.pop("supported", None), others.pop("requested", None)
    if type(supported) is not list or not all(type(version) is str for version in supported):
        raise DecodeError(".supported", f"an array of strings, not {shown(supported)}")
    if type(requested) is not str:
        raise DecodeError(".requested", f"a string, not {shown(requested)}")
    return UnsupportedVersionData(supported=tuple(supported), requested=requested, others=others)


def _write_unsupported_version(data: UnsupportedVersionData) -> JSONObject:
    return {"supported": list(data.supported), "requested": data.requested, **data.others}


def _members(value: Any) -> JSONObject:
    if type(value) is not dict:
        raise DecodeError("", f"an object, not {shown(value)}")
    return dict(value)


register(MissingCapabilityData, _read_missing_capability, _write_missing_capability)
register(UnsupportedVersionData, _read_unsupported_version, _write_unsupported_version)
