#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What launches are given, from the agent to a policy, on the simulated GPU.

    policy_arguments_test.py BUILD_DIRECTORY

An application that knows nothing of it launches kernels in every way there is, with
pointers to managed memory as parameters, within structs and in a buffer of its own,
beside pointers to other memory. A policy is to hear of each of them at once, of
nothing else, and of none once the memory is freed.
"""
import json
import os
import sys
import time

import daemon
from daemon import Daemon, check, wait_for

BUILD = sys.argv[1]
SCRIPTED = os.path.join(BUILD, "tests/bpf/policy_scripted.bpf.o")
MIB = 1 << 20

# Reads commands, one a line: Python that is evaluated; prints what comes out.
APPLICATION = r'''
u64, u32, ptr = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p
PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry plain(.param .u64 a, .param .u32 n, .param .u64 b)
{
ret;
}
.visible .entry shaped(.param .u32 n, .param .align 8 .b8 s[48])
{
ret;
}
.visible .entry nothing()
{
ret;
}
"""
call("cuInit", 0)
device, context, module, library = ctypes.c_int(), ptr(), ptr(), ptr()
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), PTX)
call("cuLibraryLoadData", ctypes.byref(library), PTX, None, None, 0, None, None, 0)
def function(name):
    f = ptr()
    call("cuModuleGetFunction", ctypes.byref(f), module, name)
    return f
def kernel(name):
    k = ptr()
    call("cuLibraryGetKernel", ctypes.byref(k), library, name)
    return k
plain, shaped, nothing = function(b"plain"), function(b"shaped"), function(b"nothing")
kplain = kernel(b"plain")
def managed(size):
    a = u64()
    call("cuMemAllocManaged", ctypes.byref(a), ctypes.c_size_t(size), 1)
    return a.value
def plain_memory(size):
    a = u64()
    call("cuMemAlloc_v2", ctypes.byref(a), ctypes.c_size_t(size))
    return a.value
def free(a):
    call("cuMemFree_v2", u64(a))
def array(parameters):
    return (ptr * len(parameters))(*[ctypes.cast(ctypes.pointer(p), ptr) for p in parameters])
def launch(f, *parameters):
    call("cuLaunchKernel", f, 1, 1, 1, 32, 1, 1, 0, None, array(parameters), None)
def cooperative(f, *parameters):
    call("cuLaunchCooperativeKernel", f, 1, 1, 1, 32, 1, 1, 0, None, array(parameters))
class Config(ctypes.Structure):
    _fields_ = [("shape", u32 * 7), ("stream", ptr), ("attributes", ptr), ("count", u32)]
def launch_ex(f, *parameters):
    c = Config((u32 * 7)(1, 1, 1, 32, 1, 1, 0), None, None, 0)
    call("cuLaunchKernelEx", ctypes.byref(c), f, array(parameters), None)
def buffer(f, content):
    size = ctypes.c_size_t(ctypes.sizeof(content))
    extra = (ptr * 5)(1, ctypes.addressof(content), 2, ctypes.addressof(size), 0)
    call("cuLaunchKernel", f, 1, 1, 1, 32, 1, 1, 0, None, None, extra)
def on_device(n):
    c = ptr()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(c), n)
    call("cuCtxSetCurrent", c)
class Node(ctypes.Structure):
    _fields_ = [("f", ptr), ("shape", u32 * 7), ("parameters", ptr), ("extra", ptr), ("kernel", ptr), ("context", ptr)]
def instantiate(g):
    e = ptr()
    call("cuGraphInstantiateWithFlags", ctypes.byref(e), g, ctypes.c_ulonglong(0))
    return e.value
def graph(*nodes):
    g, n = ptr(), ptr()
    call("cuGraphCreate", ctypes.byref(g), 0)
    for f, *parameters in nodes:
        a = array(parameters)
        node = Node(f, (u32 * 7)(1, 1, 1, 32, 1, 1, 0), ctypes.addressof(a), None, None, None)
        call("cuGraphAddKernelNode_v2", ctypes.byref(n), g, None, ctypes.c_size_t(0), ctypes.byref(node))
    return instantiate(g)
