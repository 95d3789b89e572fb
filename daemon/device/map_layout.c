/* SPDX-License-Identifier: Apache-2.0 */

/* How maps lie in memory; device_abi.h says why. */
#include <linux/bpf.h>

#include "device/device_abi.h"
#include "device/program.h"

#define HOST_PAGE 4096

uint64_t device_map_stride(const struct device_map_info *map)
{
        uint64_t value = ((uint64_t)map->value_size + 7) / 8 * 8;

        return map->type == BPF_MAP_TYPE_HASH ? device_hash_value_at(map) + value : value;
}

unsigned device_hash_words(const struct device_map_info *map)
{
        return map->key_size > 8 ? (map->key_size + 7) / 8 : 0;
}

uint64_t device_hash_value_at(const struct device_map_info *map)
{
        return sizeof(struct device_hash_slot) + 8 * (uint64_t)device_hash_words(map);
}

uint32_t device_spread_copies(enum device_spread spread)
{
        switch (spread) {
        case DEVICE_SHARED:
                break;
        case DEVICE_PER_SM:
                return DEVICE_SMS_MAX;
        case DEVICE_PER_WARP:
                return DEVICE_SMS_MAX * DEVICE_WARPS_MAX;
        case DEVICE_PER_THREAD:
                return DEVICE_SMS_MAX * DEVICE_WARPS_MAX * 32;
        }
        return 1;
}

unsigned device_hash_bits(uint32_t max_entries)
{
        unsigned bits = 1;

        while (bits < 33 && UINT64_C(1) << bits < 2 * (uint64_t)max_entries)
                bits++;
        return bits;
}

uint64_t device_hash_slots(const struct device_map_info *map)
{
        uint64_t searched = UINT64_C(1) << device_hash_bits(map->max_entries);

        return map->key_size == 8 ? searched + 1 : searched;
}

uint32_t device_ring_slot_bytes(const struct device_map_info *map)
{
        return (uint32_t)sizeof(struct device_event) + (map->record_bytes + 15) / 16 * 16;
}

uint32_t device_ring_slots(const struct device_map_info *map)
{
        uint32_t fit = map->max_entries / device_ring_slot_bytes(map);

        return fit ? UINT32_C(1) << (31 - __builtin_clz(fit)) : 0;
}

uint32_t device_ring_first(const struct device_map_info *map)
{
        return map->placement == GPUOBS_PLACE_HOST ? 0 : sizeof(struct device_event_head);
}

static uint64_t ring_bytes(const struct device_map_info *map)
{
        return device_ring_first(map) +
               (uint64_t)device_ring_slots(map) * device_ring_slot_bytes(map);
}

uint64_t device_settings_copy_bytes(const struct device_map_info *map)
{
        uint64_t bytes = map->max_entries * device_map_stride(map);

        return (bytes + DEVICE_SETTINGS_ALIGN - 1) / DEVICE_SETTINGS_ALIGN * DEVICE_SETTINGS_ALIGN;
}

uint64_t device_map_bytes(const struct device_map_info *map)
{
        uint64_t elements =
                map->type == BPF_MAP_TYPE_HASH
                        ? device_hash_slots(map)
                        : (uint64_t)map->max_entries * device_spread_copies(map->spread);
        uint64_t bytes;

        if (map->type == BPF_MAP_TYPE_RINGBUF)
                return ring_bytes(map);
        if (map->rule == DEVICE_RULE_SETTINGS)
                return sizeof(struct device_settings_head) + 2 * device_settings_copy_bytes(map);
        if (__builtin_mul_overflow(elements, device_map_stride(map), &bytes))
                return UINT64_MAX;
        return map->type == BPF_MAP_TYPE_HASH ? sizeof(struct device_hash_head) + bytes : bytes;
}

uint64_t device_host_map_bytes(const struct device_map_info *map)
{
        return (device_map_bytes(map) + HOST_PAGE - 1) / HOST_PAGE * HOST_PAGE;
}
