#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ptxas makes of the start/end program, where there is a ptxas.

Usage: device_sass_test.py PTXAS DEVICE_COMPILE OBJECT

The machine code must be what splicing into a kernel needs: no barriers, calls or
indirect branches; at exit nothing that touches what other lanes of the warp still
use (uniform registers but for the memory descriptor; BSSY and BSYNC, which the
splicer leaves out there, are no harm); no stack; the kernel id whole in one instruction; few instructions for threads that
only find out that they are not the leader.
"""
import os
import struct
import subprocess
import sys
import tempfile

KERNEL_ID = 0x7FFFA5C3
CONTEXT, QUEUE = 0x58, 0xAC  # in constant bank 0, the second to be patched
EXIT, BRA, LDC, ULDC = 0x94D, 0x947, 0xB82, 0xAB9
# BAR, WARPSYNC, CALL (absolute, relative), BRX, JMX, RET, YIELD-free barriers
FORBIDDEN = {0xB1D: "BAR", 0x348: "WARPSYNC", 0x944: "CALL", 0x943: "CALL", 0x949: "BRX",
             0x94C: "JMX", 0x950: "RET", 0x983: "LDL", 0x387: "STL", 0x589: "SHFL"}
EXIT_FORBIDDEN = {0x9C3: "S2UR", 0x2CA: "R2UR", 0x886: "VOTEU"}
# Low byte of the opcodes of the uniform datapath.
UNIFORM = {0x82, 0x90, 0x91, 0x92, 0x99, 0xA4, 0xA5, 0x8C, 0x87, 0x96, 0xBD, 0xBF, 0xCA, 0xC3,
           0xB9, 0x86, 0x9C, 0x9A, 0x9B, 0xB5, 0xB4, 0xB7, 0xBA, 0xB6, 0x83, 0x88, 0x8A, 0x8B,
           0x9D, 0xA2, 0xAC, 0xB2, 0xBE}
MEMORY = {0x981, 0x986, 0x9A8, 0x3A8, 0x98E}


def skip(why):
    print("SKIP:", why)
    sys.exit(77)


def fail(name, index, what):
    print(f"{name}, instruction {index}: {what}")
    sys.exit(1)


def sections(elf):
    offset, = struct.unpack_from("<Q", elf, 0x28)
    count, names = struct.unpack_from("<HH", elf, 0x3C)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, offset + 64 * i) for i in range(count)]
    base = headers[names][4]
    for h in headers:
        end = elf.index(b"\0", base + h[0])
        yield elf[base + h[0]:end].decode(), h


def code(elf, header):
    words = [struct.unpack_from("<QQ", elf, header[4] + o) for o in range(0, header[5], 16)]
    last = max(i for i, (lo, _) in enumerate(words) if lo & 0xFFF == EXIT)
    return words[:last + 1]


def is_descriptor(lo, hi):
    """ULDC.64 URn, c[0x0][0x208]"""
    return lo & 0xFFF == ULDC and lo >> 32 == 0x8200 and hi >> 8 & 0xFF == 0x0A


def check_exit(name, words):
    uniform_operand = 0xC00
    for i, (lo, hi) in enumerate(words):
        op = lo & 0xFFF
        if op in EXIT_FORBIDDEN:
            fail(name, i, EXIT_FORBIDDEN[op])
        if is_descriptor(lo, hi) or op == LDC:
            continue
        if op & 0xFF in UNIFORM and op not in MEMORY:
            fail(name, i, f"uniform datapath, opcode {op:03x}")
        if op & 0xF00 == uniform_operand or op & 0xF00 == 0xE00:
            fail(name, i, f"uniform register operand, opcode {op:03x}")


def reads_word(lo, hi, offset):
    """Whether a constant operand touches the word of bank 0; all forms that have one."""
    op = lo & 0xFFF
    if op not in (LDC, ULDC) and op >> 8 not in (0x6, 0xA):
        return False
    return lo >> 54 & 0x1F == 0 and (lo >> 40 & 0x3FFF) * 4 // 16 == offset // 16


def find_word(name, words, offset):
    """The loads of a word: of it alone and whole, by nobody but leaders."""
    found = [i for i, (lo, hi) in enumerate(words) if reads_word(lo, hi, offset)]
    if not found:
        fail(name, 0, f"word {offset:x} is not read")
    for i in found:
        lo, hi = words[i]
        if lo & 0xFFF not in (LDC, ULDC) or hi >> 9 & 7 != 4 or (lo >> 40 & 0x3FFF) * 4 != offset:
            fail(name, i, f"word {offset:x} is not loaded whole")
    if min(found) < next(i for i, (lo, _) in enumerate(words) if lo & 0xFFF == EXIT):
        fail(name, min(found), f"word {offset:x} is loaded by those who are not the leader")
    return found


def check(name, words):
    find_word(name, words, CONTEXT)
    queue = find_word(name, words, QUEUE)
    if len(queue) != 1:
        fail(name, queue, f"word {QUEUE:x} is not read by exactly one instruction")
    if queue[0] < max([i for i, (lo, _) in enumerate(words) if lo & 0xFFF == EXIT][:-1]):
        fail(name, queue[0], f"word {QUEUE:x} is loaded by those who write no record")
    ids = [i for i, (lo, _) in enumerate(words) if lo >> 32 == KERNEL_ID]
    if len(ids) != 1:
        fail(name, ids, "the kernel id is not in exactly one instruction")
    for i, (lo, _) in enumerate(words):
        if lo & 0xFFF in FORBIDDEN:
            fail(name, i, FORBIDDEN[lo & 0xFFF])
    first = next(i for i, (lo, _) in enumerate(words) if lo & 0xFFF in (EXIT, BRA))
    # LDC R1 (the stack pointer, unused), read the words of the id, compare, leave
    if first > 6:
        fail(name, first, "too long a way out for those who are not the leader")
    if name == "launch_end":
        check_exit(name, words)
    print(f"ok {name}: {len(words)} instructions, {first + 1} when not the leader")


def main():
    ptxas, compiler, program = sys.argv[1:]
    if not os.path.exists(ptxas):
        skip("no ptxas here")
    made = subprocess.run([compiler, program, "--module", hex(KERNEL_ID)], capture_output=True,
                          text=True)
    if made.returncode and "root" in made.stderr:
        skip(made.stderr.strip())
    if made.returncode:
        print(made.stderr)
        sys.exit(1)
    # The address of the counters differs between processes: its bits must not matter.
    for address in ("0x7f1235000000", "0x7ffffffffff00", "0x100000000", "0x305000200"):
        text = made.stdout.replace("0x7f1235000000", address)
        with tempfile.TemporaryDirectory() as folder:
            source, cubin = folder + "/p.ptx", folder + "/p.cubin"
            with open(source, "w") as f:
                f.write(text)
            subprocess.run([ptxas, "-arch=sm_90", source, "-o", cubin], check=True)
            with open(cubin, "rb") as f:
                elf = f.read()
        found = []
        for name, header in sections(elf):
            if name.startswith(".nv.local."):
                fail(name, 0, "uses local memory")
            if name.startswith(".text."):
                found.append(name[len(".text."):])
                check(found[-1], code(elf, header))
        if sorted(found) != ["launch_end", "launch_start"]:
            fail(program, found, "a program for entry and one for exit were expected")


if __name__ == "__main__":
    main()
