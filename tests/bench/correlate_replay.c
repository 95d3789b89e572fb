/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Feeds a trace (setting `trace` of gpuobsd; daemon/trace.h) to a correlator and
 * says what it makes of each process: how launches were matched, what was lost.
 *   correlate_replay [-v | -e] TRACE    -v: one line for each launch record and for
 *                                           what goes in besides launches
 *                                       -e: fail unless each launch is exact, with its
 *                                           measured start and end
 * The trace may be compressed with zstd. The correlator's tick is called as often as the
 * daemon would.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include <zstd.h>

#include "correlate/correlator.h"
#include "cpu/cpu_abi.h"
#include "device/device_abi.h"
#include "trace.h"
#include "unit/test.h"
#include "unit/test_file.h"
#include "util/time.h"

#define TICK_NS     (5 * NSEC_PER_MSEC)
#define DEVICES_MAX 64

struct replayed {
        UT_hash_handle hh;
        uint64_t key;
        struct correlated_process *p;
        struct ledger ledger;
        struct clock_model *own_clocks[DEVICES_MAX];
        bool ended;
        uint64_t match[4], end[3], started;
};

static struct replayed *processes;
static struct correlator *correlator;
static struct clock_model *gpu_clocks[DEVICES_MAX];
static struct mono_map *map; /* NULL: clock samples are in CLOCK_MONOTONIC */
static struct intern *names;
static bool verbose;

static void on_launch(void *data, struct correlated_process *p, struct launch_record *r)
{
        static const char *const match[] = {"none", "inferred", "ordered", "exact"};
        struct replayed *o = correlated_process_user(p);

        o->match[r->match]++;
        o->end[r->end]++;
        o->started += (r->has & LAUNCH_HAS_GPU_START) != 0;
        if (verbose)
                printf("%-8s %-30.30s tid %u stream %" PRIx64 " enter %" PRIu64 " +%" PRIu64
                       " gridid %" PRIu64 " start %+" PRId64 " end %+" PRId64 "\n",
                       match[r->match], intern_text(names, r->kernel_name), r->tid, r->stream,
                       r->cpu_enter_ns, r->cpu_return_ns - r->cpu_enter_ns, r->gridid,
                       r->has & LAUNCH_HAS_GPU_START ? (int64_t)(r->gpu_start_ns - r->cpu_enter_ns)
                                                     : 0,
                       r->has & LAUNCH_HAS_GPU_END ? (int64_t)(r->gpu_end_ns - r->cpu_enter_ns)
                                                   : 0);
}

static const struct correlator_ops ops = {.launch = on_launch};

static struct replayed *process_of(uint64_t key)
{
        struct replayed *o;

        HASH_FIND(hh, processes, &key, sizeof(key), o);
        if (o)
                return o;
        o = calloc(1, sizeof(*o));
        CHECK(o);
        o->key = key;
        o->p = correlator_add_process(correlator, key, &o->ledger, o);
        CHECK(o->p);
        HASH_ADD(hh, processes, key, sizeof(o->key), o);
        return o;
}

/*
 * The next pair in the trace. The daemon reads one while it converts a time later than the
 * last, so that it stands right after the item that needed it.
 */
static int read_ahead(void *data, struct clock_pair *ret_pair)
{
        FILE *f = data;
        off_t here = ftello(f);
        struct trace_head h;
        bool found = false;

        while (!found && fread(&h, sizeof(h), 1, f) == 1) {
                found = h.kind == TRACE_CLOCK_PAIR && h.size == sizeof(*ret_pair) &&
                        fread(ret_pair, sizeof(*ret_pair), 1, f) == 1;
                if (!found && fseeko(f, h.size, SEEK_CUR) < 0)
                        break;
        }
        CHECK_EQ(fseeko(f, here, SEEK_SET), 0);
        return found ? 0 : -ENODATA;
}

static void replay_kernel(struct replayed *o, const void *data)
{
        const struct trace_kernel *t = data;
        struct correlated_kernel k = {
                .kernel_id = t->kernel_id,
                .image_handle = t->image_handle,
                .name = (const char *)(t + 1),
                .name_length = t->name_length,
                .entry_probed = t->entry_probed,
                .exit_probed = t->exit_probed,
        };

        correlator_kernel(correlator, o->p, &k);
}

