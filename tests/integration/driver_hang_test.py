#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A driver that hangs as a whole: the daemon goes on, says so, and ends in time.

usage: driver_hang_test.py BUILD SIMNVML

The management library is a simulated one, whose calls do not return while there is a file "hang".
"""
import json
import os
import subprocess
import sys
import time

from daemon import Daemon, check, wait_for


class HangingDaemon(Daemon):
    """A daemon whose driver hangs when it is told to."""

    def __init__(self, build, nvml):
        super().__init__(build)
        self.hang_file = os.path.join(self.directory, "hang")
        self.surroundings = {"LD_LIBRARY_PATH": os.path.dirname(os.path.abspath(nvml)), "SIM_NVML_HANG": self.hang_file}

    def start(self):
        os.environ.update(self.surroundings)
        try:
            super().start()
        finally:
            for name in self.surroundings:
                del os.environ[name]

    def hang(self):
        with open(self.hang_file, "w", encoding="ascii"):
            pass

    def answer(self):
        os.unlink(self.hang_file)

    def timed(self, *arguments):
        """What it prints, what it complains of, and how long it took."""
        began = time.monotonic()
        p = subprocess.run([self.ctl_path, "--socket", self.api, *arguments], text=True, check=True, timeout=60,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return p.stdout, p.stderr, time.monotonic() - began

    def problems(self):
        return {p["name"]: p["doc"] for p in json.loads(self.ctl("status", "--json"))["problems"]}

    def doctor(self):
        return {row["name"]: row for row in self.json_rows("doctor")}

    def stops_within(self, seconds):
        began = time.monotonic()
        self.process.terminate()
        self.process.wait(30)
        check(time.monotonic() - began < seconds, f"it took {time.monotonic() - began:.1f} s to stop")
        check(self.process.returncode == 0, f"it ended with {self.process.returncode}")


def says_nothing_while_it_answers(d):
    wait_for(10, lambda: "Simulated New" in d.ctl("gpus"), "the library is open")
    out, err, _ = d.timed("gpus")
    check("97 %" in out and err == "", f"{out} {err}")
    check("driver_silent" not in d.problems(), f"{d.problems()}")
    check(d.doctor()["driver_answers"]["state"] == "ok", f"{d.doctor()['driver_answers']}")
    print("ok it answers")


def goes_on_while_it_hangs(d):
    d.hang()
    askers = [subprocess.Popen([d.ctl_path, "--socket", d.api, "gpus"], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE) for _ in range(8)]
    for asker in askers:
        out, err = asker.communicate(timeout=30)
        check("the driver has not answered for" in err and "Simulated New" in out and "%" not in out, f"{out} {err}")
    _, _, seconds = d.timed("launches", "--limit", "10")
    check(seconds < 2, f"a query took {seconds:.1f} s")
    _, err, seconds = d.timed("gpus")
    check("the driver has not answered for" in err and seconds < 1, f"{err} {seconds:.1f} s")
    said = d.run("-n", "100")
    ledger = d.settled(said["pid"])
    check(ledger["stored"] >= 100 and ledger["lost"] == 0, f"{ledger}")
    check("the driver has not answered for" in d.problems().get("driver_silent", ""), f"{d.problems()}")
    row = d.doctor()["driver_answers"]
    check(row["state"] == "limited" and "the driver has not answered for" in row["finding"], f"{row}")
    check("rebooted" in row["advice"], f"{row}")
    check(d.doctor()["management_library"]["state"] == "limited", f"{d.doctor()}")
    wait_for(5, lambda: "the driver has not answered for" in d.said(), "the log says so")
    print("ok it goes on while the driver hangs")


def goes_on_when_it_answers_again(d):
    d.answer()
    wait_for(5, lambda: "driver_silent" not in d.problems(), "the problem goes")
    out, err, _ = d.timed("gpus")
    check("97 %" in out and err == "", f"{out} {err}")
    row = d.doctor()["driver_answers"]
    check(row["state"] == "ok" and "calls that took longer than 2 s:" in row["finding"], f"{row}")
    wait_for(5, lambda: "the driver answers again" in d.said(), "the log says so")
    check(d.said().count("the driver has not answered for") == 1, "it is said once")
    print("ok it goes on when the driver answers again")


def ends_while_it_hangs(d):
    d.hang()
    d.timed("gpus")
    d.stops_within(15)
    print("ok it ends while the driver hangs")


def starts_while_it_hangs(d):
    d.start()
    wait_for(10, lambda: "driver_silent" in d.problems(), "the problem is told")
    _, err, _ = d.timed("gpus")
    check("the driver has not answered for" in err, err)
    d.answer()
    wait_for(10, lambda: "97 %" in d.ctl("gpus"), "the library is open")
    d.hang()
    d.stops_within(15)
    print("ok it starts while the driver hangs")


def main():
    with HangingDaemon(*sys.argv[1:3]) as d:
        says_nothing_while_it_answers(d)
        goes_on_while_it_hangs(d)
        goes_on_when_it_answers_again(d)
        ends_while_it_hangs(d)
        starts_while_it_hangs(d)


if __name__ == "__main__":
    main()
