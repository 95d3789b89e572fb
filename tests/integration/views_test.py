#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`gpuobsctl view` of the programs that come with gpuobsd, on the simulated GPU.

    views_test.py BUILD_DIRECTORY KERNELS_PTX

An application launches kernels of which it is known what the programs must find. The
programs are put in by hand, as what is installed is not there in a build directory.
"""
import sys

import daemon
from daemon import Daemon, check, wait_for

BUILD, PTX = sys.argv[1:3]
BLOCKS, THREADS, STRIDE, FEW = 12, 64, 32, 11
WARPS = BLOCKS * THREADS // 32


APPLICATION = r'''
ptr = ctypes.c_void_p
ptx, (blocks, threads, stride, few) = sys.argv[1], map(int, sys.argv[2:])
context, module, source, target = ptr(), ptr(), ctypes.c_uint64(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
with open(ptx, "rb") as f:
    call("cuModuleLoadData", ctypes.byref(module), f.read())
class Property(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int * 2), ("more", ctypes.c_uint64 * 2)]
class Access(ctypes.Structure):
    _fields_ = [("location", ctypes.c_int * 2), ("flags", ctypes.c_int)]
room, memory = ctypes.c_size_t(2 << 20), ctypes.c_uint64()
call("cuMemAddressReserve", ctypes.byref(source), room, ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
call("cuMemCreate", ctypes.byref(memory), room, ctypes.byref(Property(1, 0, (1, 0))), ctypes.c_uint64(0))
call("cuMemMap", source, room, ctypes.c_size_t(0), memory, ctypes.c_uint64(0))
call("cuMemSetAccess", source, room, ctypes.byref(Access((1, 0), 3)), ctypes.c_size_t(1))
call("cuMemAlloc_v2", ctypes.byref(target), ctypes.c_size_t(4 * blocks * threads))
print(source.value, target.value, flush=True)
for line in sys.stdin:
    for kernel, value in (("copy", 0), ("strided", stride), ("leave", few)):
        function, number = ptr(), ctypes.c_uint32(value)
        call("cuModuleGetFunction", ctypes.byref(function), module, kernel.encode())
        parameters = (ptr * 3)(*(ctypes.cast(ctypes.pointer(p), ptr) for p in (source, target, number)))
        call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, None, parameters, None)
    call("cuCtxSynchronize")
    print("launched", flush=True)
'''


class Application(daemon.Application):
    def __init__(self, d):
        super().__init__(d, APPLICATION, PTX, BLOCKS, THREADS, STRIDE, FEW)
        self.source, self.target = map(int, self.ready.split())

    def launch(self):
        check(self.do("launch") == "launched", "the application launched")


def views(d, name):
    return d.json_rows("view", name)


def kernels_of(d, app):
    return d.json_rows("coverage", "--kernels", "--pid", str(app.pid))


def by_kernel(rows):
    return {r["kernel"]: r for r in rows}


def test_views(d):
    app = Application(d)
    kernels = wait_for(20, lambda: len(k := kernels_of(d, app)) >= 4 and k, "its kernels are known")
    check(len(kernels) == 4 and not any("accesses" in k for k in kernels), f"nobody has asked for accesses: {kernels}")
    app.end()
    for program in ("sm_balance", "block_time", "warp_lanes", "mem_bytes", "mem_heat"):
        d.ctl("probe", "load", f"{BUILD}/probes/{program}.bpf.o", "--process", "python3*")
    app = Application(d)
    app.launch()

    sms = views(d, "sm")
    check(sum(r["blocks"] for r in sms) == 3 * BLOCKS, f"blocks of all multiprocessors: {sms}")
    check(all(r["resident"] == 0 and r["block_ns"] >= r["busy_ns"] for r in sms), f"no block is left: {sms}")

    times = by_kernel(views(d, "blocks"))
    check({k: r["blocks"] for k, r in times.items()} == {k: BLOCKS for k in ("copy", "strided", "leave")},
          f"blocks of each kernel: {times}")
    check(all(sum(t["blocks"] for t in r["times"]) == BLOCKS for r in times.values()), f"in histograms: {times}")

    lanes = {(r["where"], r["lanes"]): r["warps"] for r in views(d, "lanes")}
    check(lanes == {("entry", 32): 3 * WARPS, ("exit", 32): 2 * WARPS, ("exit", FEW): WARPS,
                    ("exit", 32 - FEW): WARPS}, f"lanes: {lanes}")

    sizes = by_kernel(views(d, "bytes"))
    threads = BLOCKS * THREADS
    check(sizes["copy"]["loaded"] == 4 * threads and sizes["copy"]["stored"] == 4 * threads
          and sizes["copy"]["sectors"] == 2 * threads // 8, f"bytes of copy: {sizes}")
    check(sizes["strided"]["sectors"] == threads + threads // 8, f"sectors of strided: {sizes}")
    check(sizes["leave"]["loaded"] == 4 * WARPS * FEW, f"bytes of leave: {sizes}")

    heat = views(d, "heat")
    check(sum(r["loads"] for r in heat) == 3 * WARPS and sum(r["writes"] for r in heat) == 3 * WARPS,
          f"requests: {heat}")
    source = [r for r in heat if r["address"] == app.source]
    check(len(source) == 1 and source[0]["kind"] == "mapped" and source[0]["bytes"] == 2 << 20
          and source[0]["touched"] == 1 and source[0]["loads"] == 3 * WARPS, f"the row of the source: {heat}")
    target = [r for r in heat if r["address"] <= app.target < r["address"] + r["bytes"]]
    check(len(target) == 1 and target[0]["kind"] in ("device", "several") and target[0]["writes"] > 0,
          f"the row of the target: {heat}")
    check("mapped" in d.ctl("view", "heat"), "kinds in the table")

    accesses = {k["kernel"]: (k.get("accesses_probed"), k.get("accesses")) for k in kernels_of(d, app)}
    check(accesses == {"copy": (2, 2), "strided": (2, 2), "leave": (2, 2), "spin": (1, 1)}, f"loads and stores: {accesses}")
    text = d.ctl("coverage", "--kernels", "--pid", str(app.pid))
    check(text.count("2 of 2") == 3 and "7 of 7 instructions" in text, f"accesses in the table: {text}")

    text = d.ctl("view", "sm")
    check("imbalance" in text and "+11" in text, f"a grid: {text}")
    text = d.ctl("view", "blocks", "--limit", "1")
    check(text.count("on average") == 1 and "█" in text, f"one histogram: {text}")
    check("strided" in d.ctl("view", "bytes"), "names in the table")
    app.end()
    print("ok views")


def test_log(d):
    """Messages of a program, and where to go on."""
    d.ctl("probe", "load", f"{BUILD}/tests/bpf/probe_print.bpf.o", "--process", "python3*")
    app = Application(d)
    app.launch()
    rows = d.json_rows("probe", "log", "probe_print")
    check([r["number"] for r in rows] == list(range(3 * BLOCKS)), f"all messages, once: {rows}")
    check(sorted(r["text"] for r in rows) == sorted(3 * [f"block {n} of {BLOCKS}" for n in range(BLOCKS)]),
          f"their texts: {rows}")
    check(len({(r["kernel_id"], r["gridid"]) for r in rows}) == 3, "of three launches")
    check({r.get("kernel") for r in rows} == {"copy", "strided", "leave"}, f"the kernels' names: {rows[0]}")
    d.settled(app.pid)
    launches = d.json_rows("launches", "--pid", str(app.pid))
    # A block says it after it was counted, so that the last ones may say it after the end of their kernel, but not
    # after the start of the next one.
    began = {l["kernel"]: (l["gpu_start_ns"], l.get("clock_error_ns", 0)) for l in launches}
    check(len(launches) == len(began) == 3, f"each kernel was launched once: {launches}")
    later = {"copy": "strided", "strided": "leave"}
    for r in rows:
        check("time_ns" in r, f"at a known time: {r}")
        start, error = began[r["kernel"]]
        check(start <= r["time_ns"] + r["time_error_ns"] + error, f"not before its kernel: {r} {launches}")
        if r["kernel"] in later:
            start, error = began[later[r["kernel"]]]
            check(r["time_ns"] <= start + r["time_error_ns"] + error, f"before the next kernel: {r} {launches}")
    text = d.ctl("probe", "log", "probe_print", "--pid", str(app.pid))
    check("  strided  grid " in text and "gpu " not in text, f"names and times of the machine's clock: {text}")
    check("block 3 of 12" in d.ctl("probe", "log", "probe_print", "--pid", str(app.pid)), "as text")
    check(not d.ctl("probe", "log", "mem_heat", check_code=False), "a program that prints nothing")
    app.end()
    print("ok log")


def test_rings(d):
    """Records of rings in GPU memory and in host memory."""
    d.ctl("probe", "load", f"{BUILD}/tests/bpf/device_rings.bpf.o", "--process", "python3*", "--kernels", "copy")
    app = Application(d)
    app.launch()
    rows = d.json_rows("map", "dump", "device_rings", "shared")
    check([r["key"] for r in rows] == list(range(len(rows))), f"numbered: {rows}")
    # a record of 8 bytes and three of 4 for each block, one of 100 for each warp
    check(len(rows) == 4 * BLOCKS + WARPS, f"all records: {len(rows)}")
    check(sorted(r["value"][0] for r in rows if r["value"][0] >= 1000) == [1000 + n for n in range(BLOCKS)],
          f"one of each block: {rows}")
    newest = d.json_rows("map", "dump", "device_rings", "events")
    check(len(newest) == 256, f"the newest records: {len(newest)}")
    app.end()
    print("ok rings")


def totals(d):
    """Blocks within and without the limits."""
    rows = {r["key"]: r["value"][0] for r in d.json_rows("map", "dump", "device_twice", "totals")}
    return rows.get(0, 0), rows.get(1, 0)


class Twice:
    """What processes have launched, one after the other: it is counted in the same master."""

    def __init__(self, d):
        self.d, self.launches, self.within = d, 0, 0

    def launch(self, app):
        """How many of the blocks lie within limits; each is counted, here or there."""
        app.launch()
        self.launches += 3
        wait_for(30, lambda: sum(totals(self.d)) == self.launches * BLOCKS, f"{self.launches * BLOCKS} blocks")
        before, self.within = self.within, totals(self.d)[0]
        return self.within - before


def test_twice(d):
    """Settings reach the GPU, counters come back, through maps that are there twice."""
    d.ctl("probe", "load", f"{BUILD}/tests/bpf/device_twice.bpf.o", "--process", "python3*")
    for key in range(4):
        d.ctl("map", "update", "device_twice", "limits", str(key), str(3 | 8 << 32), "0")
    rows = d.json_rows("map", "dump", "device_twice", "limits")
    check([r["value"] for r in rows] == 4 * [[3 | 8 << 32, 0]], f"the master of the settings: {rows}")
    counted = Twice(d)
    for _ in range(2):
        app = Application(d)
        wait_for(30, lambda: counted.launch(app) == 3 * 6, "the settings reach the GPU")
        check(counted.launch(app) == 3 * 6, "and stay there")
        launches = counted.launches
        columns = [[c, launches * len(range(c, BLOCKS, 4)), launches * sum(range(c, BLOCKS, 4))] for c in range(4)]
        wait_for(30, lambda: sorted([r["key"][0]] + r["value"]
                                    for r in d.json_rows("map", "dump", "device_twice", "columns")) == columns,
                 f"a hash of sums: {columns}")
        app.end()
    d.ctl("map", "update", "device_twice", "totals", "0", "0")
    check([r["key"] for r in d.json_rows("map", "dump", "device_twice", "totals")] == [1], "a counter is set back")
    key = d.json_rows("map", "dump", "device_twice", "columns")[0]["key"]
    d.ctl("map", "update", "device_twice", "columns", ",".join(str(k) for k in key), "0", "7")
    check([0, 7] in [r["value"] for r in d.json_rows("map", "dump", "device_twice", "columns")], "a sum of the hash, too")
    d.ctl("map", "delete", "device_twice", "columns", ",".join(str(k) for k in key))
    check(key not in [r["key"] for r in d.json_rows("map", "dump", "device_twice", "columns")], "and is taken out")
    check(not d.ctl("map", "update", "device_twice", "columns", "77,0,0", "0", "7", check_code=False), "no new keys")
    print("ok twice")


def test_refusals(d):
    """Where there is no such process, or another program by that name."""
    check(not d.ctl("view", "sm", "--pid", "1", check_code=False), "not in that process")
    check(not d.ctl("view", "nothing", check_code=False), "no such view")
    d.ctl("probe", "unload", "sm_balance")
    d.ctl("probe", "load", f"{BUILD}/probes/mem_heat.bpf.o", "--name", "sm_balance")
    check(not d.ctl("view", "sm", check_code=False), "another program")
    print("ok refusals")


with Daemon(BUILD) as d:
    test_views(d)
    test_log(d)
    test_rings(d)
    test_twice(d)
    test_refusals(d)
