/* SPDX-License-Identifier: Apache-2.0 */

/* What the kernel has of what gpuobsd needs. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "doctor.h"

#define OK      GPUOBS_CHECK_STATE_OK
#define OFF     GPUOBS_CHECK_STATE_OFF
#define LIMITED GPUOBS_CHECK_STATE_LIMITED
#define BROKEN  GPUOBS_CHECK_STATE_BROKEN

/* Links to namespaces name their inode; that of the initial pid namespace is of the kernel's ABI.
 */
#define INITIAL_PID_NAMESPACE "pid:[4026531836]"

static void check_version(struct doctor *d)
{
        char release[128];
        unsigned major = 0, minor = 0;

        doctor_read(d, "/proc/sys/kernel/osrelease", release, sizeof(release));
        if (sscanf(release, "%u.%u", &major, &minor) != 2)
                doctor_add(d, "kernel", BROKEN, "Mount /proc.", "its version is not known");
        else if (major < 6 || (major == 6 && minor < 1))
                doctor_add(d, "kernel", BROKEN, "Boot Linux 6.1 or later.",
                           "Linux %s lacks what the eBPF programs need", release);
        else
                doctor_add(d, "kernel", OK, NULL, "Linux %s", release);
}

/* ---- BTF ---- */

#define BTF_FILE "/sys/kernel/btf/vmlinux"

/* Whether the kernel's BTF has a name: what it was built with. */
static bool btf_has(const struct doctor *d, const char *name)
{
        char full[PATH_MAX];
        struct stat st;
        bool has = false;
        void *bytes = NULL;
        int fd = open(doctor_path(d, BTF_FILE, full), O_RDONLY | O_CLOEXEC);

        if (fd < 0)
                return false;
        /* The file cannot be mapped on older kernels. */
        if (fstat(fd, &st) == 0 && st.st_size > 0 && (bytes = malloc((size_t)st.st_size))) {
                ssize_t n = 0, got = 0;

                while (got < st.st_size &&
                       (n = read(fd, (char *)bytes + got, (size_t)(st.st_size - got))) > 0)
                        got += n;
                has = memmem(bytes, (size_t)got, name, strlen(name) + 1);
        }
        free(bytes);
        close(fd);
        return has;
}

static void check_btf(struct doctor *d)
{
        if (doctor_exists(d, BTF_FILE))
                doctor_add(d, "btf", OK, NULL, "the kernel describes its types");
        else
                doctor_add(d, "btf", BROKEN,
                           "Use a kernel with CONFIG_DEBUG_INFO_BTF=y, as those of distributions "
                           "are; in a container, let it see /sys/kernel/btf.",
                           "there is no " BTF_FILE ": no eBPF program can be loaded");
}

/* ---- probes ---- */

static void check_uprobes(struct doctor *d)
{
        if (!doctor_exists(d, "/sys/bus/event_source/devices/uprobe/type"))
                doctor_add(d, "uprobes", BROKEN, "Use a kernel with CONFIG_UPROBE_EVENTS=y.",
                           "the kernel has none: launches cannot be seen");
        else if (btf_has(d, "BPF_TRACE_UPROBE_MULTI"))
                doctor_add(d, "uprobes", OK, NULL,
                           "with uprobe_multi: one link attaches to a whole library");
        else
                doctor_add(d, "uprobes", OK, NULL,
                           "by perf events; taking them off takes seconds for each library (Linux "
                           "6.6 has uprobe_multi)");
}

static void check_kprobes(struct doctor *d)
{
        if (doctor_exists(d, "/sys/bus/event_source/devices/kprobe/type"))
                doctor_add(d, "kprobes", OK, NULL,
                           "functions inside the managed-memory driver can be probed");
        else
                doctor_add(d, "kprobes", OFF,
                           "Only if you want gpuobsctl uvm --driver, and the daemon's "
                           "managed_decisions is off: use a kernel with CONFIG_KPROBES=y.",
                           "the kernel has none: the managed-memory driver's decisions are seen "
                           "only where it has fentry probes on functions of modules");
}

