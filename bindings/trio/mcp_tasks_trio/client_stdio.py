"""A client of a server that it starts itself, as a child process on stdin, stdout and stderr.

Source: stdio.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream, Process

from mcp_tasks_core.client.config import ClientConfig
from mcp_tasks_core.client.effects import Frame
from mcp_tasks_core.client.events import CallId, ConnectionLost, MessageReceived, MessageRefused
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.limits import Limits
from mcp_tasks_stdio import (
    LineReceived,
    LineSkipped,
    ShutdownLadder,
    ShutdownStep,
    ShutdownWaits,
    SkipReason,
    StderrTail,
    StdioClientConnection,
    StdioClientEvent,
    TooMuchJunk,
)
from mcp_tasks_trio.client import DEFAULT_CLIENT_INFO, Client, configured, set_going
from mcp_tasks_trio.client_connection import LogHandler
from mcp_tasks_trio.client_errors import ServerNotStarted

_log: Final = logging.getLogger("mcp_tasks.client")

# How long an end of stdout waits for the exit status, and an exit for the rest of stdout. 0.4 s: callers hear within
# a second what happened, and a dying process has long been reaped.
_LAST_WORDS_S: Final = 0.4
# How long what is still to be sent may take to go out when the client closes. 2 s: a living server reads at once.
_FLUSH_S: Final = 2.0
# How long a killed process may take to be reaped when the event loop itself is ending.
_REAP_S: Final = 1.0


class ChildProcess:
    """The transport: one child process, its three pipes, and its end.

    Everything runs in one background task of its own. No cancel scope and no task group of a caller is ever held
    open, so that a client can be closed from another task than it was opened in, and in any order with others.
    """

    def __init__(
        self,
        process: Process,
        client: Client,
        *,
        limits: Limits,
        waits: ShutdownWaits,
        on_stderr: Callable[[bytes], None] | None,
    ) -> None:
        self._process = process
        self._client = client
        self._connection = StdioClientConnection(limits)
        self._waits = waits
        self._on_stderr = on_stderr
        self._stderr = StderrTail()
        self._to_send = anyio.Event()
        self._sent = anyio.Event()
        self._sending = False
        self._stdin_is_broken = False
        self._over = anyio.Event()
        self._stdout_ended = anyio.Event()
        self._stderr_ended = anyio.Event()
        self._gone = anyio.Event()
        self._lost = False
        self._closing = False

    # --- Transport

    def send(self, frame: Frame) -> None:
        if not self._lost:
            self._connection.send(frame.payload)
            self._to_send.set()

    def close_stream(self, call_id: CallId) -> None:
        raise LocalProtocolError("on stdio no request has a stream of its own")

    def end(self, reason: str) -> None:
        _log.warning("the connection is ended: %s", reason)
        self._lost = True
        self._over.set()

    async def aclose(self) -> None:
        self._closing = True
        self._over.set()
        # The ladder is bounded, and half a shutdown would leave a process behind.
        with anyio.CancelScope(shield=True):
            await self._gone.wait()

    # --- the background task

    async def run(self) -> None:
        """Carry everything until the connection is over, then end the process."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._write)
                group.start_soon(self._read)
                group.start_soon(self._drain_stderr)
                group.start_soon(self._watch_exit)
                group.start_soon(self._client.keep_time)
                await self._over.wait()
                # Pipes are drained all along: a server that blocks on a full one could not exit.
                await self._shut_down()
                group.cancel_scope.cancel()
        except Exception:
            _log.exception("the connection to the server failed")
        finally:
            await self._clear_away()

    async def _write(self) -> None:
        assert self._process.stdin is not None
        while True:
            await self._to_send.wait()
            self._to_send, self._sending = anyio.Event(), True
            try:
                await self._process.stdin.send(self._connection.data_to_send())
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                await self._stdin_broke()
                return
            finally:
                self._sending = False
                self._sent.set()
            self._sent = anyio.Event()

    async def _stdin_broke(self) -> None:
        """What the server wrote before it went is still to be read; its end comes of that."""
        self._stdin_is_broken = True
        with anyio.move_on_after(_LAST_WORDS_S):
            await self._stdout_ended.wait()
        await self._lose("the server no longer reads its standard input")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for data in _chunks(self._process.stdout):
            for event in self._connection.receive_data(data):
                self._take(event)
        for event in self._connection.receive_eof():
            self._take(event)
        self._stdout_ended.set()
        await self._lose("the server closed its standard output")

    def _take(self, event: StdioClientEvent) -> None:
        match event:
            case LineReceived(payload):
                self._client.feed(MessageReceived(payload))
            case LineSkipped(excerpt, reason):
                # A line without a message counts towards the core's own bound on junk, too.
                beginning = excerpt if reason is SkipReason.TOO_LONG else ""
                self._client.feed(MessageRefused(f"{reason.value}: {excerpt}", None, beginning))
            case TooMuchJunk(_, message):
                self._client.feed(ConnectionLost(reason=message, stderr_tail=self._stderr.text()))
                self.end(message)

    async def _drain_stderr(self) -> None:
        assert self._process.stderr is not None
        async for data in _chunks(self._process.stderr):
            self._stderr.receive_data(data)
            if self._on_stderr is not None:
                try:
                    self._on_stderr(data)
                except Exception:
                    _log.exception("a handler of the server's standard error failed")
                    self._on_stderr = None
        self._stderr_ended.set()

    async def _watch_exit(self) -> None:
        await self._process.wait()
        with anyio.move_on_after(_LAST_WORDS_S):
            await self._stdout_ended.wait()
        await self._lose("the server's process ended")

    async def _lose(self, reason: str) -> None:
        """The connection is over: say so at once, with what the process leaves behind."""
        if not self._lost:
            self._lost = True
            with anyio.move_on_after(_LAST_WORDS_S):
                await self._process.wait()
                await self._stderr_ended.wait()
            self._tell_lost(reason)
        self._over.set()

    def _tell_lost(self, reason: str) -> None:
        self._lost = True
        self._client.feed(
            ConnectionLost(
                reason=reason if not self._closing else "the client was closed",
                exit_status=self._process.returncode,
                stderr_tail=self._stderr.text(),
                closed_here=self._closing,
            )
        )

    # --- the end

    async def _shut_down(self) -> None:
        """Close stdin, wait, terminate, wait, kill. Source: stdio, Shutdown."""
        if not self._lost:
            with anyio.move_on_after(_FLUSH_S):
                while (self._sending or self._connection.bytes_pending) and not self._stdin_is_broken:
                    await self._sent.wait()
            self._tell_lost("the connection was ended")
        ladder = ShutdownLadder(self._waits)
        step = ladder.begin(_now_ms())
        while not ladder.finished:
            if step is not None:
                await self._take_step(step)
            deadline_ms = ladder.deadline_ms
            if deadline_ms is None:
                break
            with anyio.move_on_after(max(0, deadline_ms / 1000 - anyio.current_time())):
                await self._process.wait()
                ladder.process_exited()
            step = ladder.tick(_now_ms())

    async def _take_step(self, step: ShutdownStep) -> None:
        match step:
            case ShutdownStep.CLOSE_INPUT:
                assert self._process.stdin is not None
                with contextlib.suppress(OSError, anyio.BrokenResourceError):
                    await self._process.stdin.aclose()
            case ShutdownStep.TERMINATE:
                self._signal(signal.SIGTERM)
            case ShutdownStep.KILL:
                self._signal(_KILL)
            case ShutdownStep.ABANDON:
                _log.error("the server's process %d does not end, not even when killed", self._process.pid)

    def _signal(self, number: signal.Signals) -> None:
        """To the whole process group where there is one: a server behind a wrapper such as a shell goes, too."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if _HAS_GROUPS:
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)

    async def _clear_away(self) -> None:
        """Leave no process and no waiting caller behind, whatever ended the background task."""
        try:
            if self._process.returncode is None:
                self._signal(_KILL)
            with anyio.move_on_after(_REAP_S, shield=True):
                await self._process.wait()
                await self._process.aclose()
        finally:
            self._tell_lost("the connection was ended")
            self._gone.set()


_HAS_GROUPS: Final = os.name == "posix"
_KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)


async def _chunks(stream: ByteReceiveStream) -> AsyncIterator[bytes]:
    """What a pipe gives, to its end, however it ends."""
    while True:
        try:
            data = await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return
        yield data


def _now_ms() -> int:
    return int(anyio.current_time() * 1000)


async def open_stdio(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    client_info: JSONObject | None = DEFAULT_CLIENT_INFO,
    capabilities: JSONObject | None = None,
    on_log: LogHandler | None = None,
    on_stderr: Callable[[bytes], None] | None = None,
    probe: bool = True,
    probe_timeout: float | None = None,
    config: ClientConfig | None = None,
    shutdown: ShutdownWaits | None = None,
) -> Client:
    """Start a server and connect to it. Whoever opens it closes it: ``await client.aclose()``, from any task.

    Args:
        command: the program and its arguments; no shell reads them.
        env: the whole environment of the server; that of this process by default.
        client_info: what the client says it is; ``None`` to say nothing.
        capabilities: what the client can do for the server; form elicitation by default.
        on_log: called with log messages that requests asked for; it must not wait.
        on_stderr: called with what the server writes on its standard error, as it comes; it must not wait.
        probe: ask the server first whether it speaks this revision, and fail if it does not.
        probe_timeout: seconds of silence after which it does not; 10 by default.
        config: everything else, in place of ``client_info`` and ``capabilities``.
        shutdown: how long each step of the shutdown is given.

    Raises:
        ServerNotStarted: the command cannot be run.
        LegacyServer: the server speaks another revision.
        ClientError: it could not be asked.
        LocalProtocolError: the command or the configuration makes no sense.
    """
    words = _checked_command(command)
    config = configured(config, client_info, capabilities)
    client = Client(config, on_log)
    process = await _start_process(words, env, cwd)
    child = ChildProcess(process, client, limits=config.limits, waits=shutdown or ShutdownWaits(), on_stderr=on_stderr)
    await set_going(client, child, probe=probe, probe_timeout=probe_timeout)
    return client


@contextlib.asynccontextmanager
async def connect_stdio(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    client_info: JSONObject | None = DEFAULT_CLIENT_INFO,
    capabilities: JSONObject | None = None,
    on_log: LogHandler | None = None,
    on_stderr: Callable[[bytes], None] | None = None,
    probe: bool = True,
    probe_timeout: float | None = None,
    config: ClientConfig | None = None,
    shutdown: ShutdownWaits | None = None,
) -> AsyncIterator[Client]:
    """The same as a context: the server is ended with it. Arguments and errors are those of ``open_stdio``."""
    client = await open_stdio(
        command,
        env=env,
        cwd=cwd,
        client_info=client_info,
        capabilities=capabilities,
        on_log=on_log,
        on_stderr=on_stderr,
        probe=probe,
        probe_timeout=probe_timeout,
        config=config,
        shutdown=shutdown,
    )
    try:
        yield client
    finally:
        await client.aclose()


def _checked_command(command: Sequence[str]) -> list[str]:
    words = [] if isinstance(command, (str, bytes)) else list(command)
    if not words or not all(isinstance(word, str) for word in words):
        raise LocalProtocolError(f"a command is a sequence of strings, the program first, not {command!r}")
    return words


async def _start_process(words: list[str], env: Mapping[str, str] | None, cwd: str | Path | None) -> Process:
    try:
        return await anyio.open_process(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            # Ctrl-C at a terminal is for this process: it cancels, tells the server, and closes in good order.
            start_new_session=_HAS_GROUPS,
        )
    except (OSError, ValueError) as error:
        where = "" if cwd is None else f" in {str(cwd)!r}"
        raise ServerNotStarted(f"the server's command {words[0]!r} cannot be run{where}: {error}") from error
