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
wait_for 10 enough || fail "launches of the simulated GPU were not recorded"
# The agent came in through the socket that systemd opened, and what the unit forbids it does not need.
matched() { [ "$(gpuobsctl launches --json --limit 1000 | grep -c '"match":"exact".*"end":"measured"')" -ge 100 ]; }
wait_for 10 matched || { gpuobsctl coverage; gpuobsctl losses; fail "launches have no GPU times"; }
echo "ok launches recorded"

systemctl reload gpuobsd || fail "reload"
wait_for 5 gpuobsctl status || fail "no answer after reload"
echo "ok reload"

before=$(systemctl show -p MainPID --value gpuobsd)
kill -9 "$before"
restarted() {
        local now
        now=$(systemctl show -p MainPID --value gpuobsd)
        [ "$now" != 0 ] && [ "$now" != "$before" ] && [ "$(systemctl is-active gpuobsd)" = active ]
}
wait_for 15 restarted || fail "not restarted after kill -9"
[ "$(systemctl show -p NRestarts --value gpuobsd)" = 1 ] || fail "NRestarts is not 1"
wait_for 5 gpuobsctl status || fail "no answer after the restart"
wait_for 5 enough || fail "records are gone after the restart"
echo "ok killed and restarted"

# A daemon that hangs: the watchdog notices, and a new one takes over.
[ "$(systemctl show -p WatchdogUSec --value gpuobsd)" = 30s ] || fail "WatchdogSec is not 30 s"
mkdir -p /run/systemd/system/gpuobsd.service.d
printf '[Service]\nWatchdogSec=3\n' >/run/systemd/system/gpuobsd.service.d/watchdog.conf
systemctl daemon-reload
systemctl restart gpuobsd || fail "restart with a shorter watchdog"
sleep 5
[ "$(systemctl show -p NRestarts --value gpuobsd)" = 0 ] || fail "the watchdog fired on a daemon that runs"
before=$(systemctl show -p MainPID --value gpuobsd)
kill -STOP "$before"
wait_for 20 restarted || fail "not restarted by the watchdog"
journalctl --no-pager -q -u gpuobsd | grep -q 'Watchdog timeout' || fail "it was not the watchdog"
wait_for 5 gpuobsctl status || fail "no answer after the watchdog"
wait_for 5 enough || fail "records are gone after the watchdog"
echo "ok watchdog"

systemctl stop gpuobsd
[ "$(systemctl is-active gpuobsd)" = inactive ] || fail "did not stop"
gpuobsctl status >/dev/null || fail "the socket did not start the daemon"
[ "$(systemctl is-active gpuobsd)" = active ] || fail "not active after socket activation"
echo "ok socket activation"

echo "ALL OK"
