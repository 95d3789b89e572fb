#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The first and only process of the virtual machine of run_vm.sh: starts gpuobsd as
# installed, runs CUDA programs on the simulated GPU, compares what they issued with
# what the daemon says, and runs the tests of the eBPF programs. Each check is a
# line "vm: ok ..." or "vm: FAIL ..."; the last line counts them.
/bin/busybox --install -s /bin
export PATH=/bin:/usr/local/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tracefs tracefs /sys/kernel/tracing
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs tmpfs /tmp
mount -t debugfs debugfs /sys/kernel/debug
mount -t tmpfs tmpfs /var/lib/gpuobsd # the database
mkdir -p /run/gpuobsd
passed=0
failed=0
issued=0

say() {
        read -r up _ </proc/uptime
        echo "vm: $* (at $up s)"
}

pass() {
        passed=$((passed + 1))
        say "ok $*"
}

fail() {
        failed=$((failed + 1))
        say "FAIL $*"
}

# is WHAT ACTUAL EXPECTED
is() {
        if [ "$2" = "$3" ]; then pass "$1: $2"; else fail "$1: $2, not $3"; fi
}

finish() {
        echo "vm: result $passed passed, $failed failed"
        poweroff -f
}

# until_true SECONDS COMMAND...
until_true() {
        local end=$(($(date +%s) + $1))
        shift
        until "$@" >/dev/null 2>&1; do
                [ "$(date +%s)" -lt "$end" ] || return 1
                sleep 0.2
        done
}

# A number of what gpuobsctl COMMAND --json says; the last one of that name.
number() {
        gpuobsctl "$2" --json | sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" | tail -1
}

has_libraries() {
        [ "$(number libraries status)" = "$1" ]
}

is_stored() {
        [ "$(number stored losses)" = "$issued" ]
}

# How many of the launches in /tmp/rows have this in their JSON.
rows() {
        grep -c "$1" /tmp/rows
}

# A program's launches, once they are in the database, must be those it says it
# issued. MATCH: how each must have been joined with its device records.
#   compare WHAT MATCH END
compare() {
        local pid all kernel n joined
        pid=$(sed -n 's/^pid //p' /tmp/out)
        all=$(sed -n 's/^launches //p' /tmp/out)
        [ -n "$all" ] || { cat /tmp/out; fail "$1: the program failed"; return; }
        issued=$((issued + all))
        until_true 120 is_stored
        gpuobsctl launches --json --limit 0 --pid "$pid" >/tmp/rows
        is "$1: launches stored of $all issued" "$(wc -l </tmp/rows)" "$all"
        joined="\"match\":\"$2\",.*\"end\":\"$3\""
        is "$1: match $2, end $3" "$(rows "$joined")" "$all"
        grep -v "$joined" /tmp/rows | head -n 8
        for kernel in empty vadd saxpy reduce spin; do
                n=$(sed -n "s/^launches_$kernel //p" /tmp/out)
                is "$1: launches of $kernel" "$(rows "\"kernel\":\"$kernel\"")" "$n"
        done
        is "$1: times in order" "$(times_in_order </tmp/rows)" "$all"
}

# Rows in which entered <= returned, started <= ended, and nothing started before it was asked for.
times_in_order() {
        awk '
        function field(name) {
                if (!match($0, "\"" name "\":[0-9]+"))
                        return -1
                return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0
        }
        {
                enter = field("cpu_enter_ns"); start = field("gpu_start_ns")
                good = enter > 0 && enter <= field("cpu_return_ns")
                if (start >= 0)
                        good = good && start <= field("gpu_end_ns") &&
                               start + field("clock_error_ns") >= enter
                n += good
        }
        END { print n + 0 }'
}

# ---- the daemon ----
echo # the firmware left the cursor within a line
say "$(uname -sr)"
gpuobsd >/tmp/daemon.log 2>&1 &
daemon=$!
until_true 120 gpuobsctl status || { cat /tmp/daemon.log; fail "gpuobsd did not start"; finish; }
is "libraries found through the linker's cache" "$(number libraries status)" 1

# ---- with the agent ----
gpuobsctl run -- /test/sim_launch -n 200 >/tmp/out 2>&1
compare "with the agent" exact measured
gpuobsctl run -- /test/sim_launch -n 100 -t 2 -s 2 >/tmp/out 2>&1
# The kernel without parameters does not tell its stream: with threads it is inferred.
compare "two threads, two streams each" '\(exact\|ordered\|inferred\)' measured
gpuobsctl run -- /test/sim_launch -n 40 --extended >/tmp/out 2>&1
compare "cuLaunchKernelEx" exact measured
gpuobsctl run -- /test/sim_launch -n 40 --library --per-thread >/tmp/out 2>&1
compare "library, per-thread stream" exact measured

