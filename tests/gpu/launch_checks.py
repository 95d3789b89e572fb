# SPDX-License-Identifier: Apache-2.0
"""Checks of the launch record: every way to launch, PTX, clocks, several GPUs and processes."""
import os
import re
import signal
import statistics
import subprocess
import threading

from harness import (CARRY, LIBS, Daemon, Failed, agent_env, brief, count, ctl, describe, issued, json_rows, options,
                     pid_of, program, report, results_of, rss, run, sane)


def observe(name, command, env=None, daemon=None):
    """Run a program under the agent of the daemon: (output, records, kernels covered, ledger)."""
    traced, _ = run(command, name, env={**agent_env(), **(env or {})})
    pid = pid_of(traced)
    records = sorted(daemon.launches(pid), key=lambda r: r["cpu_enter_ns"])
    kernels = json_rows("coverage", "--kernels", "--pid", str(pid))
    with open(os.path.join(options.out, name + ".log"), "a", encoding="utf-8") as f:
        for words in (["launches", "--pid", str(pid), "--limit", "200"], ["coverage"], ["losses"]):
            f.write(f"$ gpuobsctl {' '.join(words)}\n" + ctl(words, check=False)[0])
    return traced, records, kernels, daemon.ledger(pid)


def unexplained(records, kernels):
    """Names of kernels whose launches lack a start or end that coverage says they should have."""
    start = {k["kernel"] for k in kernels if k["start"] == "none" and k.get("reason")}
    end = {k["kernel"] for k in kernels if k["end"] == "none" and k.get("reason")}
    bad = set()
    for r in records:
        if r["gpu_start_ns"] is None and r["kernel"] not in start:
            bad.add(f"{r['kernel']} (start)")
        elif r["end_kind"] != "measured" and r["kernel"] not in end | start:
            bad.add(f"{r['kernel']} (end)")
    return sorted(bad)


def same_results(plain, traced):
    return bool(results_of(plain)) and results_of(plain) == results_of(traced)


def forms_of(text, records):
    """Which forms lost exactness: records are in the order of the launches."""
    bad, at = [], 0
    for name, n in re.findall(r"^form (\w+) (\d+)$", text, re.M):
        mine = records[at:at + int(n)]
        at += int(n)
        if len(mine) < int(n) or any(r["match"] != "exact" for r in mine):
            bad.append(name)
    return bad


def check_forms():
    """Every way to load an image and to launch a kernel; also with the per-thread default stream."""
    parts, ok = [], True
    for name in ("forms", "forms_ptds"):
        command = [program(name), os.path.join(CARRY, "data")]
        plain, _ = run(command, "forms")
        with Daemon(name) as d:
            traced, records, kernels, ledger = observe("forms", command, daemon=d)
        lacking, bad = unexplained(records, kernels), forms_of(traced, records)
        refused = sorted({k["reason"] for k in kernels if k.get("reason")})
        ok = ok and (same_results(plain, traced) and len(records) == issued(traced) and not lacking and not bad
                     and not sane(records))
        parts.append(f"{name}: results {'identical' if same_results(plain, traced) else 'DIFFER'}, issued "
                     f"{issued(traced)}, {describe(records)}{', not exact: ' + ' '.join(bad) if bad else ''}"
                     f"{', unexplained: ' + ' '.join(lacking) if lacking else ''}"
                     f"{', coverage: ' + '; '.join(refused) if refused else ''}, {brief(ledger)}")
    report("forms", ok, " | ".join(parts))


