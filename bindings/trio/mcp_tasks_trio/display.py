"""What the command line shows: a live line on a terminal, plain lines anywhere else; on stderr, as a rule.

Whatever a server sends is shown without its control characters, so that it cannot steer the terminal.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Final, Protocol, TextIO

from mcp_tasks_core.identifiers import JSONObject, JSONValue
from mcp_tasks_trio.exit_codes import EndsEarly, ExitCode

_KEPT_CONTROLS: Final = frozenset("\n\t")
_UNPRINTABLE: Final = frozenset({"Cc", "Cs", "Co", "Zl", "Zp"})
# Format characters that turn text around or hide it: U+202A..E, U+2066..9, the tags U+E0000..7F, the soft hyphen, marks
# and zero widths but the joiners, which emoji and several scripts need.
_DECEIVING: Final = frozenset("\u00ad\u061c\u200b\u200e\u200f\u2060\ufeff") | frozenset(
    map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xE0000, 0xE0080)))
)
_LIVE_CHARACTERS: Final = "⠋━╸•"  # of spinners and bars


def printable(text: str, *, keep_lines: bool = False) -> str:
    """The same text with each control or deceiving character as an escape.

    Args:
        keep_lines: line feeds and tabs stay as they are.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character, keep_lines) for character in text)


def _shown(character: str, keep_lines: bool) -> str:
    if keep_lines and character in _KEPT_CONTROLS:
        return character
    if unicodedata.category(character) in _UNPRINTABLE or character in _DECEIVING:
        return character.encode("unicode_escape").decode("ascii")
    return character


class Display(Protocol):
    """Where a command tells the person what happens."""

    def say(self, line: str, *, style: str = "") -> None:
        """One line that stays."""

    def activity(self, text: str, progress: float | None = None, total: float | None = None) -> None:
        """What goes on now; the next activity takes its place."""

    def for_prompt(self) -> AbstractContextManager[None]:
        """While it is entered, nothing moves on the terminal."""

    def close(self) -> None:
        """Nothing goes on any longer."""


class PlainDisplay:
    """For logs and pipes: a line for whatever is new, and no colours.

    Args:
        to_stdout: what is shown is the purpose of the command. Activities are left out then.
    """

    def __init__(self, *, to_stdout: bool = False) -> None:
        self._to_stdout = to_stdout
        self._last = ""

    def say(self, line: str, *, style: str = "") -> None:
        if self._to_stdout:
            _print(line)
            return
        with suppress(OSError):  # nobody reads stderr any longer; that must not end the work
            print(line, file=sys.stderr, flush=True)

    def activity(self, text: str, progress: float | None = None, total: float | None = None) -> None:
        share = "" if progress is None else f" ({progress:g}{'' if total is None else f' of {total:g}'})"
        if text + share != self._last and not self._to_stdout:
            self._last = text + share
            self.say(self._last)

    def for_prompt(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        self._last = ""


class LiveDisplay:
    """For a terminal: a spinner with the present activity below the lines that stay."""

    def __init__(self, *, to_stdout: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=not to_stdout, highlight=False, soft_wrap=True)
        self._bar = BarColumn(bar_width=20)
        self._plain_columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        self._progress = Progress(*self._plain_columns, console=self._console, transient=True)
        self._item = self._progress.add_task("", total=None)
        self._is_live = False

    @property
    def is_dumb(self) -> bool:
        """Whether the terminal cannot move its cursor."""
        return self._console.is_dumb_terminal

    def say(self, line: str, *, style: str = "") -> None:
        self._console.print(line, style=style or None, markup=False, emoji=False)

    def activity(self, text: str, progress: float | None = None, total: float | None = None) -> None:
        if not self._is_live:
            self._is_live = True
            self._progress.start()
        spinner, words, elapsed = self._plain_columns
        self._progress.columns = (spinner, words, elapsed) if total is None else (spinner, words, self._bar, elapsed)
        self._progress.update(self._item, description=text, total=total, completed=progress or 0)

    @contextmanager
    def for_prompt(self) -> Iterator[None]:
        was_live, self._is_live = self._is_live, False
        self._progress.stop()
        try:
            yield
        finally:
            if was_live:
                self._is_live = True
                self._progress.start()

    def close(self) -> None:
        if self._is_live:
            self._is_live = False
            self._progress.stop()


def open_display(*, to_stdout: bool = False) -> Display:
    """The live display where there is a terminal that can be steered, the plain one elsewhere."""
    stream = sys.stdout if to_stdout else sys.stderr
    if not stream.isatty() or not _can_write(_LIVE_CHARACTERS, stream):
        return PlainDisplay(to_stdout=to_stdout)
    display = LiveDisplay(to_stdout=to_stdout)
    return PlainDisplay(to_stdout=to_stdout) if display.is_dumb else display


def _can_write(text: str, stream: TextIO) -> bool:
    try:
        text.encode(stream.encoding)
    except UnicodeEncodeError:
        return False
    return True


# --- what servers say, in words: for anything that may stand there, well-formed or not


def result_text(result: JSONObject) -> str:
    """What a ``CallToolResult`` says, for a person: its blocks, or the structured content where it has none."""
    content = result.get("content", [])
    if not isinstance(content, list):
        return "[content that is no list; --json shows it]"
    lines = [_block_text(block) for block in content]
    if not lines and "structuredContent" in result:
        lines = [json.dumps(result["structuredContent"], ensure_ascii=False, indent=2)]
    return "\n".join(lines)


def _block_text(block: JSONValue) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource", "resource": {"uri": uri}}:
            return f"[resource {uri}]"
        case {"type": "resource_link", "uri": uri, "name": name}:
            return f"[link {name}: {uri}]"
        case {"type": ("image" | "audio") as kind, "mimeType": mime_type, "data": str(data)}:
            return f"[{kind} {mime_type}, {len(data) * 3 // 4} bytes; --json shows it]"
        case {"type": str(kind)}:
            return f"[{kind} content; --json shows it]"
    return "[content of no type; --json shows it]"


def question_text(request: JSONValue) -> str:
    """What an input request asks: its message, or its method where it has none."""
    match request:
        case {"params": {"message": str(message)}}:
            return message
        case {"method": str(method)}:
            return method
    return "a question of no known form"


# --- results on stdout


def write_result(text: str) -> None:
    """Write a result for a person on stdout: as it is into a pipe or a file, without control codes on a terminal.

    Raises:
        BrokenPipeError: nobody reads it.
        EndsEarly: it cannot be written.
    """
    if sys.stdout.isatty():
        _print(printable(text, keep_lines=True))
    else:
        _write_utf8(text + "\n")


def write_json(value: Any) -> None:
    """Write one JSON text as one line of UTF-8 on stdout.

    Raises:
        BrokenPipeError: nobody reads it.
        EndsEarly: it cannot be written.
    """
    _write_utf8(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n")


def _print(line: str) -> None:
    """Print on stdout, with escapes for what its encoding does not have."""
    encoding = sys.stdout.encoding
    print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def _write_utf8(text: str) -> None:
    # The bytes do not depend on the locale.
    try:
        sys.stdout.buffer.write(text.encode("utf-8"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise EndsEarly(ExitCode.TOOL_FAILED, f"stdout cannot be written: {error.strerror}") from None
