"""Streams pass nginx: comments keep quiet ones open, and nothing is held back. In real time: nginx has no other."""

from __future__ import annotations

import functools
from typing import Any

import anyio
import pytest

from mcp_tasks_trio import ConnectionLost
from tests.nginx.passage import Passage, pass_through
from tests.nginx.proxying import WANTING, nginx
from tests.nginx.vigil import Vigil, keep_vigil

pytestmark = pytest.mark.skipif(nginx() is None, reason=WANTING)

both_loops = pytest.mark.parametrize("backend", ["asyncio", "trio"])
READ_TIMEOUT = "proxy_read_timeout 2s;"
PATIENCE_SECONDS = 60


def passed(backend: str, *quiet_seconds: float, **options: Any) -> Passage:
    async def bounded() -> Passage:
        with anyio.fail_after(PATIENCE_SECONDS):
            return await functools.partial(pass_through, quiet_seconds, **options)()

    return anyio.run(bounded, backend=backend)


@both_loops
@pytest.mark.spec("H3")
def test_a_call_that_is_quiet_for_twice_nginx_s_patience_passes_with_all_its_progress(backend: str) -> None:
    passage = passed(backend, 4, 0.5, directives=[READ_TIMEOUT], comment_interval_ms=500)
    assert passage.faults() == []


def test_nginx_cuts_a_stream_that_is_quiet_without_comments() -> None:
    with pytest.raises(ConnectionLost):
        passed("asyncio", 4, 0.5, directives=[READ_TIMEOUT], comment_interval_ms=60_000)


def test_progress_that_nginx_holds_back_is_found() -> None:
    ignoring = "proxy_ignore_headers X-Accel-Buffering;"
    (fault,) = passed("asyncio", 0.2, 0.2, directives=[ignoring]).faults()
    assert "sent 1, sent 2" in fault


def listened(backend: str, quiet_seconds: float, **options: Any) -> Vigil:
    async def bounded() -> Vigil:
        with anyio.fail_after(PATIENCE_SECONDS):
            return await keep_vigil(quiet_seconds, **options)

    return anyio.run(bounded, backend=backend)


@both_loops
@pytest.mark.spec("H3", "S8")
def test_a_listen_that_is_quiet_for_twice_nginx_s_patience_lives_and_is_told_of_the_end(backend: str) -> None:
    vigil = listened(backend, 4, directives=[READ_TIMEOUT], comment_interval_ms=500)
    assert vigil.faults() == []


def test_nginx_cuts_a_listen_that_is_quiet_without_comments() -> None:
    (fault,) = listened("asyncio", 4, directives=[READ_TIMEOUT], comment_interval_ms=60_000).faults()
    assert "acknowledged, working, the connection ended before it did" in fault
