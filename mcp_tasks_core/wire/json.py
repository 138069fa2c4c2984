"""Bytes to JSON values and back, strictly: what RFC 8259 leaves open is closed here.

Source: basic, Messages; RFC 8259; RFC 7493 (I-JSON) for duplicate names and surrogates.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final, Protocol

from mcp_tasks_core.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR
from mcp_tasks_core.identifiers import JSONValue
from mcp_tasks_core.limits import Limits


class JsonError(ValueError):
    """A text that is not accepted as JSON, or a value that cannot be written as JSON.

    Args:
        code: the JSON-RPC code that answers it: -32700 for what is not JSON, -32600 for too deep or too large,
            -32602 for an integer with too many digits, -32603 for a value of ours that is not JSON.
        message: what was wrong and what is allowed.
        partial: with -32602, the message with ``None`` in place of each refused integer, so that its id can
            still be read.
    """

    def __init__(self, code: int, message: str, partial: JSONValue = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.partial = partial


class JsonCodec(Protocol):
    """What the core reads and writes JSON with.

    A faster codec may be given in its place. An adapter over another parser has to keep what ``StrictJson``
    refuses refused: duplicate names, NaN and infinities, lone surrogates, a byte order mark, too much depth or
    size; and it has to keep integers of any allowed size exact, where some parsers round at 2**53 or 2**64.
    """

    def decode(self, data: bytes) -> JSONValue:
        """The value that one UTF-8 JSON text holds.

        Raises:
            JsonError: the text is refused.
        """
        ...

    def encode(self, value: JSONValue) -> bytes:
        """The value as compact UTF-8 JSON, without a line end.

        Raises:
            JsonError: the value cannot be written as JSON.
        """
        ...


_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_WHITESPACE: Final = " \t\n\r"
# A whole string, or one that the text leaves open: matching that too keeps the search linear on hostile texts.
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_BRACKETS_AS_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_DIGITS_AS_ZERO: Final = bytes.maketrans(b"123456789", b"000000000")


def _refuse_constant(name: str) -> float:
    raise JsonError(PARSE_ERROR, f"the message is not JSON: {name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise JsonError(PARSE_ERROR, f"the number {text[:40]} is too large for a 64-bit float")
    return number


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(members)
    if len(value) != len(members):
        seen: set[str] = set()
        for name, _ in members:
            if name in seen:
                raise JsonError(PARSE_ERROR, f"the member {_shortened(name)} stands twice in one object")
            seen.add(name)
    return value


def _shortened(name: str) -> str:
    shown = name.encode("utf-8", "replace").decode()
    return repr(shown if len(shown) <= 40 else shown[:40] + "…")


def _decoder(parse_int: Callable[[str], Any] | None = None) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_object, parse_float=_finite, parse_constant=_refuse_constant, parse_int=parse_int
    )


def _depth(data: bytes) -> int:
    """How deep arrays and objects nest, brackets inside strings left out."""
    brackets = _STRING.sub(b"", data).translate(_BRACKETS_AS_STEPS, _NOT_BRACKETS)
    return max(accumulate(memoryview(brackets).cast("b")), default=0)


class StrictJson:
    """The standard library's JSON without its leniency, bounded by ``Limits``."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._bytes_max = limits.frame_bytes_max
        self._depth_max = limits.json_depth_max
        self._digits_max = limits.json_integer_digits_max
        self._too_many_digits = b"0" * (limits.json_integer_digits_max + 1)
        self._read = _decoder().raw_decode
        self._write = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

    def decode(self, data: bytes) -> JSONValue:
        """The value that one UTF-8 JSON text holds.

        Raises:
            JsonError: the text is refused.
        """
        size = len(data)
        if size > self._bytes_max:
            message = f"the message has {size} bytes; at most {self._bytes_max} are allowed"
            raise JsonError(INVALID_REQUEST, message)
        # Each check that would walk the message runs only where a cheap count of bytes says that it may find something.
        if data.count(b"[") + data.count(b"{") > self._depth_max and _depth(data) > self._depth_max:
            message = f"arrays and objects nest deeper than the {self._depth_max} levels that are allowed"
            raise JsonError(INVALID_REQUEST, message)
        try:
            text = data.decode().strip(_WHITESPACE)
        except UnicodeDecodeError as error:
            message = f"the message is not UTF-8: {error.reason} at byte {error.start}"
            raise JsonError(PARSE_ERROR, message) from None
        if size > self._digits_max and self._too_many_digits in data.translate(_DIGITS_AS_ZERO):
            value = self._decode_with_long_integers(text)
        else:
            value = self._decode_text(self._read, text)
        if b"\\u" in data:
            self._refuse_lone_surrogates(value)
        return value

    def encode(self, value: JSONValue) -> bytes:
        """The value as compact UTF-8 JSON, without a line end.

        Raises:
            JsonError: the value holds NaN or an infinity, a lone surrogate, something that JSON has no type for,
                or a member whose name is not a string.
        """
        try:
            _refuse_odd_names(value)
            return self._write(value).encode()
        except UnicodeEncodeError:
            problem = "a string holds a lone surrogate, which UTF-8 has no bytes for"
        except TypeError as error:
            problem = str(error)
        except RecursionError:
            problem = "the value nests too deep or holds itself"
        except ValueError as error:
            problem = str(error)
        raise JsonError(INTERNAL_ERROR, f"the value cannot be written as JSON: {problem}")

    def _decode_text(self, read: Callable[[str], tuple[Any, int]], text: str) -> JSONValue:
        try:
            value, end = read(text)
        except json.JSONDecodeError as error:
            raise JsonError(PARSE_ERROR, _what_is_wrong(text, error)) from None
        except JsonError:
            raise
        except RecursionError:
            raise JsonError(INVALID_REQUEST, "arrays and objects nest too deep") from None
        except ValueError:
            # The interpreter's own bound on digits is set below ours.
            return self._decode_with_long_integers(text)
        if end != len(text):
            message = f"the message is not JSON: text goes on after the value, at character {end}"
            raise JsonError(PARSE_ERROR, message)
        return value  # type: ignore[no-any-return]

    def _decode_with_long_integers(self, text: str) -> JSONValue:
        refused: list[int] = []

        def parse_int(digits: str) -> int | None:
            count = len(digits.lstrip("-"))
            if count <= self._digits_max:
                try:
                    return int(digits)
                except ValueError:
                    pass
            refused.append(count)
            return None

        partial = self._decode_text(_decoder(parse_int).raw_decode, text)
        if refused:
            message = f"an integer has {refused[0]} digits; at most {self._digits_max} are allowed"
            raise JsonError(INVALID_PARAMS, message, partial)
        return partial

    def _refuse_lone_surrogates(self, value: JSONValue) -> None:
        try:
            self._write(value).encode()
        except UnicodeEncodeError:
            raise JsonError(PARSE_ERROR, "a string holds a lone surrogate escape; they come in pairs") from None


def _what_is_wrong(text: str, error: json.JSONDecodeError) -> str:
    if not text:
        return "the message is empty; one JSON object is expected"
    if text.startswith(_BYTE_ORDER_MARK.decode()):
        return "the message starts with a byte order mark; JSON text has none"
    reason = error.msg[:1].lower() + error.msg[1:]
    return f"the message is not JSON: {reason}, at character {error.pos}"


_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def _refuse_odd_names(value: Any) -> None:
    """Names that are not strings, which the standard encoder would turn into some."""
    if isinstance(value, dict):
        "".join(value)  # Joining is the quickest look at every name; its TypeError tells what stood there.
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return
    for member in value:
        if type(member) not in _SCALARS:
            _refuse_odd_names(member)
