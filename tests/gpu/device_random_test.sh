#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The check of random programs on a GPU, tried on the simulated one: it finds all
# equal, and a wrong expectation.
#
# usage: device_random_test.sh DEVICE_RANDOM_MAKE DEVICE_RANDOM SIMULATED_DRIVER
set -eu
make=$1 check=$2 driver=$3

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$make" 1 600 "$folder/expected" || exit $?
export LD_LIBRARY_PATH
LD_LIBRARY_PATH=$(dirname "$driver")
"$check" "$folder/expected" 2
# The hash of the third program: behind a head of 24 bytes.
printf '\1' | dd of="$folder/expected" bs=1 seek=$((24 + 8 * 2)) conv=notrunc status=none
if "$check" "$folder/expected" 2 >"$folder/out"; then
        echo "a wrong expectation was not noticed"
        exit 1
fi
grep '^seed 3 differs' "$folder/out"
