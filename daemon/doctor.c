/* SPDX-License-Identifier: Apache-2.0 */
#include "doctor.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "api/backend.h"
#include "daemon.h"
#include "driver/nvml.h"
#include "driver/ptimer.h"
#include "driver/silence.h"
#include "driver_silence.h"
#include "gpu_clocks.h"
#include "gpu_switches.h"
#include "managed_decisions.h"
#include "probe/cpu_probes.h"
#include "store/store.h"
#include "util/macro.h"
#include "util/slurp.h"
#include "util/time.h"

#define FREE_BYTES_SCANT (1ULL << 30)
#define FILES_FEW        4096 /* descriptors; before uprobe_multi each probe takes one */

struct examination {
        const struct gpuobsd *daemon;
        void (*row)(void *row_data, const struct api_check *check);
        void *row_data;
};

/* advice NULL: none. */
_printf_(5, 6) static void say(const struct examination *x, const char *name,
                               enum gpuobs_check_state state, const char *advice,
                               const char *format, ...)
{
        char finding[512];
        const struct api_check check = {name, state, finding, advice};
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(finding, sizeof(finding), format, arguments);
        va_end(arguments);
        x->row(x->row_data, &check);
}

/* ---- the CPU ---- */

static void examine_probes(const struct examination *x)
{
        size_t n = cpu_probes_library_count(x->daemon->probes);
        const char *how = cpu_probes_have_multi() ? "uprobe_multi links" : "perf events";

        if (n == 0)
                say(x, "launch_probes", GPUOBS_CHECK_STATE_LIMITED,
                    "Nothing, if CUDA programs bring their own copy: it is probed when it is "
                    "mapped. Else install the driver's libcuda, or name a copy with `library` in "
                    "gpuobsd.conf.",
                    "no copy of libcuda.so.1 is probed yet");
        else
                say(x, "launch_probes", GPUOBS_CHECK_STATE_OK, NULL,
                    "%zu %s of libcuda.so.1 probed with %s", n, n == 1 ? "copy" : "copies", how);
        if (slurp_left())
                say(x, "process_mappings", GPUOBS_CHECK_STATE_LIMITED,
                    "See in /proc/PID/stack what processes in state D hang in: ending them, or a "
                    "driver that answers again, frees them.",
                    "what %u process%s mapped cannot be read, as a call does not return: copies of "
                    "libcuda there, or found meanwhile, get probes later",
                    slurp_left(), slurp_left() == 1 ? " has" : "es have");
        if (!cpu_probes_sees_mappings(x->daemon->probes))
                say(x, "new_libraries", GPUOBS_CHECK_STATE_LIMITED,
                    "Use a kernel with tracepoints of system calls (CONFIG_FTRACE_SYSCALLS).",
                    "copies of libcuda that appear later are found within a minute, not at once");
}

/* Of the unit; the numbers are the kernel's. */
static const struct capability {
        unsigned number;
        const char *name;
} capabilities[] = {
        {1, "CAP_DAC_OVERRIDE"}, {2, "CAP_DAC_READ_SEARCH"},     {19, "CAP_SYS_PTRACE"},
        {21, "CAP_SYS_ADMIN"},   {24, "CAP_SYS_RESOURCE"},       {38, "CAP_PERFMON"},
        {39, "CAP_BPF"},         {40, "CAP_CHECKPOINT_RESTORE"},
};

static uint64_t effective_capabilities(void)
{
        _cleanup_fclose_ FILE *f = fopen("/proc/self/status", "re");
        char line[256];
        unsigned long long mask = 0;

        while (f && fgets(line, sizeof(line), f))
                if (sscanf(line, "CapEff: %llx", &mask) == 1)
                        break;
        return mask;
}

static void examine_capabilities(const struct examination *x)
{
        uint64_t mask = effective_capabilities();
        char missing[256] = "";
        size_t used = 0;

        for (size_t i = 0; i < ARRAY_SIZE(capabilities); i++)
                if (!(mask >> capabilities[i].number & 1))
                        used += (size_t)snprintf(missing + used, sizeof(missing) - used, " %s",
                                                 capabilities[i].name);
        say(x, "capabilities", used ? GPUOBS_CHECK_STATE_LIMITED : GPUOBS_CHECK_STATE_OK,
            used ? "Give the daemon those that gpuobsd.service lists." : NULL,
            used ? "the daemon lacks%s" : "the daemon has those it needs%s", missing);
}

