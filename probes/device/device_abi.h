/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * The shared start/end map: an mmapable eBPF array of DEVICE_RING_ENTRIES
 * records of 32 bytes, one per process. Written by the GPU with posted stores
 * (no fence, no host atomic), read by the daemon through its mapping and by
 * kernel eBPF through map lookups.
 *
 * The n-th record of the process (n from 0, taken from a counter in GPU memory)
 * goes to slot n % DEVICE_RING_ENTRIES. Its four 8-byte words may become
 * visible in any order, so the last one seals the others:
 *
 *     check = (n + 1) ^ time_ns ^ (grid * DEVICE_SEAL_GRID) ^ (who * DEVICE_SEAL_WHO)
 *
 * A reader that expects record n accepts the slot when device_record_index()
 * gives n; a slot whose index is n + k * DEVICE_RING_ENTRIES (k >= 1) has been
 * overwritten: k * DEVICE_RING_ENTRIES records at least were lost. Anything
 * else is not yet written, torn, or garbage: try again later.
 *
 * The process can write anything here. Treat it as hostile.
 */
#include "../gpuobs_types.h"

#define DEVICE_RING_ENTRIES 65536
#define DEVICE_RING_BYTES   (DEVICE_RING_ENTRIES * 32)

/*
 * Where the process maps the array so that compiled programs are the same in
 * every process. MAP_FIXED_NOREPLACE; the agent refuses if it is taken.
 */
#define DEVICE_RING_ADDRESS 0x6f0000000000ULL

#define DEVICE_SEAL_GRID 0x9e3779b97f4a7c15ULL
#define DEVICE_SEAL_WHO  0xc2b2ae3d27d4eb4fULL

enum device_record_type {
        DEVICE_RECORD_START = 1, /* block 0 of the grid began */
        DEVICE_RECORD_END = 2,   /* the last block's leader thread ended */
        /*
         * The blocks that started last have ended, but one that started long before has
         * not: no END follows. The time is a lower bound of the grid's end.
         */
        DEVICE_RECORD_TAIL = 3,
};

/*
 * What the driver tells every grid in its constant bank 0 besides %gridid, beyond
 * what is documented (read on an H200, driver 580.159.04; the agent checks it in
 * each process before the daemon may rely on it, tests/gpu/launch_facts does so too):
 *
 * gridid   grows by one for each launch on a device in a process, whatever its
 *          context; memsets and device-to-device copies of some sizes take one as
 *          well. A graph's kernel nodes take theirs when the graph is instantiated
 *          and keep them at every replay; a graph of kernel nodes alone takes one
 *          more, before theirs.
 * context  number of the context in the process, from 1 (c[0x0][0x58], %envreg6), the
 *          next one again after a reset of the primary context; 0: not known.
 * queue    bits 8..31 of the address of the launch's descriptor (c[0x0][0x38]).
 *          A stream has eight of them in a ring of 16 KiB, 0x800 bytes apart, and
 *          takes them in turn, also for memsets and copies that take an id: so
 *          queue >> DEVICE_QUEUE_STREAM_SHIFT names the stream for as long as it
 *          lives, and (queue >> DEVICE_QUEUE_SLOT_SHIFT) % 8 counts its launches.
 *          A graph's kernel node has one of its own, 0x200 bytes from the next
 *          node's, the same at every replay. 0: not known.
 */
#define DEVICE_QUEUE_SHIFT        8
#define DEVICE_QUEUE_SLOT_SHIFT   (11 - DEVICE_QUEUE_SHIFT)
#define DEVICE_QUEUE_STREAM_SHIFT (14 - DEVICE_QUEUE_SHIFT)
#define DEVICE_QUEUE_SLOTS        8

struct device_record {
        __u64 time_ns; /* GPU clock (%globaltimer, PTIMER) */
        __u64 grid;    /* bits 0..39 %gridid, 40..47 enum device_record_type, 48..63 context */
        __u64 who;     /* bits 0..23 kernel id given by the agent, 24..39 %smid, 40..63 queue */
        __u64 check;   /* the seal, see above */
};
_Static_assert(sizeof(struct device_record) == 32, "device record is 32 bytes");