static void check_tracepoints(struct doctor *d)
{
        char list[4096];

        doctor_read(d, "/proc/filesystems", list, sizeof(list));
        if (strstr(list, "\ttracefs"))
                doctor_add(d, "tracepoints", OK, NULL,
                           doctor_exists(d, "/sys/kernel/tracing/events")
                                   ? "tracefs is mounted"
                                   : "tracefs is there; the daemon mounts one for itself");
        else
                doctor_add(d, "tracepoints", LIMITED,
                           "Use a kernel with CONFIG_FTRACE_SYSCALLS=y for calls of the driver and "
                           "for libraries that are found at once.",
                           "the kernel has no tracefs");
}

static void check_jit(struct doctor *d)
{
        char text[16];

        if (doctor_read(d, "/proc/sys/net/core/bpf_jit_enable", text, sizeof(text)) < 0)
                return; /* only root may look, and without a JIT compiler there is no such file */
        if (text[0] == '0')
                doctor_add(d, "bpf_jit", LIMITED, "sysctl net.core.bpf_jit_enable=1",
                           "eBPF is interpreted: probes cost several times as much");
        else
                doctor_add(d, "bpf_jit", OK, NULL, "eBPF is compiled");
}

/* ---- what forbids things ---- */

static void check_lockdown(struct doctor *d)
{
        char text[128];

        if (doctor_read(d, "/sys/kernel/security/lockdown", text, sizeof(text)) < 0)
                doctor_add(d, "lockdown", OFF, NULL,
                           "not known: /sys/kernel/security is not mounted, or not yours to read");
        else if (strstr(text, "[confidentiality]"))
                doctor_add(d, "lockdown", BROKEN,
                           "Boot with lockdown=integrity, or none, and mind what set it: secure "
                           "boot or a kernel option.",
                           "confidentiality: eBPF may not read kernel memory, which the programs "
                           "must");
        else
                doctor_add(d, "lockdown", OK, NULL, "%s",
                           strstr(text, "[integrity]") ? "integrity, which forbids nothing that is "
                                                         "needed"
                                                       : "none");
}

static void check_lsm(struct doctor *d)
{
        char text[256];

        if (doctor_read(d, "/sys/kernel/security/lsm", text, sizeof(text)) < 0)
                return;
        doctor_add(d, "security_modules", OK, NULL, "%s; eBPF programs of gpuobsd are no LSM%s",
                   text,
                   strstr(text, "selinux") || strstr(text, "apparmor")
                           ? " and need no policy of theirs when the daemon runs unconfined"
                           : "");
}

static void check_yama(struct doctor *d)
{
        char text[16];

        if (doctor_read(d, "/proc/sys/kernel/yama/ptrace_scope", text, sizeof(text)) < 0)
                doctor_add(d, "yama", OK, NULL, "not there");
        else if (text[0] == '3')
                doctor_add(d, "yama", LIMITED,
                           "Boot with another kernel.yama.ptrace_scope than 3, which cannot be "
                           "taken back while the kernel runs.",
                           "ptrace_scope is 3: nobody may duplicate files of a process, so no "
                           "managed memory, time slices and policies");
        else
                doctor_add(d, "yama", OK, NULL, "ptrace_scope is %s, root may do what is needed",
                           text);
}

static void check_namespace(struct doctor *d)
{
        char full[PATH_MAX], link[64];
        ssize_t n = readlink(doctor_path(d, "/proc/self/ns/pid", full), link, sizeof(link) - 1);

        link[n < 0 ? 0 : n] = '\0';
        if (!strcmp(link, INITIAL_PID_NAMESPACE))
                doctor_add(d, "pid_namespace", OK, NULL, "the initial one");
        else
                doctor_add(d, "pid_namespace", LIMITED,
                           "Run gpuobsd on the host, or its container with --pid=host and "
                           "--privileged; looking from a container needs only the socket "
                           "/run/gpuobsd/gpuobsd.sock.",
                           "this is a container: processes outside are not seen from here, and the "
                           "driver's trace names processes by other ids");
}

void doctor_check_kernel(struct doctor *d)
{
        check_version(d);
        check_btf(d);
        check_uprobes(d);
        check_kprobes(d);
        check_tracepoints(d);
        check_jit(d);
        check_lockdown(d);
        check_lsm(d);
        check_yama(d);
        check_namespace(d);
}
