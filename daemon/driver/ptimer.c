/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/ptimer.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/macro.h"
#include "util/time.h"

/* The usermode register window: time low and high words (dev_vm.h, NV_VIRTUAL_FUNCTION_TIME_*). */
#define USERMODE_BYTES 65536
#define TIME_LOW       (0x80 / 4)
#define TIME_HIGH      (0x84 / 4)

/* A register read of a GPU that fell off the bus. */
#define GONE 0xffffffffu

#define PROC_GPUS "/proc/driver/nvidia/gpus"
#define GPUS_MAX  64

/* Usermode classes, newest first: Blackwell, Hopper, Ampere, Turing, Volta. */
static const uint32_t usermode_classes[] = {0xc761, 0xc661, 0xc561, 0xc461, 0xc361};

struct ptimer {
        struct rm_client *client;
        volatile const uint32_t *registers;
};

static bool minor_of(const char *directory, unsigned *ret_minor)
{
        char path[512], line[256];
        _cleanup_fclose_ FILE *f = NULL;

        snprintf(path, sizeof(path), PROC_GPUS "/%s/information", directory);
        f = fopen(path, "re");
        if (!f)
                return false;
        while (fgets(line, sizeof(line), f))
                if (sscanf(line, "Device Minor: %u", ret_minor) == 1)
                        return true;
        return false;
}

static int skip_dots(const struct dirent *e)
{
        return e->d_name[0] != '.';
}

static size_t list_procfs(struct ptimer_gpu *ret_gpus, size_t max)
{
        struct dirent **entries;
        int count = scandir(PROC_GPUS, &entries, skip_dots, alphasort);
        size_t n = 0;

        /* RM numbers devices in the order of the bus, as these names sort. */
        for (int i = 0; i < count; i++) {
                unsigned minor;

                if (n < max && minor_of(entries[i]->d_name, &minor)) {
                        ret_gpus[n] = (struct ptimer_gpu){.instance = (unsigned)i, .minor = minor};
                        n++;
                }
                free(entries[i]);
        }
        if (count >= 0)
                free(entries);
        return n;
}

static size_t count_procfs(void)
{
        struct dirent **entries;
        int count = scandir(PROC_GPUS, &entries, skip_dots, NULL);

        for (int i = 0; i < count; i++)
                free(entries[i]);
        if (count >= 0)
                free(entries);
        return count > 0 ? (size_t)count : 0;
}

static size_t list_device_files(struct ptimer_gpu *ret_gpus, size_t max)
{
        char path[32];
        size_t n;

        for (n = 0; n < max; n++) {
                snprintf(path, sizeof(path), "/dev/nvidia%zu", n);
                if (access(path, F_OK) < 0)
                        break;
                ret_gpus[n] = (struct ptimer_gpu){.instance = (unsigned)n, .minor = (unsigned)n};
        }
        return n;
}

size_t ptimer_list_gpus(struct ptimer_gpu *ret_gpus, size_t max)
{
        size_t n = list_procfs(ret_gpus, max);

        return n ? n : list_device_files(ret_gpus, max);
}

size_t ptimer_count_gpus(void)
{
        struct ptimer_gpu list[GPUS_MAX];
        size_t n = count_procfs();

        return n ? n : list_device_files(list, GPUS_MAX);
}

static int map_registers(struct ptimer *p)
{
        uint32_t object;
        void *address;
        int r = -ENOTSUP;

        for (size_t i = 0; r < 0 && i < ARRAY_SIZE(usermode_classes); i++)
                r = rm_alloc(p->client, rm_client_subdevice(p->client), usermode_classes[i], NULL,
                             0, &object);
        if (r == 0)
                r = rm_map(p->client, object, USERMODE_BYTES, PROT_READ | PROT_WRITE, &address);
        if (r == 0)
                p->registers = address;
        return r;
}

int ptimer_new(const struct rm_system *system, const struct ptimer_gpu *gpu,
               struct ptimer **ret_ptimer)
{
        struct ptimer *p = calloc(1, sizeof(*p));
        int r;

        if (!p)
                return -ENOMEM;
        r = rm_client_new(system, gpu->instance, gpu->minor, &p->client);
        if (r == 0)
                r = map_registers(p);
        if (r < 0) {
                ptimer_free(p);
                return r;
        }
        *ret_ptimer = p;
        return 0;
}

struct ptimer *ptimer_free(struct ptimer *p)
{
        if (!p)
                return NULL;
        if (p->registers)
                rm_unmap(p->client, (void *)p->registers, USERMODE_BYTES);
        rm_client_free(p->client);
        free(p);
        return NULL;
}

/* The bracket is around the low word; the high word must not have changed across it. */
static bool read_once(const struct ptimer *p, struct clock_sample *ret_reading)
{
        uint32_t high = p->registers[TIME_HIGH], low;
        struct clock_sample r;

        r.raw_before_ns = raw_now_ns();
        low = p->registers[TIME_LOW];
        r.raw_after_ns = raw_now_ns();
        if (p->registers[TIME_HIGH] != high || (high == GONE && low == GONE))
                return false;
        r.gpu_ns = (uint64_t)high << 32 | low;
        *ret_reading = r;
        return true;
}

int ptimer_read(struct ptimer *p, unsigned tries, struct clock_sample *ret_reading)
{
        struct clock_sample best = {0}, r;
        bool found = false;

        for (unsigned i = 0; i < tries; i++) {
                if (!read_once(p, &r))
                        continue;
                if (!found ||
                    r.raw_after_ns - r.raw_before_ns < best.raw_after_ns - best.raw_before_ns)
                        best = r;
                found = true;
        }
        if (!found)
                return -EIO;
        *ret_reading = best;
        return 0;
}

int ptimer_uuid(struct ptimer *p, uint8_t ret_uuid[16])
{
        return rm_uuid(p->client, ret_uuid);
}
