"""TLS between a socket's bytes and a connection's, without I/O: the standard library's engine on two buffers."""

from __future__ import annotations

import contextlib
import ssl
from typing import Final

_READ_BYTES: Final = 64 * 1024


class TlsLayer:
    """The server's end of one TLS connection. Its errors are ``ssl.SSLError``, and end it."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._held = b""  # could not be encrypted before the peer has spoken

    def receive_data(self, data: bytes) -> None:
        self._incoming.write(data)

    def shake_hands(self) -> bool:
        """Go on with the handshake as far as it goes; whether it is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def data_to_send(self) -> bytes:
        """Bytes for the socket."""
        return self._outgoing.read()

    def decrypt(self, data: bytes) -> tuple[bytes, bool]:
        """The connection's bytes that came with these, and whether the peer ended it."""
        self._incoming.write(data)
        plain, ended = [], False
        with contextlib.suppress(ssl.SSLWantReadError):
            while not ended:
                piece = self._tls.read(_READ_BYTES)
                plain.append(piece)
                ended = not piece
        if self._held:
            held, self._held = self._held, b""
            self._write(held)
        return b"".join(plain), ended

    def encrypt(self, data: bytes) -> bytes:
        """Bytes for the socket that hold these."""
        if self._held:
            self._held += data
        else:
            self._write(data)
        return self._outgoing.read()

    def close(self) -> bytes:
        """Bytes for the socket that say that nothing more comes."""
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        return self._outgoing.read()

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[self._tls.write(view) :]
        except ssl.SSLWantReadError:
            self._held = bytes(view)
