#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The whole product on the simulated GPU: daemon, agent, probes, database, command line.

usage: daemon_test.py BUILD_DIR [SCENARIO...]
"""
import contextlib
import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from daemon import Application, Daemon, check, check_once, wait_for

BUILD = sys.argv[1]
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
with open(os.path.join(SOURCE, "probes/agent/agent_abi.h"), encoding="utf-8") as abi:
    AGENT_ABI_VERSION = int(re.search(r"define AGENT_ABI_VERSION +(\d+)", abi.read()).group(1))


def rows_of(d, pid):
    return d.json_rows("launches", "--pid", str(pid), "--limit", "0")


def tally(rows, field):
    counts = {}
    for row in rows:
        counts[row.get(field)] = counts.get(row.get(field), 0) + 1
    return counts


def issued(said):
    return int(said["launches"])


def check_times(rows):
    """What a record says must be possible within its stated error."""
    for row in rows:
        check(row["cpu_enter_ns"] <= row["cpu_return_ns"], f"returned before it was entered: {row}")
        if "gpu_start_ns" in row:
            check(row["gpu_start_ns"] + row["clock_error_ns"] >= row["cpu_enter_ns"], f"started too early: {row}")
        if "gpu_end_ns" in row:
            check(row["gpu_end_ns"] + 64 >= row["gpu_start_ns"], f"ended before it started: {row}")


def check_matched(d, *arguments, exact_share=0.0, matched_share=1.0, **more):
    """matched_share below 1: where the join is known to leave some launches unmatched (docs/architecture.md)."""
    seen = None

    def attempt():
        nonlocal seen
        *seen, shares = run_matched(d, *arguments, **more)
        return shares
    check_once(attempt, lambda shares: shares["matched"] >= matched_share and shares["measured"] >= matched_share and
               shares["exact"] >= exact_share, f"of the launches of {arguments}")
    return seen


def run_matched(d, *arguments, **more):
    """What it said, its rows, and how many of them are how well known."""
    said = d.run(*arguments, **more)
    ledger = d.settled(said["pid"])
    # A graph's kernels are counted when their records come, not when they are launched.
    nodes = int(said["graph_kernels"])
    rows = wait_for(20, lambda: (r := rows_of(d, said["pid"])) and sum("graph_exec" in x for x in r) >= nodes and r,
                    f"the {nodes} rows of graph nodes")
    single = [r for r in rows if "graph_exec" not in r]
    match = tally(single, "match")
    print(f"  {' '.join(arguments)}: {len(rows)} rows, {match}, end {tally(rows, 'end')}")
    check(ledger["lost"] == 0, f"lost launches: {ledger}")
    check(len(single) == issued(said), f"{issued(said)} launches issued, {len(single)} stored")
    check_times(rows)
    return said, rows, {"matched": 1 - match.get("none", 0) / len(single), "exact": match.get("exact", 0) / len(single),
                        "measured": tally(rows, "end").get("measured", 0) / len(rows)}


def one_thread():
    with Daemon(BUILD) as d:
        _, rows = check_matched(d, "--launches", "2000", exact_share=0.999)
        kernels = tally(rows, "kernel")
        check(kernels == {"empty": 500, "vadd": 500, "saxpy": 500, "reduce": 500}, f"kernels {kernels}")
        check({r["gridid"] for r in rows if "gridid" in r}.__len__() == 2000, "grid ids repeat")
        check(all("grid" in r and "block" in r for r in rows), "a launch without its geometry")


def shapes():
    with Daemon(BUILD) as d:
        check_matched(d, "--launches", "500", "--memset", "7", "--copy", "11", exact_share=0.99)
        check_matched(d, "--launches", "500", "--extended", exact_share=0.99)
        check_matched(d, "--launches", "500", "--per-thread", exact_share=0.99)
        check_matched(d, "--launches", "500", "--library", exact_share=0.99)
        check_matched(d, "--launches", "500", "--streams", "4", exact_share=0.99)


def threads():
    with Daemon(BUILD) as d:
        check_matched(d, "--launches", "2000", "--threads", "4", "--streams", "4", exact_share=0.9, matched_share=0.999)


def contexts():
    with Daemon(BUILD) as d:
        check_matched(d, "--launches", "500", "--threads", "2", "--contexts", "2", exact_share=0.9, matched_share=0.99)


def check_graph(d):
    said, rows = check_matched(d, "--launches", "300", "--graph", "50", exact_share=0.99)
    nodes = [r for r in rows if "graph_exec" in r]
    check(len(nodes) == int(said["graph_kernels"]), f"{len(nodes)} rows of graph nodes")


def graphs():
    with Daemon(BUILD) as d:
        check_graph(d)


def known_once():
    """Whenever in the daemon's second a process ends, it is known once, with all it did."""
    with Daemon(BUILD) as d:
        pids = [d.run("--launches", "10")["pid"] for _ in range(60)]
        for pid in pids:
            d.settled(pid)
        known = tally(d.json_rows("ps"), "pid")
        check(all(known[pid] == 1 for pid in pids), f"known more than once: {[p for p in pids if known[p] != 1]}")
        check(all(d.ledger(pid)["stored"] == 10 for pid in pids), "launches are missing")


