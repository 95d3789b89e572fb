# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts in tests/: where things are, what must be installed.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${GPUOBS_BUILD:-$top/build}

# What building needs, and what the tests need on top.
build_packages=(gcc meson ninja-build pkg-config clang llvm bpftool
        libbpf-dev libelf-dev libuv1-dev libmsgpack-dev libsqlite3-dev libsystemd-dev
        libzydis-dev libzstd-dev liblz4-dev uthash-dev linux-libc-dev libc6-dev)
test_packages=(python3 g++ sqlite3 procps systemd-container mmdebstrap
        libclang-rt-14-dev clang-format clang-tidy qemu-system-x86 busybox-static cpio e2fsprogs mount
        gcc-12 make binutils xz-utils)

die() {
        echo "$*" >&2
        exit 1
}

missing_packages() {
        local p
        for p in "$@"; do
                [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] ||
                        echo "$p"
        done
}

# Install what is missing; nothing is asked of the network when nothing is.
install_packages() {
        local want
        mapfile -t want < <(missing_packages "$@")
        [ ${#want[@]} -eq 0 ] && return 0
        [ "$(id -u)" = 0 ] || die "run this as root once: it must install ${want[*]}"
        echo "installing: ${want[*]}"
        export DEBIAN_FRONTEND=noninteractive
        persist update_and_install "${want[@]}" ||
                die "apt-get install failed; check this machine's package sources"
}

# Up to three times: a mirror may answer slowly, or once with an error, or change in between.
persist() {
        local try
        for try in 1 2 3; do
                [ $try = 1 ] || sleep $((10 * try))
                "$@" && return 0
        done
        return 1
}

update_and_install() {
        local options=(-qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=600)
        apt-get "${options[@]}" update &&
                apt-get "${options[@]}" install -y --no-install-recommends "$@" >/dev/null
}

# eBPF needs these; mounting them twice is harmless.
mount_kernel_filesystems() {
        [ "$(id -u)" = 0 ] || return 0
        mountpoint -q /sys/kernel/tracing ||
                mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null || true
        mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf 2>/dev/null || true
}

# build_targets [TARGET...]: all of them when none is named
build_targets() {
        export PATH="$PATH:/usr/sbin"
        if [ ! -f "$build/build.ninja" ]; then
                meson setup "$build" "$top" || die "meson setup failed"
        fi
        ninja -C "$build" "$@" || die "the build failed"
}
