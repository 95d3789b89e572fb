/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the correlator costs for one launch: launch event, start and end record
 * in, launch record out, in turns of the daemon's 5 ms.
 *   correlate_join [LAUNCHES [THREADS]]
 */
#include <sys/resource.h>

#include "correlate/correlator.h"
#include "cpu/cpu_abi.h"
#include "device/device_abi.h"
#include "unit/test.h"
#include "util/time.h"

#define START_NS    (1000 * NSEC_PER_SEC)
#define TURN_NS     (5 * NSEC_PER_MSEC)
#define CALL_NS     800
#define PERIOD_NS   1000 /* between launches of the process: a million a second */
#define KERNEL_NS   600
#define KERNELS     16
#define THREADS_MAX 16
#define FIRST_BLOCK 0x1000 /* of launch descriptors: address / 16 KiB */

struct bench {
        struct correlator *correlator;
        struct correlated_process *process;
        struct ledger ledger;
        uint64_t matches[MATCH_EXACT + 1];
};

static void on_launch(void *data, struct correlated_process *p, struct launch_record *r)
{
        struct bench *b = data;

        b->matches[r->match]++;
}

static const struct correlator_ops ops = {.launch = on_launch};

static void tell(struct bench *b)
{
        for (uint32_t i = 0; i < KERNELS; i++) {
                union {
                        struct cpu_handle_event ev;
                        char bytes[sizeof(struct cpu_handle_event) + 32];
                } u = {.ev = {.ts_ns = START_NS,
                              .handle = 0x1000 + i,
                              .parent = 0x7000,
                              .context = 1,
                              .kind = CPU_HANDLE_FUNCTION,
                              .type = CPU_EVENT_HANDLE}};
                struct correlated_kernel k = {
                        .kernel_id = i + 1,
                        .image_handle = 0x7000,
                        .entry_probed = true,
                        .exit_probed = true,
                };

                u.ev.name_length = (uint16_t)snprintf(u.ev.name, 32, "kernel_%u", i);
                k.name = u.ev.name;
                k.name_length = u.ev.name_length;
                correlator_handle(b->correlator, b->process, &u.ev);
                correlator_kernel(b->correlator, b->process, &k);
        }
}

static void context(struct bench *b)
{
        struct cpu_handle_event ev = {
                .ts_ns = START_NS,
                .handle = 0x5000,
                .context = 1,
                .kind = CPU_HANDLE_CONTEXT,
                .type = CPU_EVENT_HANDLE,
        };

        correlator_handle(b->correlator, b->process, &ev);
}

/* Threads take turns; with several, each call overlaps with those of the others. */
static void launch(struct bench *b, uint64_t i, uint32_t threads)
{
        uint64_t enter_ns = START_NS + i * PERIOD_NS;
        struct cpu_launch_event ev = {
                .enter_ns = enter_ns,
                .func = 0x1000 + i * 7 % KERNELS,
                .stream = 0x3000 + i % threads,
                .context = 1,
                .seq = (uint32_t)i + 1,
                .duration_ns = CALL_NS + (threads - 1) * PERIOD_NS,
                .tgid = 1,
                .tid = (uint32_t)(100 + i % threads),
                .grid_x = 1,
                .type = CPU_EVENT_LAUNCH,
        };

        correlator_launch(b->correlator, b->process, &ev);
}

static void records(struct bench *b, uint64_t i, uint32_t threads)
{
        uint64_t start_ns = START_NS + i * PERIOD_NS + CALL_NS + (threads - 1) * PERIOD_NS;
        uint32_t stream = i % threads, slot = i / threads % DEVICE_QUEUE_SLOTS;
        struct device_record r = {
                .time_ns = start_ns,
                .grid = DEVICE_RECORD_GRID(i + 1, DEVICE_RECORD_START, 1),
                .who = DEVICE_RECORD_WHO(i * 7 % KERNELS + 1, 0,
                                         (FIRST_BLOCK + stream) << DEVICE_QUEUE_STREAM_SHIFT |
                                                 slot << DEVICE_QUEUE_SLOT_SHIFT),
        };

        correlator_device_record(b->correlator, b->process, &r);
        r.time_ns = start_ns + KERNEL_NS;
        r.grid = DEVICE_RECORD_GRID(i + 1, DEVICE_RECORD_END, 1);
        correlator_device_record(b->correlator, b->process, &r);
}

static void run(struct bench *b, uint64_t launches, uint32_t threads)
{
        uint64_t per_turn = TURN_NS / PERIOD_NS, done = 0;

        while (done < launches) {
                uint64_t n = launches - done < per_turn ? launches - done : per_turn;

                for (uint64_t i = 0; i < n; i++)
                        launch(b, done + i, threads);
                for (uint64_t i = 0; i < n; i++)
                        records(b, done + i, threads);
                done += n;
                correlator_tick(b->correlator, START_NS + done * PERIOD_NS + threads * PERIOD_NS);
        }
}

int main(int argc, char **argv)
{
        uint64_t launches = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000000, before_ns, took_ns;
        uint32_t threads = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
        struct clock_sample sample = {START_NS - 100, START_NS, START_NS + 100};
        struct clock_model *clock = clock_model_new(1, NULL);
        struct intern *names = intern_new();
        struct bench b = {0};
        struct rusage usage;

        CHECK(clock && names && threads >= 1 && threads <= THREADS_MAX);
        CHECK_EQ(clock_model_add(clock, &sample), 0);
        b.correlator = correlator_new(&ops, &b, names);
        CHECK(b.correlator);
        b.process = correlator_add_process(b.correlator, 1, &b.ledger, NULL);
        CHECK(b.process);
        correlated_process_set_agent(
                b.process, &(struct correlated_device){.clock = clock, .has_gpu = true}, 1);
        context(&b);
        tell(&b);
        before_ns = now_ns();
        run(&b, launches, threads);
        took_ns = now_ns() - before_ns;
        correlator_remove_process(b.correlator, b.process);
        CHECK_EQ(b.ledger.produced, launches);
        CHECK_EQ(b.matches[MATCH_NONE] + b.matches[MATCH_INFERRED] + b.matches[MATCH_ORDERED] +
                         b.matches[MATCH_EXACT],
                 launches);
        getrusage(RUSAGE_SELF, &usage);
        printf("%" PRIu64 " launches, %u threads: %.0f ns each, %.2f million/s; exact %" PRIu64
               " ordered %" PRIu64 " inferred %" PRIu64 " none %" PRIu64 "; RSS %ld KiB\n",
               launches, threads, (double)took_ns / (double)launches,
               (double)launches * 1000 / (double)took_ns, b.matches[MATCH_EXACT],
               b.matches[MATCH_ORDERED], b.matches[MATCH_INFERRED], b.matches[MATCH_NONE],
               usage.ru_maxrss);
        correlator_free(b.correlator);
        clock_model_free(clock);
        intern_free(names);
        return 0;
}
