/* SPDX-License-Identifier: Apache-2.0 */
#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/device_abi.h"
#include "device/duplicate.h"
#include "device/map_view.h"
#include "util/macro.h"

#define PAGE_BYTES 4096

struct duplicate {
        const struct device_map_info *map;
        void *memory; /* of an array */
        size_t memory_bytes;
        int fd;        /* of a hash */
        uint64_t lost; /* of a hash: what found no room, in replicas or in the master */
};

/* What was taken from a replica that is a hash. */
struct seen_hash {
        uint64_t lost;
        uint64_t values[]; /* of each slot: a slot keeps its key */
};

static bool is_hash(const struct device_map_info *map)
{
        return map->type == BPF_MAP_TYPE_HASH;
}

size_t duplicate_seen_bytes(const struct device_map_info *map)
{
        if (is_hash(map))
                return sizeof(struct seen_hash) + device_hash_slots(map) * map->value_size;
        return (size_t)map->max_entries * map->value_size;
}

/* The kernel rounds values up to 8 bytes and maps whole pages. */
static size_t mapped_bytes(const struct device_map_info *map)
{
        return (map->max_entries * device_map_stride(map) + PAGE_BYTES - 1) / PAGE_BYTES *
               PAGE_BYTES;
}

static int create(const struct device_map_info *map)
{
        LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = is_hash(map) ? 0 : BPF_F_MMAPABLE);
        char name[BPF_OBJ_NAME_LEN];
        int fd;

        snprintf(name, sizeof(name), "%.*s", (int)sizeof(name) - 1, map->name);
        fd = bpf_map_create((enum bpf_map_type)map->type, name, map->key_size, map->value_size,
                            map->max_entries, &opts);
        return fd < 0 ? -errno : fd;
}

int duplicate_new(const struct device_map_info *map, struct duplicate **ret_duplicate)
{
        _cleanup_free_ struct duplicate *d = calloc(1, sizeof(*d));
        _cleanup_close_ int fd = -1;

        if (!d)
                return -ENOMEM;
        fd = create(map);
        if (fd < 0)
                return fd;
        d->map = map;
        d->fd = -1;
        if (is_hash(map)) {
                d->fd = TAKE_FD(fd);
        } else {
                d->memory_bytes = mapped_bytes(map);
                d->memory = mmap(NULL, d->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
                if (d->memory == MAP_FAILED)
                        return -errno;
        }
        *ret_duplicate = TAKE_PTR(d);
        return 0;
}

struct duplicate *duplicate_free(struct duplicate *d)
{
        if (!d)
                return NULL;
        if (d->memory)
                munmap(d->memory, d->memory_bytes);
        if (d->fd >= 0)
                close(d->fd);
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

static void merge_array(struct duplicate *d, const void *replica, uint64_t *seen)
{
        uint32_t words = d->map->value_size / 8;

        for (uint32_t key = 0; key < d->map->max_entries; key++) {
                uint64_t *master = duplicate_element(d, key);

                for (uint32_t w = 0; w < words; w++)
                        merge_word(d->map->rule, combine(d, replica, key, w),
                                   &seen[(size_t)key * words + w], &master[w]);
        }
}

/* Bring the master's element of a key up to date; buffer: value_size bytes. */
static void merge_element(struct duplicate *d, const struct map_view_element *e, uint64_t *seen,
                          uint64_t *buffer)
{
        uint32_t words = d->map->value_size / 8;
        uint64_t now;

        if (!memcmp(e->value, seen, d->map->value_size))
                return;
        if (bpf_map_lookup_elem(d->fd, e->key, buffer) < 0)
                memset(buffer, 0, d->map->value_size);
        for (uint32_t w = 0; w < words; w++) {
                memcpy(&now, e->value + 8 * w, sizeof(now));
                merge_word(d->map->rule, now, &seen[w], &buffer[w]);
        }
        if (bpf_map_update_elem(d->fd, e->key, buffer, BPF_ANY) < 0)
                d->lost++;
}

static void merge_hash(struct duplicate *d, const void *replica, struct seen_hash *seen)
{
        const struct map_view view = {
                .map = d->map, .bytes = replica, .size = device_map_bytes(d->map)};
        _cleanup_free_ uint64_t *buffer = malloc(d->map->value_size);
        uint64_t words = d->map->value_size / 8, at = 0, slot = 0;
        struct map_view_element e;

        if (!buffer)
                return; /* it is all there the next time */
        merge_word(DEVICE_RULE_SUM, map_view_lost(&view), &seen->lost, &d->lost);
        while (map_view_next(&view, &at, NULL, &e)) {
                /* What was deleted begins anew. */
                memset(&seen->values[slot * words], 0, (at - 1 - slot) * d->map->value_size);
                slot = at;
                merge_element(d, &e, &seen->values[(slot - 1) * words], buffer);
        }
        memset(&seen->values[slot * words], 0,
               (device_hash_slots(d->map) - slot) * d->map->value_size);
}

void duplicate_merge(struct duplicate *d, const void *replica, void *seen)
{
        if (is_hash(d->map))
                merge_hash(d, replica, seen);
        else
                merge_array(d, replica, seen);
}

/* All elements of the master, malloc'd; the kernel copies them a bucket at a time. */
static int read_elements(const struct duplicate *d, uint8_t **ret_keys, uint8_t **ret_values,
                         uint32_t *ret_count)
{
        _cleanup_free_ uint8_t *keys = calloc(d->map->max_entries, d->map->key_size);
        _cleanup_free_ uint8_t *values = calloc(d->map->max_entries, d->map->value_size);
        uint32_t count = d->map->max_entries, next;

        if (!keys || !values)
                return -ENOMEM;
        if (bpf_map_lookup_batch(d->fd, NULL, &next, keys, values, &count, NULL) < 0 &&
            errno != ENOENT) /* there are no more */
                return -errno;
        *ret_keys = TAKE_PTR(keys);
        *ret_values = TAKE_PTR(values);
        *ret_count = count;
        return 0;
}

int duplicate_read_hash(const struct duplicate *d, uint8_t **ret_bytes)
{
        const struct device_map_info *map = d->map;
        _cleanup_free_ uint8_t *bytes = calloc(1, device_map_bytes(map)), *keys = NULL;
        _cleanup_free_ uint8_t *values = NULL;
        const struct device_hash_head head = {.lost = d->lost};
        uint32_t count = 0;
        int error;

        if (!bytes)
                return -ENOMEM;
        error = read_elements(d, &keys, &values, &count);
        if (error)
                return error;
        memcpy(bytes, &head, sizeof(head));
        for (uint32_t i = 0; i < count; i++)
                map_view_put(map, bytes, i, keys + (size_t)i * map->key_size,
                             values + (size_t)i * map->value_size);
        *ret_bytes = TAKE_PTR(bytes);
        return 0;
}

int duplicate_update_hash(struct duplicate *d, const void *key, const void *value)
{
        return bpf_map_update_elem(d->fd, key, value, BPF_EXIST) < 0 ? -errno : 0;
}

int duplicate_delete_hash(struct duplicate *d, const void *key)
{
        return bpf_map_delete_elem(d->fd, key) < 0 ? -errno : 0;
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
