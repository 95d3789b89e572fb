/* SPDX-License-Identifier: Apache-2.0 */
#include <bpf/bpf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "probe/inner_maps.h"
#include "util/macro.h"
#include "util/thread.h"

#define CHANGES_MAX 8
#define NAP_NS      20000 /* between looks whether a change is in force */

struct change {
        pthread_t thread;
        bool started;
        bool done; /* set by the thread, which ends then */
        int result;
        int outer_fd, inner_fd;
        int before_fd; /* of the map that was there, -1 none: kernels before 6.7 free it too early
                        */
        uint32_t key;
        uint32_t map_id; /* of the map that is put in; 0: one is taken out */
};

struct inner_maps {
        struct change changes[CHANGES_MAX];
};

int inner_maps_new(struct inner_maps **ret_maps)
{
        *ret_maps = calloc(1, sizeof(**ret_maps));
        return *ret_maps ? 0 : -ENOMEM;
}

static void join(struct change *c)
{
        if (c->started)
                pthread_join(c->thread, NULL);
        c->started = false;
}

struct inner_maps *inner_maps_free(struct inner_maps *m)
{
        for (size_t i = 0; m && i < ARRAY_SIZE(m->changes); i++)
                join(&m->changes[i]);
        free(m);
        return NULL;
}

static int apply(struct change *c)
{
        int r = c->map_id ? bpf_map_update_elem(c->outer_fd, &c->key, &c->inner_fd, BPF_ANY)
                          : bpf_map_delete_elem(c->outer_fd, &c->key);

        if (c->before_fd >= 0)
                close(c->before_fd);
        c->before_fd = -1;
        return r;
}

static void *run(void *data)
{
        struct change *c = data;

        c->result = apply(c);
        __atomic_store_n(&c->done, true, __ATOMIC_RELEASE);
        return NULL;
}

/* Place for another change, or NULL. */
static struct change *find_place(struct inner_maps *m)
{
        for (size_t i = 0; i < ARRAY_SIZE(m->changes); i++) {
                struct change *c = &m->changes[i];

                if (c->started && !__atomic_load_n(&c->done, __ATOMIC_ACQUIRE))
                        continue;
                join(c);
                return c;
        }
        return NULL;
}

/* The id of the map in there, as the kernel shows maps of maps; 0 none. */
static uint32_t id_there(const struct change *c)
{
        uint32_t id = 0;

        return bpf_map_lookup_elem(c->outer_fd, &c->key, &id) < 0 ? 0 : id;
}

static int wait_in_force(const struct change *c)
{
        static const struct timespec nap = {.tv_nsec = NAP_NS};

        while (!__atomic_load_n(&c->done, __ATOMIC_ACQUIRE)) {
                if (id_there(c) == c->map_id)
                        return 0;
                nanosleep(&nap, NULL);
        }
        return c->result;
}

/* before: id of the map that is there, 0 none. */
static int make(struct inner_maps *m, struct change *wanted, uint32_t before)
{
        struct change *c = find_place(m);

        wanted->before_fd = before ? bpf_map_get_fd_by_id(before) : -1;
        if (!c)
                return apply(wanted);
        *c = *wanted;
        c->started = thread_start(&c->thread, run, c) == 0;
        return c->started ? wait_in_force(c) : apply(c);
}

static int read_id(int map_fd, uint32_t *ret_id)
{
        struct bpf_map_info info = {0};
        uint32_t size = sizeof(info);
        int r = bpf_obj_get_info_by_fd(map_fd, &info, &size);

        *ret_id = info.id;
        return r;
}

int inner_maps_set(struct inner_maps *m, int outer_fd, uint32_t key, int inner_fd)
{
        struct change c = {.outer_fd = outer_fd, .inner_fd = inner_fd, .key = key};
        int r = read_id(inner_fd, &c.map_id);
        uint32_t before = id_there(&c);

        if (r < 0)
                return r;
        return before == c.map_id ? 0 : make(m, &c, before);
}

int inner_maps_remove(struct inner_maps *m, int outer_fd, uint32_t key)
{
        struct change c = {.outer_fd = outer_fd, .inner_fd = -1, .key = key};
        uint32_t before = id_there(&c);

        return before ? make(m, &c, before) : -ENOENT;
}

void inner_maps_settle(struct inner_maps *m, uint32_t key)
{
        for (size_t i = 0; i < ARRAY_SIZE(m->changes); i++)
                if (m->changes[i].key == key)
                        join(&m->changes[i]);
}
