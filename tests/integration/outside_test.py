#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs outside the tree, in C, C++ and eBPF, built against what is installed and run against a running daemon.
The eBPF is what the documents give as examples, built with the command that they give.

usage: outside_test.py BUILD_DIR
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from daemon import Daemon, check, skip, wait_for

BUILD = sys.argv[1]
SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "outside")
DOCUMENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs")
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]


def output(command, **more):
    p = subprocess.run(command, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    check(p.returncode == 0, f"{' '.join(command)}: {p.returncode}\n{p.stdout}")
    return p.stdout


class Installed:
    """The project installed below a directory, found with pkg-config as a user would find it."""

    def __init__(self, root):
        self.root = root
        output(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet"], env=dict(os.environ, DESTDIR=root))
        pc = [os.path.join(d, n) for d, _, names in os.walk(root) for n in names if n == "libgpuobs.pc"]
        check(len(pc) == 1, f"installed .pc files: {pc}")
        self.environment = dict(os.environ, PKG_CONFIG_LIBDIR=os.path.dirname(pc[0]), PKG_CONFIG_SYSROOT_DIR=root)
        self.libdir = os.path.dirname(os.path.dirname(pc[0]))
        self.flags = output(["pkg-config", "--cflags", "--libs", "libgpuobs"], env=self.environment).split()
        version = output(["pkg-config", "--modversion", "libgpuobs"], env=self.environment).strip()
        check(version.count(".") == 2, f"version {version}")

    def build(self, compiler, standard, source, name):
        program = os.path.join(self.root, name)
        output([compiler, f"-std={standard}", *STRICT, os.path.join(SOURCES, source), *self.flags, "-o", program])
        return program

    def check_header(self, compiler, standard, language):
        """The header alone is enough, whatever is included before it: nothing."""
        output([compiler, f"-std={standard}", *STRICT, "-fsyntax-only", "-include", "gpuobs.h", *self.flags[:1],
                "-x", language, "/dev/null"])

    def build_example(self, document):
        """The first program in a document, and the first command there that compiles one."""
        with open(os.path.join(DOCUMENTS, document), encoding="utf-8") as f:
            text = f.read()
        source = re.search(r"^```c\n(.*?)^```$", text, re.MULTILINE | re.DOTALL).group(1)
        command = shlex.split(re.search(r"^clang .*$", text, re.MULTILINE).group(0))
        with open(os.path.join(self.root, command[command.index("-c") + 1]), "w", encoding="utf-8") as f:
            f.write(source)
        installed = self.flags[0].removesuffix("/gpuobs")
        output([a.replace("-I/usr/include", installed) for a in command], cwd=self.root)
        return os.path.join(self.root, command[command.index("-o") + 1])


def main():
    for tool in ("meson", "pkg-config", "cc", "c++", "clang"):
        if not shutil.which(tool):
            skip(f"{tool} is not installed")
    with tempfile.TemporaryDirectory(prefix="gpuobs-outside-") as root, Daemon(BUILD) as d:
        installed = Installed(root)
        for standard in ("c99", "c11", "c17"):
            installed.check_header("cc", standard, "c")
        for standard in ("c++11", "c++17", "c++20"):
            installed.check_header("c++", standard, "c++")
        in_c = installed.build("cc", "c99", "client.c", "client-c")
        in_cc = installed.build("c++", "c++11", "client.cc", "client-cc")
        environment = dict(os.environ, LD_LIBRARY_PATH=installed.libdir, GPUOBS_SOCKET=d.api)

        follower = subprocess.Popen([in_cc], env=environment, text=True, stdout=subprocess.PIPE)
        check(follower.stdout.readline() == "following\n", "the C++ program did not connect")
        wait_for(20, lambda: json.loads(d.ctl("status", "--json"))["subscriptions"] == 1, "it follows")
        said = d.run("--launches", "400")
        counts, _ = follower.communicate(timeout=30)
        check(follower.returncode == 0 and "vadd " in counts, f"the C++ program saw {counts!r}")
        d.settled(said["pid"])
        text = output([in_c, str(said["pid"])], env=environment)
        check("launches 400 exact 400" in text, f"the C program said {text!r}")
        print("ok C and C++ programs outside the tree")

        program = installed.build_example("device-programs.md")
        check("count_threads" in d.ctl("probe", "load", program), "the device program is not shown")
        policy = installed.build_example("policies.md")
        check("depth" in d.ctl("policy", "load", policy), "the policy's parameter is not shown")
        print("ok the documents' device program and policy")


main()
