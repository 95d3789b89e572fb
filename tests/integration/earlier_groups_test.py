#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Channel groups that were there before the daemon get time slices; a driver that hangs holds no other process.

    earlier_groups_test.py BUILD_DIR UNDO_DRIVER

The driver's control device is a file for each process (undo_driver.c).
"""
import fcntl
import json
import os
import struct
import subprocess
import sys

from daemon import Application, Daemon, check, check_soon, wait_for

BUILD, DRIVER = (os.path.abspath(a) for a in sys.argv[1:3])
SCRIPTED = os.path.join(BUILD, "tests/bpf/policy_scripted.bpf.o")
OPENED = """
import os
file = os.open(sys.argv[1], os.O_RDWR)
print("ready", flush=True)
sys.stdin.readline()
"""
TICK, TIME_SLICE = 9, 6


class Target:
    """A process that has the driver's control device open, and a context."""

    def __init__(self, d, name):
        self.path = os.path.join(d.directory, name)
        self.set(2048)
        self.application = Application(d, OPENED, self.path, agent=False)
        self.pid = self.application.pid

    def set(self, us):
        """None: the driver does not return. The file is never empty, which would be a driver that refuses."""
        text = struct.pack("<Q", us) if us else b"x"
        self.change(lambda f: (os.pwrite(f, text, 0), os.ftruncate(f, len(text))))

    def refuse(self):
        """The driver refuses everything, until there is a slice again."""
        self.change(lambda f: os.ftruncate(f, 0))

    def change(self, how):
        """Not while the driver is about to write."""
        f = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(f, fcntl.LOCK_EX)
        how(f)
        os.close(f)

    def slice_us(self):
        with open(self.path, "rb") as f:
            return struct.unpack("<Q", f.read(8))[0]


def start(d, *targets):
    os.environ.update(LD_PRELOAD=DRIVER, SIM_NVIDIACTL=":".join(t.path for t in targets))
    try:
        d.start()
    finally:
        del os.environ["LD_PRELOAD"], os.environ["SIM_NVIDIACTL"]


def show(d):
    return json.loads(d.ctl("policy", "show", "p", "--json"))["policy"]


def refused(d, reason):
    return next((r["count"] for r in show(d)["refusals"] if r["reason"] == reason), 0)


def ask(d, key, us):
    for name, value in {"kind": TIME_SLICE, "process": key, "value": us}.items():
        d.ctl("policy", "set", "p", f"{name}={value}")


def found_and_set(d, a, b):
    """Only the group that kernels run in; b is another file's, and another process."""
    start(d, a, b)
    d.ctl("policy", "load", SCRIPTED, "--name", "p", "--set", f"on={TICK}")
    wait_for(30, lambda: d.said().count("1 channel groups found") == 2, "both are found")
    ask(d, d.process_key(a.pid), 8000)
    wait_for(30, lambda: a.slice_us() == 8000, "the slice is set")
    check(b.slice_us() == 2048, "the other process's slice")
    check(show(d)["missed"] == 0, f"{show(d)}")
    # The list does not wait for the driver for longer than a moment.
    wait_for(30, lambda: [(g["channels"], g.get("time_slice_us")) for g in d.json_rows("groups") if g["pid"] == a.pid] ==
             [(1, 8000)], lambda: f"{d.json_rows('groups')}")
    d.ctl("policy", "disable", "p")
    wait_for(30, lambda: a.slice_us() == 2048, "the slice is set back")
    print("ok found and set")


def slices(d, a, b):
    rows = d.json_rows("groups")
    return [g.get("time_slice_us") for pid in (a.pid, b.pid) for g in rows if g["pid"] == pid]


def a_question_holds_nobody(d, a, b):
    """A slice that the driver does not tell is absent, and known again when it does."""
    a.set(None)
    check(slices(d, a, b)[0] is None, f"{slices(d, a, b)}")
    check_soon(2, lambda: check(slices(d, a, b)[0] is None, f"{slices(d, a, b)}"), "the list of groups waits")
    d.settled(d.run("-n", "10")["pid"])
    a.set(2048)
    wait_for(30, lambda: slices(d, a, b) == [2048, 2048], "they are known again")
    print("ok a question holds nobody")


