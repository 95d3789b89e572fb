/* SPDX-License-Identifier: Apache-2.0 */
#include "store/process_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/macro.h"

struct process_info *process_info_copy(const struct process_info *from)
{
        const char *exe = from->exe ? from->exe : "", *cgroup = from->cgroup ? from->cgroup : "";
        size_t exe_size = strlen(exe) + 1, cgroup_size = strlen(cgroup) + 1;
        struct process_info *p;
        char *texts;

        p = malloc(sizeof(*p) + exe_size + cgroup_size);
        if (!p)
                return NULL;
        *p = *from;
        texts = (char *)(p + 1);
        p->exe = memcpy(texts, exe, exe_size);
        p->cgroup = memcpy(texts + exe_size, cgroup, cgroup_size);
        return p;
}

static bool is_written(const struct cached_process *e)
{
        return (!e->info || e->info_written) && (!e->has_ledger || e->ledger_written);
}

static void entry_free(struct process_cache *c, struct cached_process *e)
{
        HASH_DEL(c->by_key, e);
        free(e->info);
        free(e);
}

static void move_to_end(struct process_cache *c, struct cached_process *e)
{
        HASH_DEL(c->by_key, e);
        HASH_ADD(hh, c->by_key, process_key, sizeof(e->process_key), e);
}

static struct cached_process *find(struct process_cache *c, uint64_t process_key)
{
        struct cached_process *e;

        HASH_FIND(hh, c->by_key, &process_key, sizeof(process_key), e);
        return e;
}

struct cached_process *process_cache_use(struct process_cache *c, uint64_t process_key)
{
        struct cached_process *e = find(c, process_key);

        if (e && e->hh.next)
                move_to_end(c, e);
        return e;
}

bool process_cache_knows(struct process_cache *c, uint64_t process_key)
{
        return find(c, process_key) != NULL;
}

static void make_room(struct process_cache *c)
{
        struct cached_process *e, *next;

        HASH_ITER (hh, c->by_key, e, next) {
                if (HASH_COUNT(c->by_key) < PROCESS_CACHE_MAX)
                        return;
                if (is_written(e))
                        entry_free(c, e);
        }
}

static struct cached_process *use_or_add(struct process_cache *c, uint64_t process_key)
{
        struct cached_process *e = process_cache_use(c, process_key);

        if (e)
                return e;
        make_room(c);
        e = calloc(1, sizeof(*e));
        if (!e)
                return NULL;
        e->process_key = process_key;
        HASH_ADD(hh, c->by_key, process_key, sizeof(e->process_key), e);
        return e;
}

int process_cache_put(struct process_cache *c, struct process_info *info)
{
        struct cached_process *e = use_or_add(c, info->process_key);

        if (!e) {
                free(info);
                return -ENOMEM;
        }
        if (is_written(e))
                c->unwritten++;
        free(e->info);
        e->info = info;
        e->info_written = false;
        return 0;
}

int process_cache_put_ledger(struct process_cache *c, uint64_t process_key,
                             const struct ledger *ledger)
{
        struct cached_process *e = use_or_add(c, process_key);

        if (!e)
                return -ENOMEM;
        if (e->has_ledger && memcmp(&e->ledger, ledger, sizeof(*ledger)) == 0)
                return 0;
        if (is_written(e))
                c->unwritten++;
        e->ledger = *ledger;
        e->has_ledger = true;
        e->ledger_written = false;
        return 0;
}

void process_cache_all_written(struct process_cache *c)
{
        struct cached_process *e, *next;

        if (c->unwritten == 0)
                return;
        HASH_ITER (hh, c->by_key, e, next) {
                e->info_written = e->info != NULL;
                e->ledger_written = e->has_ledger;
        }
        c->unwritten = 0;
}

void process_cache_none_written(struct process_cache *c)
{
        struct cached_process *e, *next;

        HASH_ITER (hh, c->by_key, e, next) {
                e->info_written = e->ledger_written = false;
        }
        c->unwritten = HASH_COUNT(c->by_key);
}

void process_cache_clear(struct process_cache *c)
{
        struct cached_process *e, *next;

        HASH_ITER (hh, c->by_key, e, next) {
                entry_free(c, e);
        }
        *c = (struct process_cache){0};
}
