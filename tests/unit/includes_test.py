#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dependencies point downward only: checks every #include "..." of the sources.

    util <- probe, driver, device, store <- correlate <- policy <- api <- main

Directories of one rank do not include each other. probes/ and policies/ stand
below all (their headers are shared with eBPF and the agent) and include nothing of
the daemon;
libclient/ is for everybody's machines and includes nothing of the daemon, and
in the daemon only api/ includes it.
"""
import os
import re
import sys

ROOT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
RANK = {"util": 0, "probe": 1, "driver": 1, "device": 1, "store": 1, "correlate": 2, "policy": 3, "api": 4, "main": 5}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
SEARCHED = ["daemon", "probes", "policies", "libclient", "."]
BELOW = ["probes", "policies"]


def sources():
    for top in ["daemon", "probes", "policies", "libclient"]:
        for directory, _, names in os.walk(os.path.join(ROOT, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(directory, name), ROOT)


def resolve(source, name):
    """The file of the tree that is meant; None for a generated one."""
    for base in [os.path.dirname(source), *SEARCHED]:
        path = os.path.normpath(os.path.join(base, name))
        if os.path.isfile(os.path.join(ROOT, path)):
            return path
    return None


def layer(path):
    """("daemon", "store"), ("daemon", "main"), ("probes", None), ..."""
    parts = path.split(os.sep)
    if parts[0] != "daemon":
        return parts[0], None
    return "daemon", parts[1] if len(parts) > 2 else "main"


def wrong(source, target):
    """Why source may not include target; None when it may."""
    (from_top, from_layer), (to_top, to_layer) = layer(source), layer(target)
    if to_top == "tests":
        return "tests are not part of the product"
    if from_top != "daemon":
        return None if to_top == from_top or (to_top == "probes" and from_top != "probes") else f"{from_top}/ includes nothing of {to_top}/"
    if to_top == "libclient":
        # main fills in the API's structs through api/backend.h
        return None if from_layer in ("api", "main") else "only api/ speaks the client's schema"
    if to_top in BELOW or from_layer == to_layer:
        return None
    for name in (from_layer, to_layer):
        if name not in RANK:
            return f"daemon/{name} has no rank"
    return None if RANK[to_layer] < RANK[from_layer] else f"{from_layer} may not depend on {to_layer}"


def self_test():
    assert wrong("daemon/store/a.c", "daemon/util/b.h") is None
    assert wrong("daemon/store/a.c", "daemon/store/b.h") is None
    assert wrong("daemon/store/a.c", "daemon/probe/b.h")
    assert wrong("daemon/store/a.c", "daemon/api/b.h")
    assert wrong("daemon/correlate/a.c", "daemon/main.h")
    assert wrong("daemon/main.c", "daemon/api/b.h") is None
    assert wrong("daemon/store/a.c", "libclient/b.h")
    assert wrong("libclient/a.c", "daemon/util/b.h")
    assert wrong("probes/agent/a.c", "daemon/util/b.h")
    assert wrong("probes/agent/a.c", "policies/b.h")
    assert wrong("policies/a.bpf.c", "daemon/policy/b.h")
    assert wrong("policies/a.bpf.c", "probes/bpf/b.h") is None
    assert wrong("daemon/policy/a.c", "policies/b.h") is None
    assert wrong("daemon/util/a.c", "tests/unit/test.h")


self_test()
errors = checked = 0
for source in sources():
    with open(os.path.join(ROOT, source), encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            match = INCLUDE.match(line)
            target = resolve(source, match.group(1)) if match else None
            reason = wrong(source, target) if target else None
            checked += target is not None
            if reason:
                print(f"{source}:{number}: includes {target}: {reason}")
                errors += 1
assert checked > 100, "the sources were not found"
print(f"{checked} includes, {errors} wrong")
sys.exit(1 if errors else 0)