def check_ptx():
    """Images that hold PTX alone, rewritten as text and compiled by the driver."""
    parts, ok, code = [], True, None
    for name in ("ptx_kernels_code", "ptx_kernels_80", "ptx_kernels_90", "ptx_kernels_exit"):
        plain, _ = run([program(name)], "ptx")
        with Daemon(name) as d:
            traced, records, kernels, _ = observe("ptx", [program(name)], daemon=d)
        code = code or results_of(plain)
        how = {k["start"] for k in kernels}
        same = same_results(plain, traced) and (name == "ptx_kernels_exit" or results_of(plain) == code)
        lacking = unexplained(records, kernels)
        good = (same and len(records) == issued(traced) and not lacking and not sane(records)
                and how == {"sass" if name == "ptx_kernels_code" else "ptx"}
                and count(records, "match", "exact") == len(records))
        if name == "ptx_kernels_exit":  # its ends cannot be seen, which coverage must say
            good = good and count(records, "end_kind", "measured") == 0
        ok = ok and good
        parts.append(f"{name} ({'/'.join(sorted(how))}): {'identical' if same else 'DIFFERS'}, {describe(records)}"
                     f"{', unexplained: ' + ' '.join(lacking) if lacking else ''}")
    report("ptx", ok, " | ".join(parts))


def outside_window(records):
    """Of launches that were waited for one by one: those not between their own call and the next."""
    bad = 0
    for r, after in zip(records, records[1:]):
        slack = r["clock_error_ns"]
        if r["gpu_start_ns"] is None or r["gpu_end_ns"] is None or slack is None:
            bad += 1
        elif r["gpu_start_ns"] + slack < r["cpu_enter_ns"] or r["gpu_end_ns"] - slack > after["cpu_enter_ns"]:
            bad += 1
    return bad


def check_agent_clock():
    """The clock from the agent's own kernel, for drivers that do not let PTIMER be read."""
    medians, errors, parts, ok = {}, {}, [], True
    for clock, setting in (("driver", "no"), ("agent", "yes")):
        with Daemon("clock_" + clock, settings=[f"agent_clock={setting}"]) as d:
            traced, records, _, _ = observe("agent_clock", [program("app"), "--serial", "5000"], daemon=d)
        started = [r for r in records if r["gpu_start_ns"] is not None]
        if len(started) < 0.999 * issued(traced):
            raise Failed(f"{clock}: only {len(started)} of {issued(traced)} launches have a start")
        medians[clock] = statistics.median(r["gpu_start_ns"] - r["cpu_enter_ns"] for r in started)
        errors[clock] = statistics.median(r["clock_error_ns"] for r in started)
        outside = outside_window(records)
        ok = ok and not outside
        parts.append(f"{clock}: start {medians[clock]:.0f} ns after the call, stated error p50 {errors[clock]:.0f} ns, "
                     f"{outside} of {len(records)} outside call and next call")
    # Both see the same latency, but for what they say they may be wrong by; 1 us for two runs.
    apart = abs(medians["agent"] - medians["driver"])
    ok = ok and apart <= errors["agent"] + errors["driver"] + 1000 and errors["agent"] < 50_000
    report("agent clock", ok, "; ".join(parts) + f"; medians {apart:.0f} ns apart")


def check_two_gpus():
    """One process on two GPUs: even kernels run on GPU 0, odd ones on GPU 1."""
    parts, ok = [], True
    for mode in ("second", "threads", "switch", "managed"):
        command = [program("two_gpus"), mode]
        plain, _ = run(command, "two_gpus")
        if plain.startswith("skip"):
            report("two gpus", None, plain.strip())
            return
        with Daemon("two_gpus_" + mode) as d:
            traced, records, kernels, ledger = observe("two_gpus", command, daemon=d)
            left = {image.get("reason") for image in json_rows("coverage")} - {None}
        same = same_results(plain, traced)
        wrong = sum(1 for r in records if r["gpu"] != ("odd" in (r["kernel"] or "")))
        lacking = unexplained(records, kernels)
        ok = ok and (same and len(records) == issued(traced) and not wrong and not sane(records) and not lacking)
        parts.append(f"{mode}: {'identical' if same else 'DIFFERS'}, issued {issued(traced)}, {describe(records)}, "
                     f"{wrong} with the wrong GPU, {sane(records)} impossible times"
                     f"{', left alone: ' + '; '.join(sorted(left)) if left else ''}"
                     f"{', unexplained: ' + ' '.join(lacking) if lacking else ''}, {brief(ledger)}")
    report("two gpus", ok, " | ".join(parts))