static void examine_limits(const struct examination *x)
{
        struct rlimit files = {0};

        /* Memory of eBPF maps has not been charged to RLIMIT_MEMLOCK since Linux 5.11. */
        if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < FILES_FEW &&
            !cpu_probes_have_multi())
                say(x, "limits", GPUOBS_CHECK_STATE_LIMITED,
                    "Start the daemon with LimitNOFILE=65536, as its systemd unit does.",
                    "the daemon may have %llu files open, and each probe takes one on this kernel",
                    (unsigned long long)files.rlim_cur);
        else
                say(x, "limits", GPUOBS_CHECK_STATE_OK, NULL, "the daemon may have %llu files open",
                    (unsigned long long)files.rlim_cur);
}

/* ---- the driver ---- */

static void examine_calls(const struct examination *x)
{
        const struct gpuobsd *d = x->daemon;

        if (d->driver_probes)
                say(x, "driver_calls", GPUOBS_CHECK_STATE_OK, NULL, "calls of the driver are seen");
        else if (!d->config->driver_calls)
                say(x, "driver_calls", GPUOBS_CHECK_STATE_OFF, NULL,
                    "the setting driver_calls is no: contexts and channel groups are not known");
        else
                say(x, "driver_calls", GPUOBS_CHECK_STATE_LIMITED,
                    "Use a kernel with tracepoints of system calls (CONFIG_FTRACE_SYSCALLS).",
                    "calls of the driver are not seen: %s", strerror(-d->driver_calls_error));
}

static void examine_clocks(const struct examination *x, size_t gpus)
{
        const struct gpuobsd *d = x->daemon;
        size_t n = gpu_clocks_count(d->clocks);
        const char *refusal = gpu_clocks_refusal(d->clocks);

        if (d->config->agent_clock)
                say(x, "gpu_clock", GPUOBS_CHECK_STATE_OFF, NULL,
                    "the setting agent_clock is yes: agents read the clocks");
        else if (gpus == 0)
                say(x, "gpu_clock", GPUOBS_CHECK_STATE_OFF, NULL, "there is no GPU to read it of");
        else if (gpu_clocks_are_opening(d->clocks))
                say(x, "gpu_clock", GPUOBS_CHECK_STATE_LIMITED, DRIVER_SILENCE_ADVICE,
                    "the driver is still being asked for those of %zu GPU%s", gpus,
                    gpus == 1 ? "" : "s");
        else if (n < gpus)
                say(x, "gpu_clock", GPUOBS_CHECK_STATE_LIMITED,
                    "Let the daemon open /dev/nvidiactl and /dev/nvidia*, as root with the "
                    "driver's own permissions. Until then agents read the clock, within "
                    "microseconds.",
                    "PTIMER of %zu of %zu GPUs is read (%s)", n, gpus,
                    refusal[0] ? refusal : "the others came later");
        else
                say(x, "gpu_clock", GPUOBS_CHECK_STATE_OK, NULL,
                    "PTIMER of %zu GPU%s is read through the driver", n, n == 1 ? "" : "s");
}

/* Whether it answers at all. */
static void examine_silence(const struct examination *x)
{
        char text[DRIVER_SILENCE_TEXT];
        bool silent = driver_silence_describe(x->daemon, text);

        say(x, "driver_answers", silent ? GPUOBS_CHECK_STATE_LIMITED : GPUOBS_CHECK_STATE_OK,
            silent ? DRIVER_SILENCE_ADVICE : NULL, "%s", text);
}

static void examine_switches(const struct examination *x)
{
        const struct gpuobsd *d = x->daemon;
        size_t n = gpu_switches_count(d->switches), clocks = gpu_clocks_count(d->clocks);
        const char *refusal = gpu_switches_refusal(d->switches);

        if (!d->config->context_switches)
                say(x, "context_switches", GPUOBS_CHECK_STATE_OFF, NULL,
                    "the setting context_switches is no");
        else if (clocks == 0)
                say(x, "context_switches", GPUOBS_CHECK_STATE_OFF, NULL,
                    "there is no GPU whose clock the daemon reads");
        else if (n < clocks)
                say(x, "context_switches", GPUOBS_CHECK_STATE_LIMITED,
                    "Nothing else may trace the GPU (profilers do); restart the daemon then. "
                    "Without it gpuobsctl share shows nothing.",
                    "those of %zu of %zu GPUs are traced (%s)", n, clocks,
                    refusal[0] ? refusal : "the driver is still being asked for the others");
        else
                say(x, "context_switches", GPUOBS_CHECK_STATE_OK, NULL,
                    "those of %zu GPU%s are traced", n, n == 1 ? "" : "s");
}