def without_agent():
    with Daemon(BUILD) as d:
        said = d.run("--launches", "1000", agent=False)
        d.settled(said["pid"])
        rows = rows_of(d, said["pid"])
        check(len(rows) == 1000, f"{len(rows)} rows")
        check(tally(rows, "match") == {"none": 1000}, "matched without an agent")
        check(all("gpu_start_ns" not in r and "gridid" not in r for r in rows), "an unknown field is not absent")
        check(tally(rows, "kernel").get("vadd") == 250, "kernel names are not known")


def short_processes():
    """Gone before the daemon looks: it is known all the same who they were."""
    with Daemon(BUILD) as d:
        for _ in range(5):
            time.sleep(0.3)  # so that the daemon looks rarely
            said = d.run("--launches", "3", agent=False)
            d.settled(said["pid"])
            me = next(p for p in d.json_rows("ps") if p["pid"] == said["pid"])
            check(me["comm"] == "sim_launch" and me["start_ticks"] > 0, f"ps says {me}")


def lost_device_records():
    """A GPU that loses every 10th record: launches are stored, nothing is made up, the loss is counted."""
    with Daemon(BUILD) as d:
        said = d.run("--launches", "1000", GPUOBS_SIM_DROP_RECORDS="/10")
        ledger = d.settled(said["pid"])
        rows = rows_of(d, said["pid"])
        check(len(rows) == 1000, f"{len(rows)} rows")
        torn = sum(c["count"] for c in ledger["causes"] if c["cause"] == "device_record_torn")
        check(torn >= 150, f"{torn} torn records counted of about 200")
        known = [r for r in rows if "gpu_start_ns" in r]
        check(700 <= len(known) <= 1000, f"{len(known)} launches with a start")
        check_times(known)


def failing_launches():
    with Daemon(BUILD) as d:
        p = d.popen("--launches", "200", GPUOBS_SIM_FAIL_LAUNCH="100")
        p.communicate()
        check(p.returncode != 0, "sim_launch did not notice the failing launch")
        d.settled(p.pid)
        failed = [r for r in rows_of(d, p.pid) if r["result"] != 0]
        check(len(failed) == 1 and failed[0]["match"] == "none", f"failed launches: {failed}")


def failing_image():
    """The driver refuses an image: the application gets the driver's own error."""
    with Daemon(BUILD) as d:
        p = d.popen("--launches", "10", GPUOBS_SIM_FAIL_LOAD="1+")
        _, with_agent = p.communicate()
        q = d.popen("--launches", "10", agent=False, GPUOBS_SIM_FAIL_LOAD="1+")
        _, without = q.communicate()
        check(p.returncode == q.returncode != 0, f"exit {p.returncode} with, {q.returncode} without the agent")
        check(with_agent == without, f"said {with_agent!r} with, {without!r} without the agent")


def agent_without_daemon():
    with Daemon(BUILD) as d:
        plain = d.run("--launches", "500", agent=False)
        d.stop()
        alone = d.run("--launches", "500")
        check(plain["checksum"] == alone["checksum"], "results differ without a daemon")


def killed_daemon():
    """kill -9 in the middle: the application does not notice; what was stored is there after the restart."""
    with Daemon(BUILD) as d:
        plain = d.run("--launches", "20000", agent=False)
        p = d.popen("--launches", "20000", GPUOBS_SIM_START_DELAY_NS="20000")
        wait_for(30, lambda: (d.ledger(p.pid) or {"stored": 0})["stored"] > 1000, "launches are stored")
        before = d.ledger(p.pid)["stored"]
        d.kill()
        out, err = p.communicate(timeout=120)
        check(p.returncode == 0, f"the application failed: {err}")
        check(f"checksum {plain['checksum']}" in out, "the application's results changed")
        os.unlink(d.api)
        os.unlink(d.agent)
        d.start()
        rows = rows_of(d, p.pid)
        check(len(rows) >= before, f"{before} launches were stored, {len(rows)} are left")
        check_matched(d, "--launches", "500")


