"""The official suite and Node 22: where they are, and how they come there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import attrs

NODE_MAJOR: Final = 22  # the suite imports what Node 20 does not have, and says nothing of it
PACKAGES: Final = ("node@22", "@modelcontextprotocol/conformance@0.2.0-alpha.12")
CLIENT_PACKAGES: Final = ("@modelcontextprotocol/ext-tasks@0.2.2", "@modelcontextprotocol/client@2")
_SUITE: Final = Path("node_modules/@modelcontextprotocol/conformance")
_TASKS_CLIENT: Final = Path("node_modules/@modelcontextprotocol/ext-tasks")
_NPM_SECONDS: Final = 300

WANTING: Final = "needs Node 22 and the official packages: python -m tests.conformance --install"


class CannotInstall(Exception):
    """npm is missing or failed; the message says how."""


@attrs.frozen
class Official:
    """An installation of the official packages."""

    folder: Path
    node: Path

    @property
    def suite(self) -> list[str]:
        """The command line of the suite, without its arguments."""
        return [str(self.node), str(self.folder / _SUITE / "dist/index.js")]


def folder() -> Path:
    """Where the packages are kept: ``MCP_CONFORMANCE_DIR``, or a folder of their own in the user's cache."""
    named = os.environ.get("MCP_CONFORMANCE_DIR")
    if named:
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    versions = "-".join(package.rpartition("@")[2] for package in (*PACKAGES, *CLIENT_PACKAGES))
    return cache / "mcp-tasks" / f"official-{versions}"


def find() -> Official | None:
    """The official packages, where they are installed and a Node that runs them is there, too."""
    place = folder()
    if not (place / _SUITE).is_dir() or not (place / _TASKS_CLIENT).is_dir():
        return None
    on_path = shutil.which("node")
    for node in (place / "node_modules/node/bin/node", Path(on_path) if on_path else None):
        if node is not None and node.is_file() and _major(node) >= NODE_MAJOR:
            return Official(place, node)
    return None


def install() -> Official:
    """The official packages, by npm where they are not installed yet.

    Raises:
        CannotInstall: that did not work.
    """
    found = find()
    if found is not None:
        return found
    npm = shutil.which("npm")
    if npm is None:
        raise CannotInstall("npm is not here; install Node with npm, any version from 18 on")
    place = folder()
    place.mkdir(parents=True, exist_ok=True)
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    command += ["--prefix", str(place), *PACKAGES, *CLIENT_PACKAGES]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_NPM_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise CannotInstall(f"npm did not end within {_NPM_SECONDS} seconds") from None
    found = find()
    if done.returncode != 0 or found is None:
        raise CannotInstall(f"npm ended with {done.returncode}, and {place} holds no suite that runs:\n{done.stdout}")
    return found


def _major(node: Path) -> int:
    done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=False)
    matched = re.match(r"v(\d+)\.", done.stdout)
    return int(matched[1]) if matched else 0