def captured(f, *parameters):
    s, g = ptr(), ptr()
    call("cuStreamCreate", ctypes.byref(s), 1)
    call("cuStreamBeginCapture_v2", s, 2)
    call("cuLaunchKernel", f, 1, 1, 1, 32, 1, 1, 0, s, array(parameters), None)
    call("cuStreamEndCapture", s, ctypes.byref(g))
    return instantiate(g)
def graph_launch(e):
    call("cuGraphLaunch", ptr(e), None)
def words(*w):
    return (u64 * len(w))(*w)
def many(f, n, *parameters):
    a = array(parameters)
    for _ in range(n):
        call("cuLaunchKernel", f, 1, 1, 1, 32, 1, 1, 0, None, a, None)
print("ready", flush=True)
for line in sys.stdin:
    value = eval(line)
    call("cuCtxSynchronize")
    print(value, flush=True)
'''


class Application(daemon.Application):
    def __init__(self, d, **more):
        super().__init__(d, APPLICATION, **more)
        check(self.ready == "ready", self.ready)

    def number(self, text):
        return int(self.do(text))


def variables(d, name="p"):
    return {v["name"]: v["value"] for v in json.loads(d.ctl("policy", "show", name, "--json"))["variables"]}


def refused(d, name, reason):
    rows = json.loads(d.ctl("policy", "show", name, "--json"))["policy"]["refusals"]
    return next((r["count"] for r in rows if r["reason"] == reason), 0)


class Heard:
    """What the policy was told of launches."""

    def __init__(self, d):
        v = variables(d)
        numbers = lambda name: [int(x) for x in v[name].split(",")]
        self.events = numbers("seen")[4]
        self.items = numbers("seen_items")[4]
        self.count = int(v["given_count"])
        self.launches = int(v["given_launches"])
        self.gpu = int(v["given_gpu"])
        self.ranges = [(int(v[f"given_address_{i}"]), int(v[f"given_bytes_{i}"])) for i in range(4)]


def hears(d, app, text, want):
    """Do it; the policy is to hear of exactly these ranges."""
    before = Heard(d)
    app.do(text)
    wait_for(30, lambda: Heard(d).items == before.items + len(want), f"{len(want)} ranges of {text}")
    time.sleep(0.2)
    h = Heard(d)
    check(h.items == before.items + len(want), f"{text}: {h.items - before.items} ranges")
    if want:
        check(sorted(h.ranges[:len(want)]) == sorted(want), f"{text}: {h.ranges} is not {want}")


def losses(d, pid):
    return {c["cause"]: c["count"] for c in (d.ledger(pid) or {"causes": []})["causes"]}


def every_way():
    with Daemon(BUILD) as d:
        d.ctl("policy", "load", SCRIPTED, "--name", "p", "--process", "python*")
        app = Application(d)
        a = app.number(f"managed({4 * MIB})")
        b = app.number(f"managed({2 * MIB})")
        other = app.number(f"plain_memory({MIB})")
        wait_for(30, lambda: int(variables(d)["seen"].split(",")[2]) == 2, "both allocations are told of")
        d.turn()  # and the agent knows the table

        rest = lambda base, size, at: (base + at, size - at)
        in_a = lambda at: rest(a, 4 * MIB, at)
        in_b = lambda at: rest(b, 2 * MIB, at)
        for way in ("launch(plain", "launch(kplain", "cooperative(plain", "launch_ex(plain", "launch_ex(kplain"):
            hears(d, app, f"{way}, u64({a + 4096}), u32(7), u64({other}))", [in_a(4096)])
            hears(d, app, f"{way}, u64({b}), u32(7), u64({a + 8}))", [in_b(0), in_a(8)])
        # One item for each allocation: the lowest pointer.
        hears(d, app, f"launch(plain, u64({a + 4096}), u32(7), u64({a + 64}))", [in_a(64)])
        # Within a struct; what is no pointer, and one that is not at a whole word.
        hears(d, app, f"launch(shaped, u32({a & 0xffffffff}), words({b + 100}, 3, {other}, {a + 16}, {a + 4 * MIB}, "
                      f"{b - 1 if b - 1 != a + 4 * MIB - 1 else 0}))", [in_b(100), in_a(16)])
        hears(d, app, f"launch(shaped, u32(1), words({(a & 0xffffffff) << 32}, {a >> 32}, 0, 0, 0, 0))", [])
        hears(d, app, f"buffer(plain, words({a + 4 * MIB - 1}, {b & 0xff}, {other}))", [in_a(4 * MIB - 1)])
        hears(d, app, f"buffer(shaped, words(0, {b}, 0, 0, 0, 0, {a}))", [in_b(0), in_a(0)])
        hears(d, app, f"launch(plain, u64({other}), u32(7), u64(0))", [])
        hears(d, app, "launch(nothing)", [])
        # Graphs: what their kernels were given when they were made, at each launch.
        g = app.number(f"graph((plain, u64({b + 64}), u32(1), u64({other})), (shaped, u32(1), "
                       f"words(0, {a + 32}, {b + 8}, 0, 0, 0)))")
        hears(d, app, f"graph_launch({g})", [in_b(8), in_a(32)])
        hears(d, app, f"graph_launch({g})", [in_b(8), in_a(32)])
        empty = app.number(f"graph((plain, u64({other}), u32(1), u64(0)), (nothing,))")
        hears(d, app, f"graph_launch({empty})", [])
        before = Heard(d)
        c = app.number(f"captured(plain, u64({a + 128}), u32(1), u64({other}))")
        wait_for(30, lambda: Heard(d).items == before.items + 1, "the launch that was captured")
        hears(d, app, f"graph_launch({c})", [in_a(128)])
        # What is freed is none any more, and is again when it comes back.
        app.do(f"free({b})")
        wait_for(30, lambda: int(variables(d)["seen"].split(",")[3]) == 1, "the free is told of")
        d.turn()
        hears(d, app, f"launch(plain, u64({b}), u32(7), u64({a}))", [in_a(0)])
        hears(d, app, f"graph_launch({g})", [in_a(32)])
        c = app.number(f"managed({8 * MIB})")
        wait_for(30, lambda: int(variables(d)["seen"].split(",")[2]) == 3, "the third allocation")
        d.turn()
        hears(d, app, f"launch(plain, u64({c + 5}), u32(7), u64({other}))", [(c + 5, 8 * MIB - 5)])

        lost = losses(d, app.pid)
        check(not any(lost.get(f"argument_{w}") for w in ("overrun", "unread", "stale")), f"{lost}")
        app.end()


def asked_after(began, condition):
    """When it was asked for, if it is so: how long the question takes is the machine's affair."""
    asked = time.monotonic()
    return asked - began if condition() else None


def at_once():
    """A launch is told of before its call is back, not at the next turn of the loop; each is counted once."""
    with Daemon(BUILD, settings=["poll_ms=1000"]) as d:
        d.ctl("policy", "load", SCRIPTED, "--name", "p", "--process", "python*")
        app = Application(d)
        a = app.number(f"managed({4 * MIB})")
        wait_for(30, lambda: int(variables(d)["seen"].split(",")[2]) == 1, "the allocation")
        time.sleep(1.2)
        waits = []
        for i in range(12):
            before = Heard(d).items
            app.do(f"launch(plain, u64({a}), u32({i}), u64(0))")
            began = time.monotonic()
            waits.append(wait_for(20, lambda: asked_after(began, lambda: Heard(d).items > before), "the range"))
            time.sleep(0.03)
        waits.sort()
        check(waits[6] < 0.3, f"asked for in vain until {waits} s afterwards")
        app.do(f"many(plain, 3000, u64({a}), u32(0), u64(0))")
        try:
            wait_for(30, lambda: Heard(d).launches == 3012, "3012 launches")
        except AssertionError:
            raise AssertionError(f"{Heard(d).launches} launches, not 3012; {losses(d, app.pid)}") from None
        app.end()


def only_when_wanted():
    """Without a policy that listens nothing is looked at; nor after it was unloaded, nor without a daemon."""
    with Daemon(BUILD) as d:
        app = Application(d)
        a = app.number(f"managed({4 * MIB})")
        g = app.number(f"graph((plain, u64({a}), u32(1), u64(0)))")
        d.ctl("policy", "load", SCRIPTED, "--name", "q", "--process", "somebody_else")
        d.turn()
        app.do(f"many(plain, 100, u64({a}), u32(0), u64(0))")
        d.ctl("policy", "load", SCRIPTED, "--name", "p", "--process", "python*")
        d.turn()
        check(Heard(d).items == 0, "ranges from before the policy")
        hears(d, app, f"launch(plain, u64({a}), u32(0), u64(0))", [(a, 4 * MIB)])
        # A graph from before is not known, and is counted.
        hears(d, app, f"graph_launch({g})", [])
        wait_for(30, lambda: losses(d, app.pid).get("argument_unread") == 1, "the unknown graph is counted")
        check(variables(d, "q")["seen_items"].split(",")[4] == "0", "a policy of another scope heard of it")
        d.ctl("policy", "disable", "p")
        d.turn()
        app.do(f"many(plain, 100, u64({a}), u32(0), u64(0))")
        d.ctl("policy", "enable", "p")
        d.turn()
        check(Heard(d).items == 1, "ranges from while it was disabled")
        hears(d, app, f"launch(plain, u64({a}), u32(0), u64(0))", [(a, 4 * MIB)])
        d.kill()
        app.do(f"many(plain, 20000, u64({a}), u32(0), u64(0))")
        app.end()


def two_gpus():
    """The event says which GPU the kernel goes to, by the process's own order of them."""
    with Daemon(BUILD) as d:
        d.ctl("policy", "load", SCRIPTED, "--name", "p", "--process", "python*")
        d.ctl("policy", "load", SCRIPTED, "--name", "q", "--gpu", "1")
        app = Application(d, GPUOBS_SIM_DEVICES="2")
        a = app.number(f"managed({4 * MIB})")
        wait_for(30, lambda: int(variables(d)["seen"].split(",")[2]) == 1, "the allocation")
        d.turn()
        hears(d, app, f"launch(kplain, u64({a}), u32(0), u64(0))", [(a, 4 * MIB)])
        check(Heard(d).gpu == 0, "the first GPU")
        check(variables(d, "q")["seen"].split(",")[0] == "0", "a policy for the second GPU meets the process")
        app.do("on_device(1)")
        hears(d, app, f"launch(kplain, u64({a}), u32(0), u64(0))", [(a, 4 * MIB)])
        check(Heard(d).gpu == 1, "the second GPU")
        check(variables(d, "q")["seen"].split(",")[0] == "1", "now it does")
        check(variables(d, "q")["seen"].split(",")[2] == "1", "and its memory")
        check(variables(d, "q")["seen_items"].split(",")[4] == "1", "and the launch on it")

        # Of the first GPU it does not hear, and cannot act on it; of its own it does.
        app.do("on_device(0)")
        hears(d, app, f"launch(kplain, u64({a}), u32(0), u64(0))", [(a, 4 * MIB)])
        check(Heard(d).gpu == 0, "the first GPU again")
        check(variables(d, "q")["seen_items"].split(",")[4] == "1", "a launch on another GPU is told of")
        key = d.process_key(app.pid)
        for name, value in {"kind": 1, "process": key, "address": a, "bytes": MIB, "to": 0, "on": 9}.items():
            d.ctl("policy", "set", "q", f"{name}={value}")
        wait_for(20, lambda: refused(d, "q", "foreign") > 0, "what is about another GPU is refused")
        d.ctl("policy", "set", "q", "to=1")
        before = refused(d, "q", "foreign")
        wait_for(20, lambda: refused(d, "q", "failed") + refused(d, "q", "unsupported") + refused(d, "q", "not_known") +
                 refused(d, "q", "no_room") > 0, "what is about its own is tried")
        check(refused(d, "q", "foreign") <= before + 1, "what is about its own is refused")
        app.end()


SCENARIOS = [every_way, two_gpus, at_once, only_when_wanted]

for scenario in SCENARIOS:
    if len(sys.argv) < 3 or scenario.__name__ in sys.argv[2:]:
        scenario()
        print("ok", scenario.__name__, flush=True)