def exec_and_fork():
    with Daemon(BUILD) as d:
        p = subprocess.Popen(["sh", "-c", f"{d.sim_launch} --launches 100 --quiet && exec {d.sim_launch} --launches 200"],
                             env=d.environment(), text=True, stdout=subprocess.PIPE)
        p.communicate(timeout=60)
        check(p.returncode == 0, "the programs failed")
        wait_for(20, lambda: len(rows_of(d, p.pid)) == 200, "launches after exec")
        produced = {x["pid"]: x["losses"]["produced"] for x in d.json_rows("ps")}
        check(produced.get(p.pid) == 200, f"the process after exec: {produced}")
        check(100 in produced.values(), f"the process it forked: {produced}")  # others may use a GPU as well


@contextlib.contextmanager
def own_disk(options):
    """A directory on a file system of its own, mounted with these options."""
    directory = os.path.join(BUILD, "test-own-disk")
    os.makedirs(directory, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", directory], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", directory], check=False)


def full_disk():
    """A full disk: told, counted, alive; recovers by itself."""
    with own_disk("size=16m") as directory, Daemon(BUILD, directory=directory) as d:
        filler = os.path.join(directory, "filler")
        said = d.run("--launches", "100")
        d.settled(said["pid"])
        with open(filler, "wb", buffering=0) as f:
            try:
                while True:
                    f.write(b"x" * 4096)
            except OSError:
                pass
        said = d.run("--launches", "20000", "--kernel", "empty")
        wait_for(20, lambda: "problem        database: no space left for the database" in d.ctl("status"),
                 "status tells of the full disk")
        wait_for(20, lambda: d.ledger(said["pid"])["produced"] >= 20000, "launches are seen")
        os.unlink(filler)
        ledger = d.settled(said["pid"], 30)
        check(ledger["stored"] > 0, f"nothing was stored after there was room: {ledger}")


def read_only_disk():
    """A disk that cannot be written: the daemon starts, says so, and stores what waited once it can."""
    with own_disk("ro,size=64m") as directory, Daemon(BUILD, directory=directory) as d:
        said = d.run("--launches", "1000")
        wait_for(20, lambda: "the database cannot be written (Read-only file system)" in d.ctl("status"),
                 "status tells of the read-only disk")
        check(d.alive(), "the daemon lives")
        subprocess.run(["mount", "-o", "remount,rw", directory], check=True)
        ledger = d.settled(said["pid"], 30)
        check(ledger["stored"] == 1000 and ledger["lost"] == 0, f"not all was stored in the end: {ledger}")


def losses(d):
    return {c["cause"]: c["count"] for c in json.loads(d.ctl("losses", "--json"))["losses"]["causes"]}


def hello(version):
    return struct.pack("=HHIIIII1024x", 1, version, 1048, 13000, 1, 90, 0)


def strange_agents():
    """Agents that make no sense or are of another version: cut off or turned away, counted, and shown."""
    def talk(*packets):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(5)
            s.connect(d.agent)
            for packet in packets:
                s.send(packet)
            return s.recv(4096)  # an answer, or b"" when it was closed

    with Daemon(BUILD) as d:
        check(talk(b"nonsense") == b"", "not cut off")
        wait_for(20, lambda: losses(d)["agent_protocol"] == 1, "agent_protocol counted")
        reason = talk(hello(999))[8:].rstrip(b"\0").decode()
        check("different versions" in reason, f"refused with {reason!r}")
        wait_for(20, lambda: losses(d)["agent_refused"] == 1, "agent_refused counted")
        me = next(p for p in d.json_rows("ps") if p["pid"] == os.getpid())
        check(me["agent"] == "refused" and me["agent_reason"] == reason, f"ps says {me}")
        image = struct.pack("=HHIIIIIQQIIII240x", 4, AGENT_ABI_VERSION, 296, 70000, 1, 0, 0, 1, 1, 0, 0, 0, 0)
        check(talk(hello(AGENT_ABI_VERSION), image)[:2] == b"\x02\0", "not welcomed")
        wait_for(20, lambda: losses(d)["coverage_full"] == 1, "coverage_full counted")


