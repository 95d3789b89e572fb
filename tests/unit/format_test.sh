#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every C file is as clang-format 14 writes it (.clang-format).
#   format_test.sh SOURCE_DIR
cd "$1" || exit 1
command -v clang-format >/dev/null || { echo "SKIP: clang-format is not installed"; exit 77; }
git rev-parse --git-dir >/dev/null 2>&1 || { echo "SKIP: not a git checkout"; exit 77; }
bad=$(git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror 2>&1 | grep ' error: ')
[ -z "$bad" ] && exit 0
echo "$bad" | cut -d: -f1 | sort | uniq -c
echo "run: clang-format -i FILE"
exit 1
