"""Sockets to listen on: of a host's addresses, or in the file system for this user alone."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path
from typing import Any, Final

import anyio

_BACKLOG: Final = 512
# This machine does not have an address, or a family, that a name such as localhost stands for.
_ABSENT: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


async def bind(
    host: str, port: int, unix_socket: str | Path | None, stack: contextlib.ExitStack
) -> list[socket.socket]:
    """Listening sockets, closed with the stack; all of a host's addresses have the same port.

    Args:
        port: 0 for any that is free.
        unix_socket: a path to listen on in place of host and port.

    Raises:
        OSError: it cannot listen there; says where and why.
    """
    if unix_socket is not None:
        return [stack.enter_context(_bind_unix(Path(unix_socket), stack))]
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    absent = None
    for family, kind, protocol, _, address in dict.fromkeys(found):
        try:
            listening = _bind_internet(family, kind, protocol, (address[0], port, *address[2:]))
        except OSError as error:
            if error.errno not in _ABSENT:
                raise OSError(error.errno, f"cannot listen on {address[0]} port {port}: {error.strerror}") from error
            absent = error
            continue
        sockets.append(stack.enter_context(listening))
        port = listening.getsockname()[1]
    if not sockets:
        raise OSError(absent and absent.errno, f"cannot listen on {host}: {absent and absent.strerror}")
    return sockets


def _bind_internet(family: int, kind: int, protocol: int, address: tuple[Any, ...]) -> socket.socket:
    listening = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        return _listen(listening)
    except OSError:
        listening.close()
        raise


def _bind_unix(path: Path, stack: contextlib.ExitStack) -> socket.socket:
    """A socket in the file system that this user alone can reach, and that goes when the server ends."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise OSError(errno.EEXIST, f"cannot listen on {path}: something that is no socket is there")
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(ConnectionRefusedError):
            probe.connect(str(path))
            raise OSError(errno.EADDRINUSE, f"cannot listen on {path}: a server listens there")
        path.unlink()
    listening = socket.socket(socket.AF_UNIX)
    try:
        before = os.umask(0o177)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
        stack.callback(path.unlink, missing_ok=True)
        return _listen(listening)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"cannot listen on {path}: {error.strerror}") from error


def _listen(listening: socket.socket) -> socket.socket:
    listening.setblocking(False)
    listening.listen(_BACKLOG)
    return listening