def too_many_agents():
    """A process more than one user may have with an agent runs as ever, is shown and counted."""
    with Daemon(BUILD, settings=["agents_per_user=1"]) as d:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.connect(d.agent)
            s.send(hello(AGENT_ABI_VERSION))
            check(s.recv(4096)[:2] == b"\x02\0", "not welcomed")
            said = d.run("--launches", "10")
            row = next(p for p in d.json_rows("ps") if p["pid"] == said["pid"])
            check(row["agent"] == "refused" and "of one user 1 " in row["agent_reason"], f"ps says {row}")
            check(losses(d)["agent_refused"] >= 1, "agent_refused is counted, each time that it tries")
            check(d.settled(said["pid"])["stored"] == issued(said), "its launches are recorded all the same")
        check_matched(d, "--launches", "10")


def reload():
    """SIGHUP brings into effect what may change, and says what waits for a restart; mistakes change nothing."""
    def setting(name):
        return next(s["value"] for s in d.json_rows("settings") if s["name"] == name)

    def hangup(text, until):
        d.configure(text)
        d.process.send_signal(signal.SIGHUP)
        wait_for(20, lambda: until in d.said(), until)

    with Daemon(BUILD, config="retention_age = 3d\nring_bytes = 8M\n") as d:
        check(setting("retention_age") == "3d", "the file was not read")
        hangup("retention_age = 1h\nring_bytes = 16M\nagent_launches = no\nconnections_per_user = 77\n",
               'connections_per_user is "77" now')
        check('retention_age is "1h" now' in d.said(), "retention_age")
        check('agent_launches is "no" now' in d.said(), "agent_launches")
        check('ring_bytes changes to "16M" with the next start' in d.said(), "ring_bytes")
        check("database" not in d.said(), "the command line was not kept")
        check(setting("retention_age") == "1h" and setting("ring_bytes") == "8M", "settings after the reload")
        hangup("retention_age = 2h\nnonsense\n", "line 2: write it as key = value; the settings stay as they were")
        check(setting("retention_age") == "1h", "a broken file changed a setting")
        said = d.run("--launches", "300")
        check(d.settled(said["pid"])["lost"] == 0, "launches were lost")
        check("recorded" not in d.said(), "agent_launches = no had no effect")


