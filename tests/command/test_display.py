"""What the command line lets through to a terminal, and how results look to a person."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from mcp_tasks_trio.display import LiveDisplay, PlainDisplay, open_display, printable, question_text, result_text
from mcp_tasks_trio.stderr_lines import StderrLines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("é ✓ 🎉 日本", "é ✓ 🎉 日本"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x00\x7f\x9b", "\\x00\\x7f\\x9b"),
        ("\u202etxt.exe", "\\u202etxt.exe"),
        ("\u2028", "\\u2028"),
        ("\ufeff\u200b", "\\ufeff\\u200b"),
        ("in\u00advisible", "in\\xadvisible"),
        ("a\U000e0041\U000e007f", "a\\U000e0041\\U000e007f"),
    ],
)
def test_control_and_deceiving_characters_become_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_line_ends_and_tabs_are_kept_where_lines_are_wanted() -> None:
    assert printable("a\n\tb\x1b", keep_lines=True) == "a\n\tb\\x1b"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": []}, ""),
        ({"content": [], "structuredContent": {"ä": 1}}, '{\n  "ä": 1\n}'),
        ({"content": [{"type": "text", "text": "a"}], "structuredContent": {"b": 1}}, "a"),
        (
            {"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA"}]},
            "[image image/png, 3 bytes; --json shows it]",
        ),
        ({"content": [{"type": "resource_link", "uri": "file:///a", "name": "A"}]}, "[link A: file:///a]"),
        ({"content": [{"type": "resource", "resource": {"uri": "x:y", "text": "inside"}}]}, "inside"),
        ({"content": [{"type": "resource", "resource": {"uri": "x:y", "blob": "AA=="}}]}, "[resource x:y]"),
        ({"content": [{"type": "hologram"}]}, "[hologram content; --json shows it]"),
        ({}, ""),
        ({"structuredContent": 5}, "5"),
        ({"content": 5}, "[content that is no list; --json shows it]"),
        ({"content": None}, "[content that is no list; --json shows it]"),
        ({"content": ["a", None, 5, []]}, "\n".join(["[content of no type; --json shows it]"] * 4)),
        (
            {"content": [{"type": 5}, {"type": "text"}]},
            "[content of no type; --json shows it]\n[text content; --json shows it]",
        ),
        ({"content": [{"type": "resource", "resource": 5}]}, "[resource content; --json shows it]"),
        ({"content": [{"type": "text", "text": None}]}, "[text content; --json shows it]"),
    ],
)
def test_result_is_shown_by_its_blocks(result: Any, text: str) -> None:
    assert result_text(result) == text


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"method": "elicitation/create", "params": {"message": "How many?"}}, "How many?"),
        ({"method": "roots/list"}, "roots/list"),
        ({"method": "elicitation/create", "params": None}, "elicitation/create"),
        ({"method": "elicitation/create", "params": [1]}, "elicitation/create"),
        ({"method": "elicitation/create", "params": {"message": 5}}, "elicitation/create"),
        ({"method": 5}, "a question of no known form"),
        (None, "a question of no known form"),
        ([], "a question of no known form"),
    ],
)
def test_question_is_told_in_words_whatever_it_is(request_: Any, text: str) -> None:
    assert question_text(request_) == text


class Unread(io.StringIO):
    """A stream that nobody reads any longer."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_nobody_who_reads_stderr_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Unread())
    PlainDisplay().say("half way")
    with pytest.raises(BrokenPipeError):
        sys.stderr.write("half way")


def test_stdout_that_lacks_characters_gets_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    PlainDisplay(to_stdout=True).say("é ✓")
    assert written.getvalue() == b"\\xe9 \\u2713\n"


@pytest.mark.parametrize(("encoding", "is_live"), [("ascii", False), ("latin-1", False), ("utf-8", True)])
def test_live_line_needs_a_terminal_that_has_its_characters(
    monkeypatch: pytest.MonkeyPatch, encoding: str, is_live: bool
) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal(io.BytesIO(), encoding=encoding))
    assert isinstance(open_display(), LiveDisplay if is_live else PlainDisplay)


def test_activity_is_a_line_of_its_own_only_when_it_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay()
    for progress in (0, 0, 1):
        display.activity("reading", progress, 3)
    display.activity("done")
    captured = capsys.readouterr()
    assert captured.err == "reading (0 of 3)\nreading (1 of 3)\ndone\n"
    assert captured.out == ""


def test_stderr_of_a_server_is_cut_into_lines_wherever_its_bytes_were_cut(capsys: pytest.CaptureFixture[str]) -> None:
    lines = StderrLines(PlainDisplay(), quiet=False)
    for byte in "é one\r\ntwo\n\xff".encode() + b"\xff":
        lines.receive_data(bytes([byte]))
    lines.finish()
    assert capsys.readouterr().err == "server| é one\nserver| two\nserver| ÿ\\xff\n"


def test_stderr_without_line_ends_is_shown_in_parts_and_not_kept(capsys: pytest.CaptureFixture[str]) -> None:
    lines = StderrLines(PlainDisplay(), quiet=False)
    lines.receive_data(b"x" * 20_000)
    assert capsys.readouterr().err.count("x") == 16_384


def test_quiet_keeps_the_last_lines_for_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    lines = StderrLines(PlainDisplay(), quiet=True)
    for number in range(1000):
        lines.receive_data(b"%d\n" % number)
    assert capsys.readouterr().err == ""
    lines.show_hidden()
    assert capsys.readouterr().err.splitlines() == [f"server| {number}" for number in range(900, 1000)]
