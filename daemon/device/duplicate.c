/* SPDX-License-Identifier: Apache-2.0 */
#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "device/device_abi.h"
#include "device/duplicate.h"
#include "util/macro.h"

#define PAGE_BYTES 4096

struct duplicate {
        const struct device_map_info *map;
        void *memory;
        size_t memory_bytes;
};

size_t duplicate_seen_bytes(const struct device_map_info *map)
{
        return (size_t)map->max_entries * map->value_size;
}

/* The kernel rounds values up to 8 bytes and maps whole pages. */
static size_t mapped_bytes(const struct device_map_info *map)
{
        return (map->max_entries * device_map_stride(map) + PAGE_BYTES - 1) / PAGE_BYTES *
               PAGE_BYTES;
}

int duplicate_new(const struct device_map_info *map, struct duplicate **ret_duplicate)
{
        LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE);
        _cleanup_free_ struct duplicate *d = calloc(1, sizeof(*d));
        _cleanup_close_ int fd = -1;
        char name[BPF_OBJ_NAME_LEN];

        if (!d)
                return -ENOMEM;
        snprintf(name, sizeof(name), "%.*s", (int)sizeof(name) - 1, map->name);
        fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, name, sizeof(uint32_t), map->value_size,
                            map->max_entries, &opts);
        if (fd < 0)
                return -errno;
        d->map = map;
        d->memory_bytes = mapped_bytes(map);
        d->memory = mmap(NULL, d->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (d->memory == MAP_FAILED)
                return -errno;
        *ret_duplicate = TAKE_PTR(d);
        return 0;
}

struct duplicate *duplicate_free(struct duplicate *d)
{
        if (!d)
                return NULL;
        munmap(d->memory, d->memory_bytes);
        free(d);
        return NULL;
}

size_t duplicate_bytes(const struct duplicate *d)
{
        return d->map->max_entries * device_map_stride(d->map);
}

void *duplicate_element(struct duplicate *d, uint32_t key)
{
        return (char *)d->memory + key * device_map_stride(d->map);
}

/* What all copies of a word of the replica give together. */
static uint64_t combine(const struct duplicate *d, const void *replica, uint32_t key, uint32_t word)
{
        uint32_t copies = device_spread_copies(d->map->spread);
        uint64_t stride = device_map_stride(d->map), all = 0;

        for (uint32_t c = 0; c < copies; c++) {
                uint64_t at = ((uint64_t)c * d->map->max_entries + key) * stride + 8 * word, v;

                memcpy(&v, (const char *)replica + at, sizeof(v));
                if (d->map->rule == DEVICE_RULE_SUM)
                        all += v;
                else if (d->map->rule == DEVICE_RULE_OR)
                        all |= v;
                else
                        all = v > all ? v : all;
        }
        return all;
}

/* Bring one word of the master up to date. */
static void merge_word(enum device_rule rule, uint64_t now, uint64_t *seen, uint64_t *master)
{
        switch (rule) {
        case DEVICE_RULE_SUM:
                __atomic_fetch_add(master, now < *seen ? now : now - *seen, __ATOMIC_RELAXED);
                break;
        case DEVICE_RULE_OR:
                __atomic_fetch_or(master, now, __ATOMIC_RELAXED);
                break;
        case DEVICE_RULE_MAX:
                if (now > __atomic_load_n(master, __ATOMIC_RELAXED))
                        __atomic_store_n(master, now, __ATOMIC_RELAXED);
                break;
        case DEVICE_RULE_NONE:
        case DEVICE_RULE_SETTINGS:
                break;
        }
        *seen = now;
}

void duplicate_merge(struct duplicate *d, const void *replica, void *seen)
{
        uint32_t words = d->map->value_size / 8;
        uint64_t *seen_words = seen;

        for (uint32_t key = 0; key < d->map->max_entries; key++) {
                uint64_t *master = duplicate_element(d, key);

                for (uint32_t w = 0; w < words; w++)
                        merge_word(d->map->rule, combine(d, replica, key, w),
                                   &seen_words[(size_t)key * words + w], &master[w]);
        }
}

void duplicate_settings(const struct duplicate *d, uint64_t epoch, void *image,
                        struct duplicate_write ret_writes[2])
{
        size_t bytes = duplicate_bytes(d);
        uint64_t at = sizeof(struct device_settings_head) +
                      epoch % 2 * device_settings_copy_bytes(d->map);
        struct device_settings_head *head = image;

        memcpy((char *)image + at, d->memory, bytes);
        head->epoch = epoch;
        ret_writes[0] = (struct duplicate_write){at, bytes};
        ret_writes[1] = (struct duplicate_write){offsetof(struct device_settings_head, epoch),
                                                 sizeof(head->epoch)};
}
