# SPDX-License-Identifier: Apache-2.0
"""Device programs that come and go while kernels of PTX and of machine code run, on a GPU."""
import os
import subprocess
import sys
import time

from harness import CARRY, Daemon, Failed, agent_env, ctl, json_rows, report

BLOCKS, THREADS, LAUNCHES = 500, 90, 40  # the last warp of a block has 26 lanes
COUNT = os.path.join(CARRY, "data/probe_count.bpf.o")
KERNELS = os.path.join(CARRY, "data/probe_kernels")  # alpha, as machine code and as PTX

# Reads commands, one a line: Python that is run; says "ok" after each.
APPLICATION = r'''
import ctypes, sys, zlib
cuda = ctypes.CDLL("libcuda.so.1")
ptr, u64 = ctypes.c_void_p, ctypes.c_uint64
def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, (name, result)
call("cuInit", 0)
context, out = ptr(), u64()
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(out), ctypes.c_size_t(4 * N))
images = []
def load(path):
    module, alpha = ptr(), ptr()
    call("cuModuleLoad", ctypes.byref(module), path.encode())
    call("cuModuleGetFunction", ctypes.byref(alpha), module, b"alpha")
    images.append(alpha)
def launch(image, times, blocks, threads):
    parameters = (ptr * 1)(ctypes.cast(ctypes.pointer(out), ptr))
    call("cuMemsetD8_v2", out, 0, ctypes.c_size_t(4 * N))
    for _ in range(times):
        call("cuLaunchKernel", images[image], blocks, 1, 1, threads, 1, 1, 0, None, parameters, None)
    call("cuCtxSynchronize")
    host = (ctypes.c_char * (4 * N))()
    call("cuMemcpyDtoH_v2", host, out, ctypes.c_size_t(4 * N))
    return zlib.crc32(bytes(host))
print("ok", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
'''


class Application:
    def __init__(self):
        code = APPLICATION.replace("4 * N", str(4 * BLOCKS * THREADS))
        self.process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **agent_env()}, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid
        self.last = "its start"
        self.answer()

    def answer(self):
        line = self.process.stdout.readline().strip()
        if not line:
            raise Failed(f"the application ended at {self.last}")
        return line

    def do(self, expression, stage=""):
        self.last = f"{expression} {stage}"
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        return self.answer()

    def launch(self, image, times=LAUNCHES, stage=""):
        return self.do(f"launch({image}, {times}, {BLOCKS}, {THREADS})", stage)

    def end(self):
        self.process.stdin.close()
        self.process.wait(20)


def wait_active(name, pid):
    for _ in range(200):
        found = [a for p in json_rows("probe", "list", check=True) if p["name"] == name
                 for a in p["attached"] if a["pid"] == pid]
        if found and found[0]["state"] == "active":
            return found[0]
        if found and found[0]["state"] == "refused":
            raise Failed(f"{name}: {found[0]['reason']}")
        time.sleep(0.02)
    raise Failed(f"{name} was not attached within 4 s")


def counted(name):
    """Launches, blocks, threads at their exits, and groups of lanes that came to an exit together."""
    counts = {r["key"]: r["value"][0] for r in json_rows("map", "dump", name, "counts", check=True)}
    blocks = sum(r["value"][0] for r in json_rows("map", "dump", name, "blocks", check=True))
    return counts.get(0, 0), blocks, counts.get(1, 0), counts.get(2, 0)


def check_one(kind, path):
    app = Application()
    try:
        app.do(f"load({path!r})")
        plain = app.launch(0, stage="without programs")
        began = time.monotonic()
        ctl(["probe", "load", COUNT, "--name", "first", "--pid", str(app.pid)])
        wait_active("first", app.pid)
        one = app.launch(0, stage="with one object")
        first = counted("first")
        took = time.monotonic() - began
        ctl(["probe", "load", COUNT, "--name", "second", "--pid", str(app.pid)])
        attached = wait_active("second", app.pid)
        two = app.launch(0, stage="with two")
        second, both = counted("second"), counted("first")
        ctl(["probe", "unload", "second"])
        ctl(["probe", "unload", "first"])
        time.sleep(1)
        after = app.launch(0, stage="after both")
    finally:
        for name in ("first", "second"):
            ctl(["probe", "unload", name], check=False)
        app.end()
    # Each warp of 32 lanes leaves in two groups; 16 lanes of it at each exit.
    known = (LAUNCHES, LAUNCHES * BLOCKS, LAUNCHES * BLOCKS * THREADS)
    groups = first[3]
    ok = (first[:3] == known and second[:3] == known and both[:3] == tuple(2 * n for n in known)
          and second[3] == groups and both[3] == 2 * groups and groups >= LAUNCHES * BLOCKS * THREADS // 32
          and plain == one == two == after)
    report(f"probes {kind}", ok,
           f"launches, blocks, threads, groups of lanes: {first}; beside another {second}, that {both}; known {known}; "
           f"outputs {'equal' if plain == one == two == after else 'DIFFER'}; loaded, attached and read within "
           f"{1000 * took:.0f} ms; machine code {attached['code']}, {attached['gpu_bytes'] >> 20} MiB")


def check_probes():
    """Two objects come into a running process one after the other, and go."""
    with Daemon("probes"):
        for kind in ("cubin", "ptx"):
            try:
                check_one(kind, f"{KERNELS}.{kind}")
            except Failed as e:
                report(f"probes {kind}", False, str(e))


CHECKS = {"probes": check_probes}