#define DEVICE_RECORD_GRIDID(r)  ((r)->grid & 0xffffffffffULL)
#define DEVICE_RECORD_TYPE(r)    ((__u8)((r)->grid >> 40))
#define DEVICE_RECORD_CONTEXT(r) ((__u16)((r)->grid >> 48))
#define DEVICE_RECORD_KERNEL(r)  ((__u32)(r)->who & 0xffffff)
#define DEVICE_RECORD_SMID(r)    ((__u16)((r)->who >> 24))
#define DEVICE_RECORD_QUEUE(r)   ((__u32)((r)->who >> 40))

#define DEVICE_KERNEL_ID_MAX 0xffffffu

#define DEVICE_RECORD_GRID(gridid, type, context)                                                  \
        (((gridid)&0xffffffffffULL) | (__u64)(type) << 40 | (__u64)(context) << 48)
#define DEVICE_RECORD_WHO(kernel, smid, queue)                                                     \
        ((__u64)((kernel)&0xffffff) | (__u64)(smid) << 24 | (__u64)(queue) << 40)

/* Position n of a record in the order of the process, from its seal; ~0 for an all-zero slot. */
static inline __u64 device_record_index(const struct device_record *r)
{
        return (r->check ^ r->time_ns ^ (r->grid * DEVICE_SEAL_GRID) ^ (r->who * DEVICE_SEAL_WHO)) -
               1;
}

/*
 * Per-process counters in GPU memory (placement device): head counts records, the
 * others blocks that ended, of the grid with place DEVICE_PLACE() % DEVICE_GRIDS: those of its
 * tail, and in banks those before them. The first is 0 again when the last one has
 * ended, and so is the sum of the banks (launch.bpf.c).
 */
#define DEVICE_GRIDS 16384
#define DEVICE_BANKS 4

/*
 * Where a grid has its own words, modulo the size of the table: by its id and, since the
 * ids of each device count from 1, its context.
 */
#define DEVICE_PLACE(gridid, context) ((__u32)(gridid) + (__u32)(context)*DEVICE_PLACE_STEP)
#define DEVICE_PLACE_STEP             5413

struct device_counters {
        __u64 head;
        __u64 pad[15]; /* keep the hot counter on its own lines */
        __u64 tail_done[DEVICE_GRIDS];
        __u32 early_done[DEVICE_BANKS][DEVICE_GRIDS];
};
_Static_assert(sizeof(struct device_counters) == 128 + (8 + 4 * DEVICE_BANKS) * DEVICE_GRIDS,
               "device counters");

/*
 * Where a map of a device program lives, and whether its elements are there once or
 * once for each multiprocessor, warp or thread that can run at the same time:
 *     __uint(map_extra, GPUOBS_PLACE_DEVICE | GPUOBS_PER_SM);
 */
enum gpuobs_placement {
        GPUOBS_PLACE_HOST = 1, /* a kernel eBPF map mapped into the process, seen by GPU and CPU */
        GPUOBS_PLACE_DEVICE = 2, /* GPU memory of the process's context */
        GPUOBS_PLACE_DUPLICATE =
                3, /* both: a master in a kernel eBPF map, a replica on the device */
        GPUOBS_PER_SM = 0x100,
        GPUOBS_PER_WARP = 0x200,
        GPUOBS_PER_THREAD = 0x300,
};
#define GPUOBS_PLACE_MASK 0xff

/* What a map that is there twice is for, and so in which direction it is brought up to date. */
enum gpuobs_rule {
        GPUOBS_SETTINGS = 0x1000, /* CPU to GPU: programs read it */
        GPUOBS_SUM = 0x2000,      /* GPU to CPU: the master is the sum of all replicas */
        GPUOBS_MAX = 0x3000,      /* the greatest of them, of unsigned words */
        GPUOBS_OR = 0x4000,       /* their bits combined */
};
#define GPUOBS_RULE_MASK 0x7000

/*
 * The replica of a map of settings: the head, then two copies of the elements, each rounded
 * up to DEVICE_SETTINGS_ALIGN bytes. Programs read copy epoch % 2. Who brings it up to
 * date writes the other copy and then the epoch, so a program that has looked up an
 * element reads all of it from one epoch, unless two more come meanwhile.
 */