# ---- without, from a copy of the library that appears while the daemon runs ----
still_on() {
        ls -l /proc/$daemon/fd | grep -c perf_event
}
alone=$(still_on) # with the first copy
# The probes come on while the first process runs, so none may see it, some or all.
LD_LIBRARY_PATH=/opt/wheel /test/sim_launch -n 1 --pause-ms 1000 >/tmp/out 2>&1
until_true 120 has_libraries 2
is "libraries after another was mapped" "$(number libraries status)" 2
# Its end is read after all that it did.
pid=$(sed -n 's/^pid //p' /tmp/out)
is_alive() {
        gpuobsctl ps --json | grep -q "\"pid\":$pid,.*\"alive\":true"
}
until_true 120 eval '! is_alive'
issued=$(number produced losses)
LD_LIBRARY_PATH=/opt/wheel /test/sim_launch -n 60 >/tmp/out 2>&1
compare "without the agent" none none

# ---- queue depth, while a slow GPU works them off ----
gpuobsctl run -- /test/sim_launch -n 100 -k spin --spin-ns 50000000 >/tmp/out 2>&1 &
program=$!
depth() {
        gpuobsctl ps --json | sed -n "s/.*\"pid\":$program,.*\"depth\":\([0-9]*\).*/\1/p"
}
# Than at its longest: the program may still be launching. Nothing: it has ended.
is_shorter() {
        local now
        now=$(depth)
        [ -n "$now" ] || return 1
        [ "$now" -le "$before" ] || before=$now
        [ "$now" -lt "$before" ]
}
before=
is_waiting() {
        before=$(depth)
        [ "${before:-0}" -gt 1 ]
}
until_true 120 is_waiting
[ "${before:-0}" -gt 1 ] && [ "$before" -le 100 ] &&
        pass "queue depth: $before" || fail "queue depth: $before"
until_true 120 is_shorter && pass "queue depth falls" || fail "queue depth stays at $before"
wait $program
compare "queued" exact measured

# ---- a library that goes away: its probes come off while the daemon works ----
rm /opt/wheel/libcuda.so.1
start=$(date +%s)
kill -HUP $daemon
until_true 120 has_libraries 1
left=$(still_on)
is "libraries after one was deleted" "$(number libraries status)" 1
took=$(($(date +%s) - start))
# Soon; or later, as the machine has other things to do, but before they are all off.
[ $took -lt 20 ] || [ "$left" -gt "$alone" ] &&
        pass "the daemon answers meanwhile: after $took s, $((left - alone)) probes are still on" ||
        fail "the daemon did not answer for $took s, $((left - alone)) probes are still on"

# ---- losses ----
is "launches produced" "$(number produced losses)" "$issued"
is "launches stored" "$(number stored losses)" "$issued"
is "launches lost" "$(number lost losses)" 0
is "losses other than the second library's first process" "$(gpuobsctl losses --json |
        grep -o '"cause":"[a-z_]*","count":[1-9][0-9]*' | grep -v '"attach_gap","count":1$')" ""
[ $failed -eq 0 ] || { gpuobsctl losses; gpuobsctl ps; gpuobsctl coverage; cat /tmp/daemon.log; }

# ---- inside the managed-memory driver: a module that stands in for it ----
. /test/decisions.sh
driver_says '"probed":false,"reason":"the module nvidia_uvm is not loaded"' &&
        pass "without the module the tier is absent" || fail "without the module: $(gpuobsctl uvm --driver --json)"
if [ -f /test/nvidia_uvm.ko ]; then
        decisions_by_kprobes
        decisions_by_fentry_alone
fi

# ---- the end; and a database that another start reads ----
# Each probe that comes off waits for the kernel's grace periods: seconds of idling.
echo 1 >/sys/kernel/rcu_expedited
kill $daemon
wait $daemon
is "exit status of gpuobsd" $? 0
[ ! -f /test/nvidia_uvm.ko ] || decisions_end
gpuobsd -s managed_decisions=fentry >/tmp/daemon.log 2>&1 &
daemon=$!
until_true 120 gpuobsctl status
is "launches after a restart" "$(gpuobsctl launches --json --limit 0 | wc -l)" "$issued"
[ ! -f /test/nvidia_uvm.ko ] || decisions_by_both
kill $daemon
wait $daemon
[ ! -f /test/nvidia_uvm.ko ] || decisions_end

# ---- the tests of the eBPF programs on this kernel ----
cd /test || finish
unit() {
        "$@" >/tmp/out 2>&1
        local rc=$?
        [ $rc = 0 ] || cat /tmp/out
        [ $rc != 77 ] || return 0
        is "exit status of ${1#./}" $rc 0
}
refused() {
        for object in refused_*.bpf.o; do
                source=${object#refused_}
                set -- "$@" "${source%.o}.c" "$object"
        done
        unit ./device_refused_test "$@"
}
unit ./cpu_probes_test ./libfake_cuda.so
unit ./cpu_depth_test ./libfake_cuda.so
unit ./inner_maps_test
unit ./cpu_discovery_test ./libfake_cuda.so
unit ./driver_ioctl_test
unit ./uvm_probes_test
unit ./device_launch_test /usr/local/libexec/gpuobsd/device/launch.bpf.o
unit ./device_scopes_test device_scopes.bpf.o
refused
export DEVICE_RANDOM_PROGRAMS=200
unit ./device_random_test
finish
