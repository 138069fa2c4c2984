"""A store is broken at every operation on its files: what was acknowledged is there, and nothing is there by half."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import attrs
import pytest

HERE = Path(__file__).parent
SCENARIO = HERE / "crash_scenario.py"


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs gcc on Linux")
    made = tmp_path_factory.mktemp("faults") / "file_faults.so"
    command = [compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", made, HERE / "file_faults.c", "-ldl"]
    subprocess.run(command, check=True, timeout=120)
    return made


def run_scenario(library: Path, folder: Path, *mode: str) -> dict:
    done = subprocess.run(
        [sys.executable, SCENARIO, folder, library, *mode],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    # Fewer would mean that SQLite's own calls do not come by, and that nothing was tried.
    assert outcome["points"] > 60, outcome
    return outcome


@pytest.mark.spec("C5")
def test_what_was_acknowledged_survives_a_crash_before_every_operation(library, tmp_path):
    assert run_scenario(library, tmp_path, "crash")["problems"] == []


@pytest.mark.spec("C5")
def test_what_was_acknowledged_survives_a_crash_inside_every_write(library, tmp_path):
    assert run_scenario(library, tmp_path, "tear")["problems"] == []


@pytest.mark.spec("C5")
def test_what_each_call_says_is_true_though_any_one_operation_fails(library, tmp_path):
    outcome = run_scenario(library, tmp_path, "fail", str(errno.EIO))
    assert outcome["problems"] == []
    # A commit that fails in its writes or in its synchronization: at least one for each of the changing steps.
    assert 8 <= outcome["uncertain"] < outcome["points"] / 2


@pytest.mark.spec("C5")
def test_what_each_call_says_is_true_though_the_disk_is_full_at_any_one_write(library, tmp_path):
    outcome = run_scenario(library, tmp_path, "fail-write", str(errno.ENOSPC))
    assert outcome["problems"] == []
    assert outcome["uncertain"] == 0


# --- a power failure: what was written and not yet synchronized is there or not, as the disk pleases


@attrs.define
class Disk:
    """Files as they are after a power failure: what was synchronized, and what was on its way."""

    synced: dict[str, bytes] = attrs.field(factory=dict)
    underway: dict[str, list[tuple[str, int, bytes]]] = attrs.field(factory=dict)

    def do(self, kind: str, path: str, offset: int, data: bytes) -> None:
        if kind == "U":
            self.synced.pop(path, None)
            self.underway.pop(path, None)
        elif kind == "S":
            self.synced[path] = applied(self.synced.get(path, b""), self.underway.pop(path, []))
        else:
            self.underway.setdefault(path, []).append((kind, offset, data))
            self.synced.setdefault(path, b"")

    def after_a_failure(self, choose) -> dict[str, bytes]:
        files = {}
        for path, synced in self.synced.items():
            # Shared memory does not count: it is made anew from the log when nobody has it open.
            if path.startswith("/") and not path.endswith("-shm") and Path(path).suffix:
                arrived = [change for change in map(choose, self.underway.get(path, [])) if change is not None]
                files[Path(path).name] = applied(synced, arrived)
        return files


def write_out(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    return folder / "tasks.db"


def applied(content: bytes, changes: list[tuple[str, int, bytes]]) -> bytes:
    held = bytearray(content)
    for kind, offset, data in changes:
        if kind == "T":
            del held[offset:]
            held.extend(bytes(offset - len(held)))
        else:
            held.extend(bytes(max(0, offset - len(held))))
            held[offset : offset + len(data)] = data
    return bytes(held)


def recorded(file: Path) -> Iterator[tuple[str, str, int, bytes]]:
    content, at = file.read_bytes(), 0
    while at < len(content):
        kind, length = struct.unpack_from("<cI", content, at)
        at += 5
        path = content[at : at + length].decode()
        offset, size = struct.unpack_from("<QQ", content, at + length)
        at += length + 16
        data = content[at : at + size]
        at += size
        yield kind.decode(), path, offset, data


def lost(change):
    return None


def kept(change):
    return change


def torn(seed: int):
    """Some writes arrive, some do not, some in part: sectors of 512 bytes, in any order."""
    chance = random.Random(seed)

    def choose(change):
        kind, offset, data = change
        fate = chance.randrange(3)
        if fate == 0:
            return None
        if fate == 1 or kind == "T" or len(data) < 512:
            return change
        return kind, offset, data[: 512 * chance.randrange(len(data) // 512)]

    return choose


@pytest.fixture(scope="module")
def scenario():
    spec = spec_from_file_location("crash_scenario", SCENARIO)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.spec("C5")
def test_what_was_acknowledged_survives_a_power_failure_after_every_operation(library, scenario, tmp_path):
    log = tmp_path / "operations"
    run_scenario(library, tmp_path, "record", str(log))
    disk, acknowledged, tried, problems = Disk(), 0, set(), []
    for number, (kind, path, offset, data) in enumerate(recorded(log)):
        if kind == "N":
            acknowledged = offset
        else:
            disk.do(kind, path, offset, data)
        for name, choose in (("lost", lost), ("kept", kept), ("torn", torn(number)), ("torn again", torn(-number))):
            files = disk.after_a_failure(choose)
            key = hash((acknowledged, *sorted(files.items())))
            if key in tried:
                continue
            tried.add(key)
            home = tmp_path / f"{number} {name}"
            found = scenario.problems_after(write_out(home, files), acknowledged)
            problems += [f"after operation {number}, what was underway {name}: {text}" for text in found]
            shutil.rmtree(home)
    assert problems == []
    assert acknowledged == len(scenario.STEPS)
    assert len(tried) > 200


@pytest.mark.spec("C5")
def test_a_disk_that_never_synchronizes_the_log_would_be_noticed(library, scenario, tmp_path):
    """The proof can fail: without synchronization an acknowledged step is lost."""
    log = tmp_path / "operations"
    run_scenario(library, tmp_path, "record", str(log))
    disk = Disk()
    for kind, path, offset, data in recorded(log):
        if kind == "N":
            break
        if kind != "S" or not path.endswith("-wal"):
            disk.do(kind, path, offset, data)
    path = write_out(tmp_path / "lost", disk.after_a_failure(lost))
    assert list(scenario.problems_after(path, 1)) != []


def test_the_library_that_breaks_files_is_loaded_and_sees_only_its_folder(library):
    faults = ctypes.CDLL(str(library))
    assert faults.faults_seen() == 0
