"""Reading from and writing to file descriptors without an event loop: what both pumps need.

Descriptors that a selector cannot watch (regular files, ``/dev/null``) and terminals, whose settings are shared
with other programs, are read in a thread and written directly.
"""

from __future__ import annotations

import errno
import os
import selectors
import stat
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from mcp_tasks_trio.threads import LoopPortal

_WRITE_BYTES: Final = 1024 * 1024  # one write; bounds what a partial write makes us copy


def may_be_watched(fd: int) -> bool:
    """Whether a selector tells when this descriptor can be read or written."""
    if os.isatty(fd):
        return False
    selector = selectors.DefaultSelector()
    try:
        selector.register(fd, selectors.EVENT_READ)
    except (OSError, ValueError):
        return False
    finally:
        selector.close()
    return True


def is_fifo(fd: int) -> bool:
    """Whether it is a pipe, whose writing end becomes readable when nobody reads it any longer."""
    return stat.S_ISFIFO(os.fstat(fd).st_mode)


class ThreadReader:
    """Reads a descriptor in a daemon thread and hands the bytes to the event loop.

    Args:
        receive: called in the loop with bytes, and with none at the end.
        bytes_max: of one read.
    """

    def __init__(self, fd: int, receive: Callable[[bytes], None], bytes_max: int) -> None:
        self._fd = fd
        self._receive = receive
        self._bytes_max = bytes_max
        self._portal = LoopPortal()
        self._may_read = threading.Event()
        self._may_read.set()
        threading.Thread(target=self._run, name="mcp-tasks stdin", daemon=True).start()

    def pause(self) -> None:
        self._may_read.clear()

    def resume(self) -> None:
        self._may_read.set()

    def _run(self) -> None:
        data = b"."
        while data:
            self._may_read.wait()
            try:
                data = os.read(self._fd, self._bytes_max)
            except OSError:  # closed under us, or a terminal that is gone: there is nothing more to come
                data = b""
            if not self._portal.call_soon(self._receive, data):
                return


class FdWriter:
    """Writes to a descriptor as much as it takes, and keeps the rest.

    Args:
        blocked: called when bytes had to be kept: call ``write_on`` when the descriptor can be written again.
        progressed: called when some of them are out, and not all.
        broken: called with the reason when nothing can be written any longer.
    """

    def __init__(
        self,
        fd: int,
        blocked: Callable[[], None],
        progressed: Callable[[], None],
        broken: Callable[[str], None],
    ) -> None:
        self._fd = fd
        self._blocked = blocked
        self._progressed = progressed
        self._broken = broken
        self._kept: deque[memoryview] = deque()
        self._is_broken = False
        self.bytes_kept = 0

    def write(self, data: bytes) -> None:
        """Write now what can be written now. Never waits for a pipe; never raises."""
        if self._is_broken:
            return
        self._kept.append(memoryview(data))
        self.bytes_kept += len(data)
        if len(self._kept) == 1 and not self.write_on() and not self._is_broken:
            self._blocked()

    def write_on(self) -> bool:
        """Write what was kept; ``True`` when all of it is out."""
        before = self.bytes_kept
        while self._kept:
            part = self._kept[0]
            try:
                written = os.write(self._fd, part[:_WRITE_BYTES])
            except BlockingIOError:
                if self.bytes_kept < before:
                    self._progressed()
                return False
            except InterruptedError:  # pragma: no cover - Python repeats interrupted calls itself
                continue
            except OSError as error:
                self._give_up(error)
                return False
            self.bytes_kept -= written
            if written == len(part):
                self._kept.popleft()
            else:
                self._kept[0] = part[written:]
        return True

    def _give_up(self, error: OSError) -> None:
        self._is_broken = True
        self._kept.clear()
        self.bytes_kept = 0
        gone = error.errno in (errno.EPIPE, errno.ECONNRESET)
        self._broken("nobody reads stdout any longer" if gone else f"stdout: {error}")
