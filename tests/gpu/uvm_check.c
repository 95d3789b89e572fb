/* SPDX-License-Identifier: Apache-2.0 */

/*
 * On a GPU machine: a process with 1 GiB of managed memory (less where less than
 * 4 GiB are free) touches it from CPU and GPU in turn; from outside
 *   events     its faults and migrations are read, with drops accounted for;
 *   drops      a second queue that is too small accounts for as many;
 *   migrate    memory is moved before the GPU asks for it, which is then faster;
 *   undo       a preferred location is given by a process that is then killed, and
 *              taken back by the next; both are seen by what the GPU does;
 *   effects    accessed-by, read duplication and discard are seen by what moves and
 *              faults no more; two that fight for a page are seen thrashing;
 *   rest       all advice again, taken back, and asynchronous migration;
 *   end        the process is killed, and what it had is given back.
 * Contents are compared throughout. Exit 1 when something is not so, 77 without a
 * GPU. Needs root.
 *     uvm_check
 *     uvm_check --target SECONDS   only the process, for others to observe
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/gpu_memory.h"
#include "driver/ptimer.h"
#include "driver/undo_journal.h"
#include "driver/uvm_counts.h"
#include "driver/uvm_ops.h"
#include "driver/uvm_tracker.h"
#include "gpu/uvm_target.h"
#include "unit/test.h"
#include "util/macro.h"
#include "util/mono_map.h"
#include "util/time.h"

#define BYTES         (1ULL << 30)
#define ENTRIES       65536
#define ENTRIES_SMALL 256
#define PASSES        3
#define SETTLE_US     300000 /* events of copies come some time after them */
#define SPEEDUP       5      /* of a pass over memory that was moved before */
#define JOURNAL       "/tmp/uvm_check.journal"

static struct target target;
static struct target_answer hello;
static uint64_t start_ticks;
static struct gpu_memory *memory;
static int failures;

