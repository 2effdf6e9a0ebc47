"""Leases: one owner, refused at once, gone with the scope and with the process."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from a3s_actors.actor import LeaseHeld, LeaseRegistry, hold_file_lock

HOLDER = """
import sys, time
from a3s_actors.actor import hold_file_lock
with hold_file_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lease_has_one_owner_and_falls_with_its_block() -> None:
    registry = LeaseRegistry()
    with registry.hold("index", "first") as lease:
        assert (lease.resource, lease.owner) == ("index", "first")
        assert registry.holders() == {"index": "first"}
        for owner in ("second", "first"):
            with pytest.raises(LeaseHeld) as caught, registry.hold("index", owner):
                pass
            assert caught.value.owner == "first"
        with registry.hold("other", "second"):
            pass
    assert registry.holders() == {}
    with pytest.raises(KeyError), registry.hold("index", "second"):
        raise KeyError
    assert registry.holders() == {}


def test_a_file_lock_excludes_this_process_and_leaves_the_content(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("content")
    path.chmod(0o644)
    with hold_file_lock(path) as lease:
        assert lease.path == path
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(LeaseHeld), hold_file_lock(path):
            pass
    with hold_file_lock(path):
        pass
    assert path.read_text() == "content"


@pytest.mark.slow
def test_a_file_lock_excludes_other_processes_and_ends_with_a_killed_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    child = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    with pytest.raises(LeaseHeld), hold_file_lock(path):
        pass
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    with hold_file_lock(path):
        pass


def test_a_lock_file_that_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(tmp_path / "target")
    os.mkfifo(pipe)
    for path in (link, pipe, tmp_path, tmp_path / "no" / "folder"):
        with pytest.raises(OSError), hold_file_lock(path):
            pass
    assert not (tmp_path / "target").exists()


def test_a_lock_file_that_was_replaced_meanwhile_is_not_taken_for_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with hold_file_lock(path):
        path.unlink()
        with hold_file_lock(path), pytest.raises(LeaseHeld), hold_file_lock(path):
            pass


def test_a_forked_child_that_ends_leaves_the_parents_lock_alone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = f"""
import os
from a3s_actors.actor import LeaseHeld, hold_file_lock
path = {str(path)!r}
with hold_file_lock(path):
    pid = os.fork()
    if pid == 0:
        raise SystemExit(0)
    os.waitpid(pid, 0)
    try:
        with hold_file_lock(path):
            print("lost")
    except LeaseHeld:
        print("kept")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "kept\n"
