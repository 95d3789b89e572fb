/* SPDX-License-Identifier: Apache-2.0 */

/* What gpuobsctl doctor says of made-up machines. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/ctl/doctor.h"
#include "unit/test.h"

static char root[] = "/tmp/gpuobs-doctor.XXXXXX";
static struct doctor d;

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
        (void)st;
        (void)flag;
        return ftw->level ? remove(path) : 0;
}

/* A machine with nothing on it. */
static void new_machine(void)
{
        CHECK_EQ(nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
        d = (struct doctor){.root = root};
}

static const char *place(const char *path)
{
        static char full[PATH_MAX];

        snprintf(full, sizeof(full), "%s%s", root, path);
        for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
                *slash = '\0';
                CHECK(mkdir(full, 0755) == 0 || errno == EEXIST);
        }
        return full;
}

static void put(const char *path, const char *text, size_t size)
{
        int fd = open(place(path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

        CHECK(fd >= 0);
        CHECK_EQ(write(fd, text, size), size);
        close(fd);
}

static void file(const char *path, const char *text)
{
        put(path, text, strlen(text));
}

static const struct doctor_check *find(const char *name)
{
        for (size_t i = 0; i < d.count; i++)
                if (!strcmp(d.checks[i].name, name))
                        return &d.checks[i];
        return NULL;
}

static void expect(const char *name, enum gpuobs_check_state state, const char *part)
{
        const struct doctor_check *c = find(name);

        if (!c || c->state != state || !strstr(c->finding, part)) {
                fprintf(stderr, "%s is %d \"%s\", not %d \"%s\"\n", name, c ? (int)c->state : -1,
                        c ? c->finding : "", state, part);
                exit(1);
        }
        /* What does not work comes with what to do. */
        CHECK(state < GPUOBS_CHECK_STATE_LIMITED || c->advice);
}

#define OK      GPUOBS_CHECK_STATE_OK
#define OFF     GPUOBS_CHECK_STATE_OFF
#define LIMITED GPUOBS_CHECK_STATE_LIMITED
#define BROKEN  GPUOBS_CHECK_STATE_BROKEN

/* ---- kernels ---- */

static void kernel(const char *release)
{
        static const char btf[] = "\0int\0BPF_TRACE_UPROBE_MULTI\0x";

        new_machine();
        file("/proc/sys/kernel/osrelease", release);
        file("/proc/filesystems", "nodev\tsysfs\nnodev\ttracefs\n");
        file("/sys/bus/event_source/devices/uprobe/type", "9\n");
        file("/sys/bus/event_source/devices/kprobe/type", "8\n");
        put("/sys/kernel/btf/vmlinux", btf, sizeof(btf));
        file("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        file("/proc/sys/kernel/yama/ptrace_scope", "1\n");
        file("/proc/sys/net/core/bpf_jit_enable", "1\n");
        CHECK_EQ(symlink("pid:[4026531836]", place("/proc/self/ns/pid")), 0);
}

static void a_good_kernel(void)
{
        kernel("6.8.0-generic\n");
        doctor_check_kernel(&d);
        for (size_t i = 0; i < d.count; i++)
                CHECK_EQ(d.checks[i].state, OK);
        expect("kernel", OK, "Linux 6.8.0-generic");
        expect("uprobes", OK, "uprobe_multi: one link");
        expect("lockdown", OK, "integrity");
}

static void what_kernels_may_lack(void)
{
        kernel("5.15.0\n");
        put("/sys/kernel/btf/vmlinux", "\0BPF_TRACE_UPROBE_MULTIPLE", 26);
        CHECK_EQ(unlink(place("/sys/bus/event_source/devices/kprobe/type")), 0);
        file("/sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
        file("/proc/sys/kernel/yama/ptrace_scope", "3\n");
        file("/proc/sys/net/core/bpf_jit_enable", "0\n");
        file("/proc/filesystems", "nodev\tsysfs\n");
        CHECK_EQ(unlink(place("/proc/self/ns/pid")), 0);
        CHECK_EQ(symlink("pid:[4026532299]", place("/proc/self/ns/pid")), 0);
        doctor_check_kernel(&d);
        expect("kernel", BROKEN, "5.15.0");
        expect("uprobes", OK, "perf events");
        expect("kprobes", OFF, "only where it has fentry");
        expect("lockdown", BROKEN, "confidentiality");
        expect("yama", LIMITED, "ptrace_scope is 3");
        expect("bpf_jit", LIMITED, "interpreted");
        expect("tracepoints", LIMITED, "no tracefs");
        expect("pid_namespace", LIMITED, "container");
}

static void nothing_is_there(void)
{
        new_machine();
        doctor_check_kernel(&d);
        doctor_check_driver(&d);
        doctor_check_install(&d);
        expect("kernel", BROKEN, "not known");
        expect("btf", BROKEN, "no eBPF program");
        expect("uprobes", BROKEN, "none");
        expect("gpus", OFF, "none");
        expect("driver", OFF, "simulated");
        expect("libcuda", OFF, "libcuda.so.1");
        expect("agent", LIMITED, "missing");
        expect("service", OFF, "systemd");
        expect("agent_socket", OFF, "agent.sock");
        expect("database_directory", OFF, "not there yet");
        CHECK(!find("device_files"));
}

/* ---- drivers ---- */

static void gpu_machine(void)
{
        new_machine();
        file("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
        file("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
        file("/sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n");
        file("/sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n"); /* its sound */
        file("/sys/bus/pci/devices/0000:02:00.0/vendor", "0x8086\n");
        file("/sys/bus/pci/devices/0000:02:00.0/class", "0x030000\n");
}

static void with_driver(void)
{
        file("/proc/driver/nvidia/version",
             "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
             "GCC version:  gcc version 12.2.0\n");
        file("/proc/driver/nvidia/gpus/0000:01:00.0/information",
             "Model: \t\t NVIDIA H200\nDevice Minor: \t 3\n");
        file("/proc/driver/nvidia/params", "RmProfilingAdminOnly: 1\n");
        file("/dev/nvidiactl", "");
        file("/dev/nvidia3", "");
        file("/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n");
        file("/etc/ld.so.conf.d/cuda.conf", "# CUDA\n/opt/nvidia/lib # here\n");
        file("/opt/nvidia/lib/libcuda.so.1", "");
        file("/usr/lib64/libnvidia-ml.so.1", "");
}

static void a_gpu_without_driver(void)
{
        gpu_machine();
        doctor_check_driver(&d);
        expect("gpus", OK, "1 of NVIDIA");
        expect("driver", BROKEN, "not loaded");
}

static void a_gpu_with_driver(void)
{
        gpu_machine();
        with_driver();
        doctor_check_driver(&d);
        expect("driver", OK, "release 580.159.04, open");
        expect("device_files", OK, "2 are there");
        expect("managed_memory_module", OFF, "not loaded");
        expect("mig", OFF, "no GPU");
        expect("profiling", OK, "root only");
        expect("libcuda", OK, "/opt/nvidia/lib/libcuda.so.1");
        expect("libnvidia_ml", OK, "/usr/lib64/libnvidia-ml.so.1");

        d.count = 0;
        file("/sys/module/nvidia_uvm/initstate", "live\n");
        CHECK_EQ(unlink(place("/dev/nvidia3")), 0);
        file("/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", "");
        file("/proc/driver/nvidia/capabilities/gpu0/mig/gi2/access", "");
        doctor_check_driver(&d);
        expect("device_files", BROKEN, "1 of 2");
        expect("managed_memory_module", LIMITED, "missing");
        expect("mig", OK, "2 GPU instances");

        d.count = 0;
        file("/dev/nvidia-uvm", "");
        file("/dev/nvidia-uvm-tools", "");
        file("/sys/kernel/btf/nvidia_uvm", "");
        file("/proc/driver/nvidia/version",
             "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.1\n");
        CHECK_EQ(unlink(place("/opt/nvidia/lib/libcuda.so.1")), 0);
        doctor_check_driver(&d);
        expect("managed_memory_module", OK, "with BTF");
        expect("driver", LIMITED, "470.1");
        expect("libcuda", LIMITED, "libcuda.so.1");
}

/* ---- installations ---- */

static void an_installation(void)
{
        new_machine();
        file(GPUOBS_AGENT_PATH, "");
        file("/usr/lib/libZydis.so.4.0", "");
        file("/run/systemd/system/x", "");
        file("/usr/lib/systemd/system/gpuobsd.service", "");
        file("/etc/systemd/system/sockets.target.wants/gpuobsd.socket", "");
        file("/etc/environment.d/50-gpuobs-agent.conf", "CUDA_INJECTION64_PATH=/x\n");
        file("/run/gpuobsd/agent.sock", "");
        CHECK_EQ(chmod(place("/run/gpuobsd/agent.sock"), 0666), 0);
        file("/srv/data/launches.db", "");
        file("/etc/gpuobsd/gpuobsd.conf",
             "# database = /elsewhere/x.db\n database = /srv/data/launches.db\n");
        doctor_check_install(&d);
        expect("agent", OK, GPUOBS_AGENT_PATH);
        expect("service", OK, "enabled");
        expect("injection", OK, "all user sessions");
        expect("agent_socket", OK, "agent.sock");
        CHECK(find("database_directory"));
        CHECK(strncmp(find("database_directory")->finding, "/srv/data has ", 14) == 0);
}

static void what_installations_may_lack(void)
{
        an_installation();
        d.count = 0;
        CHECK_EQ(chmod(place(GPUOBS_AGENT_PATH), 0600), 0);
        CHECK_EQ(chmod(place("/run/gpuobsd/agent.sock"), 0660), 0);
        CHECK_EQ(unlink(place("/etc/systemd/system/sockets.target.wants/gpuobsd.socket")), 0);
        CHECK_EQ(unlink(place("/etc/environment.d/50-gpuobs-agent.conf")), 0);
        doctor_check_install(&d);
        expect("agent", LIMITED, "cannot be read by everybody");
        expect("agent_socket", LIMITED, "not for everybody");
        expect("service", LIMITED, "not enabled");
        expect("injection", OFF, "only when");

        d.count = 0;
        CHECK_EQ(chmod(place(GPUOBS_AGENT_PATH), 0644), 0);
        CHECK_EQ(unlink(place("/usr/lib/libZydis.so.4.0")), 0);
        CHECK_EQ(unlink(place("/usr/lib/systemd/system/gpuobsd.service")), 0);
        doctor_check_install(&d);
        expect("agent", LIMITED, "libZydis");
        expect("service", LIMITED, "knows no gpuobsd.service");

        d.count = 0;
        CHECK_EQ(chmod(place("/usr/local"), 0700), 0);
        doctor_check_install(&d);
        expect("agent", LIMITED, "cannot be read by everybody");
}

int main(void)
{
        CHECK(mkdtemp(root));
        TEST(a_good_kernel);
        TEST(what_kernels_may_lack);
        TEST(nothing_is_there);
        TEST(a_gpu_without_driver);
        TEST(a_gpu_with_driver);
        TEST(an_installation);
        TEST(what_installations_may_lack);
        new_machine();
        CHECK_EQ(rmdir(root), 0);
        return 0;
}
