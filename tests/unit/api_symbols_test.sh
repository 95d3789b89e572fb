#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# libgpuobs exports what its headers declare, under its version, and nothing else.
# usage: api_symbols_test.sh LIBRARY HEADER...
set -eu
library=$1
shift
exported=$(nm -D --defined-only "$library" | awk '$2 == "T" { print $3 }' | sort)
if echo "$exported" | grep -v '^gpuobs_[a-z0-9_]*@@GPUOBS_0\.1$'; then
        echo "exported without being part of the API"
        exit 1
fi
declared=$(cat "$@" | grep -oE '\bgpuobs_[a-z0-9_]+\(' | tr -d '(' | grep -v '_fn$' | sort -u)
count=0
for name in $declared; do
        echo "$exported" | grep -q "^$name@@" || { echo "$name is declared and not exported"; exit 1; }
        count=$((count + 1))
done
for name in $(echo "$exported" | sed 's/@@.*//'); do
        echo "$declared" | grep -qx "$name" || { echo "$name is exported and not declared"; exit 1; }
done
[ "$count" -gt 30 ]
readelf -d "$library" | grep -q 'SONAME.*\[libgpuobs\.so\.0\]'
echo "ok $count functions"