static void examine_nvml(const struct examination *x, size_t gpus)
{
        const struct nvml *nvml = x->daemon->nvml;
        int n = nvml ? nvml_state(x->daemon->nvml) : -ENODEV;

        if (n == -ENODEV)
                say(x, "management_library", GPUOBS_CHECK_STATE_OFF, NULL,
                    "the setting nvml is no");
        else if (silence_lasts_ns(nvml_silence(nvml)) >= SILENCE_NS)
                say(x, "management_library", GPUOBS_CHECK_STATE_LIMITED, DRIVER_SILENCE_ADVICE,
                    "it is in a call that has lasted %llu s: no load, power and temperature",
                    (unsigned long long)(silence_lasts_ns(nvml_silence(nvml)) / NSEC_PER_SEC));
        else if (n == -EAGAIN)
                say(x, "management_library", GPUOBS_CHECK_STATE_OK, NULL, "it is being opened");
        else if (n < 0)
                say(x, "management_library",
                    gpus ? GPUOBS_CHECK_STATE_LIMITED : GPUOBS_CHECK_STATE_OFF,
                    gpus ? "Install the driver's libnvidia-ml.so.1, of the same version as its "
                           "kernel module."
                         : NULL,
                    n == -ENOENT ? "there is no libnvidia-ml.so.1: no load, power and temperature"
                                 : "libnvidia-ml.so.1 does not start");
        else
                say(x, "management_library", GPUOBS_CHECK_STATE_OK, NULL, "it tells of %d GPU%s", n,
                    n == 1 ? "" : "s");
}

/* ---- managed memory ---- */

static void examine_managed(const struct examination *x)
{
        const struct observed *o, *next, *refused = NULL;
        size_t on = 0, off = 0;

        HASH_ITER (by_pid, x->daemon->observed.by_pid, o, next) {
                if (!o->managed)
                        continue;
                on += o->managed->watch == UVM_WATCH_ON;
                if (o->managed->watch == UVM_WATCH_REFUSED) {
                        refused = o;
                        off++;
                }
        }
        if (!x->daemon->config->managed_memory)
                say(x, "managed_memory", GPUOBS_CHECK_STATE_OFF, NULL,
                    "the setting managed_memory is no; %zu processes are watched by request", on);
        else if (refused)
                say(x, "managed_memory", GPUOBS_CHECK_STATE_LIMITED,
                    "Load nvidia_uvm (nvidia-modprobe -u -c 0) and let the daemon have "
                    "CAP_SYS_PTRACE, CAP_DAC_OVERRIDE and /dev/nvidia-uvm-tools.",
                    "events of %zu processes are not read: %s", off, refused->managed->reason);
        else
                say(x, "managed_memory", GPUOBS_CHECK_STATE_OK, NULL,
                    "events of %zu processes are read, of those that allocate managed memory", on);
}

static void examine_points(const struct examination *x, const struct api_decisions *d)
{
        unsigned probed = 0, blind = 0, fentry = 0;
        bool all;

        for (unsigned i = 0; i < UVM_POINT_COUNT; i++) {
                const struct api_point *p = &d->points[i];

                probed += p->probed;
                blind += p->probed && !p->arguments;
                fentry += p->probed && p->form == GPUOBS_UVM_FORM_FENTRY;
        }
        all = probed == UVM_POINT_COUNT && !blind;
        say(x, "managed_decisions", all ? GPUOBS_CHECK_STATE_OK : GPUOBS_CHECK_STATE_LIMITED,
            all ? NULL
                : "See gpuobsctl uvm --driver: this build of the driver lacks the others as "
                  "functions of their own, or their BTF, or this kernel cannot probe them.",
            "%u of %d points inside nvidia_uvm are probed (kprobe %u, fentry %u), "
            "%u for counts and times alone%s",
            probed, UVM_POINT_COUNT, probed - fentry, fentry, blind,
            fentry ? "; with fentry nvidia_uvm cannot be unloaded until gpuobsd stops" : "");
}

