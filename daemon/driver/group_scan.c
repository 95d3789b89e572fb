/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/group_scan.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/driver_abi.h"
#include "util/macro.h"

#define GET_CHILD_HANDLE 0x0d05u /* of a client (ctrl0000client.h) */

/* RM's own number of the class Device (g_device_nvoc.h): GET_CHILD_HANDLE wants such. */
#define INTERNAL_CLASS_DEVICE 0xe0ac20u

#define CLIENT_INDEX_MASK 0xfffffu /* RS_CLIENT_HANDLE_MAX */
#define HANDLE_BASE_MASK  0xffff0000u

/* Others wait for RM's lock meanwhile: the scan takes pauses. */
#define ASKED_PER_PAUSE 1024
#define PAUSE_US        1000

struct child_handle {
        uint32_t parent, class, object;
};

/* All objects of a client that matter, of whatever class. */
struct objects {
        struct group_scan_object list[GROUP_SCAN_OBJECTS_MAX];
        size_t count;
};

struct scanner {
        const struct tsg_system *system;
        struct tsg_target target;
        struct tsg *file;
        struct group_scan *scan;
        struct objects objects;
        uint32_t clients[GROUP_SCAN_FILES_MAX]; /* one of each file that has any */
        size_t client_count;
};

DEFINE_CLEANUP(struct tsg *, tsg_close)

/* ---- questions ---- */

static bool may_ask(const struct scanner *s)
{
        return s->scan->asked < GROUP_SCAN_ASKED_MAX;
}

static void count_question(struct scanner *s)
{
        if (++s->scan->asked % ASKED_PER_PAUSE == 0)
                usleep(PAUSE_US);
}

static int ask_info(struct scanner *s, uint32_t client, uint32_t object, enum rm_handle_info info,
                    uint32_t *ret_value)
{
        count_question(s);
        return rm_handle_info_on(s->system->rm, tsg_fd(s->file), client, object, info, ret_value);
}

/* -ENOENT: none. */
static int ask_device(struct scanner *s, uint32_t client, uint32_t *ret_handle)
{
        struct child_handle p = {.parent = client, .class = INTERNAL_CLASS_DEVICE};
        int r;

        count_question(s);
        r = rm_control_on(s->system->rm, tsg_fd(s->file), client, client, GET_CHILD_HANDLE, &p,
                          sizeof(p));
        if (r == 0 && !p.object)
                return -ENOENT;
        if (r == 0)
                *ret_handle = p.object;
        return r;
}

/* ---- what is kept ---- */

static bool is_of_generations(uint32_t class, uint32_t kind)
{
        return class > 0x9000 && (class & 0xff) == kind;
}

static bool is_channel(uint32_t class)
{
        return is_of_generations(class, DRIVER_CLASS_CHANNEL);
}

static bool is_compute(uint32_t class)
{
        return is_of_generations(class, DRIVER_CLASS_COMPUTE);
}

static bool matters(uint32_t class)
{
        return class == DRIVER_CLASS_CHANNEL_GROUP || is_channel(class) || is_compute(class);
}

static const struct group_scan_object *find(const struct objects *o, uint32_t handle)
{
        for (size_t i = 0; i < o->count; i++)
                if (o->list[i].object == handle)
                        return &o->list[i];
        return NULL;
}

/* Kernels run where a compute object is: under one of the group's channels. */
static bool runs_kernels(const struct objects *o, uint32_t group)
{
        for (size_t i = 0; i < o->count; i++) {
                const struct group_scan_object *channel =
                        is_compute(o->list[i].class) ? find(o, o->list[i].parent) : NULL;

                if (channel && (channel->object == group || channel->parent == group))
                        return true;
        }
        return false;
}

/* The same file may be open under several numbers. */
static bool is_known(const struct group_scan *scan, const struct group_scan_object *object)
{
        for (size_t i = 0; i < scan->count; i++)
                if (scan->objects[i].client == object->client &&
                    scan->objects[i].object == object->object)
                        return true;
        return false;
}

static void keep(struct scanner *s, const struct group_scan_object *object)
{
        if (is_known(s->scan, object))
                return;
        if (s->scan->count == GROUP_SCAN_OBJECTS_MAX)
                s->scan->objects_beyond++;
        else
                s->scan->objects[s->scan->count++] = *object;
}

