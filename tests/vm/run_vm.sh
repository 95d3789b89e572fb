#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Boots Debian 12's own kernel in a virtual machine and uses the installed product
# there as on a fresh Debian 12: init.sh is what happens inside. No KVM is needed,
# nothing is installed on this machine, and the packages of the kernel, and of what it
# takes to build a module for it, are fetched once per build directory.
#   run_vm.sh BUILD_DIR
# GPUOBS_VM_KERNEL: a kernel image to boot instead, of any version.
set -u
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$build/vm-kernel
libdir=/usr/lib/x86_64-linux-gnu
boot_seconds=1500

skip() {
        echo "SKIP: $*"
        exit 77
}

die() {
        echo "$*" >&2
        exit 1
}

# Packages into this directory. Lists that are older than what the mirror has name files that
# it does not have any more.
download() {
        local fetch=(apt-get download -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 "$@")
        "${fetch[@]}" >log 2>&1 && return 0
        [ "$(id -u)" = 0 ] && apt-get update -qq -o Acquire::Retries=3 >/dev/null 2>&1
        sleep 10
        "${fetch[@]}" >log 2>&1
}

# The kernel of the release: what its metapackage depends on.
kernel_package() {
        apt-cache depends linux-image-amd64 2>/dev/null |
                sed -n 's/.*Depends: \(linux-image-6\.1\.0-[0-9]*-amd64\)$/\1/p' | sort -V | tail -1
}

# Packages into a directory, as dpkg would unpack them.
unpack() {
        local into=$1 package
        shift
        mkdir -p "$into"
        (cd "$into" && download "$@") || return 1
        for package in "$into"/*.deb; do
                dpkg-deb -x "$package" "$into" || return 1
        done
        rm -f "$into"/*.deb "$into/log"
}

download_kernel() {
        local package into=$cache.new
        package=$(kernel_package)
        if [ -z "$package" ] && [ "$(id -u)" = 0 ]; then
                apt-get update -qq -o Acquire::Retries=3 >/dev/null 2>&1
                package=$(kernel_package)
        fi
        [ -n "$package" ] || skip "the package sources have no linux-image-6.1.0-*-amd64"
        rm -rf "$into"
        mkdir -p "$into"
        (cd "$into" && download "$package") ||
                skip "$package could not be downloaded: $(tail -1 "$into/log")"
        dpkg-deb --fsys-tarfile "$into/$package"_*.deb |
                tar -x -C "$into" --wildcards './boot/vmlinuz-*' || die "$package cannot be unpacked"
        rm -f "$into"/*.deb "$into/log"
        rm -rf "$cache"
        mv "$into" "$cache"
}

find_kernel() {
        kernel=${GPUOBS_VM_KERNEL:-}
        [ -n "$kernel" ] && return 0
        compgen -G "$cache/boot/vmlinuz-6.1.*" >/dev/null || download_kernel
        kernel=$(compgen -G "$cache/boot/vmlinuz-6.1.*" | head -1)
}

# The kernel as it was linked, with its BTF, out of the compressed image.
extract_kernel() {
        local at
        for at in $(LC_ALL=C grep -aboP '\xfd7zXZ\x00' "$kernel" | cut -d: -f1); do
                tail -c +$((at + 1)) "$kernel" | xz -dc >"$1" 2>/dev/null
                readelf -SW "$1" 2>/dev/null | grep -q '\.BTF ' && return 0
        done
        return 1
}

# What it takes to build a module for this kernel.
download_tools() {
        local release into=$cache/tools.new headers
        release=$(basename "$kernel")
        release=${release#vmlinuz-}
        rm -rf "$into"
        unpack "$into" "linux-headers-$release" "linux-headers-${release%-amd64}-common" \
                linux-kbuild-6.1 pahole || skip "the packages to build a module could not be downloaded"
        headers=$into/usr/src/linux-headers-$release
        sed -i "s,/usr/src,$cache/tools/usr/src,g" "$headers"/{Makefile,.kernelvariables} &&
                ln -s "usr/src/linux-headers-$release" "$into/headers" &&
                extract_kernel "$into/vmlinux" && mv "$into" "$cache/tools" ||
                die "the packages to build a module are not as they were"
}

# module/: stands in for the managed-memory driver. Its BTF lies over the kernel's.
build_module() {
        local tool
        for tool in gcc-12 make objcopy xz; do
                command -v $tool >/dev/null || skip "$tool is not installed, to build a module"
        done
        [ -d "$cache/tools" ] || download_tools
        cp -r "$here/module" "$work/module"
        make -s -C "$cache/tools/headers" M="$work/module" modules >"$work/module.log" 2>&1 &&
                LLVM_OBJCOPY=objcopy "$cache/tools/usr/bin/pahole" -J \
                        --btf_base "$cache/tools/vmlinux" "$work/module/nvidia_uvm.ko" &&
                strip --strip-debug "$work/module/nvidia_uvm.ko" &&
                cp "$work/module/nvidia_uvm.ko" "$root/test/" ||
                die "the module could not be built: $(cat "$work/module.log")"
}

# A directory: the product as installed, the simulated GPU's driver where a driver's
# package puts it, the programs of the tests.
make_root() {
        mkdir -p "$root"/{bin,dev,etc,proc,run,sys,tmp,opt/wheel,var/lib/gpuobsd,lib64,test} \
                "$root$libdir"
        DESTDIR=$root meson install -C "$build" --no-rebuild --quiet >"$work/install.log" 2>&1 ||
                die "$(cat "$work/install.log")"
        rm -rf "$root"/usr/local/{share,include}
        cp "$here/init.sh" "$root/init" &&
                cp "$here/decisions.sh" "$root/test/" &&
                cp "$busybox" "$root/bin/busybox" &&
                cp -L "$build/tests/simcuda/libcuda.so.1" "$root$libdir/" &&
                cp -L "$build/tests/simcuda/libcuda.so.1" "$root/opt/wheel/" &&
                cp "$build/tests/integration/sim_apps/sim_launch" \
                        "$build"/tests/bpf/{cpu_{probes,depth,discovery},driver_ioctl,inner_maps,uvm_probes,device_{launch,scopes,refused,random}}_test \
                        "$build/tests/gpu/uvm_tier_check" \
                        "$build"/tests/bpf/{libfake_cuda.so,device_scopes.bpf.o,refused_*.bpf.o} \
                        "$here"/../bpf/refused/*.bpf.c "$root/test/" ||
                die "the build lacks something"
        chmod 755 "$root/init"
        echo root:x:0:0::/:/bin/sh >"$root/etc/passwd"
        printf 'root:x:0:\ngpuobs:x:999:\n' >"$root/etc/group"
        ln -s usr/lib "$root/lib"
        ln -s bin "$root/sbin"
}

# The system libraries that all this needs, and those it opens by itself: Zydis by the
# agent, libgcc_s by pthread_exit.
add_libraries() {
        local file
        find "$root" -type f \( -perm /111 -o -name '*.so*' \) | while read -r file; do
                ldd "$file" 2>/dev/null | sed -n 's/.*\(=> \|\t\)\(\/[^ ]*\) (.*/\2/p'
        done | grep -v "^$build/" | sort -u >"$work/libraries"
        printf "$libdir/%s\n" libZydis.so.4.0 libZycore.so.1.4 libgcc_s.so.1 >>"$work/libraries"
        while read -r file; do
                cp -L "$file" "$root$libdir/" || die "$file is not installed"
        done <"$work/libraries"
        cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
        printf '/usr/local/lib/x86_64-linux-gnu\n%s\n' $libdir >"$root/etc/ld.so.conf"
        /sbin/ldconfig -r "$root" || die "ldconfig failed"
}