def administration():
    with Daemon(BUILD) as d:
        said = d.run("--launches", "300")
        d.settled(said["pid"])
        check("retention_age is 2d" in d.ctl("set", "retention_age", "48h"), "set")
        check('retention_age is "48h" now' in d.said(), "not in the log")
        p = subprocess.run([d.ctl_path, "--socket", d.api, "set", "ring_bytes", "16M"], text=True, check=False,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        check(p.returncode == 1 and "cannot change while gpuobsd runs" in p.stderr, f"set ring_bytes: {p}")
        d.ctl("flush")
        check("0 launches deleted" in d.ctl("prune", "--older-than", "1h"), "nothing is that old")
        check(len(rows_of(d, said["pid"])) == 300, "rows before pruning")
        d.settled(d.run("--launches", "50")["pid"])  # other programs of the machine launch as well
        d.ctl("flush")
        deleted = re.search(r"(\d+) launches deleted", d.ctl("prune", "--older-than", "0"))
        check(deleted and int(deleted[1]) >= 350, f"all are that old: {deleted}")
        check(not rows_of(d, said["pid"]), "rows after pruning")


def follow():
    with Daemon(BUILD) as d:
        f = subprocess.Popen([d.ctl_path, "--socket", d.api, "launches", "--follow", "--json", "--limit", "100"],
                             text=True, stdout=subprocess.PIPE)
        wait_for(20, lambda: json.loads(d.ctl("status", "--json"))["subscriptions"] == 1, "it follows")
        d.run("--launches", "200")
        out, _ = f.communicate(timeout=30)
        check(len(out.splitlines()) == 100, f"{len(out.splitlines())} lines followed")


def many_clients():
    """A thousand that say nothing, of a daemon that a shell started: the next one is served."""
    def as_a_shell():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    own = resource.getrlimit(resource.RLIMIT_NOFILE)
    if own[1] < 4096:
        return print("  not enough file descriptors are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, own[1]))
    with Daemon(BUILD, preexec=as_a_shell) as d:
        clients = [socket.socket(socket.AF_UNIX) for _ in range(1000)]
        for c in clients:
            c.connect(d.api)
        wait_for(30, lambda: json.loads(d.ctl("status", "--json"))["connections"] == 1001, "all are connected")
        check_matched(d, "--launches", "200")
        for c in clients:
            c.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, own)


MANAGED = """
context, a, b = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
call("cuInit", 0)
call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
call("cuMemAllocManaged", ctypes.byref(a), ctypes.c_size_t(3 << 20), 1)
call("cuMemAllocManaged", ctypes.byref(b), ctypes.c_size_t(1 << 20), 1)
call("cuMemAdvise", b, ctypes.c_size_t(4096), 1, 0)
print(a.value, b.value, flush=True)
sys.stdin.readline()
call("cuMemFree_v2", a)
print("freed", flush=True)
sys.stdin.readline()
"""


def managed_memory():
    """What is known of managed memory where there is no UVM driver: allocations, and why no more."""
    with Daemon(BUILD) as d:
        p = Application(d, MANAGED, agent=False)
        a, b = map(int, p.ready.split())

        def known(count):
            rows = d.json_rows("uvm", "--pid", str(p.pid))
            return rows[0] if rows and rows[0]["allocation_count"] == count else None

        def advised():
            row = known(2)
            return row if row and any(x["advised"] for x in row["allocations"]) and answered(row) else None

        def answered(row):
            return "has not answered yet" not in row.get("reason", "")

        row = wait_for(30, advised, "two allocations, one advised on")
        check({(x["address"], x["bytes"], x["advised"]) for x in row["allocations"]} ==
              {(a, 3 << 20, False), (b, 1 << 20, True)}, f"allocations {row['allocations']}")
        check(row["watch"] == "refused" and "UVM" in row["reason"], f"watch {row['watch']} {row.get('reason')}")
        check(row["produced"] == 0 and "since_ns" not in row, f"events without a driver: {row}")
        check("UVM" in d.ctl("uvm"), "the reason is not shown")
        refused = subprocess.run([d.ctl_path, "--socket", d.api, "uvm", "--watch", "--pid", str(p.pid)],
                                 stderr=subprocess.PIPE, text=True, check=False)
        check(refused.returncode == 1 and "UVM" in refused.stderr, f"{refused.returncode} {refused.stderr}")
        check(p.do("") == "freed", "the program did not free")
        row = wait_for(30, lambda: known(1), "one allocation")
        check(row["allocations"][0]["address"] == b and row["allocated_bytes"] == 1 << 20, f"allocations {row}")
        p.end()
        wait_for(30, lambda: d.json_rows("uvm", "--pid", str(p.pid))[0]["watch"] == "ended", "its end")
        check(os.path.exists(d.database + ".undo"), "there is no journal")
        d.ctl("set", "managed_memory", "no")
        p = Application(d, MANAGED, agent=False)
        row = wait_for(30, lambda: known(2), "two allocations of the next")
        check(row["watch"] == "off" and "reason" not in row, f"watched against the setting: {row}")
        p.do("")
        p.end()


MANAGED_BEFORE = """
import mmap, os
device = os.open(sys.argv[1], os.O_RDWR)
memory = mmap.mmap(device, 3 << 20)
print(os.getpid(), flush=True)
sys.stdin.readline()
"""


def managed_before():
    """Who had managed memory before the daemon came is listed and watched without being asked for."""
    with tempfile.TemporaryDirectory() as directory:
        device = os.path.join(directory, "nvidia-uvm")
        with open(device, "wb") as f:
            f.truncate(3 << 20)
        with Daemon(BUILD) as first:
            p = Application(first, MANAGED_BEFORE, device, agent=False)
            with Daemon(BUILD) as d:
                row = wait_for(30, lambda: next((r for r in d.json_rows("uvm", "--pid", str(p.pid)) if "UVM" in
                                                 r.get("reason", "")), None), "its memory")
                check([x["bytes"] for x in row["allocations"]] == [3 << 20], f"allocations {row['allocations']}")
                # There is no driver to be watched at: it was tried.
                check(row["watch"] == "refused" and "UVM" in row["reason"], f"watch {row}")
            p.end()


SCENARIOS = [one_thread, shapes, threads, contexts, graphs, without_agent, short_processes, known_once, lost_device_records,
             failing_launches, strange_agents, too_many_agents, failing_image, agent_without_daemon, killed_daemon,
             exec_and_fork, full_disk, read_only_disk, reload, administration, follow, many_clients, managed_memory,
             managed_before]


def main():
    chosen = [s for s in SCENARIOS if len(sys.argv) < 3 or s.__name__ in sys.argv[2:]]
    failed = 0
    for scenario in chosen:
        try:
            scenario()
            print(f"ok {scenario.__name__}", flush=True)
        except (AssertionError, subprocess.SubprocessError, OSError) as e:
            failed += 1
            print(f"FAILED {scenario.__name__}: {type(e).__name__}: {e}", flush=True)
    sys.exit(1 if failed else 0)


main()