def held_by_nobody(d, a, b):
    """The driver does not return from a call for a: b goes on; disable and stop do not wait; nothing is forgotten."""
    d.ctl("policy", "enable", "p")
    ask(d, d.process_key(a.pid), 8000)
    wait_for(30, lambda: a.slice_us() == 8000, "the slice is set again")
    a.set(None)
    ask(d, d.process_key(a.pid), 4000)
    wait_for(20, lambda: refused(d, "stuck") > 0, "it is given up")
    wait_for(20, lambda: "the driver does not return from the time_slice of policy p" in d.said(), d.said)
    check_soon(2, lambda: d.json_rows("groups"), "the list of groups waits")
    wait_for(30, lambda: slices(d, a, b) == [None, 2048], lambda: f"the list of groups: {slices(d, a, b)}")
    # All the while the driver does not return: who waited for it would not come to an end.
    ask(d, d.process_key(b.pid), 6000)
    wait_for(20, lambda: b.slice_us() == 6000, "the other process's action goes on")
    d.ctl("policy", "disable", "p")
    wait_for(20, lambda: b.slice_us() == 2048, "the other process's slice is set back")
    wait_for(20, lambda: show(d)["not_undone"] == 1, "the first's is not")

    # It comes back: what it set is set back, too.
    a.set(8000)
    wait_for(20, lambda: a.slice_us() == 2048, "it is set back late")
    wait_for(20, lambda: "the driver has returned" in d.said(), d.said)

    d.ctl("policy", "enable", "p")
    ask(d, d.process_key(a.pid), 8000)
    wait_for(30, lambda: a.slice_us() == 8000, "it works as before")
    a.set(None)
    ask(d, d.process_key(a.pid), 4000)
    wait_for(20, lambda: show(d)["refusals"] and d.said().count("does not return") == 2, "stuck again")
    d.stop()
    check(d.process.returncode == 0, f"it ended with {d.process.returncode}")
    a.set(8000)
    env = dict(os.environ, LD_PRELOAD=DRIVER, SIM_NVIDIACTL=a.path)
    p = subprocess.run([os.path.join(BUILD, "daemon/gpuobsd"), "--set", f"database={d.database}", "--undo"],
                       env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=30)
    check(p.returncode == 0 and "1 set back" in p.stdout, f"{p.returncode} {p.stdout}")
    check(a.slice_us() == 2048, "what the journal kept is set back")
    print("ok held by nobody")


def tried_again_at_the_end(d, a, b):
    """What the driver refused to set back as the policy went is set back when the daemon stops."""
    start(d, a, b)
    d.ctl("policy", "load", SCRIPTED, "--name", "p", "--set", f"on={TICK}")
    ask(d, d.process_key(a.pid), 8000)
    wait_for(30, lambda: a.slice_us() == 8000, "the slice is set")
    a.refuse()
    d.ctl("policy", "disable", "p")
    wait_for(30, lambda: show(d)["not_undone"] == 1, "it is not set back")
    a.set(8000)
    d.stop()
    check(a.slice_us() == 2048, f"the slice is {a.slice_us()}")
    check("time slices of policies that end with the daemon: 1 set back" in d.said(), d.said())
    print("ok tried again at the end")


def main():
    d, another = Daemon(BUILD), Daemon(BUILD)  # each numbers processes from the first
    a, b = Target(d, "a"), Target(d, "b")
    try:
        found_and_set(d, a, b)
        a_question_holds_nobody(d, a, b)
        held_by_nobody(d, a, b)
        tried_again_at_the_end(another, a, b)
    except AssertionError:
        print("daemon said:\n" + d.said()[-3000:])
        raise
    finally:
        d.stop()
        another.stop()
        a.application.end()
        b.application.end()


main()
