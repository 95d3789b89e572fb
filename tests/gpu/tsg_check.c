/* SPDX-License-Identifier: Apache-2.0 */

/*
 * On a GPU machine, as root: channel groups of two processes, found by the ioctl
 * programs and acted on from here. Each group tells its number and time slice;
 * a time slice that is set is read back and changes who gets how much done; those that
 * kernels run in are found without having been seen; a preemption succeeds; a process that is not
 * the one meant is left alone. Prints "ok" or "FAIL" for each; exit 1 when one failed, 77 without a
 * GPU. tsg_check SPIN_PROGRAM
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "driver/calls.h"
#include "driver/group_scan.h"
#include "driver/ptimer.h"
#include "driver/tsg.h"
#include "probe/driver_probes.h"
#include "spinners.h"
#include "util/proc_stat.h"
#include "util/time.h"

#define GROUPS_MAX 32
#define SECONDS    "11"
#define SETTLE_US  500000
#define PHASE_US   2000000

static struct spinner spinners[2];
static struct calls *calls[2];
static struct driver_probes *probes;
static int failures;

static void result(bool ok, const char *what, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

static void result(bool ok, const char *what, const char *format, ...)
{
        va_list args;

        printf("%-4s %s: ", ok ? "ok" : "FAIL", what);
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        printf("\n");
        failures += !ok;
}

static void on_call(void *data, const struct driver_call_event *e)
{
        for (int i = 0; i < 2; i++)
                if ((pid_t)e->tgid == spinners[i].pid)
                        calls_add(calls[i], e);
}

static void poll_calls(void)
{
        while (driver_probes_poll(probes, 1000, on_call, NULL) > 0)
                ;
}

/* ---- groups ---- */

struct group_list {
        struct call_group groups[GROUPS_MAX];
        size_t count;
};

static int keep(void *data, const struct call_group *g)
{
        struct group_list *l = data;

        l->groups[l->count++] = *g;
        return l->count == GROUPS_MAX;
}

static struct tsg_target target_of(int who, const struct call_group *g)
{
        struct tsg_target t = {
                .pid = spinners[who].pid, .fd = g->fd, .client = g->client, .object = g->object};

        (void)process_start_ticks(t.pid, &t.start_ticks);
        return t;
}

/* Set the time slice of all groups of a process; how many took it. */
static size_t set_all(int who, uint64_t us)
{
        struct group_list l = {.count = 0};
        size_t n = 0;

        calls_groups(calls[who], keep, &l);
        for (size_t i = 0; i < l.count; i++) {
                struct tsg_target target = target_of(who, &l.groups[i]);
                uint64_t now = 0;
                struct tsg *t;

                if (tsg_open(&tsg_system_default, &target, &t) < 0)
                        continue;
                n += tsg_set_timeslice(t, us, &now) == 0 && now == us;
                tsg_close(t);
        }
        return n;
}

/* What the driver says of the group's GPU is the UUID of the instance it was seen to be made on. */
static int get_gpu_of(struct tsg *t, const struct call_group *g)
{
        uint8_t told[16], uuid[16];
        struct rm_client *c;
        int r = tsg_get_gpu(t, told);

        if (r == 0)
                r = g->has_instance
                            ? rm_client_new(&rm_system_default, g->instance, g->instance, &c)
                            : -ENODATA;
        if (r < 0)
                return r;
        r = rm_uuid(c, uuid);
        rm_client_free(c);
        return r < 0 ? r : memcmp(told, uuid, sizeof(uuid)) ? -EPROTO : 0;
}

static void check_groups(int who)
{
        struct group_list l = {.count = 0};
        size_t good = 0;

        calls_groups(calls[who], keep, &l);
        for (size_t i = 0; i < l.count; i++) {
                struct tsg_target target = target_of(who, &l.groups[i]);
                uint64_t us = 0;
                uint32_t id = 0;
                struct tsg *t;
                int r = tsg_open(&tsg_system_default, &target, &t), preempt = -1, get = -1;
                int gpu = -1;

                if (r == 0) {
                        get = tsg_get_timeslice(t, &us);
                        r = tsg_get_id(t, &id);
                        gpu = get_gpu_of(t, &l.groups[i]);
                        preempt = tsg_preempt(t, 100000);
                        tsg_close(t);
                }
                good += r == 0 && get == 0 && us > 0 && preempt == 0 && gpu == 0;
                printf("     pid %d group 0x%x of client 0x%x, fd %d, engine %u, %u channels: %s, "
                       "id "
                       "%u, %" PRIu64 " us, preempt %s, GPU %s\n",
                       (int)target.pid, target.object, target.client, target.fd, l.groups[i].engine,
                       l.groups[i].channels, strerror(-r), id, us, strerror(-preempt),
                       strerror(-gpu));
        }
        result(l.count > 0 && good == l.count, "groups", "%zu of %zu answer", good, l.count);
}

static bool is_found(const struct group_scan *scan, const struct call_group *g)
{
        for (size_t i = 0; i < scan->count; i++)
                if (scan->objects[i].client == g->client && scan->objects[i].object == g->object)
                        return true;
        return false;
}

