/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Device programs: an eBPF object of SEC("gpu/...") functions, verified by the
 * kernel (as BPF_PROG_TYPE_SYSCALL, never attached), checked for the GPU and
 * compiled to PTX fragments (agent_abi.h says what a fragment is).
 */
#include <stddef.h>
#include <stdint.h>

enum device_where {
        DEVICE_ENTRY = 1, /* same values as AGENT_PROGRAM_ENTRY, _EXIT, _MEM */
        DEVICE_EXIT = 2,
        DEVICE_MEM = 3,
};

enum device_scope {
        DEVICE_SCOPE_GRID = 1,
        DEVICE_SCOPE_BLOCK,
        DEVICE_SCOPE_WARP,
        DEVICE_SCOPE_THREAD,
};

/* What one event costs at most, in the thread that runs the program. */
struct device_cost {
        uint64_t instructions; /* of PTX */
        uint64_t memory;       /* loads and stores, of maps and of a stack in memory */
        uint64_t atomics;      /* on maps */
};

enum device_spread {
        DEVICE_SHARED = 0, /* one set of elements for all */
        DEVICE_PER_SM,
        DEVICE_PER_WARP,
        DEVICE_PER_THREAD,
};

/* What a map that is also in a kernel map is for (device_abi.h). */
enum device_rule {
        DEVICE_RULE_NONE = 0, /* it is there once */
        DEVICE_RULE_SETTINGS,
        DEVICE_RULE_SUM,
        DEVICE_RULE_MAX,
        DEVICE_RULE_OR,
};

struct device_map_info {
        char name[64];
        uint32_t placement; /* GPUOBS_PLACE_HOST or _DEVICE */
        enum device_spread spread;
        enum device_rule
                rule;  /* of a map that is there twice; its placement is that of the replica */
        uint32_t type; /* BPF_MAP_TYPE_ARRAY, _HASH or _RINGBUF */
        uint32_t key_size;
        uint32_t value_size;
        uint32_t max_entries;
        uint32_t record_bytes; /* of a ring: what a record may hold */
        uint32_t head_map;     /* of a ring: the map that holds its head, */
        uint32_t head_offset;  /* and where in it */
        uint64_t bytes;        /* device_map_bytes() */
        uint8_t *initial;      /* what variables begin with (value_size bytes), owned by the object;
                                  NULL:      zeros */
        const uint8_t *constant; /* what a map that never changes holds: value_size bytes, as
                                    initial; else NULL */
};

/* Bytes from one element of a map to the next. */
uint64_t device_map_stride(const struct device_map_info *map);

/* How much memory a map takes; UINT64_MAX when that is beyond all bounds. */
uint64_t device_map_bytes(const struct device_map_info *map);

/* Of a map in host memory: the same in whole pages, as it is mapped into a process. */
uint64_t device_host_map_bytes(const struct device_map_info *map);

/* Bytes of one of the two copies of a map of settings. */
uint64_t device_settings_copy_bytes(const struct device_map_info *map);

/* How many sets of elements there are. */
uint32_t device_spread_copies(enum device_spread spread);

/* The slots of a ring: how many (a power of two), how large, where the first one is. */
uint32_t device_ring_slots(const struct device_map_info *map);
uint32_t device_ring_slot_bytes(const struct device_map_info *map);
uint32_t device_ring_first(const struct device_map_info *map);

/*
 * Of a hash: the logarithm of the number of slots that are searched, and how many slots there
 * are; how many words of a key are kept beside its tag, and where in a slot the value is.
 */
unsigned device_hash_bits(uint32_t max_entries);
uint64_t device_hash_slots(const struct device_map_info *map);
unsigned device_hash_words(const struct device_map_info *map);
uint64_t device_hash_value_at(const struct device_map_info *map);

struct device_program_info {
        char name[64];
        enum device_where where;
        enum device_scope scope;
        const char *ptx; /* the fragment, NUL-terminated */
        size_t ptx_bytes;
        struct device_cost cost;
};

/* What programs may cost when nothing else is said (docs/device-programs.md). */
struct device_cost device_budget(enum device_where where, enum device_scope scope);

struct device_options {
        const struct device_cost *budget; /* for programs of every scope; NULL: device_budget() */
};

struct device_object;

/*
 * Load an object (ELF bytes), have the kernel verify it, compile all programs.
 * options may be NULL. error receives a sentence with the source line for every refusal. 0; -EINVAL
 * not a device object; -EACCES refused by a verifier; -ENOTSUP something the
 * compiler does not know; other -errno from the kernel.
 */
int device_object_load(const void *elf, size_t elf_bytes, const struct device_options *options,
                       char *error, size_t error_size, struct device_object **ret_object);
struct device_object *device_object_free(struct device_object *o);

size_t device_object_program_count(const struct device_object *o);
const struct device_program_info *device_object_program(const struct device_object *o, size_t i);
size_t device_object_map_count(const struct device_object *o);
/* Map i is what fragments call @Mi@. */
const struct device_map_info *device_object_map(const struct device_object *o, size_t i);
/* The number of the map of this name; -1 there is none. */
int device_object_find_map(const struct device_object *o, const char *name);

/* The formats of messages its programs print, and the ring they print to; -1 none prints. */
const struct messages *device_object_messages(const struct device_object *o);
int device_object_print_map(const struct device_object *o);

/*
 * The blob of agent_abi.h for this object, in a sealed memfd. ret_bytes its size. 0 or -errno.
 */
int device_object_blob(const struct device_object *o, int *ret_fd, uint64_t *ret_bytes);
