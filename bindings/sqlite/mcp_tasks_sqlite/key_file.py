"""The file that holds the keys of a sealed store.

One key a line: its id, white space, and 32 random bytes in Base64. The first key seals, all open. Empty lines and
lines that begin with ``#`` do not count. The file is its owner's alone, as a private key is.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_sqlite.sealing import SealingKey

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_key_file(path: str | os.PathLike[str]) -> list[SealingKey]:
    """The keys in a file, the sealing one first.

    Raises:
        LocalProtocolError: the file cannot be read, others may read it, or a line of it is no key. What the file
            holds is never part of the text.
    """
    try:
        with open(path, encoding="ascii") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            lines = file.read().splitlines()
    except OSError as error:
        raise LocalProtocolError(f"the key file {os.fspath(path)} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise LocalProtocolError(f"the key file {os.fspath(path)} holds something else than ASCII text") from None
    if os.name == "posix" and mode & _OTHERS:
        raise LocalProtocolError(
            f"the key file {os.fspath(path)} is open to other users (mode {mode:04o}): chmod 600 it, and think about "
            "who may have read it"
        )
    keys = [
        _key(line, f"line {number} of the key file {os.fspath(path)}")
        for number, line in enumerate(lines, start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not keys:
        raise LocalProtocolError(f"the key file {os.fspath(path)} holds no key")
    if len({key.key_id for key in keys}) != len(keys):
        raise LocalProtocolError(f"the key file {os.fspath(path)} holds two keys of one id")
    return keys


def _key(line: str, place: str) -> SealingKey:
    parts = line.split()
    if len(parts) != 2:
        raise LocalProtocolError(f"{place} is not a key's id and, after white space, its 32 bytes in Base64")
    try:
        return SealingKey(parts[0], base64.b64decode(parts[1], validate=True))
    except (binascii.Error, LocalProtocolError):
        raise LocalProtocolError(f"{place} holds no 32 bytes in Base64 after the key's id") from None
