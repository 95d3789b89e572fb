/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/uvm_tracker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "driver/uvm_queue.h"
#include "driver/uvm_target.h"
#include "util/macro.h"
#include "util/mono_map.h"

#define TOOLS_DEVICE "/dev/nvidia-uvm-tools"
#define CONTROL_SIZE 4096

struct uvm_tracker {
        const struct uvm_system *system;
        struct uvm_target target;
        int tools_fd;
        void *memory; /* the queue, then a page of control */
        size_t memory_bytes;
        uint32_t entries;
        struct uvm_queue queue;
        struct mono_map *map;
};

static bool is_valid(const struct uvm_tracker_options *o)
{
        return o->entries >= 2 && o->entries <= UVM_TRACKER_ENTRIES_MAX &&
               (o->entries & (o->entries - 1)) == 0;
}

static int map_queue(struct uvm_tracker *t)
{
        size_t queue_bytes = ((size_t)t->entries * UVM_ENTRY_BYTES + CONTROL_SIZE - 1) &
                             ~(size_t)(CONTROL_SIZE - 1);

        t->memory_bytes = queue_bytes + CONTROL_SIZE;
        t->memory = mmap(NULL, t->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                         -1, 0);
        if (t->memory == MAP_FAILED) {
                t->memory = NULL;
                return -errno;
        }
        /* A child must not get a copy that the driver does not write to. */
        (void)madvise(t->memory, t->memory_bytes, MADV_DONTFORK);
        uvm_queue_init(&t->queue, t->memory, t->entries,
                       (struct uvm_control *)((char *)t->memory + queue_bytes));
        return 0;
}

static int init_queue(struct uvm_tracker *t)
{
        union uvm_argument a = {
                .tools_init = {.queue = (uint64_t)(uintptr_t)t->memory,
                               .entries = t->entries,
                               .control = (uint64_t)(uintptr_t)t->queue.control,
                               .all_processors = 1,
                               .uvm_fd = (uint32_t)t->target.uvm_fd},
        };

        t->tools_fd = t->system->open(TOOLS_DEVICE, O_RDWR | O_CLOEXEC);
        if (t->tools_fd < 0)
                return -errno;
        return uvm_call(t->system, t->tools_fd, UVM_TOOLS_INIT, &a, &a.tools_init.status, NULL);
}

static int set_threshold(struct uvm_tracker *t)
{
        union uvm_argument a = {.threshold = {.entries = t->entries >= 8 ? t->entries / 8 : 1}};

        return uvm_call(t->system, t->tools_fd, UVM_TOOLS_SET_THRESHOLD, &a, &a.threshold.status,
                        NULL);
}

static int enable(struct uvm_tracker *t, uint64_t kinds)
{
        union uvm_argument a = {.enable = {.kinds = kinds ? kinds : UVM_KINDS_DEFAULT}};

        return uvm_call(t->system, t->tools_fd, UVM_TOOLS_ENABLE, &a, &a.enable.status, NULL);
}

int uvm_tracker_new(const struct uvm_system *system, const struct uvm_tracker_options *options,
                    struct uvm_tracker **ret_tracker)
{
        struct uvm_tracker *t;
        int r;

        if (!is_valid(options))
                return -EINVAL;
        t = calloc(1, sizeof(*t));
        if (!t)
                return -ENOMEM;
        t->system = system;
        t->map = options->map;
        t->entries = options->entries;
        t->tools_fd = t->target.pidfd = t->target.uvm_fd = -1;
        t->target.system = system;
        r = uvm_target_open(system, options->pid, options->start_ticks, &t->target);
        if (r == 0)
                r = map_queue(t);
        if (r == 0)
                r = init_queue(t);
        if (r == 0)
                r = set_threshold(t);
        if (r == 0)
                r = enable(t, options->kinds);
        if (r < 0) {
                uvm_tracker_free(t);
                return r;
        }
        *ret_tracker = t;
        return 0;
}

struct uvm_tracker *uvm_tracker_free(struct uvm_tracker *t)
{
        if (!t)
                return NULL;
        /* The driver writes to the queue until its file is closed. */
        if (t->tools_fd >= 0)
                t->system->close(t->tools_fd);
        if (t->memory)
                munmap(t->memory, t->memory_bytes);
        uvm_target_close(&t->target);
        free(t);
        return NULL;
}

int uvm_tracker_fd(const struct uvm_tracker *t)
{
        return t->tools_fd;
}

int uvm_tracker_pidfd(const struct uvm_tracker *t)
{
        return t->target.pidfd;
}

bool uvm_tracker_ended(const struct uvm_tracker *t)
{
        return !t->system->pidfd_alive(t->target.pidfd);
}

struct reading {
        struct mono_map *map;
        void (*event)(void *data, const struct uvm_event *e, const struct uvm_when *when);
        void *data;
};

/* The larger error of what has been converted so far. 0 for 0, which is no time. */
static uint64_t convert(struct mono_map *map, uint64_t raw_ns, uint32_t *error_ns)
{
        uint64_t at_ns;
        double error;

        if (raw_ns == 0 || mono_map_convert(map, raw_ns, 0, &at_ns, &error) < 0)
                return 0;
        if (error > *error_ns)
                *error_ns = error < UINT32_MAX ? (uint32_t)error : UINT32_MAX;
        return at_ns;
}

static void on_event(void *data, const struct uvm_event *e)
{
        const struct reading *r = data;
        struct uvm_when when = {0};

        when.at_ns = convert(r->map, e->begin_raw_ns, &when.error_ns);
        when.end_ns = convert(r->map, e->end_raw_ns, &when.error_ns);
        r->event(r->data, e, &when);
}

size_t uvm_tracker_read(struct uvm_tracker *t, size_t max,
                        void (*event)(void *data, const struct uvm_event *e,
                                      const struct uvm_when *when),
                        void *data)
{
        struct reading r = {t->map, event, data};

        return uvm_queue_read(&t->queue, max, on_event, &r);
}

int uvm_tracker_flush(struct uvm_tracker *t)
{
        union uvm_argument a = {0};

        return uvm_call(t->system, t->target.uvm_fd, UVM_FLUSH_EVENTS, &a, &a.flush.status, NULL);
}

void uvm_tracker_get_counts(const struct uvm_tracker *t, struct uvm_tracker_counts *ret_counts)
{
        *ret_counts = (struct uvm_tracker_counts){
                .read = t->queue.read, .garbage = t->queue.garbage, .dropped = t->queue.dropped};
}

const uint8_t *uvm_tracker_uuid(const struct uvm_tracker *t, unsigned index)
{
        static const uint8_t none[UVM_UUID_BYTES];

        if (index >= UVM_PROCESSORS_MAX ||
            memcmp(t->target.processors[index], none, UVM_UUID_BYTES) == 0)
                return NULL;
        return t->target.processors[index];
}

int uvm_tracker_ask_processors(const struct uvm_tracker *t,
                               uint8_t ret_processors[UVM_PROCESSORS_MAX][UVM_UUID_BYTES])
{
        struct uvm_target now = t->target;
        int r = uvm_target_read_processors(&now);

        if (r == 0)
                memcpy(ret_processors, now.processors, sizeof(now.processors));
        return r;
}

void uvm_tracker_set_processors(struct uvm_tracker *t,
                                uint8_t processors[UVM_PROCESSORS_MAX][UVM_UUID_BYTES])
{
        memcpy(t->target.processors, processors, sizeof(t->target.processors));
}