static void keep_groups(struct scanner *s)
{
        const struct objects *o = &s->objects;

        for (size_t i = 0; i < o->count; i++)
                if (o->list[i].class == DRIVER_CLASS_CHANNEL_GROUP &&
                    runs_kernels(o, o->list[i].object))
                        keep(s, &o->list[i]);
        for (size_t i = 0; i < o->count; i++)
                if (is_channel(o->list[i].class) && runs_kernels(o, o->list[i].parent))
                        keep(s, &o->list[i]);
}

/* ---- the scan ---- */

static int look_at_handle(struct scanner *s, uint32_t client, uint32_t handle)
{
        struct group_scan_object o = {.fd = s->target.fd, .client = client, .object = handle};
        int r = ask_info(s, client, handle, RM_INFO_CLASS, &o.class);

        if (r < 0 || !matters(o.class))
                return r == -ENOENT ? 0 : r;
        r = ask_info(s, client, handle, RM_INFO_PARENT, &o.parent);
        if (r < 0)
                return r == -ENOENT ? 0 : r; /* freed meanwhile */
        if (s->objects.count == GROUP_SCAN_OBJECTS_MAX)
                s->scan->objects_beyond++;
        else
                s->objects.list[s->objects.count++] = o;
        return 0;
}

static int scan_client(struct scanner *s, uint32_t client)
{
        uint32_t device;
        int r = ask_device(s, client, &device);

        s->objects.count = 0;
        for (uint32_t i = 0; r == 0 && i < GROUP_SCAN_HANDLES && may_ask(s); i++)
                r = look_at_handle(s, client, (device & HANDLE_BASE_MASK) + i);
        if (r == 0)
                keep_groups(s);
        return r == -ENOENT ? 0 : r;
}

static int scan_file(struct scanner *s, uint32_t newest)
{
        uint32_t index = newest & CLIENT_INDEX_MASK;
        uint32_t last = index > GROUP_SCAN_CLIENTS_MAX ? index - GROUP_SCAN_CLIENTS_MAX : 0;
        uint32_t found = 0;
        int r = 0;

        for (uint32_t i = index; r == 0 && i-- > last && may_ask(s);) {
                uint32_t client = (newest & ~CLIENT_INDEX_MASK) | i, class;

                r = ask_info(s, client, client, RM_INFO_CLASS, &class);
                found = r == 0 ? client : found;
                r = r == 0 ? scan_client(s, client) : r == -ENOENT ? 0 : r;
        }
        if (found)
                s->clients[s->client_count++] = found;
        s->scan->files += may_ask(s);
        s->scan->files_beyond += !may_ask(s);
        return r;
}

/* A client is valid in its own file alone. */
static bool was_scanned(struct scanner *s)
{
        uint32_t class;

        for (size_t i = 0; i < s->client_count; i++)
                if (ask_info(s, s->clients[i], s->clients[i], RM_INFO_CLASS, &class) == 0)
                        return true;
        return false;
}

static int scan_descriptor(struct scanner *s, int fd, uint32_t newest)
{
        _cleanup_(tsg_closep) struct tsg *file = NULL;
        int r;

        s->target.fd = fd;
        r = tsg_open(s->system, &s->target, &file);
        if (r < 0)
                return r == -EBADF || r == -ENODEV ? 0 : r; /* closed meanwhile */
        s->file = file;
        return was_scanned(s) ? 0 : scan_file(s, newest);
}

static int scan_all(struct scanner *s, const int *fds, size_t count)
{
        uint32_t newest;
        int r = rm_newest_client(s->system->rm, &newest);

        for (size_t i = 0; r == 0 && i < count; i++) {
                if (may_ask(s))
                        r = scan_descriptor(s, fds[i], newest);
                else
                        s->scan->files_beyond++;
        }
        return r;
}

int group_scan(const struct tsg_system *system, pid_t pid, uint64_t start_ticks,
               struct group_scan *ret_scan)
{
        _cleanup_free_ struct scanner *s = calloc(1, sizeof(*s));
        int fds[GROUP_SCAN_FILES_MAX], n;

        if (!s)
                return -ENOMEM;
        *ret_scan = (struct group_scan){0};
        s->system = system;
        s->target = (struct tsg_target){.pid = pid, .start_ticks = start_ticks};
        s->scan = ret_scan;
        n = system->list_controls(pid, fds, ARRAY_SIZE(fds));
        if (n <= 0)
                return n == -ENOENT ? -ESRCH : n;
        if (n > GROUP_SCAN_FILES_MAX)
                ret_scan->files_beyond = (size_t)n - GROUP_SCAN_FILES_MAX;
        return scan_all(s, fds, n < GROUP_SCAN_FILES_MAX ? (size_t)n : GROUP_SCAN_FILES_MAX);
}