def resident(text):
    found = re.search(r"^resident_kib (\d+) (\d+)$", text, re.M)
    return int(found[1]), int(found[2])


def check_dlclose():
    """A library with kernels that is opened and closed over and over: nothing may pile up."""
    rounds = "100" if options.quick else "200"
    command = [program("dlclose"), os.path.join(CARRY, "lib", "libplugin.so"), rounds]
    plain, _ = run(command, "dlclose", env=LIBS)
    with Daemon("dlclose") as d:
        before = rss(d.process.pid)
        traced, records, kernels, ledger = observe("dlclose", command, env=LIBS, daemon=d)
        grown = rss(d.process.pid) - before
    own = resident(plain)[1] - resident(plain)[0]
    agents = resident(traced)[1] - resident(traced)[0]
    same, lacking = same_results(plain, traced), unexplained(records, kernels)
    ok = (same and len(records) == issued(traced) and not lacking and not sane(records)
          and agents - own < 10 * int(rounds) and grown < 16 * 1024)
    report("dlclose", ok, f"{rounds} rounds: {'identical' if same else 'DIFFERS'}, issued {issued(traced)}, "
           f"{describe(records)}{', unexplained: ' + ' '.join(lacking) if lacking else ''}; process grows by {own} KiB "
           f"alone, {agents} KiB with the agent; daemon by {grown} KiB; {brief(ledger)}")


def kill_in_the_middle(log):
    """Start the app, kill it with SIGKILL once it launches; its pid."""
    env = {**os.environ, **agent_env()}
    p = subprocess.Popen([program("app"), "--launches", "100000000"], env=env, text=True, stdout=subprocess.PIPE)
    pid = pid_of(p.stdout.readline())
    threading.Timer(4, p.send_signal, [signal.SIGKILL]).start()
    p.wait()
    with open(os.path.join(options.out, log + ".log"), "a", encoding="utf-8") as f:
        f.write(f"process {pid} ended with {p.returncode}\n")
    if p.returncode != -signal.SIGKILL:
        raise Failed(f"the process to be killed ended by itself with {p.returncode}")
    return pid


def check_together():
    """Two processes on one GPU at once, and a third that is killed while it launches."""
    launches = "10000" if options.quick else "40000"
    command = [program("app"), "--launches", launches]
    plain, _ = run(command, "together")
    outcome = {}

    def work(i):
        outcome[i], _ = run(command, f"together_{i}", env=agent_env())

    with Daemon("together") as d:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        for t in threads:
            t.start()
        killed = kill_in_the_middle("together")
        for t in threads:
            t.join()
        if len(outcome) != 2:
            raise Failed("one of the two processes failed; see its log")
        parts, ok = [], True
        for i in sorted(outcome):
            records, ledger = d.launches(pid_of(outcome[i])), d.ledger(pid_of(outcome[i]))
            same = same_results(plain, outcome[i])
            ok = ok and (same and ledger is not None and ledger["produced"] == issued(outcome[i])
                         and ledger["produced"] == ledger["stored"] + ledger["lost"] and not sane(records)
                         and len(records) == ledger["stored"]
                         and count(records, "match", "exact") >= 0.999 * issued(outcome[i])
                         and count(records, "end_kind", "measured") >= 0.999 * issued(outcome[i]))
            parts.append(f"{'identical' if same else 'DIFFERS'}, {describe(records)}, {brief(ledger)}")
        records, ledger = d.launches(killed), d.ledger(killed)
        ok = ok and (len(records) > 0 and ledger is not None
                     and ledger["produced"] == ledger["stored"] + ledger["lost"] and not sane(records))
        parts.append(f"killed: {describe(records)}, {brief(ledger)}")
    report("together", ok, " | ".join(parts))


CHECKS = {
    "forms": check_forms,
    "ptx": check_ptx,
    "agent_clock": check_agent_clock,
    "two_gpus": check_two_gpus,
    "dlclose": check_dlclose,
    "together": check_together,
}
