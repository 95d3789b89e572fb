/* SPDX-License-Identifier: Apache-2.0 */
#include "observed.h"

#include <string.h>

#include "api/backend.h"
#include "arguments.h"
#include "device/record_ring.h"
#include "driver/calls.h"
#include "driver/uvm_process.h"
#include "launches.h"
#include "probe/process_info.h"
#include "process_clocks.h"
#include "util/time.h"

void observed_table_init(struct observed_table *t, uint64_t next_key)
{
        *t = (struct observed_table){.next_key = next_key};
}

static void observed_free(struct observed *o)
{
        coverage_done(&o->coverage);
        allocations_done(&o->allocations);
        calls_free(o->calls);
        uvm_process_free(o->managed);
        arguments_free(o->arguments);
        launches_free(o->launches);
        record_ring_free(o->ring);
        process_clocks_free(o->clocks);
        process_info_done(&o->info);
        free(o);
}

void observed_table_done(struct observed_table *t)
{
        struct observed *o, *next;

        HASH_CLEAR(by_pid, t->by_pid);
        HASH_ITER (by_key, t->by_key, o, next) {
                HASH_DELETE(by_key, t->by_key, o);
                observed_free(o);
        }
}

struct observed *observed_find(const struct observed_table *t, pid_t pid)
{
        uint32_t key = (uint32_t)pid;
        struct observed *o;

        HASH_FIND(by_pid, t->by_pid, &key, sizeof(key), o);
        return o;
}

struct observed *observed_find_gone(const struct observed_table *t, pid_t pid)
{
        struct observed *o, *next, *found = NULL;

        /* In order of insertion: the last is the latest. */
        HASH_ITER (by_key, t->by_key, o, next)
                if (o->gone && o->info.pid == (uint32_t)pid)
                        found = o;
        return found;
}

struct observed *observed_find_key(const struct observed_table *t, uint64_t process_key)
{
        struct observed *o;

        HASH_FIND(by_key, t->by_key, &process_key, sizeof(process_key), o);
        return o;
}

/* What is known without /proc. */
static void fill_info(struct process_info *info, pid_t pid, const struct process_info *told)
{
        if (told)
                *info = *told;
        info->pid = (uint32_t)pid;
        info->exe = strdup("");
        info->cgroup = strdup("");
}

struct observed *observed_get(struct observed_table *t, pid_t pid, const struct process_info *told,
                              bool *ret_new)
{
        struct observed *o = observed_find(t, pid);

        *ret_new = false;
        if (o)
                return o;
        o = calloc(1, sizeof(*o));
        if (!o)
                return NULL;
        if (process_info_read(pid, &o->info) < 0)
                fill_info(&o->info, pid, told);
        o->info.process_key = t->next_key++;
        HASH_ADD(by_pid, t->by_pid, info.pid, sizeof(o->info.pid), o);
        HASH_ADD(by_key, t->by_key, info.process_key, sizeof(o->info.process_key), o);
        *ret_new = true;
        return o;
}

void observed_set_gone(struct observed_table *t, struct observed *o)
{
        if (o->gone)
                return;
        o->gone = true;
        HASH_DELETE(by_pid, t->by_pid, o);
        t->gone_count++;
}

static bool is_settled(const struct observed *o)
{
        return !o->correlated && !o->agent &&
               o->ledger.produced == o->ledger.stored + ledger_lost_launches(&o->ledger);
}

void observed_trim(struct observed_table *t)
{
        struct observed *o, *next;

        /* uthash iterates in order of insertion: oldest first. */
        HASH_ITER (by_key, t->by_key, o, next) {
                if (t->gone_count <= OBSERVED_GONE_MAX)
                        return;
                if (!o->gone || !is_settled(o))
                        continue;
                ledger_add(&t->forgotten, &o->ledger);
                HASH_DELETE(by_key, t->by_key, o);
                t->gone_count--;
                observed_free(o);
        }
}

void observed_losses(const struct observed_table *t, uint32_t uid, struct ledger *ret_ledger)
{
        const struct observed *o, *next;
        struct ledger sum = {0};

        HASH_ITER (by_key, t->by_key, o, next)
                if (uid == API_ANY_UID || o->info.uid == uid)
                        ledger_add(&sum, &o->ledger);
        if (uid == API_ANY_UID)
                ledger_add(&sum, &t->forgotten);
        *ret_ledger = sum;
}
