"""A real nginx in front of a server on loopback, with its defaults."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

WANTING: Final = "needs nginx: apt-get install nginx-light"
_START_SECONDS: Final = 20
_STOP_SECONDS: Final = 10
# What Debian's nginx says, at level notice, when its sockets listen and its workers are about to accept.
_SERVES: Final = "start worker process "
# Only where files go is said here, so that nothing outside of the folder is touched. How requests are passed on is
# as nginx has it by default: HTTP/1.0 to the server, answers buffered, 60 seconds of silence allowed.
_CONFIGURATION: Final = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr notice;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/proxied;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://127.0.0.1:{upstream};
            {directives}
        }}
    }}
}}
"""


class NginxNotServing(Exception):
    """nginx is not here, or ended before it served; the message holds what it said."""


def nginx() -> str | None:
    """The program; Debian keeps it where ordinary users do not look."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/local/bin")


@contextmanager
def nginx_before(upstream: int, directives: Sequence[str] = ()) -> Iterator[str]:
    """The URL under which nginx passes everything on to a port of loopback, while the block runs.

    Args:
        directives: said beside ``proxy_pass``, each with its semicolon; none leaves nginx its defaults.

    Raises:
        NginxNotServing: it is not here, or does not come so far.
    """
    program = nginx()
    if program is None:
        raise NginxNotServing(WANTING)
    with tempfile.TemporaryDirectory(prefix="mcp-tasks-nginx-") as name:
        folder, port = Path(name), _free_port()
        folder.chmod(0o755)  # started by root, its workers are another user
        configuration = folder / "nginx.conf"
        configuration.write_text(
            _CONFIGURATION.format(folder=folder, port=port, upstream=upstream, directives=" ".join(directives))
        )
        command = [program, "-e", "stderr", "-p", name, "-c", str(configuration)]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                _wait_until_it_serves(process)
                yield f"http://127.0.0.1:{port}/mcp"
            finally:
                _stop(process)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_it_serves(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    overdue = threading.Timer(_START_SECONDS, process.kill)
    overdue.start()
    said = ""
    try:
        for line in process.stderr:
            said += line
            if _SERVES in line:
                return
    finally:
        overdue.cancel()
    raise NginxNotServing(f"nginx ended before it served:\n{said}")


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