/* As if nothing had been seen: those that kernels run in are found all the same. */
static void check_scan(int who)
{
        static struct group_scan scan;
        struct group_list l = {.count = 0};
        struct tsg_target target;
        size_t wanted = 0, found = 0;
        uint64_t begun_ns;
        int r;

        calls_groups(calls[who], keep, &l);
        if (l.count == 0)
                return;
        target = target_of(who, &l.groups[0]);
        begun_ns = now_ns();
        r = group_scan(&tsg_system_default, target.pid, target.start_ticks, &scan);
        for (size_t i = 0; i < l.count; i++) {
                bool runs_kernels = l.groups[i].has_engine && l.groups[i].engine == 1;

                wanted += runs_kernels;
                found += runs_kernels && is_found(&scan, &l.groups[i]);
        }
        result(r == 0 && wanted > 0 && found == wanted, "scan",
               "%s: %zu of %zu groups that kernels run in, %zu objects, %zu questions, %.1f ms",
               strerror(-r), found, wanted, scan.count, scan.asked,
               (double)(now_ns() - begun_ns) / 1e6);
}

static void check_identity(void)
{
        struct group_list l = {.count = 0};
        struct tsg_target target;
        struct tsg *t;
        int stale, descriptor, object;
        uint64_t us;

        calls_groups(calls[0], keep, &l);
        if (l.count == 0)
                return;
        target = target_of(0, &l.groups[0]);
        target.start_ticks++;
        stale = tsg_open(&tsg_system_default, &target, &t);
        target.start_ticks--;
        target.fd = 0;
        descriptor = tsg_open(&tsg_system_default, &target, &t);
        target.fd = l.groups[0].fd;
        target.object ^= 0x00ffff00;
        object = tsg_open(&tsg_system_default, &target, &t);
        if (object == 0) {
                object = tsg_get_timeslice(t, &us);
                tsg_close(t);
        }
        result(stale == -ESRCH && descriptor == -ENODEV && object < 0, "identity",
               "another process: %s; another file: %s; another object: %s", strerror(-stale),
               strerror(-descriptor), strerror(-object));
}

/* ---- effect ---- */

struct phase {
        uint64_t from_ns, until_ns;
};

static struct phase run_phase(uint64_t a_us, uint64_t b_us, size_t *ret_set)
{
        struct phase p;

        *ret_set = set_all(0, a_us) + set_all(1, b_us);
        usleep(SETTLE_US);
        p.from_ns = now_ns();
        usleep(PHASE_US);
        p.until_ns = now_ns();
        return p;
}

static double ratio(const struct phase *p)
{
        size_t a = spinner_kernels(&spinners[0], p->from_ns, p->until_ns);
        size_t b = spinner_kernels(&spinners[1], p->from_ns, p->until_ns);

        return (double)a / (double)(b ? b : 1);
}

static void check_all(const char *program)
{
        struct phase even, first, second;
        size_t set[3];

        for (int i = 0; i < 2; i++)
                if (!spinner_start(&spinners[i], program, SECONDS))
                        result(false, "spin", "cannot be started");
        for (int i = 0; i < 2; i++)
                if (!spinner_wait_ready(&spinners[i]))
                        result(false, "spin", "ended");
        usleep(SETTLE_US);
        poll_calls();
        check_groups(0);
        check_groups(1);
        check_scan(0);
        check_scan(1);
        check_identity();
        even = run_phase(2000, 2000, &set[0]);
        first = run_phase(8000, 200, &set[1]);
        second = run_phase(200, 8000, &set[2]);
        for (int i = 0; i < 2; i++)
                if (!spinner_finish(&spinners[i]))
                        result(false, "spin", "failed");
        result(set[0] > 0 && set[0] == set[1] && set[1] == set[2], "set", "%zu, %zu, %zu groups",
               set[0], set[1], set[2]);
        result(ratio(&even) > 0.8 && ratio(&even) < 1.25, "even", "kernels %.2f : 1", ratio(&even));
        result(ratio(&first) > 3 && ratio(&second) < 1.0 / 3, "uneven",
               "8000 us to 200 us: %.2f : 1, the other way round %.2f : 1", ratio(&first),
               ratio(&second));
}

int main(int argc, char **argv)
{
        const struct driver_probes_options options = {0};
        struct ptimer_gpu gpu;
        int r;

        if (argc != 2) {
                fprintf(stderr, "usage: tsg_check SPIN_PROGRAM\n");
                return 2;
        }
        setlinebuf(stdout); /* where it hangs, if it does, is seen */
        if (ptimer_list_gpus(&gpu, 1) == 0) {
                printf("SKIP: no NVIDIA GPU\n");
                return 77;
        }
        r = driver_probes_new(&options, &probes);
        if (r < 0) {
                printf("SKIP: no right to load eBPF: %s\n", strerror(-r));
                return 77;
        }
        calls[0] = calls_new();
        calls[1] = calls_new();
        check_all(argv[1]);
        calls_free(calls[0]);
        calls_free(calls[1]);
        driver_probes_free(probes);
        printf("tsg_check: %d failed\n", failures);
        return failures ? 1 : 0;
}
