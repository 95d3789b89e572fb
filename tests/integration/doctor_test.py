#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpuobsctl doctor beside a daemon that runs, one that does not, one that has trouble.

usage: doctor_test.py BUILD
"""
import json
import os
import re
import subprocess
import sys

from daemon import Daemon, check, skip

STATES = {"ok", "off", "limited", "broken"}


def doctor(d, *arguments):
    return subprocess.run([d.ctl_path, "--socket", d.api, "doctor", *arguments], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def checks(d):
    p = doctor(d, "--json")
    rows = [json.loads(line) for line in p.stdout.splitlines()]
    by_name = {row["name"]: row for row in rows}
    check(len(by_name) == len(rows), f"names are unique: {[row['name'] for row in rows]}")
    check(all(row["state"] in STATES for row in rows), f"states: {rows}")
    check(all("advice" in row for row in rows if row["state"] in ("limited", "broken")), f"advice: {rows}")
    check(p.returncode == any(row["state"] == "broken" for row in rows), f"exit status {p.returncode}: {rows}")
    return by_name


def with_a_daemon(build):
    with Daemon(build) as d:
        by_name = checks(d)
        for name in ("daemon", "launch_probes", "driver_calls", "device_program", "database"):
            check(by_name[name]["state"] == "ok", f"{name}: {by_name[name]}")
        check("1 copy" in by_name["launch_probes"]["finding"], f"{by_name['launch_probes']}")
        check(by_name["losses"]["state"] == "ok", f"{by_name['losses']}")
        if not os.path.exists("/sys/module/nvidia_uvm"):
            check(by_name["managed_decisions"]["state"] == "off"
                  and "nvidia_uvm is not loaded" in by_name["managed_decisions"]["finding"], f"{by_name}")
            p = subprocess.run([d.ctl_path, "--socket", d.api, "uvm", "--decisions"], text=True, check=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            check("nvidia_uvm is not loaded" in p.stderr, f"why no decision is shown: {p.stderr}")
        d.settled(d.run("-n", "10")["pid"])
        finding = checks(d)["losses"]["finding"]
        counted = re.search(r"\b0 of (\d+) launches", finding)
        check(counted and int(counted[1]) >= 10, f"launches are counted: {finding}")
        text = doctor(d).stdout.splitlines()
        check(text[-1].endswith("broken") and any(line.split()[:2] == ["ok", "daemon"] for line in text), f"{text}")
        d.stop()
        by_name = checks(d)
        check(by_name["daemon"]["state"] == "broken" and "launch_probes" not in by_name, f"stopped: {by_name}")


def with_trouble(build):
    with Daemon(build, settings=["driver_calls=no", "context_switches=no", "managed_memory=no",
                                 "managed_decisions=no", "nvml=no", "device_program=/nonexistent"]) as d:
        by_name = checks(d)
        for name in ("driver_calls", "context_switches", "managed_memory", "managed_decisions", "management_library"):
            check(by_name[name]["state"] == "off" and "setting" in by_name[name]["finding"], f"{by_name[name]}")
        check(by_name["device_program"]["state"] == "limited", f"{by_name['device_program']}")


def main():
    if os.geteuid() != 0:
        skip("eBPF needs root")
    with_a_daemon(sys.argv[1])
    with_trouble(sys.argv[1])
    print("ok doctor")


if __name__ == "__main__":
    main()