#define DEVICE_SETTINGS_ALIGN 128

struct device_settings_head {
        __u64 epoch;
        __u64 pad[15];
};
_Static_assert(sizeof(struct device_settings_head) == 128, "device settings head");

/* How long the records of a ring may be, bytes; with GPUOBS_PLACE_, 48 if nothing is said. */
#define GPUOBS_RECORD_BYTES(bytes) ((bytes) << 16)
#define GPUOBS_RECORD_SHIFT        16
#define GPUOBS_RECORD_DEFAULT      48
#define GPUOBS_RECORD_MAX          256

/*
 * Copies of the elements of such a map lie one after the other: the copy of
 * multiprocessor s, of warp s * DEVICE_WARPS_MAX + w, of thread 32 * that + lane. With
 * more multiprocessors or warps than these the last ones share a copy.
 */
#define DEVICE_SMS_MAX   256
#define DEVICE_WARPS_MAX 64

/*
 * A hash in GPU memory: the head, then 2^n slots, at least twice as many as the map
 * may have entries: device_hash_slot, of a long key its words, then the value, rounded up
 * to 8 bytes. The search begins at slot tag * DEVICE_HASH_FACTOR >> (64 - n) and ends after
 * DEVICE_HASH_PROBES slots. Tag 0 is a free slot; a tag stays for good; an element is in
 * the map while live is 1.
 *
 * A key of 4 or 8 bytes is put down as tag = key ^ DEVICE_HASH_TAG. The one key whose tag
 * would be 0 has a slot of its own behind the others, with tag 1.
 *
 * A long key, of more than 8 bytes, is words of 8 bytes, the last one filled up with zeros.
 * Each is put down as word ^ DEVICE_HASH_TAG, where 0 means not written yet; where that
 * is 0, as 1, and bit i of the tag is set for word i. The rest of the tag is made of all
 * words: h = (h ^ word ^ DEVICE_HASH_TAG) * DEVICE_HASH_FACTOR, h ^= h >> 32 for each, and
 * tag = h & ~DEVICE_HASH_FLAGS | DEVICE_HASH_LONG. Who inserts a key writes all words that
 * are not there, so nobody waits for who took the slot; who misses one has not found the
 * key. Of several keys with the same tag one is stored.
 */
#define DEVICE_HASH_TAG     0x5bd1e9955bd1e995ULL
#define DEVICE_HASH_FACTOR  0x9e3779b97f4a7c15ULL
#define DEVICE_HASH_PROBES  16
#define DEVICE_HASH_LONG    0x100ULL
#define DEVICE_HASH_FLAGS   0x1ffULL
#define DEVICE_HASH_KEY_MAX 64 /* bytes */

struct device_hash_head {
        __u64 lost; /* updates that found no free slot */
        __u64 pad[7];
};
_Static_assert(sizeof(struct device_hash_head) == 64, "device hash head");

struct device_hash_slot {
        __u64 tag;
        __u64 live;
        /* words of a long key, value */
};
_Static_assert(sizeof(struct device_hash_slot) == 16, "device hash slot");

/*
 * A ring of a device program (BPF_MAP_TYPE_RINGBUF): a power of two of slots of equal
 * size, struct device_event with the record behind it, rounded up to 16 bytes. Record
 * n, by a counter in GPU memory, goes to slot n % slots, whatever was there: nobody
 * waits for the reader, who sees from the numbers what was overwritten. A record is
 * written when it is submitted, all of it at once, with plain stores in any order; so
 *
 *     check = (n + 1) ^ mix(...mix(mix(bytes, word 0), word 1)..., last word)
 *
 * with mix(a, b) = a * DEVICE_EVENT_MIX + b over the record's 8-byte words (zeros
 * behind its end) tells a whole record of its turn from any other.
 *
 * In GPU memory the slots lie behind a struct device_event_head; of a ring in host
 * memory the head is in GPU memory all the same, where an atomic operation is cheap.
 */
#define DEVICE_EVENT_MIX 0x9e3779b97f4a7c15ULL

struct device_event_head {
        __u64 head;       /* records so far */
        __u64 suppressed; /* of the ring for messages: those over the limit */
        __u64 window;     /* likewise: window << DEVICE_PRINT_COUNT_BITS | messages in it */
        __u64 pad[13];
};
_Static_assert(sizeof(struct device_event_head) == 128, "device event head");

