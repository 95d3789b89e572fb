#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The real assembler takes what the compiler writes, where there is a ptxas.

Usage: device_ptxas_test.py PTXAS DEVICE_RANDOM_MAKE
"""
import os
import subprocess
import sys
import tempfile

COUNT = 100


def main():
    ptxas, make = sys.argv[1:3]
    if not os.path.exists(ptxas):
        print("SKIP: no ptxas here")
        return 77
    text = subprocess.run([make, "1", str(COUNT)], capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "p.ptx")
        with open(source, "w", encoding="ascii") as f:
            f.write(text)
        made = subprocess.run([ptxas, "-arch=sm_90", source, "-o", os.path.join(folder, "p.cubin")],
                              capture_output=True, text=True, check=False)
    if made.returncode:
        print(made.stderr)
        return 1
    print(f"ok {COUNT} random programs assemble")
    return 0


if __name__ == "__main__":
    sys.exit(main())
