#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a killed daemon left in other processes is set back by `gpuobsd --undo`.

    undo_test.py BUILD_DIR UNDO_NOTE UNDO_DRIVER

The driver's control device is a file (undo_driver.c), the journal's note undo_note's.
"""
import fcntl
import os
import struct
import subprocess
import sys
import threading
import time

from daemon import Daemon, check, skip, wait_for

BUILD, NOTE, DRIVER = (os.path.abspath(a) for a in sys.argv[1:4])


class Target:
    """A process with a channel group whose time slice a policy had set."""

    def __init__(self, d, us, name="nvidiactl"):
        self.path = os.path.join(d.directory, name)
        self.set(us)
        self.file = os.open(self.path, os.O_RDWR)
        self.process = subprocess.Popen(["sleep", "600"], pass_fds=[self.file])
        self.pid = self.process.pid
        self.preload = dict(os.environ, LD_PRELOAD=DRIVER, SIM_NVIDIACTL=self.path)

    def set(self, us):
        with open(self.path, "wb") as f:
            f.write(struct.pack("<Q", us) if us else b"")

    def hang(self):
        """The driver does not return from calls about it, until its slice is set from here."""
        with open(self.path, "wb") as f:
            f.write(b"x")

    def slice_us(self):
        with open(self.path, "rb") as f:
            return struct.unpack("<Q", f.read(8))[0]

    def end(self):
        self.process.kill()
        self.process.wait()
        os.close(self.file)


def note(d, pid, fd, us, index=0):
    """index: of the process's file among those of SIM_NVIDIACTL."""
    subprocess.run([NOTE, d.database + ".undo", str(pid), str(fd), str(us), str(index)], check=True)


def undo(d, environment=None):
    """Exit status and what it said."""
    p = subprocess.run([os.path.join(BUILD, "daemon/gpuobsd"), "--set", f"database={d.database}", "--undo"],
                       env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                       timeout=30)
    return p.returncode, p.stdout


def nothing_to_undo(d):
    check(undo(d) == (0, ""), f"without a database: {undo(d)}")
    check(not os.path.exists(d.database + ".undo"), "it made a journal")
    print("ok nothing to undo")


def refuses_while_a_daemon_runs(d):
    d.start()
    code, said = undo(d)
    check(code == 1 and "a daemon with the database" in said and "runs" in said, f"beside a daemon: {code} {said}")
    d.kill()
    check(undo(d) == (0, ""), "after a kill that left nothing")
    print("ok refused while a daemon runs")


def sets_back(d, target):
    ended = subprocess.Popen(["sleep", "600"])
    note(d, ended.pid, 3, 2048)
    ended.kill()
    ended.wait()
    note(d, target.pid, target.file, 2048)
    code, said = undo(d, target.preload)
    check(code == 0 and "1 set back, 1 gone with their processes, 0 failed" in said, f"{code} {said}")
    check(target.slice_us() == 2048, f"the slice is {target.slice_us()} us")
    target.set(7000)
    check(undo(d, target.preload) == (0, ""), "a second time")
    check(target.slice_us() == 7000, "it was set back twice")
    print("ok set back")


def a_descriptor_that_means_something_else_is_left_alone(d, target):
    note(d, target.pid, target.file, 2048)
    code, said = undo(d)  # no driver: a file like any other
    check(code == 0 and "0 set back, 1 gone" in said, f"{code} {said}")
    check(target.slice_us() == 7000, "a file that is not the driver's was written to")
    print("ok left alone")


def what_fails_is_kept_for_the_next_daemon(d, target):
    note(d, target.pid, target.file, 2048)
    target.set(None)
    code, said = undo(d, target.preload)
    check(code == 1 and "1 settings could not be set back; the daemon tries again" in said, f"{code} {said}")
    target.set(8000)
    os.environ.update(LD_PRELOAD=DRIVER, SIM_NVIDIACTL=target.path)
    try:
        d.start()
    finally:
        del os.environ["LD_PRELOAD"], os.environ["SIM_NVIDIACTL"]
    wait_for(30, lambda: target.slice_us() == 2048, "the next daemon sets it back")
    wait_for(20, lambda: "time slices left by a daemon that was killed: 1 set back" in d.said(), "the log says so")
    d.stop()
    print("ok kept for the next daemon")


