/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_clocks.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "api/backend.h"
#include "correlate/clock_model.h"
#include "driver/driver_thread.h"
#include "driver/ptimer.h"
#include "driver/silence.h"
#include "trace.h"
#include "util/gpu_uuid.h"
#include "util/log.h"
#include "util/macro.h"
#include "util/time.h"

#define GPUS_MAX 64
/* Of so many bracketed readings the narrowest is taken: about 20 us of bus time. */
#define READ_TRIES    8
#define CLOCK_BURST   5 /* readings before the first launch is converted */
#define BURST_STEP_NS (50 * NSEC_PER_MSEC)

struct gpu_clock {
        struct ptimer *ptimer; /* the thread's */
        struct clock_model *model;
        uint32_t gpu; /* minor number */
        uint32_t instance;
        bool has_uuid;
        uint8_t uuid[16];
        char uuid_text[GPU_UUID_TEXT];
        struct clock_sample last; /* gpu_ns 0: none */
};

/* One that the driver was asked to open. */
struct opened_gpu {
        struct ptimer_gpu gpu;
        int error;
        struct ptimer *ptimer;
        bool has_uuid;
        uint8_t uuid[16];
        struct clock_sample first[CLOCK_BURST]; /* gpu_ns 0: none */
};

struct gpu_clocks {
        struct mono_map *map;
        struct trace *trace;
        struct driver_thread *driver;
        void (*opened)(void *data);
        void *data;
        struct gpu_clock gpus[GPUS_MAX];
        size_t count;
        char refusal[128]; /* of a GPU, the last; "" none */
        struct driver_task to_open, to_read, to_close;
        struct opened_gpu found[GPUS_MAX]; /* the thread's while it opens */
        size_t found_count;
        struct clock_sample samples[GPUS_MAX]; /* the thread's while it reads; gpu_ns 0: none */
};

/* ---- in the thread ---- */

static struct clock_sample read_clock(struct ptimer *ptimer)
{
        struct clock_sample s;

        return ptimer_read(ptimer, READ_TRIES, &s) < 0 ? (struct clock_sample){0} : s;
}

static void open_gpu(struct gpu_clocks *c, struct opened_gpu *o)
{
        silence_begin(driver_thread_silence(c->driver));
        o->error = ptimer_new(&rm_system_default, &o->gpu, &o->ptimer);
        if (o->error == 0)
                o->has_uuid = ptimer_uuid(o->ptimer, o->uuid) == 0;
}

/* With as many readings as a model needs to be of use. */
static void open_in_thread(void *data)
{
        struct gpu_clocks *c = data;
        struct ptimer_gpu list[GPUS_MAX];

        c->found_count = ptimer_list_gpus(list, GPUS_MAX);
        for (size_t i = 0; i < c->found_count; i++) {
                c->found[i].gpu = list[i];
                open_gpu(c, &c->found[i]);
        }
        for (int k = 0; k < CLOCK_BURST && c->found_count; k++) {
                silence_begin(driver_thread_silence(c->driver));
                for (size_t i = 0; i < c->found_count; i++)
                        if (c->found[i].ptimer)
                                c->found[i].first[k] = read_clock(c->found[i].ptimer);
                (void)nanosleep(&(struct timespec){.tv_nsec = BURST_STEP_NS}, NULL);
        }
}

static void read_in_thread(void *data)
{
        struct gpu_clocks *c = data;

        for (size_t i = 0; i < c->count; i++)
                c->samples[i] = read_clock(c->gpus[i].ptimer);
}

static void close_in_thread(void *data)
{
        struct gpu_clocks *c = data;

        for (size_t i = 0; i < c->found_count; i++)
                ptimer_free(c->found[i].ptimer);
}

/* ---- on the loop's ---- */

static void add_sample(struct gpu_clocks *c, struct gpu_clock *g, const struct clock_sample *s)
{
        struct trace_clock traced = {.device = g->gpu, .sample = *s};

        if (!s->gpu_ns)
                return; /* the bound grows until it answers again */
        trace_write(c->trace, TRACE_CLOCK, 0, &traced, sizeof(traced), NULL, 0);
        (void)clock_model_add(g->model, s);
        g->last = *s;
}

static int add_gpu(struct gpu_clocks *c, const struct opened_gpu *o)
{
        struct gpu_clock *g = &c->gpus[c->count];

        if (o->error < 0)
                return o->error;
        *g = (struct gpu_clock){.ptimer = o->ptimer,
                                .gpu = o->gpu.minor,
                                .instance = o->gpu.instance,
                                .has_uuid = o->has_uuid,
                                .model = clock_model_new(PTIMER_STEP_NS, c->map)};
        if (!g->model)
                return -ENOMEM;
        memcpy(g->uuid, o->uuid, sizeof(g->uuid));
        if (g->has_uuid)
                gpu_uuid_format(g->uuid, g->uuid_text);
        for (size_t k = 0; k < CLOCK_BURST; k++)
                add_sample(c, g, &o->first[k]);
        c->count++;
        return 0;
}

static void take_in_opened(void *data)
{
        struct gpu_clocks *c = data;

        for (size_t i = 0; i < c->found_count; i++) {
                const struct opened_gpu *o = &c->found[i];
                int r = add_gpu(c, o);

                if (r == 0)
                        continue;
                snprintf(c->refusal, sizeof(c->refusal), "GPU %u: %s", o->gpu.minor, strerror(-r));
                log_notice("the clock of GPU %u cannot be read (%s); agents will supply it",
                           o->gpu.minor, strerror(-r));
        }
        c->opened(c->data);
}