static struct clock_model *clock_of(struct clock_model *clocks[DEVICES_MAX], uint32_t device)
{
        CHECK(device < DEVICES_MAX);
        if (!clocks[device])
                clocks[device] = clock_model_new(32, map);
        CHECK(clocks[device]);
        return clocks[device];
}

static void replay_clock(uint64_t key, const struct trace_clock *c)
{
        if (c->device >= DEVICES_MAX)
                return; /* an agent that lies; the daemon refuses it */
        clock_model_add(clock_of(key == 0 ? gpu_clocks : process_of(key)->own_clocks, c->device),
                        &c->sample);
}

static void replay_agent(struct replayed *o, const struct trace_device *traced, size_t count)
{
        struct correlated_device devices[DEVICES_MAX];

        CHECK(count <= DEVICES_MAX);
        for (uint32_t i = 0; i < count; i++)
                devices[i] = (struct correlated_device){
                        .clock = traced[i].own_clock ? clock_of(o->own_clocks, i)
                                                     : clock_of(gpu_clocks, traced[i].gpu),
                        .gpu = traced[i].gpu,
                        .has_gpu = traced[i].has_gpu,
                };
        correlated_process_set_agent(o->p, devices, count);
}

/* Another one reads the clocks anew. */
static void replay_agent_left(struct replayed *o)
{
        correlator_end_agent(correlator, o->p);
        for (size_t i = 0; i < DEVICES_MAX; i++)
                o->own_clocks[i] = clock_model_free(o->own_clocks[i]);
}

static void print_device_record(const struct device_record *r)
{
        uint32_t queue = DEVICE_RECORD_QUEUE(r);

        printf("    %s gridid %llu kernel %u context %u block %x slot %u+%u at %llu\n",
               DEVICE_RECORD_TYPE(r) == DEVICE_RECORD_START ? "start" : "end",
               (unsigned long long)DEVICE_RECORD_GRIDID(r), DEVICE_RECORD_KERNEL(r),
               DEVICE_RECORD_CONTEXT(r), queue >> DEVICE_QUEUE_STREAM_SHIFT,
               queue >> DEVICE_QUEUE_SLOT_SHIFT & (DEVICE_QUEUE_SLOTS - 1),
               queue & ((1 << DEVICE_QUEUE_SLOT_SHIFT) - 1), (unsigned long long)r->time_ns);
}

static void print_operation(const struct cpu_operation_event *e)
{
        printf("    operation %u tid %u context %u stream %llx handle %llx after launch %u "
               "enter %llu +%u\n",
               e->operation, e->tid, e->context, (unsigned long long)e->stream,
               (unsigned long long)e->handle, e->launch_seq, (unsigned long long)e->enter_ns,
               e->duration_ns);
}

/* What the join depends on besides the launches. */
static void print_item(const struct trace_head *h, const void *data)
{
        if (h->kind == TRACE_DEVICE_RECORD)
                print_device_record(data);
        else if (h->kind == TRACE_OPERATION)
                print_operation(data);
        else if (h->kind == TRACE_DEVICE_GAP)
                printf("    gap of %llu\n", (unsigned long long)*(const uint64_t *)data);
        else if (h->kind == TRACE_AGENT || h->kind == TRACE_AGENT_LEFT)
                printf("    the agent %s\n", h->kind == TRACE_AGENT ? "is there" : "has left");
}

static void replay_item(const struct trace_head *h, const void *data)
{
        struct replayed *o;

        if (h->kind == TRACE_CLOCK) {
                replay_clock(h->process_key, data);
                return;
        }
        if (h->kind == TRACE_CLOCK_PAIR && map) {
                (void)mono_map_add(map, data);
                return;
        }
        o = process_of(h->process_key);
        if (o->ended)
                return;
        if (verbose)
                print_item(h, data);
        switch ((enum trace_kind)h->kind) {
        case TRACE_LAUNCH:
                correlator_launch(correlator, o->p, data);
                break;
        case TRACE_OPERATION:
                correlator_operation(correlator, o->p, data);
                break;
        case TRACE_HANDLE:
                correlator_handle(correlator, o->p, data);
                break;
        case TRACE_AGENT:
                replay_agent(o, data, h->size / sizeof(struct trace_device));
                break;
        case TRACE_KERNEL:
                replay_kernel(o, data);
                break;
        case TRACE_OWN_FUNCTION:
                correlator_own_function(correlator, o->p, *(const uint64_t *)data);
                break;
        case TRACE_DEVICE_RECORD:
                correlator_device_record(correlator, o->p, data);
                break;
        case TRACE_DEVICE_GAP:
                correlator_device_gap(correlator, o->p, *(const uint64_t *)data);
                break;
        case TRACE_PROCESS_END:
                correlator_remove_process(correlator, o->p);
                o->ended = true;
                break;
        case TRACE_AGENT_LEFT:
                replay_agent_left(o);
                break;
        case TRACE_CLOCK:
        case TRACE_CLOCK_PAIR:
                break;
        }
}

