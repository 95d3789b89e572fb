/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/detacher.h"

#include <pthread.h>

#include "probe/uprobe.h"
#include "util/macro.h"
#include "util/thread.h"

struct work {
        struct uprobe_links links;
        struct work *next;
};

/* The thread lives as long as there is something to do; the next piece of work starts another. */
struct detacher {
        pthread_mutex_t lock;
        struct work *todo;
        bool running;
        bool started; /* to be joined; the main thread's own */
        pthread_t thread;
};

struct detacher *detacher_new(void)
{
        struct detacher *d = calloc(1, sizeof(*d));

        if (d)
                pthread_mutex_init(&d->lock, NULL);
        return d;
}

/* NULL: nothing left, and the thread is about to end. */
static struct work *next_work(struct detacher *d)
{
        struct work *w;

        pthread_mutex_lock(&d->lock);
        w = d->todo;
        if (w)
                d->todo = w->next;
        else
                d->running = false;
        pthread_mutex_unlock(&d->lock);
        return w;
}

static void *detach(void *data)
{
        struct detacher *d = data;
        struct work *w;

        while ((w = next_work(d))) {
                uprobe_links_done(&w->links);
                free(w);
        }
        return NULL;
}

static void join(struct detacher *d)
{
        if (d->started)
                pthread_join(d->thread, NULL);
        d->started = false;
}

static int start(struct detacher *d)
{
        int r;

        join(d);
        r = thread_start(&d->thread, detach, d);
        d->started = r == 0;
        return r;
}

void detacher_take(struct detacher *d, struct uprobe_links *links)
{
        struct work *w;
        bool running;

        if (links->fd_count == 0 && links->link_count == 0) {
                uprobe_links_done(links);
                return;
        }
        w = malloc(sizeof(*w));
        if (!w) {
                uprobe_links_done(links);
                return;
        }
        w->links = *links;
        *links = (struct uprobe_links){0};

        pthread_mutex_lock(&d->lock);
        w->next = d->todo;
        d->todo = w;
        running = d->running;
        d->running = true;
        pthread_mutex_unlock(&d->lock);
        if (!running && start(d) < 0)
                detach(d);
}

struct detacher *detacher_free(struct detacher *d)
{
        if (!d)
                return NULL;
        join(d);
        pthread_mutex_destroy(&d->lock);
        free(d);
        return NULL;
}
