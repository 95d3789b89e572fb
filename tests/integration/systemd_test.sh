#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Boots a real systemd in a container on this kernel and uses gpuobsd as an
# administrator would: start, query, reload, kill, restart, socket activation.
#   systemd_test.sh BUILD_DIR
set -u
build=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

skip() {
        echo "SKIP: $*"
        exit 77
}

[ "$(id -u)" = 0 ] || skip "needs root to boot a container"
command -v systemd-nspawn >/dev/null || skip "systemd-nspawn is not installed (systemd-container)"
command -v mmdebstrap >/dev/null || skip "mmdebstrap is not installed"

work=$(mktemp -d /var/tmp/gpuobs-systemd.XXXXXX)
trap 'rm -rf "$work"' EXIT
root=$work/root
make_root() {
        rm -rf "$root"
        mmdebstrap --variant=minbase --quiet --aptopt='Acquire::Retries "3"' \
                --include=systemd,systemd-sysv,dbus,procps,libbpf1,libuv1,libmsgpackc2,libsqlite3-0,libzydis4.0,libsystemd0,libelf1 \
                bookworm "$root" >"$work/mmdebstrap.log" 2>&1
}
make_root || { sleep 20; make_root; } ||
        { tail -3 "$work/mmdebstrap.log"; skip "a Debian root could not be made (no package source?)"; }

DESTDIR=$root meson install -C "$build" --no-rebuild --quiet >"$work/install.log" 2>&1 ||
        { cat "$work/install.log"; exit 1; }
cp "$here/systemd_inside.sh" "$root/inside.sh"
mkdir -p "$root/sim"
cp -L "$build/tests/simcuda/libcuda.so.1" "$root/sim/"
cp "$build/tests/integration/sim_apps/sim_launch" "$build/tests/integration/sim_apps/undo_note" \
        "$build/tests/integration/sim_apps/libundo_driver.so" "$root/sim/"
printf "%s\n" /usr/local/lib/x86_64-linux-gnu /sim >"$root/etc/ld.so.conf.d/gpuobs.conf"
chroot "$root" /sbin/ldconfig

cat >"$root/etc/systemd/system/inside.service" <<'U'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
StandardOutput=file:/result
StandardError=inherit
ExecStart=/bin/bash /inside.sh
ExecStopPost=/bin/systemctl --no-block poweroff
[Install]
WantedBy=default.target
U
ln -s /etc/systemd/system/inside.service "$root/etc/systemd/system/multi-user.target.wants/"

mounts=()
[ -d /sys/kernel/tracing/events ] && mounts+=(--bind=/sys/kernel/tracing)
timeout 900 systemd-nspawn --register=no --keep-unit --quiet -b -D "$root" --capability=all \
        --system-call-filter="bpf perf_event_open pidfd_getfd" --private-users=no "${mounts[@]}" \
        </dev/null >"$work/boot.log" 2>&1
cat "$root/result" 2>/dev/null || { tail -20 "$work/boot.log"; echo "the container left no result"; exit 1; }
grep -q '^ALL OK$' "$root/result" && exit 0
journal=$(find "$root/var/log/journal" -name '*.journal' 2>/dev/null | head -1)
[ -z "$journal" ] || journalctl --no-pager -q --file "$journal" -u gpuobsd | tail -30
exit 1
