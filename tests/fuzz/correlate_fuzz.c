/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The correlator fed with what a hostile process could cause: calls in any
 * order, records of any content. Each 16 bytes of input are one event. Whatever
 * comes, each launch is emitted once, and what waits is bounded.
 */
#include <stdlib.h>
#include <string.h>

#include "correlate/correlator.h"
#include "cpu/cpu_abi.h"
#include "device/device_abi.h"
#include "unit/test.h"
#include "util/time.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define EVENT_BYTES 16
#define CONTEXTS    3
#define HANDLES     8

struct fuzz {
        struct correlator *correlator;
        struct correlated_process *process;
        struct ledger ledger;
        uint64_t now_ns;
        uint64_t emitted;
        uint32_t seq[CONTEXTS + 1];
};

static void on_launch(void *data, struct correlated_process *p, struct launch_record *r)
{
        struct fuzz *f = data;

        CHECK(r->match <= MATCH_EXACT && r->end <= END_MEASURED);
        f->emitted++;
}

static const struct correlator_ops ops = {.launch = on_launch};

static uint64_t number(const uint8_t *b, size_t bytes)
{
        uint64_t n = 0;

        memcpy(&n, b, bytes);
        return n;
}

static void launch(struct fuzz *f, const uint8_t *b)
{
        uint32_t context = b[1] % (CONTEXTS + 1);
        struct cpu_launch_event ev = {
                .enter_ns = f->now_ns,
                .func = 0x1000 + b[2] % HANDLES,
                .stream = b[3] % 5,
                .context = context,
                .seq = ++f->seq[context],
                .duration_ns = (uint32_t)number(b + 4, 3),
                .tid = 1 + b[7] % 4,
                .grid_x = 1,
                .type = b[8] % 8 ? CPU_EVENT_LAUNCH : CPU_EVENT_GRAPH_LAUNCH,
                .result = b[9] % 16 ? 0 : 1,
        };

        /* Lost, late, twice, or from nowhere. */
        if (b[10] % 16 == 1)
                f->seq[context] += b[11];
        else if (b[10] % 16 == 2)
                ev.seq -= b[11];
        else if (b[10] % 64 == 3)
                ev.seq = (uint32_t)number(b + 11, 4);
        correlator_launch(f->correlator, f->process, &ev);
}

static void operation(struct fuzz *f, const uint8_t *b)
{
        uint32_t context = b[1] % (CONTEXTS + 1);
        struct cpu_operation_event ev = {
                .enter_ns = f->now_ns - number(b + 2, 2),
                .stream = b[4] % 5,
                .handle = 0x1000 + b[5] % HANDLES,
                .context = context,
                .launch_seq = b[6] % 8 ? f->seq[context] : (uint32_t)number(b + 7, 4),
                .duration_ns = (uint32_t)number(b + 11, 3),
                .tid = 1 + b[14] % 4,
                .type = CPU_EVENT_OPERATION,
                .operation = b[15],
        };

        correlator_operation(f->correlator, f->process, &ev);
}

static void handle(struct fuzz *f, const uint8_t *b)
{
        union {
                struct cpu_handle_event ev;
                char bytes[sizeof(struct cpu_handle_event) + 8];
        } u = {.ev = {.ts_ns = f->now_ns,
                      .handle = 0x1000 + b[1] % HANDLES,
                      .parent = b[2] % 4 ? 0x1000 + b[3] % HANDLES : b[3],
                      .context = b[4] % (CONTEXTS + 1),
                      .kind = b[5] % 9,
                      .destroyed = b[6] % 8 == 0,
                      .name_length = b[7] % 3,
                      .type = CPU_EVENT_HANDLE}};

        u.ev.name[0] = 'k';
        u.ev.name[1] = (char)('0' + b[8] % 4);
        correlator_handle(f->correlator, f->process, &u.ev);
}