static void verdict(bool ok, const char *what, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

static void verdict(bool ok, const char *what, const char *format, ...)
{
        va_list arguments;

        failures += !ok;
        printf("%s %s: ", ok ? "ok  " : "FAIL", what);
        va_start(arguments, format);
        vprintf(format, arguments);
        va_end(arguments);
        printf("\n");
        fflush(stdout);
}

static double ms(const struct target_answer *a)
{
        return (double)(a->end_ns - a->begin_ns) / 1e6;
}

static double mib(uint64_t bytes)
{
        return (double)bytes / (double)(1 << 20);
}

/* ---- reading events beside the target's work ---- */

struct seen {
        struct uvm_counts counts;
        uint64_t events;
        uint64_t outside;           /* addresses of faults that are not in the allocation */
        uint64_t by_policy;         /* mapped where it is, because of a preferred location */
        uint64_t first_ns, last_ns; /* of GPU faults, CLOCK_MONOTONIC of the driver */
        uint64_t first_gpu_ns, last_gpu_ns; /* the same by the GPU's own clock */
};

static struct {
        struct uvm_tracker *tracker;
        pthread_t thread;
        pthread_mutex_t lock;
        atomic_bool stop;
        struct seen seen;
} reader = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void see_gpu_fault(struct seen *s, const struct uvm_event *e, uint64_t at_ns)
{
        if (!s->first_ns || at_ns < s->first_ns)
                s->first_ns = at_ns;
        if (at_ns > s->last_ns)
                s->last_ns = at_ns;
        if (!s->first_gpu_ns || e->begin_gpu_ns < s->first_gpu_ns)
                s->first_gpu_ns = e->begin_gpu_ns;
        if (e->begin_gpu_ns > s->last_gpu_ns)
                s->last_gpu_ns = e->begin_gpu_ns;
}

static void on_event(void *data, const struct uvm_event *e, const struct uvm_when *when)
{
        struct seen *s = data;
        bool fault = e->kind == UVM_KIND_GPU_FAULT || e->kind == UVM_KIND_CPU_FAULT;

        s->events++;
        uvm_counts_event(&s->counts, e);
        if (fault && (e->address < hello.address || e->address - hello.address >= hello.bytes))
                s->outside++;
        if (e->kind == UVM_KIND_MAP_REMOTE && e->cause == UVM_MAPPED_POLICY)
                s->by_policy++;
        if (e->kind == UVM_KIND_GPU_FAULT)
                see_gpu_fault(s, e, when->at_ns);
}

static void *read_events(void *data)
{
        struct pollfd p = {.fd = uvm_tracker_fd(reader.tracker), .events = POLLIN};

        (void)data;
        while (!atomic_load(&reader.stop)) {
                (void)poll(&p, 1, 5);
                pthread_mutex_lock(&reader.lock);
                (void)uvm_tracker_read(reader.tracker, ENTRIES, on_event, &reader.seen);
                pthread_mutex_unlock(&reader.lock);
        }
        return NULL;
}

static struct seen take_seen(void)
{
        struct seen s;

        usleep(SETTLE_US);
        (void)uvm_tracker_flush(reader.tracker);
        usleep(SETTLE_US);
        pthread_mutex_lock(&reader.lock);
        s = reader.seen;
        reader.seen = (struct seen){0};
        pthread_mutex_unlock(&reader.lock);
        return s;
}

static struct uvm_tracker *new_tracker(uint32_t entries, struct mono_map *map)
{
        const struct uvm_tracker_options o = {
                .pid = target.pid, .start_ticks = start_ticks, .entries = entries, .map = map};
        struct uvm_tracker *t = NULL;
        int r;

        (void)mono_map_read(map); /* events are later than this */
        r = uvm_tracker_new(&uvm_system_default, &o, &t);
        if (r < 0)
                verdict(false, "events", "the queue cannot be opened: %s", strerror(-r));
        return t;
}

/* ---- the checks ---- */

static uint64_t produced(struct uvm_tracker *t, uint64_t *ret_dropped)
{
        struct uvm_tracker_counts c;

        uvm_tracker_get_counts(t, &c);
        *ret_dropped = c.dropped;
        return c.read + c.dropped;
}

/* The fault times of the GPU are PTIMER: they must fall into the pass, by one bracketed reading. */
static void check_gpu_clock(const struct seen *s, const struct target_answer *pass)
{
        struct clock_sample sample;
        struct ptimer_gpu gpu;
        struct ptimer *p = NULL;
        uint64_t first, last, at_ns;

        if (ptimer_list_gpus(&gpu, 1) == 0 || ptimer_new(&rm_system_default, &gpu, &p) < 0 ||
            ptimer_read(p, 16, &sample) < 0) {
                printf("skip clock: PTIMER cannot be read\n");
                ptimer_free(p);
                return;
        }
        at_ns = now_ns();
        ptimer_free(p);
        first = at_ns - (sample.gpu_ns - s->first_gpu_ns);
        last = at_ns - (sample.gpu_ns - s->last_gpu_ns);
        verdict(first + 20000 >= pass->begin_ns && last <= pass->end_ns + 20000, "clock",
                "faults by the GPU's clock from %.3f ms after the pass began to %.3f ms before it "
                "ended; by the driver's, %.3f and %.3f",
                ((double)first - (double)pass->begin_ns) / 1e6,
                ((double)pass->end_ns - (double)last) / 1e6,
                ((double)s->first_ns - (double)pass->begin_ns) / 1e6,
                ((double)pass->end_ns - (double)s->last_ns) / 1e6);
}

static void check_pass(const struct target_answer *pass, const struct seen *s, uint64_t dropped)
{
        double share = (double)s->counts.bytes_to_gpu / (double)hello.bytes;

        verdict(s->counts.gpu_faults > 0 && s->outside == 0, "faults",
                "%" PRIu64 " GPU faults, %" PRIu64 " faults outside the allocation",
                s->counts.gpu_faults, s->outside);
        verdict(share <= 1.01 && (dropped || share >= 0.99), "bytes",
                "%.1f of %.1f MiB migrated to the GPU, %" PRIu64 " events dropped",
                mib(s->counts.bytes_to_gpu), mib(hello.bytes), dropped);
        verdict(s->first_ns + 1000000 >= pass->begin_ns && s->last_ns <= pass->end_ns + 1000000,
                "times", "faults from %.3f ms after the pass began to %.3f ms before it ended",
                ((double)s->first_ns - (double)pass->begin_ns) / 1e6,
                ((double)pass->end_ns - (double)s->last_ns) / 1e6);
}

static double check_events(void)
{
        uint64_t dropped_before, dropped;
        double slowest = 0, fastest = 1e9;

        for (int i = 0; i < PASSES; i++) {
                struct target_answer pass;
                struct seen s;

                (void)target_ask(&target, TARGET_CPU);
                (void)take_seen();
                (void)produced(reader.tracker, &dropped_before);
                pass = target_ask(&target, TARGET_GPU);
                s = take_seen();
                (void)produced(reader.tracker, &dropped);
                printf("     GPU pass %d: %.1f ms, %" PRIu64 " events\n", i, ms(&pass), s.events);
                check_pass(&pass, &s, dropped - dropped_before);
                if (i == 0)
                        check_gpu_clock(&s, &pass);
                slowest = ms(&pass) > slowest ? ms(&pass) : slowest;
                fastest = ms(&pass) < fastest ? ms(&pass) : fastest;
        }
        printf("     faulting passes, watched: %.1f to %.1f ms\n", fastest, slowest);
        return fastest;
}

/* Two queues of the same events: the one too small has dropped what it did not show. */
static void check_drops(void)
{
        struct mono_map *map = mono_map_new(clock_pair_read, NULL);
        struct uvm_tracker *small = map ? new_tracker(ENTRIES_SMALL, map) : NULL;
        uint64_t before, after, dropped, small_before, small_dropped, small_produced;
        struct seen ignored = {0};

        if (!small)
                return;
        (void)target_ask(&target, TARGET_CPU);
        (void)take_seen();
        (void)uvm_tracker_read(small, ENTRIES, on_event, &ignored);
        before = produced(reader.tracker, &dropped);
        small_produced = produced(small, &small_before);
        (void)target_ask(&target, TARGET_GPU);
        (void)take_seen();
        (void)uvm_tracker_read(small, ENTRIES, on_event, &ignored);
        after = produced(reader.tracker, &dropped);
        small_produced = produced(small, &small_dropped) - small_produced;
        small_dropped -= small_before;
        verdict(small_dropped > 0 && small_produced == after - before, "drops",
                "%" PRIu64 " events in one queue, %" PRIu64 " in one of %d entries, of which it "
                "dropped %" PRIu64,
                after - before, small_produced, ENTRIES_SMALL, small_dropped);
        uvm_tracker_free(small);
        mono_map_free(map);
}

static int free_bytes(void *data, const uint8_t gpu[UVM_UUID_BYTES], uint64_t *ret_bytes)
{
        return gpu_memory_unused(data, gpu, ret_bytes);
}

static struct uvm_ops *new_ops(struct undo_journal **ret_journal)
{
        const struct uvm_ops_options o = {.free_bytes = free_bytes, .data = memory};
        struct uvm_ops *ops = NULL;
        uint8_t boot[16];

        CHECK_EQ(undo_boot_id(boot), 0);
        CHECK_EQ(undo_journal_open(&undo_io_default, JOURNAL, boot, ret_journal), 0);
        CHECK_EQ(uvm_ops_new(&uvm_system_default, *ret_journal, &o, &ops), 0);
        return ops;
}

static struct uvm_outcome request(struct uvm_ops *ops, enum uvm_op op, bool to_cpu, bool async)
{
        struct uvm_request q = {.op = op,
                                .pid = target.pid,
                                .start_ticks = start_ticks,
                                .address = hello.address,
                                .bytes = hello.bytes,
                                .to_cpu = to_cpu,
                                .async = async,
                                .owner = "uvm_check"};
        struct uvm_allocations a = {0};
        struct uvm_outcome out = {0};
        struct uvm_plan plan;

        memcpy(q.gpu, hello.uuid, sizeof(q.gpu));
        CHECK_EQ(uvm_allocations_add(&a, hello.address, hello.bytes, 0), 0);
        out.error = uvm_ops_plan(ops, &a, &q, &plan);
        if (out.error == UVM_OP_OK)
                uvm_ops_run(ops, &plan, &out);
        uvm_allocations_done(&a);
        return out;
}

static void check_free_bytes(void)
{
        struct target_answer a = target_ask(&target, TARGET_FREE_BYTES);
        uint64_t unused = 0;
        int r = gpu_memory_unused(memory, hello.uuid, &unused);
        uint64_t apart = unused > a.bytes ? unused - a.bytes : a.bytes - unused;

        verdict(r == 0 && apart < BYTES, "free",
                "%.0f MiB free by the resource manager, %.0f by CUDA%s%s", mib(unused),
                mib(a.bytes), r ? ": " : "", r ? strerror(-r) : "");
}

static void check_contents(const char *after)
{
        struct target_answer a = target_ask(&target, TARGET_VERIFY);

        verdict(a.address == 0, "contents", "%" PRIu64 " words wrong after %s", a.address, after);
}

static void check_migrate(struct uvm_ops *ops, double faulting_ms)
{
        struct target_answer pass;
        struct uvm_outcome out;
        struct seen s;

        (void)target_ask(&target, TARGET_CPU);
        (void)take_seen();
        out = request(ops, UVM_OP_MIGRATE, false, false);
        pass = target_ask(&target, TARGET_GPU);
        s = take_seen();
        verdict(out.error == UVM_OP_OK && out.bytes == hello.bytes, "migrate",
                "%s, %.0f MiB in %.2f ms, status 0x%x", uvm_op_error_text(out.error),
                mib(out.bytes), (double)out.duration_ns / 1e6, out.status);
        verdict(faulting_ms >= SPEEDUP * ms(&pass), "speed",
                "GPU pass %.2f ms after the migration, %.1f ms by faulting; %" PRIu64 " faults",
                ms(&pass), faulting_ms, s.counts.gpu_faults);
        check_contents("a migration to the GPU");
        out = request(ops, UVM_OP_MIGRATE, false, true);
        verdict(out.error == UVM_OP_OK, "async", "%s, call took %.2f ms",
                uvm_op_error_text(out.error), (double)out.duration_ns / 1e6);
        out = request(ops, UVM_OP_MIGRATE, true, false);
        verdict(out.error == UVM_OP_OK, "to the CPU", "%s, %.2f ms", uvm_op_error_text(out.error),
                (double)out.duration_ns / 1e6);
        check_contents("a migration to the CPU");
}

/* ---- a preferred location that outlives its giver ---- */

static void give_and_die(void)
{
        struct undo_journal *journal;
        struct uvm_ops *ops = new_ops(&journal);
        struct uvm_outcome out = request(ops, UVM_OP_PREFER, true, false);

        printf("     preferred location CPU: %s\n", uvm_op_error_text(out.error));
        fflush(stdout);
        kill(getpid(), SIGKILL);
}

static struct seen pass_from_cpu(struct target_answer *ret_pass)
{
        (void)target_ask(&target, TARGET_CPU);
        (void)take_seen();
        *ret_pass = target_ask(&target, TARGET_GPU);
        return take_seen();
}

static void check_undo(void)
{
        struct undo_entry left[2];
        struct target_answer pass;
        struct undo_journal *journal;
        struct uvm_ops *ops;
        struct seen s;
        int status = 0, undone;
        size_t count;
        pid_t pid;

        fflush(NULL);
        pid = fork();
        if (pid == 0)
                give_and_die();
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
        s = pass_from_cpu(&pass);
        verdict(s.counts.bytes_to_gpu < hello.bytes / 100 && s.by_policy > 0, "prefer",
                "GPU pass %.1f ms: %.1f MiB migrated, %" PRIu64 " mappings by policy", ms(&pass),
                mib(s.counts.bytes_to_gpu), s.by_policy);
        ops = new_ops(&journal);
        count = undo_journal_list(journal, left, 2);
        undone = count == 1 ? uvm_ops_undo(ops, &left[0]) : -ENOENT;
        /*
         * What the GPU mapped under the setting stays mapped, fault or none, until
         * the memory moves: so move it, or the setting's effect could not be told
         * from its traces.
         */
        (void)request(ops, UVM_OP_MIGRATE, false, false);
        (void)request(ops, UVM_OP_MIGRATE, true, false);
        s = pass_from_cpu(&pass);
        verdict(undone == 0 && s.counts.bytes_to_gpu >= hello.bytes / 2 && s.by_policy == 0, "undo",
                "undone: %s; GPU pass %.1f ms: %.1f MiB migrated, %" PRIu64 " mappings by policy",
                strerror(-undone), ms(&pass), mib(s.counts.bytes_to_gpu), s.by_policy);
        check_contents("giving and taking back a preferred location");
        uvm_ops_free(ops);
        undo_journal_free(journal);
}

static void check_rest(void)
{
        static const struct {
                enum uvm_op op;
                const char *name;
                bool to_cpu;
        } rest[] = {{UVM_OP_ACCESSED_BY, "accessed by the GPU", false},
                    {UVM_OP_NOT_ACCESSED_BY, "not accessed by the GPU", false},
                    {UVM_OP_DUPLICATE, "read duplication", false},
                    {UVM_OP_NOT_DUPLICATE, "no read duplication", false},
                    {UVM_OP_PREFER, "preferred location GPU", false},
                    {UVM_OP_UNPREFER, "no preferred location", false}};
        struct undo_journal *journal;
        struct uvm_ops *ops = new_ops(&journal);
        struct undo_entry left;
        struct uvm_outcome out;

        for (size_t i = 0; i < ARRAY_SIZE(rest); i++) {
                out = request(ops, rest[i].op, rest[i].to_cpu, false);
                verdict(out.error == UVM_OP_OK, rest[i].name, "%s, %.2f ms, status 0x%x",
                        uvm_op_error_text(out.error), (double)out.duration_ns / 1e6, out.status);
        }
        verdict(undo_journal_list(journal, &left, 1) == 0, "journal", "empty again");
        (void)target_ask(&target, TARGET_CPU);
        (void)target_ask(&target, TARGET_GPU);
        check_contents("advice");
        uvm_ops_free(ops);
        undo_journal_free(journal);
}

static void advise(struct uvm_ops *ops, enum uvm_op op, const char *name)
{
        struct uvm_outcome out = request(ops, op, false, false);

        if (out.error != UVM_OP_OK)
                verdict(false, name, "%s, status 0x%x", uvm_op_error_text(out.error), out.status);
}

/* What the GPU maps where it is neither faults nor moves. */
static void check_accessed_by(struct uvm_ops *ops)
{
        struct target_answer pass;
        struct seen s;

        advise(ops, UVM_OP_ACCESSED_BY, "accessed-by");
        s = pass_from_cpu(&pass);
        verdict(s.counts.bytes_to_gpu < hello.bytes / 10, "accessed-by",
                "GPU pass %.1f ms: %.1f MiB migrated, %" PRIu64 " GPU faults, %" PRIu64
                " remote mappings",
                ms(&pass), mib(s.counts.bytes_to_gpu), s.counts.gpu_faults, s.counts.remote_maps);
        advise(ops, UVM_OP_NOT_ACCESSED_BY, "not accessed-by");
        (void)request(ops, UVM_OP_MIGRATE, false, false); /* its mappings last until memory moves */
}

/* What both have copies of costs the CPU no fault after the GPU has read it. */
static void check_duplication(struct uvm_ops *ops)
{
        uint64_t faults[2], copies[2];

        for (int duplicated = 0; duplicated < 2; duplicated++) {
                struct seen s;

                if (duplicated)
                        advise(ops, UVM_OP_DUPLICATE, "read duplication");
                (void)target_ask(&target, TARGET_CPU);
                (void)take_seen();
                (void)target_ask(&target, TARGET_READ);
                s = take_seen();
                copies[duplicated] = s.counts.read_duplications;
                check_contents("reading on the GPU"); /* all of it is read by the CPU */
                s = take_seen();
                faults[duplicated] = s.counts.cpu_faults;
        }
        verdict(copies[0] == 0 && copies[1] > 0 && faults[1] < faults[0] / 2, "duplicated",
                "%" PRIu64 " read duplications, then %" PRIu64 " CPU faults; without, %" PRIu64
                " and %" PRIu64,
                copies[1], faults[1], copies[0], faults[0]);
        advise(ops, UVM_OP_NOT_DUPLICATE, "no read duplication");
}

/* What was discarded on the GPU is not carried to the CPU that writes it anew. */
static void check_discard(struct uvm_ops *ops)
{
        struct uvm_outcome out;
        struct seen s;

        (void)target_ask(&target, TARGET_CPU);
        (void)target_ask(&target, TARGET_GPU);
        (void)take_seen();
        out = request(ops, UVM_OP_DISCARD, false, false);
        if (out.error == UVM_OP_NOT_SUPPORTED) {
                printf("skip discarded: the driver cannot\n");
                return;
        }
        (void)target_ask(&target, TARGET_CPU);
        s = take_seen();
        verdict(out.error == UVM_OP_OK && s.counts.bytes_to_cpu < hello.bytes / 10, "discarded",
                "%s; %.1f MiB went to the CPU that wrote all of it anew",
                uvm_op_error_text(out.error), mib(s.counts.bytes_to_cpu));
        (void)target_ask(&target, TARGET_GPU);
        check_contents("writing anew what was discarded");
}

static void check_thrashing(void)
{
        struct seen s;

        (void)target_ask(&target, TARGET_CPU);
        (void)take_seen();
        (void)target_ask(&target, TARGET_THRASH);
        s = take_seen();
        verdict(s.counts.thrashing > 0, "thrashing",
                "%" PRIu64 " times, %" PRIu64 " throttled, %" PRIu64 " remote mappings; %" PRIu64
                " GPU faults, %" PRIu64 " CPU faults",
                s.counts.thrashing, s.counts.throttled, s.counts.remote_maps, s.counts.gpu_faults,
                s.counts.cpu_faults);
}

static void check_effects(void)
{
        struct undo_journal *journal;
        struct uvm_ops *ops = new_ops(&journal);

        check_accessed_by(ops);
        check_duplication(ops);
        check_discard(ops);
        check_thrashing();
        uvm_ops_free(ops);
        undo_journal_free(journal);
}

static void check_end(void)
{
        struct pollfd p = {.fd = uvm_tracker_pidfd(reader.tracker), .events = POLLIN};
        uint64_t before = 0, held = 0, after = 0, begun_ns, closing_ns;
        int status;

        (void)target_ask(&target, TARGET_GPU); /* all of it is on the GPU */
        (void)gpu_memory_unused(memory, hello.uuid, &before);
        kill(target.pid, SIGKILL);
        CHECK(waitpid(target.pid, &status, 0) == target.pid);
        verdict(poll(&p, 1, 1000) == 1 && uvm_tracker_ended(reader.tracker), "end",
                "the end of the process is seen");
        usleep(SETTLE_US);
        (void)gpu_memory_unused(memory, hello.uuid, &held);
        begun_ns = now_ns();
        reader.tracker = uvm_tracker_free(reader.tracker);
        closing_ns = now_ns() - begun_ns;
        usleep(SETTLE_US);
        (void)gpu_memory_unused(memory, hello.uuid, &after);
        verdict(after >= before + hello.bytes / 2, "given back",
                "free %.0f MiB while it ran, %.0f after its end, %.0f after the queue was closed, "
                "which took %.2f ms",
                mib(before), mib(held), mib(after), (double)closing_ns / 1e6);
}

/* How long a faulting pass takes when nobody watches. */
static double unwatched_pass_ms(void)
{
        double best = 1e9;

        for (int i = 0; i < PASSES; i++) {
                struct target_answer pass;

                (void)target_ask(&target, TARGET_CPU);
                pass = target_ask(&target, TARGET_GPU);
                best = ms(&pass) < best ? ms(&pass) : best;
        }
        return best;
}

int main(int argc, char **argv)
{
        struct undo_journal *journal;
        struct uvm_ops *ops;
        struct mono_map *map;
        double unwatched, watched;

        if (argc == 3 && strcmp(argv[1], "--target") == 0)
                return target_run((unsigned)atoi(argv[2]), BYTES / 4);
        setvbuf(stdout, NULL, _IOLBF, 0); /* where it hangs, if it does, is seen */
        unlink(JOURNAL);
        if (target_start(BYTES, &target, &hello) != 0)
                test_skip("no GPU with room for managed memory");
        signal(SIGPIPE, SIG_IGN);
        CHECK_EQ(uvm_system_default.start_ticks(target.pid, &start_ticks), 0);
        memory = gpu_memory_new(&rm_system_default);
        CHECK(memory);
        printf("     %.0f MiB of managed memory at 0x%" PRIx64 "\n", mib(hello.bytes),
               hello.address);
        check_free_bytes();
        unwatched = unwatched_pass_ms();
        map = mono_map_new(clock_pair_read, NULL);
        CHECK(map);
        reader.tracker = new_tracker(ENTRIES, map);
        if (!reader.tracker)
                return 1;
        CHECK_EQ(pthread_create(&reader.thread, NULL, read_events, NULL), 0);
        watched = check_events();
        printf("     a faulting pass takes %.1f ms unwatched, %.1f ms watched\n", unwatched,
               watched);
        check_drops();
        ops = new_ops(&journal);
        check_migrate(ops, unwatched);
        uvm_ops_free(ops);
        undo_journal_free(journal);
        check_undo();
        check_effects();
        check_rest();
        atomic_store(&reader.stop, true);
        pthread_join(reader.thread, NULL);
        check_end();
        mono_map_free(map);
        gpu_memory_free(memory);
        unlink(JOURNAL);
        printf("uvm_check: pass %.1f ms unwatched, %.1f ms watched; %d failed\n", unwatched,
               watched, failures);
        return failures ? 1 : 0;
}