boot() {
        (cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 >"$work/initramfs" ||
                die "the initramfs could not be made"
        timeout $boot_seconds qemu-system-x86_64 -accel tcg -cpu Nehalem -m 2G -smp 2 -nographic \
                -nodefaults -no-user-config -no-reboot -serial stdio -kernel "$kernel" \
                -initrd "$work/initramfs" \
                -append "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable" \
                </dev/null 2>&1 | tr -d '\r' >"$work/console"
}

[ "$(uname -m)" = x86_64 ] || skip "the machine that is emulated needs x86_64 programs"
command -v qemu-system-x86_64 >/dev/null ||
        skip "qemu-system-x86_64 is not installed (qemu-system-x86)"
command -v cpio >/dev/null || skip "cpio is not installed"
busybox=$(command -v busybox) || skip "busybox is not installed (busybox-static)"
ldd "$busybox" >/dev/null 2>&1 && skip "busybox is not static (busybox-static)"
find_kernel

work=$(mktemp -d /var/tmp/gpuobs-vm.XXXXXX)
trap 'rm -rf "$work"' EXIT
root=$work/root
make_root
add_libraries
[ -n "${GPUOBS_VM_KERNEL:-}" ] || build_module
boot
# The last line decides: it is there only if init.sh came to its end.
if grep -qax 'vm: result [1-9][0-9]* passed, 0 failed' "$work/console"; then
        grep -a '^vm: ' "$work/console"
        exit 0
fi
echo "the console:"
tail -n 300 "$work/console"
exit 1
