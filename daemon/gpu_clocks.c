/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_clocks.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "api/backend.h"
#include "correlate/clock_model.h"
#include "driver/ptimer.h"
#include "trace.h"
#include "util/gpu_uuid.h"
#include "util/log.h"
#include "util/macro.h"
#include "util/time.h"

#define GPUS_MAX 64
/* Of so many bracketed readings the narrowest is taken: about 20 us of bus time. */
#define READ_TRIES 8

struct gpu_clock {
        struct ptimer *ptimer;
        struct clock_model *model;
        uint32_t gpu; /* minor number */
        uint32_t instance;
        bool has_uuid;
        uint8_t uuid[16];
        char uuid_text[GPU_UUID_TEXT];
};

struct gpu_clocks {
        struct mono_map *map;
        struct trace *trace;
        struct gpu_clock gpus[GPUS_MAX];
        size_t count;
        char refusal[128]; /* of a GPU, the last; "" none */
};

static int add_gpu(struct gpu_clocks *c, const struct ptimer_gpu *gpu)
{
        struct gpu_clock *g = &c->gpus[c->count];
        int r;

        *g = (struct gpu_clock){.gpu = gpu->minor,
                                .instance = gpu->instance,
                                .model = clock_model_new(PTIMER_STEP_NS, c->map)};
        if (!g->model)
                return -ENOMEM;
        r = ptimer_new(&rm_system_default, gpu, &g->ptimer);
        if (r < 0) {
                clock_model_free(g->model);
                return r;
        }
        g->has_uuid = ptimer_uuid(g->ptimer, g->uuid) == 0;
        if (g->has_uuid)
                gpu_uuid_format(g->uuid, g->uuid_text);
        c->count++;
        return 0;
}

/* May be called in the middle of a conversion: what is noted then stands after what needed it. */
static int read_pair(void *data, struct clock_pair *ret_pair)
{
        const struct gpu_clocks *c = data;

        (void)clock_pair_read(NULL, ret_pair);
        trace_write(c->trace, TRACE_CLOCK_PAIR, 0, ret_pair, sizeof(*ret_pair), NULL, 0);
        return 0;
}

struct gpu_clocks *gpu_clocks_new(bool from_driver, struct trace *trace)
{
        struct gpu_clocks *c = calloc(1, sizeof(*c));
        struct ptimer_gpu list[GPUS_MAX];
        size_t n;

        if (!c)
                return NULL;
        c->trace = trace;
        c->map = mono_map_new(read_pair, c);
        if (!c->map)
                return gpu_clocks_free(c);
        gpu_clocks_pair(c);
        if (!from_driver)
                return c;
        n = ptimer_list_gpus(list, GPUS_MAX);
        for (size_t i = 0; i < n; i++) {
                int r = add_gpu(c, &list[i]);

                if (r == 0)
                        continue;
                snprintf(c->refusal, sizeof(c->refusal), "GPU %u: %s", list[i].minor, strerror(-r));
                log_notice("the clock of GPU %u cannot be read (%s); agents will supply it",
                           list[i].minor, strerror(-r));
        }
        return c;
}

struct gpu_clocks *gpu_clocks_free(struct gpu_clocks *c)
{
        if (!c)
                return NULL;
        for (size_t i = 0; i < c->count; i++) {
                ptimer_free(c->gpus[i].ptimer);
                clock_model_free(c->gpus[i].model);
        }
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
        struct trace_clock s = {0};

        for (size_t i = 0; i < c->count; i++) {
                if (ptimer_read(c->gpus[i].ptimer, READ_TRIES, &s.sample) < 0)
                        continue; /* the bound grows until it answers again */
                s.device = c->gpus[i].gpu;
                trace_write(c->trace, TRACE_CLOCK, 0, &s, sizeof(s), NULL, 0);
                (void)clock_model_add(c->gpus[i].model, &s.sample);
        }
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

size_t gpu_clocks_describe(const struct gpu_clocks *c, struct api_gpu *ret_gpus, size_t max)
{
        size_t n = c->count < max ? c->count : max;
        struct clock_sample r;

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
                        ptimer_read(g->ptimer, 1, &r) == 0 &&
                        clock_model_to_cpu(g->model, r.gpu_ns, &cpu_ns, &out->clock_error_ns) == 0;
        }
        return n;
}
