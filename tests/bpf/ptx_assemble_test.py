#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PTX with probes in it must assemble wherever the PTX alone does.

usage: ptx_assemble_test.py PTXAS DEVICE_COMPILE PTX_INJECT OBJECT[,OBJECT...] TEXT...

The fragments are what the daemon compiles from the objects; each goes to entry and
exit of every kernel of every text. The texts that nvcc made are tried as they are,
small ones of our own under the heads of many years: what a probe may say depends on
.version and .target of the text it is put into. Programs that talk across the lanes
of a warp need sm_80, the launch programs nothing.
"""
import os
import re
import subprocess
import sys
import tempfile

SM = "sm_90a"
# Instructions that no older ones can stand for, and the first target that has them.
NEEDS = {"redux.sync": 80, "match.any.sync": 70, "match.all.sync": 70, "vote.sync": 70, "shfl.sync": 70}
LAUNCH = {"launch_start", "launch_end"}
HEADS = [("3.2", "sm_35"), ("4.3", "sm_52"), ("5.0", "sm_50"), ("5.0", "sm_60"), ("6.0", "sm_50"), ("6.0", "sm_70"),
         ("6.2", "sm_61"), ("6.4", "sm_70"), ("7.0", "sm_60"), ("7.0", "sm_80"), ("7.8", "sm_90"), ("8.0", "sm_90a"),
         ("8.4", "sm_90a")]
BODIES = {
    "nothing": ".visible .entry nothing()\n{\nret;\n}\n",
    "predicates": ".entry p(.param .u64 a) .reqntid 32\n{ .reg .pred %p<3>; .reg .b32 %r<2>; mov.u32 %r1, %tid.x;\n"
                  "setp.eq.u32 %p1, %r1, 3; @%p1 ret; @!%p1 bra L; exit; L: { .reg .b32 q; mov.u32 q, 1; @%p1 exit; } }\n",
    "globals": ".global .align 8 .u64 counter; .extern .shared .align 4 .b8 s[];\n.entry g() .maxntid 128, 1, 1\n{\n"
               ".reg .b64 %rd<3>; .local .align 4 .b8 l[8]; mov.u64 %rd1, counter; atom.global.add.u64 %rd2, [%rd1], 1;\n"
               "st.global.u64 [%rd1], %rd2; }\n",
}


def target_needed(name, text):
    """The lowest target a fragment can be put under; none for those that run in every kernel."""
    return 0 if name in LAUNCH else max((sm for words, sm in NEEDS.items() if words in text), default=0)


def target_of(path):
    with open(path, encoding="utf-8") as f:
        return int(re.search(r"^\s*\.target\s+sm_(\d+)", f.read(), re.M)[1])


def fragments(device_compile, objects, directory):
    """(name, path, lowest target) of every program of the objects."""
    found = []
    for path in objects:
        text = subprocess.run([device_compile, path], check=True, text=True, stdout=subprocess.PIPE).stdout
        for part in re.split(r"^(?=// \w+$)", text, flags=re.M):
            if not part.strip():
                continue
            name = part.split("\n", 1)[0][3:]
            file = os.path.join(directory, name + ".frag")
            with open(file, "w", encoding="utf-8") as f:
                f.write(part)
            found.append((name, file, target_needed(name, part)))
    return found


def texts(given, directory):
    """(name, path) of every text to try."""
    all_texts = [(os.path.basename(path), path) for path in given]
    for version, target in HEADS:
        for name, body in BODIES.items():
            label = f"{name} {version} {target}"
            path = os.path.join(directory, label.replace(" ", "_") + ".ptx")
            with open(path, "w", encoding="utf-8") as f:
                f.write(f".version {version}\n.target {target}\n.address_size 64\n{body}")
            all_texts.append((label, path))
    return all_texts


def assemble(ptxas, path):
    """None when it assembles, else the assembler's first words."""
    p = subprocess.run([ptxas, f"-arch={SM}", "-o", "/dev/null", path], text=True, check=False,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if p.returncode == 0:
        return None
    said = p.stdout.strip().splitlines()
    return next((line for line in said if "error" in line or "fatal" in line), "no word")


def main():
    ptxas, device_compile, ptx_inject, objects = sys.argv[1:5]
    if not os.path.exists(ptxas):
        print("skipped: there is no ptxas")
        return 77
    bad = tried = 0
    with tempfile.TemporaryDirectory() as directory:
        probes = fragments(device_compile, objects.split(","), directory)
        for label, path in texts(sys.argv[5:], directory):
            alone = assemble(ptxas, path)
            if alone:
                print(f"FAILED {label}: does not assemble by itself: {alone}")
                bad += 1
                continue
            for probe, fragment, lowest in probes:
                if target_of(path) < lowest:
                    continue
                rewritten = os.path.join(directory, "rewritten.ptx")
                with open(rewritten, "w", encoding="utf-8") as f:
                    p = subprocess.run([ptx_inject, fragment, path], stdout=f, stderr=subprocess.PIPE, text=True,
                                       check=False)
                why = p.stderr.strip() if p.returncode else assemble(ptxas, rewritten)
                tried += 1
                if why:
                    print(f"FAILED {label} with {probe}: {why}")
                    bad += 1
    print(f"{tried} texts with probes, {bad} failures")
    return 1 if bad or not tried else 0


sys.exit(main())