static void kernel(struct fuzz *f, const uint8_t *b)
{
        char name[3] = {'k', (char)('0' + b[1] % 4)};
        struct correlated_kernel k = {
                .kernel_id = b[2] % 8,
                .image_handle = 0x1000 + b[3] % HANDLES,
                .name = name,
                .name_length = b[4] % 3,
                .entry_probed = b[5] % 4,
                .exit_probed = b[6] % 4,
        };

        correlator_kernel(f->correlator, f->process, &k);
}

static void record(struct fuzz *f, const uint8_t *b)
{
        uint64_t gridid = b[1] % 8 ? b[2] % 64 + f->seq[b[3] % (CONTEXTS + 1)] : number(b + 2, 6);
        /* A few streams' blocks and nodes', some that do not tell, and anything. */
        uint32_t queue = b[15] % 8 == 7 ? (uint32_t)number(b + 13, 3)
                                        : (b[15] % 8u) * (b[13] % 2 ? 64 : 2) + (b[12] % 8u) * 8;
        struct device_record r = {
                .time_ns = b[8] % 8 ? f->now_ns + number(b + 9, 2) : number(b + 8, 8),
                .grid = DEVICE_RECORD_GRID(gridid, (uint8_t)(b[11] % 16 ? 1 + b[11] % 2 : b[12]),
                                           (uint32_t)(b[14] % 4 ? b[14] % 4 : b[15])),
                .who = DEVICE_RECORD_WHO(b[13] % 8, b[14], queue),
        };

        correlator_device_record(f->correlator, f->process, &r);
}

static void event(struct fuzz *f, const uint8_t *b)
{
        f->now_ns += 1000;
        switch (b[0] % 16) {
        case 0 ... 4:
                launch(f, b);
                break;
        case 5 ... 9:
                record(f, b);
                break;
        case 10:
                operation(f, b);
                break;
        case 11:
                handle(f, b);
                break;
        case 12:
                kernel(f, b);
                break;
        case 13:
                correlator_device_gap(f->correlator, f->process, number(b + 1, b[9] % 9));
                break;
        case 14:
                correlator_own_function(f->correlator, f->process, 0x1000 + b[1] % HANDLES);
                break;
        default:
                f->now_ns += number(b + 1, 1 + b[9] % 4);
                correlator_tick(f->correlator, f->now_ns);
                break;
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct fuzz f = {.now_ns = 1000 * NSEC_PER_SEC};
        struct intern *names = intern_new();
        struct clock_model *clock = clock_model_new(32, NULL), *other = clock_model_new(32, NULL);
        struct clock_sample sample = {f.now_ns - 500, f.now_ns, f.now_ns + 500};
        struct clock_sample ahead = {f.now_ns - 500, f.now_ns + NSEC_PER_SEC, f.now_ns + 500};
        struct correlated_device devices[] = {{.clock = clock, .has_gpu = true},
                                              {.clock = other, .gpu = 1, .has_gpu = true},
                                              {.clock = NULL}};

        CHECK(names && clock && other);
        if (size && data[0] % 4)
                (void)clock_model_add(clock, &sample);
        if (size && data[0] % 8)
                (void)clock_model_add(other, &ahead);
        f.correlator = correlator_new(&ops, &f, names);
        CHECK(f.correlator);
        f.process = correlator_add_process(f.correlator, 1, &f.ledger, NULL);
        CHECK(f.process);
        correlated_process_set_agent(f.process, devices, size && data[0] & 64 ? 3 : 1);
        for (size_t i = 0; i + EVENT_BYTES <= size; i += EVENT_BYTES) {
                event(&f, data + i);
                CHECK(correlated_process_pending(f.process) <= 65536);
        }
        correlator_remove_process(f.correlator, f.process);
        CHECK_EQ(f.ledger.produced, f.emitted);
        correlator_free(f.correlator);
        clock_model_free(clock);
        clock_model_free(other);
        intern_free(names);
        return 0;
}