def what_cannot_be_read_is_said(d, target):
    note(d, target.pid, target.file, 2048)
    with open(d.database + ".undo", "ab") as f:
        f.write(b"x" * 128)
    target.set(8000)
    code, said = undo(d, target.preload)
    check(code == 0 and "1 notes cannot be read" in said and "1 set back" in said, f"{code} {said}")
    check(target.slice_us() == 2048, f"the slice is {target.slice_us()} us")
    check(undo(d) == (0, ""), "it is said twice")
    print("ok what cannot be read is said")


def a_daemon_that_starts_meanwhile_waits(d):
    with open(d.database + ".undo", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        letting_go = threading.Timer(0.5, fcntl.flock, (held, fcntl.LOCK_UN))
        letting_go.start()
        d.start()
        letting_go.join()
    check("another gpuobsd has it" not in d.said(), "it gave up at once")
    code, said = undo(d)
    check(code == 1 and "a daemon with the database" in said, f"it has no journal: {code} {said}")
    d.stop()
    print("ok a daemon waits")


def a_driver_that_does_not_return_holds_nobody(d, target):
    """Neither `--undo`, nor a daemon's start and stop, nor what is to be set back in other processes."""
    stuck = Target(d, 0, "stuck")
    stuck.hang()
    note(d, stuck.pid, stuck.file, 2048)
    note(d, stuck.pid, stuck.file, 3000)
    note(d, target.pid, target.file, 2048, 1)
    target.set(8000)
    began = time.monotonic()
    code, said = undo(d, stuck.preload | {"SIM_NVIDIACTL": f"{stuck.path}:{target.path}"})
    check(time.monotonic() - began < 25, "it waited")
    check(code == 1 and "1 set back, 0 gone with their processes, 2 failed" in said, f"{code} {said}")
    check("the driver does not return" in said and "2 settings could not be set back" in said, said)
    check(target.slice_us() == 2048, "the other process's slice is not set back")

    os.environ.update(LD_PRELOAD=DRIVER, SIM_NVIDIACTL=stuck.path)
    try:
        d.start()
    finally:
        del os.environ["LD_PRELOAD"], os.environ["SIM_NVIDIACTL"]
    wait_for(20, lambda: "the driver does not return" in d.said(), d.said)
    d.ctl("status")
    began = time.monotonic()
    d.stop()
    check(time.monotonic() - began < 25, "it did not stop")

    # The journal is free, and still has both; the older one is set back last.
    stuck.set(8000)
    code, said = undo(d, stuck.preload)
    check(code == 0 and "2 set back" in said, f"{code} {said}")
    stuck.end()
    print("ok a driver that does not return")


def somebody_elses_file(d):
    with open(d.database + ".undo", "wb") as f:
        f.write(b"x" * 1000)
    code, said = undo(d)
    check(code == 1 and "this is no journal of gpuobsd: move it away" in said, f"{code} {said}")
    check(os.path.getsize(d.database + ".undo") == 1000, "it was replaced")
    print("ok somebody else's file")


def wrong_arguments():
    p = subprocess.run([os.path.join(BUILD, "daemon/gpuobsd"), "--undo", "--set", "nonsense=1"],
                       stderr=subprocess.PIPE, text=True, check=False)
    check(p.returncode == 2 and "nonsense" in p.stderr, f"{p.returncode} {p.stderr}")
    print("ok wrong arguments")


def main():
    if os.geteuid() != 0:
        skip("needs root")
    d = Daemon(BUILD)
    target = Target(d, 8000)
    try:
        nothing_to_undo(d)
        refuses_while_a_daemon_runs(d)
        sets_back(d, target)
        a_descriptor_that_means_something_else_is_left_alone(d, target)
        what_fails_is_kept_for_the_next_daemon(d, target)
        what_cannot_be_read_is_said(d, target)
        a_daemon_that_starts_meanwhile_waits(d)
        a_driver_that_does_not_return_holds_nobody(d, target)
        somebody_elses_file(d)
        wrong_arguments()
    finally:
        target.end()
        d.stop()


main()
