/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Records are taken at `position`, in order. A slot that does not hold the
 * record of its turn is the end of what was written, or a hole: claimed by a
 * kernel whose stores have not arrived, or never will. To tell them apart
 * without waiting for each: when something complete lies behind, its index is
 * kept as a mark. Everything before the mark was claimed before it, so what is
 * still missing when the mark is old enough will not come.
 *
 * The process that owns the ring can write anything at any time. So a slot is
 * copied before it is looked at, nothing read from it is used as an address,
 * and the work of one call is bounded.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "device/device_abi.h"
#include "device/record_ring.h"
#include "util/macro.h"
#include "util/time.h"

#define HOLE_PATIENCE_NS UINT64_C(20000000)
#define DEEP_LOOK_MIN_NS UINT64_C(250000000)
#define DEEP_LOOK_MAX_NS UINT64_C(2000000000)
#define LOOK_AHEAD       256                 /* missing records in a row that end a look ahead */
#define OVERRUN_MAX      (UINT64_C(1) << 40) /* records; more is not to be believed */
#define POSITION_MAX     (UINT64_C(1) << 62)
#define SAVED_MAX        (DEVICE_RING_ENTRIES / 2)

struct saved {
        struct device_record record;
        uint64_t lost; /* before it */
};

/* Records that were saved, in order; circular. */
struct backlog {
        struct saved *records;
        size_t first, count;
        uint64_t lost; /* before the next one */
};

struct record_ring {
        int fd;
        const uint64_t *words; /* the mapped slots, four words each */
        uint64_t position;
        uint64_t unreported; /* lost since the last record that was delivered */
        struct record_ring_losses losses;
        bool marked;
        uint64_t mark; /* index of a complete record behind the hole at position */
        uint64_t mark_ns;
        uint64_t deep_ns;      /* when to look for records behind a long run of missing ones */
        uint64_t deep_wait_ns; /* time between such looks */
        struct backlog saved;
};

enum slot_state {
        SLOT_MISSING,     /* not written, half written, of an earlier round, or garbage */
        SLOT_COMPLETE,    /* the record that belongs there */
        SLOT_OVERWRITTEN, /* already a record of a later round */
};

/* Copy the slot of record n, and say whether that is what it holds. */
static enum slot_state read_slot(const struct record_ring *r, uint64_t n,
                                 struct device_record *ret_record, uint64_t *ret_index)
{
        const uint64_t *slot = r->words + n % DEVICE_RING_ENTRIES * 4;
        uint64_t ahead;

        ret_record->time_ns = __atomic_load_n(&slot[0], __ATOMIC_RELAXED);
        ret_record->grid = __atomic_load_n(&slot[1], __ATOMIC_RELAXED);
        ret_record->who = __atomic_load_n(&slot[2], __ATOMIC_RELAXED);
        ret_record->check = __atomic_load_n(&slot[3], __ATOMIC_RELAXED);
        *ret_index = device_record_index(ret_record);
        ahead = *ret_index - n;
        if (ahead == 0)
                return SLOT_COMPLETE;
        if (ahead < OVERRUN_MAX && ahead % DEVICE_RING_ENTRIES == 0 && *ret_index < POSITION_MAX)
                return SLOT_OVERWRITTEN;
        return SLOT_MISSING;
}

static bool is_written(const struct record_ring *r, uint64_t n)
{
        struct device_record ignored;
        uint64_t index;

        return read_slot(r, n, &ignored, &index) != SLOT_MISSING;
}

/* The last written record behind n, looking until `patience` missing ones in a row; 0: none. */
static uint64_t last_written(const struct record_ring *r, uint64_t n, unsigned patience)
{
        uint64_t last = 0;
        unsigned missing = 0;

        for (uint64_t i = n + 1; i < n + DEVICE_RING_ENTRIES && missing < patience; i++) {
                if (is_written(r, i)) {
                        last = i;
                        missing = 0;
                } else {
                        missing++;
                }
        }
        return last;
}

/* Same, over the whole ring, but ever more rarely while nothing is found. */
static uint64_t look_deep(struct record_ring *r, uint64_t now_ns)
{
        uint64_t last;

        if (now_ns < r->deep_ns)
                return 0;
        last = last_written(r, r->position, DEVICE_RING_ENTRIES);
        r->deep_wait_ns = last ? DEEP_LOOK_MIN_NS : 2 * r->deep_wait_ns;
        if (r->deep_wait_ns > DEEP_LOOK_MAX_NS)
                r->deep_wait_ns = DEEP_LOOK_MAX_NS;
        r->deep_ns = now_ns + r->deep_wait_ns;
        return last;
}

static void lose(struct record_ring *r, uint64_t *counter, uint64_t count)
{
        *counter += count;
        r->unreported += count;
        r->position += count;
}

/* The record at position is missing. Returns whether it was given up and reading goes on. */
static bool pass_hole(struct record_ring *r, uint64_t now_ns)
{
        uint64_t last;

        if (r->marked && r->position < r->mark) {
                if (now_ns < r->mark_ns + HOLE_PATIENCE_NS)
                        return false;
                lose(r, &r->losses.torn, 1);
                return true;
        }
        last = last_written(r, r->position, LOOK_AHEAD);
        if (!last)
                last = look_deep(r, now_ns);
        r->marked = last != 0;
        r->mark = last;
        r->mark_ns = now_ns;
        return false;
}

/* Slot of position holds record `index` of a later round: go to the oldest that may remain. */
static void skip_overrun(struct record_ring *r, uint64_t index)
{
        lose(r, &r->losses.overrun, index - DEVICE_RING_ENTRIES + 1 - r->position);
}