static void examine_decisions(const struct examination *x)
{
        struct api_decisions d;

        managed_decisions_describe(x->daemon->decisions, &d);
        if (d.probed)
                examine_points(x, &d);
        else
                say(x, "managed_decisions", GPUOBS_CHECK_STATE_OFF, NULL,
                    "decisions of the managed-memory driver are not seen: %s", d.reason);
        say(x, "driver_struct_ops", d.struct_ops ? GPUOBS_CHECK_STATE_OK : GPUOBS_CHECK_STATE_OFF,
            NULL, d.struct_ops ? "the driver offers %s" : "%s",
            d.struct_ops ? d.struct_ops : "the driver offers none, as those that NVIDIA ships");
}

/* ---- agents ---- */

static void examine_agents(const struct examination *x)
{
        const struct gpuobsd *d = x->daemon;
        const struct observed *o, *next;
        size_t live = 0, with = 0, troubled = 0;

        if (!d->device_object)
                say(x, "device_program", GPUOBS_CHECK_STATE_LIMITED,
                    "Install the daemon whole, or set device_program in gpuobsd.conf; the journal "
                    "has the rest of the message.",
                    "agents are turned away, so there are no times of the GPU: %s",
                    d->device_error);
        else
                say(x, "device_program", GPUOBS_CHECK_STATE_OK, NULL, "it is compiled");
        HASH_ITER (by_pid, d->observed.by_pid, o, next) {
                live++;
                with += o->agent != NULL;
                troubled += !o->agent && o->note[0];
        }
        if (troubled)
                say(x, "agents", GPUOBS_CHECK_STATE_LIMITED,
                    "See gpuobsctl ps and gpuobsctl coverage for each.",
                    "%zu of %zu processes have an agent, %zu had trouble with it", with, live,
                    troubled);
        else
                say(x, "agents", GPUOBS_CHECK_STATE_OK, NULL, "%zu of %zu processes have one", with,
                    live);
}

/* ---- the database ---- */

static uint64_t free_bytes(const char *path)
{
        char directory[4096];
        char *slash;
        struct statvfs fs;

        snprintf(directory, sizeof(directory), "%s", path);
        slash = strrchr(directory, '/');
        if (!slash)
                return UINT64_MAX;
        slash[slash == directory] = '\0';
        return statvfs(directory, &fs) < 0 ? UINT64_MAX : (uint64_t)fs.f_bavail * fs.f_frsize;
}

static void examine_database(const struct examination *x)
{
        const char *path = x->daemon->config->database;
        uint64_t available = free_bytes(path);
        struct store_status store;

        store_get_status(x->daemon->store, &store);
        if (store.failing)
                say(x, "database", GPUOBS_CHECK_STATE_BROKEN,
                    "Make room or repair the disk: it is tried again, and what comes meanwhile "
                    "is kept as long as memory lasts.",
                    "%s cannot be written: %s", path, store.error);
        else if (available < FREE_BYTES_SCANT)
                say(x, "database", GPUOBS_CHECK_STATE_LIMITED,
                    "Make room, or lower retention_bytes in gpuobsd.conf.",
                    "%s is written, with %llu MiB left on its disk", path,
                    (unsigned long long)(available >> 20));
        else
                say(x, "database", GPUOBS_CHECK_STATE_OK, NULL, "%s is written", path);
}

static void examine_losses(const struct examination *x)
{
        struct ledger sum;
        uint64_t lost;

        observed_losses(&x->daemon->observed, API_ANY_UID, &sum);
        lost = ledger_lost_launches(&sum);
        say(x, "losses", lost ? GPUOBS_CHECK_STATE_LIMITED : GPUOBS_CHECK_STATE_OK,
            lost ? "gpuobsctl losses says where, and gpuobsd(8) what helps." : NULL,
            "%llu of %llu launches were lost", (unsigned long long)lost,
            (unsigned long long)sum.produced);
}

void doctor_examine(void *data, void (*row)(void *row_data, const struct api_check *check),
                    void *row_data)
{
        const struct examination x = {data, row, row_data};
        size_t gpus = ptimer_count_gpus();

        examine_probes(&x);
        examine_capabilities(&x);
        examine_limits(&x);
        examine_calls(&x);
        examine_clocks(&x, gpus);
        examine_silence(&x);
        examine_switches(&x);
        examine_nvml(&x, gpus);
        examine_managed(&x);
        examine_decisions(&x);
        examine_agents(&x);
        examine_database(&x);
        examine_losses(&x);
}
