#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs inside the container of systemd_test.sh. Ends with ALL OK, or says what failed.
set -u
export PATH=/usr/local/bin:/usr/local/sbin:$PATH

fail() {
        echo "FAILED: $*"
        systemctl status --no-pager gpuobsd 2>&1 | head -20
        journalctl --no-pager -q -u gpuobsd 2>&1 | tail -20
        exit 1
}

# wait_for SECONDS COMMAND...
wait_for() {
        local n=$(($1 * 10))
        shift
        for ((i = 0; i < n; i++)); do
                "$@" >/dev/null 2>&1 && return 0
                sleep 0.1
        done
        return 1
}

systemd-sysusers || fail "sysusers"
systemd-tmpfiles --create 2>/dev/null
getent group gpuobs >/dev/null || fail "group gpuobs was not made"
systemctl daemon-reload
systemctl start gpuobsd || fail "systemctl start gpuobsd"
[ "$(systemctl is-active gpuobsd)" = active ] || fail "not active after start"
[ "$(systemctl show -p Type --value gpuobsd)" = notify ] || fail "not Type=notify"
gpuobsctl status || fail "gpuobsctl status"
echo "ok start and query"

gpuobsctl run -- /sim/sim_launch --quiet --launches 100 || fail "sim_launch"
enough() { [ "$(gpuobsctl launches --json --limit 1000 | wc -l)" -ge 100 ]; }
wait_for 60 enough || fail "launches of the simulated GPU were not recorded"
# The agent came in through the socket that systemd opened, and what the unit forbids it does not need.
matched() { [ "$(gpuobsctl launches --json --limit 1000 | grep -c '"match":"exact".*"end":"measured"')" -ge 100 ]; }
wait_for 60 matched || { gpuobsctl coverage; gpuobsctl losses; fail "launches have no GPU times"; }
echo "ok launches recorded"

systemctl reload gpuobsd || fail "reload"
wait_for 60 gpuobsctl status || fail "no answer after reload"
echo "ok reload"

before=$(systemctl show -p MainPID --value gpuobsd)
kill -9 "$before"
restarted() {
        local now
        now=$(systemctl show -p MainPID --value gpuobsd)
        [ "$now" != 0 ] && [ "$now" != "$before" ] && [ "$(systemctl is-active gpuobsd)" = active ]
}
wait_for 60 restarted || fail "not restarted after kill -9"
[ "$(systemctl show -p NRestarts --value gpuobsd)" = 1 ] || fail "NRestarts is not 1"
wait_for 60 gpuobsctl status || fail "no answer after the restart"
wait_for 60 enough || fail "records are gone after the restart"
echo "ok killed and restarted"

# A daemon that hangs: the watchdog notices, and a new one takes over.
[ "$(systemctl show -p WatchdogUSec --value gpuobsd)" = 30s ] || fail "WatchdogSec is not 30 s"
mkdir -p /run/systemd/system/gpuobsd.service.d
printf '[Service]\nWatchdogSec=10\n' >/run/systemd/system/gpuobsd.service.d/watchdog.conf
systemctl daemon-reload
systemctl restart gpuobsd || fail "restart with a shorter watchdog"
sleep 12
[ "$(systemctl show -p NRestarts --value gpuobsd)" = 0 ] || fail "the watchdog fired on a daemon that runs"
before=$(systemctl show -p MainPID --value gpuobsd)
kill -STOP "$before"
wait_for 60 restarted || fail "not restarted by the watchdog"
by_watchdog() { journalctl --no-pager -q -u gpuobsd | grep -q 'Watchdog timeout'; }
wait_for 60 by_watchdog || fail "it was not the watchdog" # the journal is written by and by
wait_for 60 gpuobsctl status || fail "no answer after the watchdog"
wait_for 60 enough || fail "records are gone after the watchdog"
echo "ok watchdog"

# What a killed daemon had set in other processes goes back though none starts again: a time slice
# of a process with the driver's file at descriptor 9 (undo_driver.c).
printf '\100\037\0\0\0\0\0\0' >/sim/nvidiactl
exec 9<>/sim/nvidiactl
sleep 600 &
holder=$!
exec 9<&-
printf '[Service]\nRestart=no\nEnvironment=LD_PRELOAD=/sim/libundo_driver.so SIM_NVIDIACTL=/sim/nvidiactl\n' \
        >/run/systemd/system/gpuobsd.service.d/undo.conf
systemctl daemon-reload
systemctl restart gpuobsd || fail "restart with a driver"
daemon=$(systemctl show -p MainPID --value gpuobsd)
# As the daemon sees it: the container's boot id is another outside of its unit's mounts.
nsenter -t "$daemon" -m /sim/undo_note /var/lib/gpuobsd/note "$holder" 9 2048 || fail "undo_note"
cat /var/lib/gpuobsd/note >>/var/lib/gpuobsd/launches.db.undo # the daemon has the file itself locked
slice() { od -An -t u8 /sim/nvidiactl | tr -d ' '; }
[ "$(slice)" = 8000 ] || fail "the slice is $(slice) before the kill"
kill -9 "$daemon"
set_back() { [ "$(slice)" = 2048 ]; }
wait_for 60 set_back || fail "the slice is $(slice) after the kill"
is_failed() { [ "$(systemctl is-active gpuobsd)" = failed ]; } # once what set it back has ended
wait_for 60 is_failed || fail "a daemon was started again"
kill "$holder"
rm /run/systemd/system/gpuobsd.service.d/undo.conf
systemctl daemon-reload
systemctl start gpuobsd || fail "start after the kill"
echo "ok set back after a kill"

systemctl stop gpuobsd
[ "$(systemctl is-active gpuobsd)" = inactive ] || fail "did not stop"
wait_for 60 gpuobsctl status || fail "the socket did not start the daemon"
is_active() { [ "$(systemctl is-active gpuobsd)" = active ]; } # it answers before it says that it is ready
wait_for 60 is_active || fail "not active after socket activation"
echo "ok socket activation"

echo "ALL OK"
