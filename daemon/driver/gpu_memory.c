/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/gpu_memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "driver/ptimer.h"
#include "util/macro.h"

#define GPUS_MAX 64

/* NV2080_CTRL_CMD_FB_GET_INFO_V2: a list of (index, answer). */
#define FB_GET_INFO_V2 0x20801303u
#define FB_HEAP_FREE   0x16u /* KiB */
#define FB_LIST_MAX    128

struct fb_info_parameters {
        uint32_t count;
        struct {
                uint32_t index, data;
        } list[FB_LIST_MAX];
};
_Static_assert(sizeof(struct fb_info_parameters) == 1028, "NV2080_CTRL_FB_GET_INFO_V2_PARAMS");

struct gpu_memory {
        const struct rm_system *system;
        pthread_mutex_t lock; /* for opening */
        bool opened;
        size_t count;
        struct {
                struct rm_client *client;
                uint8_t uuid[16];
        } gpus[GPUS_MAX];
};

struct gpu_memory *gpu_memory_new(const struct rm_system *system)
{
        struct gpu_memory *m = calloc(1, sizeof(*m));

        if (!m)
                return NULL;
        m->system = system;
        pthread_mutex_init(&m->lock, NULL);
        return m;
}

static void open_gpu(struct gpu_memory *m, const struct ptimer_gpu *gpu)
{
        struct rm_client *client;

        if (rm_client_new(m->system, gpu->instance, gpu->minor, &client) < 0)
                return;
        if (rm_uuid(client, m->gpus[m->count].uuid) < 0)
                rm_client_free(client);
        else
                m->gpus[m->count++].client = client;
}

/* A driver that hangs holds all who ask: that is so anyway. */
static void open_all(struct gpu_memory *m)
{
        struct ptimer_gpu list[GPUS_MAX];
        size_t n;

        pthread_mutex_lock(&m->lock);
        n = m->opened ? 0 : ptimer_list_gpus(list, GPUS_MAX);
        for (size_t i = 0; i < n; i++)
                open_gpu(m, &list[i]);
        m->opened = true;
        pthread_mutex_unlock(&m->lock);
}

struct gpu_memory *gpu_memory_free(struct gpu_memory *m)
{
        if (!m)
                return NULL;
        for (size_t i = 0; i < m->count; i++)
                rm_client_free(m->gpus[i].client);
        pthread_mutex_destroy(&m->lock);
        free(m);
        return NULL;
}

int gpu_memory_unused(struct gpu_memory *m, const uint8_t uuid[16], uint64_t *ret_bytes)
{
        struct fb_info_parameters p = {.count = 1, .list[0].index = FB_HEAP_FREE};

        open_all(m);
        for (size_t i = 0; i < m->count; i++) {
                struct rm_client *c = m->gpus[i].client;
                int r;

                if (memcmp(m->gpus[i].uuid, uuid, sizeof(m->gpus[i].uuid)) != 0)
                        continue;
                r = rm_control(c, rm_client_subdevice(c), FB_GET_INFO_V2, &p, sizeof(p));
                if (r == 0)
                        *ret_bytes = (uint64_t)p.list[0].data << 10;
                return r;
        }
        return -ENODEV;
}
