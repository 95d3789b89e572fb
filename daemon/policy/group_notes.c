/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/group_notes.h"

#include <pthread.h>
#include <stdlib.h>
#include <utlist.h>

#include "policy/driver_actuator.h"
#include "util/macro.h"

/* A process, until its program ends, with orders that are not over. */
struct watched_process {
        struct watched_process *prev, *next;
        pid_t pid;
        uint64_t start_ticks;
        unsigned orders;
        bool ended;
};

struct actuator_notes {
        pthread_mutex_t lock;
        struct undo_entry *list;
        size_t count, room;
        uint64_t missed;
        struct watched_process *watched;
};

struct actuator_notes *actuator_notes_new(void)
{
        struct actuator_notes *n = calloc(1, sizeof(*n));

        if (n)
                pthread_mutex_init(&n->lock, NULL);
        return n;
}

struct actuator_notes *actuator_notes_free(struct actuator_notes *n)
{
        struct watched_process *p, *next;

        if (!n)
                return NULL;
        DL_FOREACH_SAFE(n->watched, p, next)
        {
                DL_DELETE(n->watched, p);
                free(p);
        }
        pthread_mutex_destroy(&n->lock);
        free(n->list);
        free(n);
        return NULL;
}

/* ---- notes ---- */

static bool has_room(struct actuator_notes *n)
{
        size_t room = n->room ? 2 * n->room : 64;
        struct undo_entry *grown;

        if (n->count < n->room)
                return true;
        grown = n->count < UNDO_ENTRIES_MAX ? reallocarray(n->list, room, sizeof(*grown)) : NULL;
        if (!grown)
                return false;
        n->list = grown;
        n->room = room;
        return true;
}

void group_notes_add(struct actuator_notes *n, const struct undo_entry *e)
{
        pthread_mutex_lock(&n->lock);
        if (has_room(n))
                n->list[n->count++] = *e;
        else
                n->missed++;
        pthread_mutex_unlock(&n->lock);
}

struct undo_entry *group_notes_take(struct actuator_notes *n, size_t *ret_count)
{
        struct undo_entry *list;

        pthread_mutex_lock(&n->lock);
        list = TAKE_PTR(n->list);
        *ret_count = n->count;
        n->count = n->room = 0;
        pthread_mutex_unlock(&n->lock);
        return list;
}

void group_notes_miss(struct actuator_notes *n)
{
        pthread_mutex_lock(&n->lock);
        n->missed++;
        pthread_mutex_unlock(&n->lock);
}

uint64_t group_notes_missed(struct actuator_notes *n)
{
        uint64_t missed;

        pthread_mutex_lock(&n->lock);
        missed = n->missed;
        pthread_mutex_unlock(&n->lock);
        return missed;
}

/* ---- processes ---- */

static struct watched_process *find(const struct actuator_notes *n, pid_t pid, uint64_t start_ticks)
{
        struct watched_process *p;

        DL_FOREACH(n->watched, p)
        {
                if (!p->ended && p->pid == pid && p->start_ticks == start_ticks)
                        return p;
        }
        return NULL;
}

struct watched_process *group_notes_watch(struct actuator_notes *n, pid_t pid, uint64_t start_ticks)
{
        struct watched_process *p;

        pthread_mutex_lock(&n->lock);
        p = find(n, pid, start_ticks);
        if (!p && (p = calloc(1, sizeof(*p)))) {
                p->pid = pid;
                p->start_ticks = start_ticks;
                DL_APPEND(n->watched, p);
        }
        if (p)
                p->orders++;
        pthread_mutex_unlock(&n->lock);
        return p;
}

bool group_notes_unwatch(struct actuator_notes *n, struct watched_process *p)
{
        bool ended;

        pthread_mutex_lock(&n->lock);
        ended = p->ended;
        if (--p->orders == 0) {
                DL_DELETE(n->watched, p);
                free(p);
        }
        pthread_mutex_unlock(&n->lock);
        return ended;
}

static void drop_notes(struct actuator_notes *n, pid_t pid, uint64_t start_ticks)
{
        size_t kept = 0;

        for (size_t i = 0; i < n->count; i++)
                if (n->list[i].pid != pid || n->list[i].start_ticks != start_ticks)
                        n->list[kept++] = n->list[i];
        n->count = kept;
}

void group_notes_ended(struct actuator_notes *n, pid_t pid, uint64_t start_ticks)
{
        struct watched_process *p;

        pthread_mutex_lock(&n->lock);
        p = find(n, pid, start_ticks);
        if (p)
                p->ended = true;
        drop_notes(n, pid, start_ticks);
        pthread_mutex_unlock(&n->lock);
}
