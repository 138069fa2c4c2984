"""Runs a server and keeps what its client writes: ``recorder.py FILE COMMAND...``"""

from __future__ import annotations

import subprocess
import sys

with open(sys.argv[1], "ab", buffering=0) as kept, subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE) as server:
    assert server.stdin is not None
    for line in sys.stdin.buffer:
        kept.write(line)
        server.stdin.write(line)
        server.stdin.flush()
    server.stdin.close()
sys.exit(server.returncode)
