/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/uvm_queue.h"

#include <string.h>

/* The ring's space is given back to the driver so often while a long row is read. */
#define RELEASE_EVERY 1024

void uvm_queue_init(struct uvm_queue *q, const void *memory, uint32_t entries,
                    struct uvm_control *control)
{
        *q = (struct uvm_queue){.entries = memory, .control = control, .mask = entries - 1};
}

static void release(struct uvm_queue *q)
{
        __atomic_store_n(&q->control->get_ahead, q->get, __ATOMIC_RELAXED);
        __atomic_store_n(&q->control->get_behind, q->get, __ATOMIC_RELEASE);
}

static void count_dropped(struct uvm_queue *q)
{
        for (size_t i = 0; i < UVM_CONTROL_KINDS; i++) {
                uint64_t now = __atomic_load_n(&q->control->dropped[i], __ATOMIC_RELAXED);

                /* Counters only grow; what does not is not the driver's doing. */
                if (now > q->dropped_seen[i])
                        q->dropped += now - q->dropped_seen[i];
                q->dropped_seen[i] = now;
        }
}

static void take(struct uvm_queue *q, void (*event)(void *data, const struct uvm_event *e),
                 void *data)
{
        uint8_t copy[UVM_ENTRY_BYTES];
        struct uvm_event e;

        memcpy(copy, q->entries + (size_t)q->get * UVM_ENTRY_BYTES, sizeof(copy));
        q->get = (q->get + 1) & q->mask;
        q->read++;
        if (uvm_event_decode(copy, &e) < 0)
                q->garbage++;
        else
                event(data, &e);
}

size_t uvm_queue_read(struct uvm_queue *q, size_t max,
                      void (*event)(void *data, const struct uvm_event *e), void *data)
{
        uint32_t put = __atomic_load_n(&q->control->put_behind, __ATOMIC_ACQUIRE) & q->mask;
        size_t n = 0;

        while (n < max && q->get != put) {
                take(q, event, data);
                if (++n % RELEASE_EVERY == 0)
                        release(q);
        }
        release(q);
        count_dropped(q);
        return n;
}
