#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# Part of init.sh: the probes inside the managed-memory driver, for which a module stands
# in (module/nvidia_uvm.c). What it is told to do must come out of the API, whichever
# kind of probe sees it: kprobes; fentry where there are no kprobes; both together.
kprobe_pmu=/sys/bus/event_source/devices/kprobe
trampoline_arguments=6 # what Linux 6.1 takes in functions with fentry
[ "$(uname -r | cut -d. -f1)" -gt 6 ] || [ "$(uname -r | cut -d. -f2)" -lt 6 ] || trampoline_arguments=12

decided() {
        gpuobsctl uvm --decisions --json | tail -1
}
# wrote LINE [COUNT]: the module does what the line says, in a process of its own, of which
# as many decisions come (one); $seen is the last of them.
wrote() {
        sequence=$(last_sequence)
        awaited=$((${sequence:-0} + ${2:-1}))
        echo "$1" >/sys/kernel/debug/uvm_calls || fail "the module refused: $1"
        until_true 120 has_all
        seen=$(decided)
}
last_sequence() {
        decided | sed -n 's/.*"sequence":\([0-9]*\).*/\1/p'
}
has_all() {
        sequence=$(last_sequence)
        [ "${sequence:-0}" -ge "$awaited" ]
}
# has WHAT JSON...: the last decision has these members.
has() {
        local what=$1 member
        shift
        for member in "$@"; do
                case $seen in
                *"$member"*) ;;
                *) fail "$what: no $member in $seen"; return ;;
                esac
        done
        pass "$what"
}
driver_says() {
        gpuobsctl uvm --driver --json 2>/dev/null | grep -q "$1"
}
doctor_says() {
        gpuobsctl doctor --json | grep -q "\"name\":\"$1\",\"state\":\"$2\""
}
# How many points are probed by this form, and their arguments known.
by_form() {
        gpuobsctl uvm --driver --json |
                grep -o "\"probed\":true,\"form\":\"$1\",\"function\":\"[a-z_]*\",\"arguments\":true" | wc -l
}
load_module() {
        insmod /test/nvidia_uvm.ko || fail "the module cannot be loaded"
        until_true 120 driver_says '"probed":true,"lost"'
}

# ---- what is seen of each point ----

sees_batches() {
        local took
        wrote "batch 12 9 3 77 20 0"
        has "$1: a batch of faults" '"point":"batch"' '"faults":12,"distinct":9,"duplicates":3,"batch":77' \
                '"uuid":"GPU-01020300-0000-0000-0000-000000000010"'
        took=$(echo "$seen" | sed -n 's/.*"duration_ns":\([0-9]*\).*/\1/p')
        # No less by the clock that both go by; more, as long as the machine does other things.
        [ "$took" -ge 20000000 ] && [ "$took" -lt 60000000000 ] && pass "$1: it took 20 ms or more" ||
                fail "$1: a batch of 20 ms took $took ns"
        wrote "batch 1 1 0 78 0 81"
        has "$1: a batch that failed" '"status":81'
}
sees_prefetches() {
        wrote "prefetch 140737488355328 48 16 32 1"
        has "$1: what is brought along" '"point":"prefetch"' "\"pid\":$$," '"address":140737488420864,"bytes":65536' \
                '"processor":1' '"pages":48,"pages_address":140737488355328,"pages_bytes":196608'
        wrote "prefetch 140737488355328 0 0 512 1"
        has "$1: nothing is brought along" '"pages":0'
}
sees_picks() {
        wrote "pick 4194304 4 1"
        has "$1: memory that is emptied" '"point":"pick"' '"reason":"physical_allocation"' \
                '"physical":4194304,"chunk":"allocated"'
}
sees_evictions() {
        wrote "evict 140737490452480 7 0"
        has "$1: a block that is evicted" '"point":"evict"' "\"pid\":$$," '"address":140737490452480,"bytes":2097152' \
                '"uuid":"GPU-07000000-0000-0000-0000-000000000000"'
}
sees_moves() {
        wrote "move 140737488355328 2 64 128 2"
        has "$1: pages that move" '"point":"move"' "\"pid\":$$," '"address":140737488617472,"bytes":262144' \
                '"processor":2,"reason":"prefetch"'
}
# Three calls, two of them within the first.
sees_nested() {
        wrote "deep 140737488355328 140737490452480" 3
        has "$1: a move within which others move" '"point":"move"' '"address":140737488355328' '"reason":"fault"'
        is "$1: points of calls within each other" "$(gpuobsctl uvm --decisions --json | tail -3 |
                grep -o '"point":"[a-z]*"\|"reason":"[a-z]*"' | cut -d'"' -f4 | tr '\n' ' ')" \
                "evict move eviction move fault "
}