static void take_in_samples(void *data)
{
        struct gpu_clocks *c = data;

        for (size_t i = 0; i < c->count; i++)
                add_sample(c, &c->gpus[i], &c->samples[i]);
}

/* May be called in the middle of a conversion: what is noted then stands after what needed it. */
static int read_pair(void *data, struct clock_pair *ret_pair)
{
        const struct gpu_clocks *c = data;

        (void)clock_pair_read(NULL, ret_pair);
        trace_write(c->trace, TRACE_CLOCK_PAIR, 0, ret_pair, sizeof(*ret_pair), NULL, 0);
        return 0;
}

struct gpu_clocks *gpu_clocks_new(struct driver_thread *driver, struct trace *trace,
                                  void (*opened)(void *data), void *data)
{
        struct gpu_clocks *c = calloc(1, sizeof(*c));

        if (!c)
                return NULL;
        c->trace = trace;
        c->driver = driver;
        c->opened = opened;
        c->data = data;
        c->to_open = (struct driver_task){.run = open_in_thread, .done = take_in_opened, .data = c};
        c->to_read =
                (struct driver_task){.run = read_in_thread, .done = take_in_samples, .data = c};
        c->to_close = (struct driver_task){.run = close_in_thread, .data = c};
        c->map = mono_map_new(read_pair, c);
        if (!c->map)
                return gpu_clocks_free(c);
        gpu_clocks_pair(c);
        return c;
}

void gpu_clocks_open(struct gpu_clocks *c)
{
        (void)driver_thread_give(c->driver, &c->to_open);
}

bool gpu_clocks_wait(struct gpu_clocks *c, uint64_t until_ns)
{
        return driver_thread_wait(c->driver, &c->to_open, until_ns);
}

bool gpu_clocks_are_opening(const struct gpu_clocks *c)
{
        return c->to_open.under_way;
}

void gpu_clocks_close(struct gpu_clocks *c)
{
        if (c)
                (void)driver_thread_give(c->driver, &c->to_close);
}

struct gpu_clocks *gpu_clocks_free(struct gpu_clocks *c)
{
        if (!c || silence_abandoned())
                return NULL; /* the thread may still use it */
        for (size_t i = 0; i < c->count; i++)
                clock_model_free(c->gpus[i].model);
        mono_map_free(c->map);
        free(c);
        return NULL;
}

const char *gpu_clocks_refusal(const struct gpu_clocks *c)
{
        return c->refusal;
}

size_t gpu_clocks_count(const struct gpu_clocks *c)
{
        return c->count;
}

const struct clock_model *gpu_clocks_at(const struct gpu_clocks *c, size_t index, uint32_t *ret_gpu,
                                        uint32_t *ret_instance)
{
        *ret_gpu = c->gpus[index].gpu;
        *ret_instance = c->gpus[index].instance;
        return c->gpus[index].model;
}

struct mono_map *gpu_clocks_map(const struct gpu_clocks *c)
{
        return c->map;
}

void gpu_clocks_pair(struct gpu_clocks *c)
{
        (void)mono_map_read(c->map); /* the next one tells as much */
}

void gpu_clocks_tick(struct gpu_clocks *c)
{
        if (c->count)
                (void)driver_thread_give(c->driver, &c->to_read);
}

const struct clock_model *gpu_clocks_find(const struct gpu_clocks *c, const uint8_t uuid[16],
                                          uint32_t *ret_gpu)
{
        const struct gpu_clock *g = NULL;

        for (size_t i = 0; i < c->count && !g; i++)
                if (c->gpus[i].has_uuid && memcmp(c->gpus[i].uuid, uuid, 16) == 0)
                        g = &c->gpus[i];
        if (!g && c->count == 1 && !c->gpus[0].has_uuid)
                g = &c->gpus[0];
        if (!g)
                return NULL;
        *ret_gpu = g->gpu;
        return g->model;
}

bool gpu_clocks_gpu_of_instance(const struct gpu_clocks *c, uint32_t instance, uint32_t *ret_gpu)
{
        for (size_t i = 0; i < c->count; i++) {
                if (c->gpus[i].instance != instance)
                        continue;
                *ret_gpu = c->gpus[i].gpu;
                return true;
        }
        return false;
}

const uint8_t *gpu_clocks_uuid(const struct gpu_clocks *c, uint32_t gpu)
{
        for (size_t i = 0; i < c->count; i++)
                if (c->gpus[i].gpu == gpu && c->gpus[i].has_uuid)
                        return c->gpus[i].uuid;
        return NULL;
}

/* What it would show by now. */
static uint64_t about_now(const struct clock_sample *last)
{
        return last->gpu_ns + (raw_now_ns() - last->raw_after_ns);
}

size_t gpu_clocks_describe(const struct gpu_clocks *c, struct api_gpu *ret_gpus, size_t max)
{
        size_t n = c->count < max ? c->count : max;

        for (size_t i = 0; i < n; i++) {
                const struct gpu_clock *g = &c->gpus[i];
                struct api_gpu *out = &ret_gpus[i];
                uint64_t cpu_ns;

                *out = (struct api_gpu){
                        .gpu = g->gpu,
                        .uuid = g->has_uuid ? g->uuid_text : NULL,
                        .clock = GPUOBS_CLOCK_PTIMER,
                };
                out->has_drift = clock_model_drift_ppb(g->model, &out->drift_ppb);
                out->has_clock_error =
                        g->last.gpu_ns && clock_model_to_cpu(g->model, about_now(&g->last), &cpu_ns,
                                                             &out->clock_error_ns) == 0;
        }
        return n;
}