struct device_event {
        __u64 check;
        __u64 bytes; /* of the record */
        /* the record */
};
_Static_assert(sizeof(struct device_event) == 16, "device event");

/*
 * bpf_printk() on a GPU: a record in a ring of its own, which the compiler adds to the
 * object. The text is made where it is read. At most DEVICE_PRINT_LIMIT messages in
 * each window of 2^DEVICE_PRINT_WINDOW ns (0.13 s) of a process; the others are
 * counted.
 */
#define DEVICE_PRINT_WINDOW     27
#define DEVICE_PRINT_COUNT_BITS 24
#define DEVICE_PRINT_LIMIT      1024
#define DEVICE_PRINT_ARGUMENTS  12
#define DEVICE_PRINT_ENTRIES    4096

struct device_print {
        __u32 message; /* number in the object */
        __u32 kernel_id;
        __u64 time_ns; /* GPU clock */
        __u64 grid;    /* bits 0..47 %gridid, 48..63 number of the context, 0 not known */
        __u64 arguments[DEVICE_PRINT_ARGUMENTS]; /* as many as the message has */
};
_Static_assert(sizeof(struct device_print) == 24 + 8 * DEVICE_PRINT_ARGUMENTS, "device print");

#define DEVICE_PRINT_CONTEXT_SHIFT 48
#define DEVICE_PRINT_GRIDID(p)     ((p)->grid & 0xffffffffffffULL)
#define DEVICE_PRINT_CONTEXT(p)    ((__u16)((p)->grid >> DEVICE_PRINT_CONTEXT_SHIFT))

/* Context of gpu/entry and gpu/exit programs, and part of that of gpu/mem programs. */
struct gpuobs_kernel_ctx {
        __u32 block_x, block_y, block_z;             /* blockIdx */
        __u32 grid_x, grid_y, grid_z;                /* gridDim, blocks */
        __u32 thread_x, thread_y, thread_z;          /* threadIdx */
        __u32 block_dim_x, block_dim_y, block_dim_z; /* blockDim, threads */
        __u64 gridid;                                /* launch number on this device */
        __u32 kernel_id;                             /* given by the agent, per process */
        __u32 smid;
        __u32 warpid;
        __u32 laneid;
        __u32 active_mask;
        __u32 context; /* number of the context in the process, from 1; 0 not known */
        __u32 queue;   /* low half of the launch descriptor's address; 0 not known */
        __u32 pad;
};
_Static_assert(sizeof(struct gpuobs_kernel_ctx) == 88, "device program context");

enum gpuobs_access_kind {
        GPUOBS_ACCESS_LOAD = 1,
        GPUOBS_ACCESS_STORE = 2,
        GPUOBS_ACCESS_ATOMIC = 3, /* with or without a result */
};

enum gpuobs_space {
        GPUOBS_SPACE_GENERIC = 1, /* an address that may lie in any of the others */
        GPUOBS_SPACE_GLOBAL = 2,
        GPUOBS_SPACE_SHARED = 3,
        GPUOBS_SPACE_LOCAL = 4,
        GPUOBS_SPACE_CONST = 5,
};

/*
 * Context of gpu/mem programs. The address is as the instruction has it: for shared and
 * local memory the distance from the start of that memory (of the block, of the thread).
 * size, kind and space belong to the instruction, so they are the same for all lanes.
 */
struct gpuobs_mem_ctx {
        struct gpuobs_kernel_ctx kernel; /* active_mask: the lanes that access memory */
        __u64 address;                   /* of the lane that runs the program */
        __u32 size;                      /* bytes that a lane accesses, 1 to 32 */
        __u32 kind;                      /* enum gpuobs_access_kind */
        __u32 space;                     /* enum gpuobs_space */
        __u32 lanes;                     /* how many lanes access memory */
};
_Static_assert(sizeof(struct gpuobs_mem_ctx) == 112, "memory access context");

/* What of it differs from instruction to instruction, in one number. */
#define DEVICE_ACCESS(size, kind, space) ((size) | (kind) << 8 | (space) << 16)
