#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy (.clang-tidy) over everything that is shipped.
#   tidy_test.sh SOURCE_DIR BUILD_DIR
cd "$1" || exit 1
command -v clang-tidy >/dev/null || { echo "SKIP: clang-tidy is not installed"; exit 77; }
git rev-parse --git-dir >/dev/null 2>&1 || { echo "SKIP: not a git checkout"; exit 77; }
bad=$(git ls-files 'daemon/*.c' 'libclient/*.c' 'probes/agent/*.c' |
        xargs -P "$(nproc)" -n 8 clang-tidy -p "$2" --quiet 2>/dev/null | grep ' error: ' | sort -u)
[ -z "$bad" ] && exit 0
echo "$bad"
exit 1
