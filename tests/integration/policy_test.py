#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Policies through the whole daemon on the simulated GPU: loaded, told of real processes, refused, stopped.

There is no managed-memory driver here, so what they ask for cannot be done: each action is to be counted
with the reason.
    policy_test.py BUILD_DIRECTORY
"""
import json
import os
import subprocess
import sys
import tempfile

from daemon import Application, Daemon, check, wait_for

BUILD = sys.argv[1]
SCRIPTED = os.path.join(BUILD, "tests/bpf/policy_scripted.bpf.o")
SIMULATE = os.path.join(BUILD, "daemon/policy/gpuobs-policy-simulate")
EVENTS = ["process_start", "process_exit", "alloc", "free", "launch", "fault", "migration", "share", "pressure",
          "tick", "refused"]
MANAGED = """
context, a = ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
call("cuMemAllocManaged", ctypes.byref(a), ctypes.c_size_t(4 << 20), 1)
print(a.value, flush=True)
sys.stdin.readline()
call("cuMemFree_v2", a)
print("freed", flush=True)
sys.stdin.readline()
"""


def show(d, name):
    return json.loads(d.ctl("policy", "show", name, "--json"))


def variable(d, name, wanted):
    return next(v["value"] for v in show(d, name)["variables"] if v["name"] == wanted)


def seen(d, name):
    return dict(zip(EVENTS, map(int, variable(d, name, "seen").split(","))))


def fails(d, code, text, *arguments):
    p = subprocess.run([d.ctl_path, "--socket", d.api, *arguments], text=True, check=False,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(p.returncode == code and text in p.stderr, f"{arguments}: {p.returncode} {p.stderr}")


def refusals(d, name):
    return {r["reason"]: r["count"] for r in show(d, name)["policy"]["refusals"]}


def set_all(d, name, **values):
    for key, value in values.items():
        d.ctl("policy", "set", name, f"{key}={value}")


def a_life():
    """Loaded, told of what a process does, asked for more than can be done, unloaded."""
    with Daemon(BUILD) as d:
        d.ctl("policy", "load", SCRIPTED, "--name", "p", "--precedence", "-3", "--process", "python*",
              "--set", "on=4", "--set", "words[1]=/jobs/*")
        row = show(d, "p")["policy"]
        check(row["state"] == "active" and row["precedence"] == -3 and row["process"] == "python*", f"{row}")
        check("\n  scope process python*, precedence -3\n" in d.ctl("policy", "show", "p"), "its scope")
        check(variable(d, "p", "words") == ",/jobs/*", "a setting at loading")
        fails(d, 1, "there is a policy p already", "policy", "load", SCRIPTED, "--name", "p")
        wait_for(20, lambda: seen(d, "p")["tick"] > 2, "ticks")

        p = Application(d, MANAGED, agent=False)
        address = int(p.ready)
        wait_for(30, lambda: seen(d, "p")["alloc"] == 1, "the allocation is told of")
        check(int(variable(d, "p", "last_address")) == address, "its address")
        key = d.process_key(p.pid)

        # The driver is not there, the request is sound: it fails, and is counted so.
        set_all(d, "p", on=9, kind=1, to=0xffffffff, process=key, address=address, bytes=2 << 20)
        wait_for(30, lambda: refusals(d, "p").get("failed", 0) + refusals(d, "p").get("unsupported", 0) > 2,
                 f"failures are counted: {show(d, 'p')}")
        # Not its memory; too much; nobody.
        set_all(d, "p", address=address + (64 << 20))
        wait_for(30, lambda: refusals(d, "p").get("not_managed"), "memory that is not managed")
        set_all(d, "p", address=address, bytes=1 << 40)
        wait_for(30, lambda: refusals(d, "p").get("nonsense"), "impossible sizes")
        set_all(d, "p", process=99999)
        wait_for(30, lambda: refusals(d, "p").get("gone"), "a process that is not there")
        p.do("")
        wait_for(30, lambda: seen(d, "p")["free"] == 1, "the free is told of")
        p.end()
        wait_for(30, lambda: seen(d, "p")["process_exit"] == 1, "its end is told of")

        row = show(d, "p")["policy"]
        check(row["asked"] == row["done"] + row["refused"] + row["waiting"], f"account {row}")
        check("p" in d.ctl("policy", "list") and "refused" in d.ctl("policy", "stats"), "tables")
        d.ctl("policy", "unload", "p")
        check(d.json_rows("policy", "list") == [], "it is gone")
        fails(d, 1, "is not that of a loaded policy", "policy", "unload", "p")


def launches():
    """Launches are told of, in batches, with the depth of the queue where the agent is."""
    with Daemon(BUILD) as d:
        d.ctl("policy", "load", SCRIPTED, "--name", "p", "--set", "on=3")
        d.run("--launches", "2000")
        wait_for(30, lambda: seen(d, "p")["process_exit"] == 1, "the end")
        s = wait_for(20, lambda: (s := seen(d, "p"))["launch"] and s, "launches are told of")
        # Again once its agent is there, unless launches are left to the kernel.
        check(s["process_start"] in (1, 2) and 0 < s["launch"] <= 2000, f"{s}")


def misbehaviour():
    """What is not a policy is refused with a sentence; one that fails is ejected, with the reason."""
    with Daemon(BUILD) as d:
        bad = os.path.join(d.directory, "bad.bpf.o")
        for content, text in [(b"", "a policy has 1 to"), (b"\x7fELF" + bytes(200), "libbpf can")]:
            with open(bad, "wb") as f:
                f.write(content)
            fails(d, 1, text, "policy", "load", bad)
        for name, text in [("endless", "the kernel's verifier"), ("sys_bpf", "calls eBPF helper")]:
            fails(d, 1, text, "policy", "load", os.path.join(BUILD, f"tests/bpf/policy_bad_{name}.bpf.o"))
        fails(d, 1, "No such file", "policy", "load", "/nonexistent")
        fails(d, 1, "there is no variable nothing", "policy", "load", SCRIPTED, "--set", "nothing=1")
        check(d.json_rows("policy", "list") == [], "half-loaded policies are left")

        d.ctl("policy", "load", SCRIPTED, "--name", "p")
        fails(d, 1, "answer is to be -1000 to 1000", "policy", "set", "p", "answer=5000")
        d.ctl("policy", "set", "p", "answer=-5")
        row = wait_for(20, lambda: next((r for r in d.json_rows("policy", "list") if r["state"] == "ejected"), None),
                       "ejection")
        check(row["reason"] == "it returned -5", f"{row}")
        d.ctl("policy", "set", "p", "answer=0")
        d.ctl("policy", "enable", "p")
        ticks = seen(d, "p")["tick"]
        wait_for(20, lambda: seen(d, "p")["tick"] > ticks, "it runs again")
        d.ctl("policy", "disable", "p")
        check(show(d, "p")["policy"]["state"] == "disabled", "state")

        d.ctl("policy", "load", SCRIPTED, "--name", "slow", "--max-run-ms", "2", "--set", "spin=8000000")
        row = wait_for(30, lambda: next((r for r in d.json_rows("policy", "list") if r["name"] == "slow" and
                                         r["state"] == "ejected"), None), "the slow one is ejected")
        check("its programs ran for" in row["reason"], f"{row}")

        # Loops within loops, for years if they were let; answers that are none.
        d.ctl("policy", "load", SCRIPTED, "--name", "nested", "--set", "spin=8000000", "--set", "nested=8000000")
        row = wait_for(20, lambda: next((r for r in d.json_rows("policy", "list") if r["name"] == "nested" and
                                         r["state"] == "ejected"), None), "loops within loops are ejected")
        check("its loops wanted more than" in row["reason"], f"{row}")
        d.ctl("policy", "load", SCRIPTED, "--name", "garbled", "--set", "garbled=5")
        wait_for(20, lambda: refusals(d, "garbled").get("nonsense", 0) >= 10, "answers that are none are counted")
        row = show(d, "garbled")["policy"]
        check(row["state"] == "active" and row["asked"] == row["done"] + row["refused"] + row["waiting"], f"{row}")


def shipped():
    """Every policy that is shipped loads, is told of a process and runs."""
    with Daemon(BUILD) as d:
        names = sorted(n[:-len(".bpf.o")] for n in os.listdir(os.path.join(BUILD, "policies"))
                       if n.endswith(".bpf.o") and not n.endswith(".unlinked.o"))
        check(len(names) >= 15, f"{names}")
        for name in names:
            d.ctl("policy", "load", os.path.join(BUILD, "policies", name + ".bpf.o"))
        d.run("--launches", "300")
        rows = d.json_rows("policy", "list")
        check({r["name"] for r in rows} == set(names) and all(r["state"] == "active" for r in rows), f"{rows}")
        # There are no migrations here, all that this one listens to.
        wait_for(20, lambda: all(r["runs"] for r in d.json_rows("policy", "list") if r["name"] != "prefetch_tree"),
                 "all have run")


def recording():
    """What a process does with managed memory is written down in a file the simulator takes."""
    with tempfile.TemporaryDirectory(prefix="gpuobs-test-") as directory:
        trace = os.path.join(directory, "memory.trace")
        with Daemon(BUILD, settings=[f"policy_trace={trace}"]) as d:
            p = Application(d, MANAGED, agent=False)
            p.do("")
            p.end()
            # process, allocation, free, exit: 64 bytes of head and 32 each
            wait_for(30, lambda: os.path.getsize(trace) >= 64 + 4 * 32, "four records")
            d.kill()
        text = simulate("--trace", trace).stdout
        check(text.startswith("recorded, 4 records"), text)


def simulate(*arguments, code=0):
    p = subprocess.run([SIMULATE, *arguments], text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(p.returncode == code, f"simulate {arguments}: {p.returncode} {p.stderr}")
    return p


def simulation():
    """The simulator's command: the same trace and figures by seed and from a file, and a sentence for each mistake."""
    lru, tree, twoq, fair = (os.path.join(BUILD, "policies", name + ".bpf.o")
                             for name in ("evict_lru", "prefetch_tree", "evict_2q", "sched_fair"))
    cases = ["--json", "--policy", lru, "--policy", f"{tree}+{twoq},reserve_blocks=16"]
    made = ["--pattern", "zipf", "--percent", "200", "--launches", "300"]
    with tempfile.TemporaryDirectory(prefix="gpuobs-test-") as directory:
        trace, cut = os.path.join(directory, "zipf.trace"), os.path.join(directory, "cut.trace")
        first = simulate(*made, "--save", trace, *cases).stdout
        rows = {r["policy"]: r for r in map(json.loads, first.splitlines())}
        check(list(rows) == ["driver", "evict_lru", "prefetch_tree+evict_2q,reserve_blocks=16", "driver, best victims"],
              f"{list(rows)}")
        check(rows["driver, best victims"]["fetches"] < rows["evict_lru"]["fetches"] < rows["driver"]["fetches"] and
              rows["evict_lru"]["done"] > 0, f"{rows}")
        check(simulate(*made, *cases).stdout == first, "the same seed")
        check(simulate("--trace", trace, *cases).stdout == first, "the trace from a file")
        check(simulate(*made, "--seed", "2", *cases).stdout != first, "another seed")
        two_gpus = simulate(*made, "--gpus", "2", "--save", trace + "2", *cases).stdout
        rows = [json.loads(line) for line in two_gpus.splitlines()]
        check([r.get("gpu") for r in rows] == [None, 0, 1] * 4, f"{rows}")
        check(all(a["fetches"] == b["fetches"] + c["fetches"] for a, b, c in zip(*[iter(rows)] * 3)), f"{rows}")
        check(all(rows[9 + i]["fetches"] < rows[3 + i]["fetches"] < rows[i]["fetches"] for i in (1, 2)), f"{rows}")
        check(simulate("--trace", trace + "2", *cases).stdout == two_gpus, "the GPUs of a trace")
        one = simulate(*made, "--gpus", "2", "--json", "--policy", f"{lru}@1,reserve_blocks=16").stdout
        rows = [json.loads(line) for line in one.splitlines()]
        check(rows[3]["policy"] == "evict_lru@1,reserve_blocks=16", f"{rows[3]}")
        check({**rows[4], "policy": ""} == {**rows[1], "policy": ""}, f"a policy for GPU 1 acts on GPU 0: {rows}")
        check(rows[5]["fetches"] < rows[2]["fetches"], f"it does nothing on its own: {rows}")
        handed = ["--pattern", "pipeline", "--gpus", "3", "--percent", "90", "--launches", "100", "--json"]
        linked, apart = (json.loads(simulate(*handed, *more).stdout.splitlines()[0]) for more in ([], ["--no-peer"]))
        check(linked["peer_bytes"] > 0 and linked["to_host_bytes"] == 0 < apart["to_host_bytes"], f"{linked} {apart}")
        with open(trace, "rb") as f, open(cut, "wb") as g:
            g.write(f.read(1000))
        for code, text, *arguments in [(1, "cut short", "--trace", cut), (1, "No such file", "--trace", trace + "x"),
                                       (1, "there is no such pattern", "--pattern", "nothing"),
                                       (1, "give an object's file", *made, "--policy", "nothing"),
                                       (1, "there is no variable nothing", *made, "--policy", lru + ",nothing=1"),
                                       (1, "is to be 1 to 131072", *made, "--policy", lru + ",reserve_blocks=0"),
                                       (1, "No such file", *made, "--save", os.path.join(directory, "no", "trace")),
                                       (2, "give one of --pattern", *made, "--trace", trace),
                                       (2, "there is no option --nothing", *made, "--nothing"),
                                       (2, "--seed needs a value", *made, "--seed"),
                                       (2, "is not a number from", *made, "--gpu-mib", "5"),
                                       (2, "is not a number from", *made, "--gpus", "17"),
                                       (1, "it has 2 GPUs; give --gpus 2", "--trace", trace + "2", "--gpus", "1"),
                                       (2, "has no kernel_us", "--client", "a")]:
            check(text in simulate(*arguments, code=code).stderr, f"{arguments} says {text}")
    clients = ["--client", 'a "1",kernel_us=100', "--client", "b,kernel_us=100", "--seconds", "2", "--json"]
    text = simulate(*clients, "--policy", f"{fair},groups[0]=b,weights[0]=300").stdout
    rows = [json.loads(line) for line in text.splitlines()]
    active = [r["active_ns"] for r in rows]
    check([r["client"] for r in rows] == ['a "1"', "b"] * 2 and 0.9 < active[0] / active[1] < 1.1 and
          2 < active[3] / active[2] < 4, f"{rows}")


def stopping():
    """The daemon ends with policies loaded, and begins without them."""
    with Daemon(BUILD) as d:
        d.ctl("policy", "load", SCRIPTED, "--name", "p")
        d.stop()
        check(d.process.returncode == 0, f"the daemon ended with {d.process.returncode}")
        d.start()
        check(d.json_rows("policy", "list") == [], "policies of the one before")


SCENARIOS = [a_life, launches, misbehaviour, shipped, recording, simulation, stopping]

for scenario in SCENARIOS:
    if len(sys.argv) < 3 or scenario.__name__ in sys.argv[2:]:
        scenario()
        print("ok", scenario.__name__, flush=True)