static void print_process(const struct replayed *o)
{
        printf("process %" PRIu64 ": produced %" PRIu64 ", exact %" PRIu64 ", ordered %" PRIu64
               ", inferred %" PRIu64 ", none %" PRIu64 "; started %" PRIu64
               ", end measured %" PRIu64 ", inferred %" PRIu64 "\n",
               o->key, o->ledger.produced, o->match[MATCH_EXACT], o->match[MATCH_ORDERED],
               o->match[MATCH_INFERRED], o->match[MATCH_NONE], o->started, o->end[END_MEASURED],
               o->end[END_INFERRED]);
        for (int i = 0; i < LOSS_COUNT; i++)
                if (o->ledger.lost[i])
                        printf("  %s %" PRIu64 "\n", ledger_loss_names[i], o->ledger.lost[i]);
}

static void replay(FILE *f)
{
        static char data[65536] __attribute__((aligned(16)));
        struct trace_head h;
        uint64_t last_tick = 0;

        while (fread(&h, sizeof(h), 1, f) == 1) {
                if (h.size >= sizeof(data) || fread(data, 1, h.size, f) != h.size)
                        break; /* the daemon was killed while it wrote */
                data[h.size] = '\0';
                if (h.at_ns > last_tick + TICK_NS) {
                        correlator_tick(correlator, h.at_ns);
                        last_tick = h.at_ns;
                }
                replay_item(&h, data);
        }
}

/* The whole file, out of its compression. */
static FILE *open_trace(const char *path)
{
        unsigned long long unpacked;
        size_t size;
        void *data = test_read_file(path, &size), *whole;

        unpacked = ZSTD_getFrameContentSize(data, size);
        if (unpacked >= ZSTD_CONTENTSIZE_ERROR)
                return fmemopen(data, size, "rb");
        whole = malloc(unpacked);
        CHECK(whole);
        CHECK_EQ(ZSTD_decompress(whole, unpacked, data, size), unpacked);
        free(data);
        return fmemopen(whole, unpacked, "rb");
}

static bool all_exact(const struct replayed *o)
{
        uint64_t produced = o->ledger.produced;

        return o->match[MATCH_EXACT] == produced && o->end[END_MEASURED] == produced &&
               o->started == produced;
}

int main(int argc, char **argv)
{
        const char *option = argc > 2 ? argv[1] : "";
        bool only_exact = strcmp(option, "-e") == 0, exact = true;
        char magic[sizeof(TRACE_MAGIC) - 1];
        struct replayed *o, *next;
        uint64_t begun = now_ns(), launches = 0;
        FILE *f;

        verbose = strcmp(option, "-v") == 0;
        f = argc > 1 ? open_trace(argv[argc - 1]) : NULL;
        if (!f || fread(magic, sizeof(magic), 1, f) != 1 ||
            (memcmp(magic, TRACE_MAGIC, sizeof(magic)) != 0 &&
             memcmp(magic, TRACE_MAGIC_MONOTONIC, sizeof(magic)) != 0)) {
                fprintf(stderr, "usage: correlate_replay [-v | -e] TRACE   (made with gpuobsd's "
                                "setting `trace`)\n");
                return 2;
        }
        if (memcmp(magic, TRACE_MAGIC, sizeof(magic)) == 0) {
                map = mono_map_new(read_ahead, f);
                CHECK(map);
        }
        names = intern_new();
        correlator = correlator_new(&ops, NULL, names);
        CHECK(names && correlator);
        replay(f);
        HASH_ITER (hh, processes, o, next) {
                if (!o->ended)
                        correlator_remove_process(correlator, o->p);
                print_process(o);
                exact &= all_exact(o);
                launches += o->ledger.produced;
        }
        printf("%.0f launches/s\n", (double)launches * 1e9 / (double)(now_ns() - begun));
        return only_exact && !(exact && launches > 0);
}