static bool is_known_type(const struct device_record *rec)
{
        return DEVICE_RECORD_TYPE(rec) == DEVICE_RECORD_START ||
               DEVICE_RECORD_TYPE(rec) == DEVICE_RECORD_END ||
               DEVICE_RECORD_TYPE(rec) == DEVICE_RECORD_TAIL;
}

typedef void record_fn(void *data, const struct device_record *rec);
typedef void gap_fn(void *data, uint64_t lost);

static size_t read_slots(struct record_ring *r, uint64_t now_ns, size_t max, record_fn *record,
                         gap_fn *gap, void *data)
{
        size_t taken = 0;
        uint64_t index;
        struct device_record rec;

        for (uint64_t budget = (uint64_t)max + DEVICE_RING_ENTRIES; taken < max && budget;
             budget--) {
                enum slot_state state = read_slot(r, r->position, &rec, &index);

                if (state == SLOT_MISSING) {
                        if (!pass_hole(r, now_ns))
                                break;
                        continue;
                }
                if (state == SLOT_OVERWRITTEN) {
                        skip_overrun(r, index);
                        continue;
                }
                if (!is_known_type(&rec)) {
                        lose(r, &r->losses.garbage, 1);
                        continue;
                }
                if (r->unreported)
                        gap(data, r->unreported);
                r->unreported = 0;
                r->deep_wait_ns = DEEP_LOOK_MIN_NS;
                r->position++;
                record(data, &rec);
                taken++;
        }
        return taken;
}

/* Memory is asked for at once and used as far as records are saved. False: no room. */
static bool has_room(struct backlog *b)
{
        if (!b->records)
                b->records = calloc(SAVED_MAX, sizeof(*b->records));
        return b->records && b->count < SAVED_MAX;
}

static void save_gap(void *data, uint64_t lost)
{
        struct backlog *b = data;

        b->lost = lost;
}

static void save_record(void *data, const struct device_record *rec)
{
        struct backlog *b = data;

        b->records[(b->first + b->count++) % SAVED_MAX] = (struct saved){*rec, b->lost};
        b->lost = 0;
}

size_t record_ring_save(struct record_ring *r, uint64_t now_ns, size_t max)
{
        struct backlog *b = &r->saved;
        size_t room = has_room(b) ? SAVED_MAX - b->count : 0;

        return read_slots(r, now_ns, room < max ? room : max, save_record, save_gap, b);
}

/* What was saved; at most max, in order. */
static size_t take_saved(struct backlog *b, size_t max, record_fn *record, gap_fn *gap, void *data)
{
        size_t taken = 0;

        for (; taken < max && b->count; taken++) {
                struct saved *s = &b->records[b->first];

                b->first = (b->first + 1) % SAVED_MAX;
                b->count--;
                if (s->lost)
                        gap(data, s->lost);
                record(data, &s->record);
        }
        if (b->count == 0) {
                free(b->records);
                *b = (struct backlog){};
        }
        return taken;
}

size_t record_ring_read(struct record_ring *r, uint64_t now_ns, size_t max, record_fn *record,
                        gap_fn *gap, void *data)
{
        size_t taken = take_saved(&r->saved, max, record, gap, data);

        if (r->saved.count) {
                (void)record_ring_save(r, now_ns, max);
                return taken;
        }
        return taken + read_slots(r, now_ns, max - taken, record, gap, data);
}

void record_ring_read_rest(struct record_ring *r, uint64_t now_ns, record_fn *record, gap_fn *gap,
                           void *data)
{
        size_t left = 2UL * DEVICE_RING_ENTRIES + r->saved.count;

        for (int idle = 0; idle < 2 && left; now_ns += NSEC_PER_SEC) {
                uint64_t before = r->position;
                size_t n = record_ring_read(r, now_ns, left, record, gap, data);

                idle = n == 0 && r->position == before ? idle + 1 : 0;
                left -= n ? n : 1;
        }
}

int record_ring_adopt(int fd, uint64_t position, struct record_ring **ret_ring)
{
        struct record_ring *r = calloc(1, sizeof(*r));
        void *memory;

        if (!r)
                return -ENOMEM;
        memory = mmap(NULL, DEVICE_RING_BYTES, PROT_READ, MAP_SHARED, fd, 0);
        if (memory == MAP_FAILED) {
                int error = -errno;

                free(r);
                return error;
        }
        r->fd = fd;
        r->words = memory;
        r->position = position;
        r->deep_wait_ns = DEEP_LOOK_MIN_NS;
        *ret_ring = r;
        return 0;
}

int record_ring_new(struct record_ring **ret_ring)
{
        LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE);
        _cleanup_close_ int fd =
                bpf_map_create(BPF_MAP_TYPE_ARRAY, "launch_records", sizeof(uint32_t),
                               sizeof(struct device_record), DEVICE_RING_ENTRIES, &opts);
        int error;

        if (fd < 0)
                return -errno;
        error = record_ring_adopt(fd, 0, ret_ring);
        if (!error)
                TAKE_FD(fd);
        return error;
}

struct record_ring *record_ring_free(struct record_ring *r)
{
        if (!r)
                return NULL;
        munmap((void *)r->words, DEVICE_RING_BYTES);
        close(r->fd);
        free(r->saved.records);
        free(r);
        return NULL;
}

int record_ring_fd(const struct record_ring *r)
{
        return r->fd;
}

void record_ring_get_losses(const struct record_ring *r, struct record_ring_losses *ret_losses)
{
        *ret_losses = r->losses;
}

uint64_t record_ring_position(const struct record_ring *r)
{
        return r->position;
}
