# SPDX-License-Identifier: Apache-2.0
"""Checks of what the driver tells: context switches, channel groups, calls, the management library."""
import os
import subprocess
import time

from harness import (LIBS, Daemon, Failed, agent_env, ctl, issued, json_rows, options, pid_of, program, report, run,
                     wait_ready)


def check_program(name, command, timeout=120):
    """A program of ours that prints ok and FAIL lines: report them."""
    text, _ = run(command, name, env=LIBS, check=False, timeout=timeout)
    lines = text.strip().splitlines()
    if lines and lines[-1].startswith("SKIP"):
        report(name, None, lines[-1])
        return
    wrong = [line for line in lines if line.startswith("FAIL")]
    done = bool(lines) and lines[-1].startswith(f"{name}_check:")
    report(name, done and not wrong, "; ".join(wrong + [line[5:] for line in lines if line.startswith("ok")]))


def check_uvm_tier():
    """What probes inside nvidia_uvm find in the real module: functions, arguments, fields."""
    run([program("spin"), "1"], "uvm_tier")  # the module is loaded by the first CUDA program
    check_program("uvm_tier", [program("uvm_tier_check")])


def check_doctor():
    """gpuobsctl doctor on a machine where everything should work."""
    needed = ["kernel", "btf", "uprobes", "driver", "device_files", "libcuda", "daemon", "launch_probes",
              "driver_calls", "gpu_clock", "context_switches", "device_program", "database"]
    with Daemon("doctor"):
        run([program("spin"), "1"], "doctor")
        checks = {c["name"]: c for c in json_rows("doctor")}
    wrong = [name for name in needed if checks.get(name, {}).get("state") != "ok"]
    report("doctor", not wrong, "; ".join([f"not ok: {', '.join(wrong)}"] * bool(wrong) + [
        f"{c['name']} {c['state']}: {c['finding']}" for c in checks.values() if c["state"] != "ok"]))


def check_share():
    """Two processes that want the whole GPU: shares by the trace against kernels done."""
    check_program("share", [program("share_check"), program("spin"), "4" if options.quick else "8",
                            "--dump", os.path.join(options.out, "ctxsw.records")])


def check_tsg():
    """Channel groups found by their ioctls, time slices set from outside."""
    check_program("tsg", [program("tsg_check"), program("spin")])


def start_spin(seconds):
    return subprocess.Popen([program("spin"), str(seconds)], stdout=subprocess.PIPE, text=True)


def check_share_daemon():
    """The daemon's shares of two processes without an agent, and that they do not depend on us."""
    with Daemon("share", device=False):
        spins = [start_spin(7), start_spin(7)]
        wait_ready(spins)
        time.sleep(5)
        got = json_rows("share", "--since", "3s")
        text = ctl(["share", "--since", "3s"], check=False)[0]
        calls = json_rows("calls", "--pid", str(spins[0].pid))
        groups = json_rows("groups", "--pid", str(spins[0].pid))
        for p in spins:
            p.communicate()
    with open(os.path.join(options.out, "share_daemon.log"), "a", encoding="utf-8") as f:
        f.write(text)
    engine = next((g for g in got if "span_ns" in g), None)
    active = {s["pid"]: s["active_ns"] for s in got if "active_ns" in s and s.get("pid") in [p.pid for p in spins]}
    if not engine or len(active) != 2:
        report("share daemon", False, f"rows of {len(active)} of 2 processes")
        return
    low = min(active.values()) / sum(active.values())
    adds_up = engine["span_ns"] == sum(engine[k] for k in ("active_ns", "switch_ns", "idle_ns", "unknown_ns"))
    compute = [g for g in groups if g.get("engine") == 1]
    ok = 0.4 < low <= 0.5 and adds_up and engine["lost"] == 0 and bool(compute) and len(calls) > 5
    report("share daemon", ok,
           f"shares {100 * low:.1f} % and {100 - 100 * low:.1f} %, active {engine['active_ns'] / engine['span_ns']:.1%}, "
           f"switching {engine['switch_ns'] / engine['span_ns']:.1%} ({engine['switches']} times), lost {engine['lost']}, "
           f"{len(groups)} groups, {sum(c['count'] for c in calls)} calls of {len(calls)} kinds")


def waiting(pid):
    """(launches that waited, of these split, ns waited, ns others had the GPU)."""
    rows = [r for r in json_rows("launches", "--pid", str(pid), "--since", "1m") if "gpu_start_ns" in r]
    waited = [r for r in rows if r["gpu_start_ns"] > r["cpu_return_ns"]]
    split = [r for r in waited if "queue_others_ns" in r]
    too_much = [r for r in split if r["queue_others_ns"] > r["gpu_start_ns"] - r["cpu_return_ns"]]
    if too_much:
        raise Failed(f"{len(too_much)} launches waited for others longer than they waited")
    return (len(waited), len(split), sum(r["gpu_start_ns"] - r["cpu_return_ns"] for r in split),
            sum(r["queue_others_ns"] for r in split))


def check_share_launches():
    """Launches that wait: alone for their own queue, beside another process for that one."""
    parts, fractions, ok = [], [], True
    for name in ("alone", "beside"):
        with Daemon("share_" + name) as d:
            spin = start_spin(12) if name == "beside" else None
            if spin:
                wait_ready([spin])
            time.sleep(1)
            traced, _ = run([program("app"), "--serial", "300"], "share_launches", env=agent_env())
            pid = pid_of(traced)
            d.launches(pid)
            time.sleep(1)
            waited, split, ns, others = waiting(pid)
            if spin:
                spin.terminate()
                spin.communicate()
        fractions.append(others / ns if ns else 0)
        ok = ok and waited > 0 and split >= 0.9 * waited
        parts.append(f"{name}: {issued(traced)} launches, {waited} waited, {split} split, "
                     f"{ns / 1e6:.1f} ms of which others {others / 1e6:.1f} ms")
    ok = ok and fractions[0] < 0.05 and fractions[1] > 0.3
    report("share launches", ok, "; ".join(parts))


def check_gpus():
    """The management library's figures, against nvidia-smi."""
    command = ["nvidia-smi", "--query-gpu=uuid,memory.total,power.draw,temperature.gpu", "--format=csv,noheader,nounits"]
    time.sleep(3)  # what ran before lets the card's power fall
    with Daemon("gpus", device=False):
        time.sleep(2)
        got = {g["uuid"]: g for g in json_rows("gpus")}
        want, _ = run(command, "gpus")
        text = ctl(["gpus"], check=False)[0]
    with open(os.path.join(options.out, "gpus.log"), "a", encoding="utf-8") as f:
        f.write(text)
    bad = []
    for line in want.strip().splitlines():
        uuid, memory, power, temperature = [part.strip() for part in line.split(",")]
        g = got.get(uuid)
        if not g or abs(g["memory_total"] / 2**20 - float(memory)) > 1100 or \
                abs(g["power_mw"] / 1000 - float(power)) > 60 or abs(g["temperature"] - float(temperature)) > 5:
            bad.append(f"{uuid}: {g} for {line}")
    report("gpus", not bad and bool(got), "; ".join(bad) or f"{len(got)} as nvidia-smi has them: "
           + ", ".join(f"{g['name']} {g['power_mw'] // 1000} W {g['temperature']} C" for g in got.values()))


CHECKS = {
    "uvm_tier": check_uvm_tier,
    "doctor": check_doctor,
    "share": check_share,
    "tsg": check_tsg,
    "share_daemon": check_share_daemon,
    "share_launches": check_share_launches,
    "gpus": check_gpus,
}