# Ten thousand, as fast as they come: counted all, or counted as lost.
evicted() {
        gpuobsctl uvm --driver --json | sed -n 's/.*"point":"evict"[^}]*"count":\([0-9]*\).*/\1/p'
}
all_came() {
        came=$(($(evicted) - before))
        lost=$(number uvm_decision losses)
        [ $((came + ${lost:-0} - ${lost_before:-0})) = 10000 ]
}
sees_bursts() {
        local i=0
        before=$(evicted)
        lost_before=$(number uvm_decision losses)
        while [ $i -lt 10000 ]; do
                echo "evict 140737490452480 7 0"
                i=$((i + 1))
        done | while read -r line; do echo "$line" >/sys/kernel/debug/uvm_calls; done
        until_true 120 all_came
        is "$1: a burst, seen and lost" $((came + ${lost:-0} - ${lost_before:-0})) 10000
}

# ---- with each kind of probe ----

decisions_by_kprobes() {
        load_module
        is "points by kprobe, with arguments" "$(by_form kprobe)" 5
        /test/uvm_tier_check >/tmp/out 2>&1
        is "what the check for GPU machines finds in the module: exit status" $? 0
        grep ^FAIL /tmp/out
        is "... points" "$(tail -1 /tmp/out)" "uvm_tier_check: 5 of 5 points, 0 failures"
        is "... points whose fentry programs the kernel accepts" "$(grep -c '^ok   fentry on ' /tmp/out)" 5
        for name in kernel btf uprobes kprobes tracepoints launch_probes driver_calls managed_decisions; do
                doctor_says $name ok && pass "doctor: $name" || fail "doctor: $(gpuobsctl doctor | grep " $name ")"
        done
        sees_batches kprobe
        sees_prefetches kprobe
        sees_picks kprobe
        sees_evictions kprobe
        sees_moves kprobe
        sees_nested kprobe
        driver_says "\"pid\":$$,\"start_ticks\":[0-9]*,\"comm\":\"[a-z]*\",\"decisions\":2,\"chosen\":1,\"pages\":48,\"evicted\":2" &&
                pass "sums of the process" || fail "sums of the process: $(gpuobsctl uvm --driver --json)"
        sees_bursts kprobe
        rmmod nvidia_uvm || fail "the probes hold the module"
        until_true 120 driver_says '"probed":false'
        driver_says '"reason":"the module nvidia_uvm is not loaded"' && pass "the module has gone" ||
                fail "the module has gone: $(gpuobsctl uvm --driver --json)"
        load_module
        sees_evictions "the module came again"
        rmmod nvidia_uvm
        until_true 120 driver_says '"probed":false'
}

# A kernel whose kprobes are not seen is one without, for all that the daemon knows.
decisions_by_fentry_alone() {
        mount -t tmpfs tmpfs $kprobe_pmu
        load_module
        is "points by kprobe without kprobes" "$(by_form kprobe)" 0
        sees_batches fentry
        sees_picks fentry
        sees_evictions fentry
        if [ $trampoline_arguments -ge 8 ]; then
                is "points by fentry, with arguments" "$(by_form fentry)" 5
                sees_prefetches fentry
                sees_moves fentry
                sees_nested fentry
        else
                is "points by fentry, with arguments" "$(by_form fentry)" 3
                for count in 7 8; do
                        driver_says "\"reason\":\"no fentry: of $count arguments" &&
                                pass "a function of $count arguments" ||
                                fail "a function of $count arguments: $(gpuobsctl uvm --driver --json)"
                done
                doctor_says managed_decisions limited && pass "doctor: some points are absent" ||
                        fail "doctor: $(gpuobsctl doctor | grep " managed_decisions ")"
        fi
        sees_bursts fentry
        gpuobsctl doctor --json | grep -q "nvidia_uvm cannot be unloaded until gpuobsd stops" &&
                pass "doctor: the module is held" || fail "doctor: $(gpuobsctl doctor | grep " managed_decisions ")"
        rmmod nvidia_uvm 2>/dev/null && fail "the module went from under its probes" ||
                pass "the module is held while it is probed"
        umount $kprobe_pmu
}

# The daemon was told to prefer fentry: what cannot have it has kprobes.
decisions_by_both() {
        load_module
        if [ $trampoline_arguments -ge 8 ]; then
                is "fentry preferred: points by fentry" "$(by_form fentry)" 5
        else
                is "fentry preferred: points by fentry" "$(by_form fentry)" 3
                is "fentry preferred: points by kprobe" "$(by_form kprobe)" 2
        fi
        doctor_says managed_decisions ok && pass "doctor: all points" ||
                fail "doctor: $(gpuobsctl doctor | grep " managed_decisions ")"
        sees_batches both
        sees_prefetches both
        sees_moves both
        sees_nested both
}

# Nobody holds the module when the daemon has ended.
decisions_end() {
        rmmod nvidia_uvm && pass "the module goes when the daemon has ended" ||
                fail "the module is held: $(cat /sys/module/nvidia_uvm/refcnt) references"
}
