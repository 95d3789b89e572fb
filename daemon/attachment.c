/* SPDX-License-Identifier: Apache-2.0 */
#include "attachment.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utlist.h>

#include "api/agent_server.h"
#include "device/device_abi.h"
#include "device/program.h"
#include "observed.h"
#include "util/macro.h"
#include "util/time.h"

#define ANSWER_NS    (10 * NSEC_PER_SEC) /* an agent may have to load copies of many images */
#define REQUESTS_MAX 16

enum attachment_state {
        ATTACHMENT_ASKED,
        ATTACHMENT_ACTIVE,
        ATTACHMENT_REFUSED,
        ATTACHMENT_LEAVING, /* asked to go */
        ATTACHMENT_LEFT,    /* gone, but for memory that may still be used */
};

struct attachment {
        struct attachment *prev, *next;
        uint64_t id;
        enum attachment_state state;
        bool code;
        uint64_t gpu_bytes;
        char reason[240];
        uint64_t asked_ns;
        int host_fds[AGENT_MAP_MAX]; /* kernel maps of maps in host memory; -1 none */
};

struct map_request {
        struct map_request *prev, *next;
        uint64_t number;
        uint64_t asked_ns;
        int fd; /* memfd the agent fills; -1 a write */
        uint64_t bytes;
        api_map_done *done;
        void *done_data;
};

static struct attachment *find(const struct observed *o, uint64_t id)
{
        struct attachment *a;

        DL_FOREACH(o->attachments, a)
        if (a->id == id)
                return a;
        return NULL;
}

static void attachment_free(struct observed *o, struct attachment *a)
{
        DL_DELETE(o->attachments, a);
        for (int i = 0; i < AGENT_MAP_MAX; i++)
                closep(&a->host_fds[i]);
        free(a);
}

static struct attachment *attachment_new(struct observed *o, uint64_t id)
{
        struct attachment *a = calloc(1, sizeof(*a));

        if (!a)
                return NULL;
        a->id = id;
        a->asked_ns = now_ns();
        for (int i = 0; i < AGENT_MAP_MAX; i++)
                a->host_fds[i] = -1;
        DL_APPEND(o->attachments, a);
        if (id > o->last_attachment)
                o->last_attachment = id;
        return a;
}

/* ---- coming ---- */

/*
 * A kernel map for each map in host memory: an array as the program declares it, so
 * that programs in the kernel can use it by the same keys; words for other types.
 */
static int make_host_map(const struct device_map_info *map)
{
        LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE);
        bool array = map->type == BPF_MAP_TYPE_ARRAY;
        uint32_t value = array ? map->value_size : 8;
        uint64_t entries = array ? map->max_entries : map->bytes / 8;

        if (entries > UINT32_MAX)
                return -E2BIG;
        return bpf_map_create(BPF_MAP_TYPE_ARRAY, "gpuobs_host", 4, value, (uint32_t)entries,
                              &options);
}

/* The blob, then the host maps in their order. How many, or -errno. */
static int gather_fds(struct attachment *a, const struct attach_what *what, int fds[AGENT_FDS_MAX])
{
        int n = 0;

        fds[n++] = what->blob_fd;
        for (size_t i = 0; i < device_object_map_count(what->object); i++) {
                const struct device_map_info *map = device_object_map(what->object, i);

                if (map->placement != GPUOBS_PLACE_HOST)
                        continue;
                a->host_fds[i] = make_host_map(map);
                if (a->host_fds[i] < 0)
                        return a->host_fds[i];
                fds[n++] = a->host_fds[i];
        }
        return n;
}

static int ask(struct observed *o, struct attachment *a, const struct attach_what *what)
{
        struct agent_attach m = {.id = what->id, .blob_bytes = what->blob_bytes};
        int fds[AGENT_FDS_MAX];
        int n = gather_fds(a, what, fds);

        if (n < 0)
                return n;
        m.host_maps = (uint32_t)n - 1;
        snprintf(m.kernels, sizeof(m.kernels), "%s", what->kernels);
        return agent_send(o->agent, AGENT_ATTACH, &m, sizeof(m), fds, (size_t)n);
}

int attachment_begin(struct observed *o, const struct attach_what *what)
{
        struct attachment *a = find(o, what->id);
        int r;

        if (a && (a->state == ATTACHMENT_ASKED || a->state == ATTACHMENT_ACTIVE))
                return 0;
        if (a && a->state == ATTACHMENT_LEAVING)
                return -EBUSY;
        if (a)
                attachment_free(o, a);
        a = attachment_new(o, what->id);
        if (!a)
                return -ENOMEM;
        r = ask(o, a, what);
        if (r < 0) {
                a->state = ATTACHMENT_REFUSED;
                snprintf(a->reason, sizeof(a->reason), "the agent cannot be told: %s",
                         strerror(-r));
        }
        return r;
}

static bool was_asked(uint64_t number, uint64_t last)
{
        return number > 0 && number <= last;
}

bool attachment_answered(struct observed *o, const struct agent_attached *m)
{
        struct attachment *a = find(o, m->id);

        if (!a || a->state != ATTACHMENT_ASKED)
                return was_asked(m->id, o->last_attachment);
        a->state = m->result == 0 ? ATTACHMENT_ACTIVE : ATTACHMENT_REFUSED;
        a->code = m->code != 0;
        a->gpu_bytes = m->gpu_bytes;
        snprintf(a->reason, sizeof(a->reason), "%s", m->reason);
        return true;
}

/* ---- going ---- */

int attachment_end(struct observed *o, uint64_t id)
{
        struct attachment *a = find(o, id);
        struct agent_detach m = {.id = id};
        int r;

        if (!a || a->state == ATTACHMENT_LEAVING || a->state == ATTACHMENT_LEFT)
                return -ENOENT;
        if (a->state == ATTACHMENT_REFUSED) {
                attachment_free(o, a);
                return 0;
        }
        r = agent_send(o->agent, AGENT_DETACH, &m, sizeof(m), NULL, 0);
        a->state = ATTACHMENT_LEAVING;
        a->asked_ns = now_ns();
        if (r < 0)
                snprintf(a->reason, sizeof(a->reason), "the agent cannot be told: %s",
                         strerror(-r));
        return 0;
}

bool attachment_left(struct observed *o, const struct agent_detached *m)
{
        struct attachment *a = find(o, m->id);

        if (!a || (a->state != ATTACHMENT_LEAVING && a->state != ATTACHMENT_LEFT))
                return was_asked(m->id, o->last_attachment);
        if (!m->kept_bytes) {
                attachment_free(o, a);
                return true;
        }
        a->state = ATTACHMENT_LEFT;
        a->gpu_bytes = m->kept_bytes;
        snprintf(a->reason, sizeof(a->reason),
                 "its memory stays while kernels that use it are loaded");
        return true;
}

/* ---- maps ---- */

static void finish(struct observed *o, struct map_request *q, int result,
                   struct api_map_reading *reading)
{
        DL_DELETE(o->map_requests, q);
        o->map_request_count--;
        q->done(q->done_data, result, reading);
        closep(&q->fd);
        free(q);
}

static struct map_request *request_new(struct observed *o, uint64_t bytes, api_map_done *done,
                                       void *done_data)
{
        struct map_request *q = calloc(1, sizeof(*q));

        if (!q)
                return NULL;
        *q = (struct map_request){.number = ++o->last_map_request,
                                  .asked_ns = now_ns(),
                                  .fd = -1,
                                  .bytes = bytes,
                                  .done = done,
                                  .done_data = done_data};
        DL_APPEND(o->map_requests, q);
        o->map_request_count++;
        return q;
}

static int drop_request(struct observed *o, struct map_request *q, int error)
{
        DL_DELETE(o->map_requests, q);
        o->map_request_count--;
        closep(&q->fd);
        free(q);
        return error;
}

/* What the agent fills cannot shrink under us, nor take more than the map has. */
static int make_memfd(uint64_t bytes)
{
        _cleanup_close_ int fd = memfd_create("gpuobs-map", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0 ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW) < 0)
                return -errno;
        return TAKE_FD(fd);
}

int attachment_read(struct observed *o, const struct attach_map *map, api_map_done *done,
                    void *done_data)
{
        bool host = map->info->placement == GPUOBS_PLACE_HOST;
        struct agent_read_map m = {.id = map->id,
                                   .map = map->number,
                                   .bytes = host ? device_host_map_bytes(map->info)
                                                 : map->info->bytes};
        struct map_request *q;
        int r;

        if (o->map_request_count >= REQUESTS_MAX)
                return -EBUSY;
        q = request_new(o, m.bytes, done, done_data);
        if (!q)
                return -ENOMEM;
        q->fd = make_memfd(m.bytes);
        if (q->fd < 0)
                return drop_request(o, q, q->fd);
        m.request = q->number;
        r = agent_send(o->agent, AGENT_READ_MAP, &m, sizeof(m), &q->fd, 1);
        return r < 0 ? drop_request(o, q, r) : 0;
}

int attachment_write(struct observed *o, const struct attach_map *map, uint64_t offset,
                     const void *bytes, size_t size, api_map_done *done, void *done_data)
{
        struct {
                struct agent_write_map head;
                uint8_t bytes[AGENT_WRITE_MAX];
        } m = {.head = {.id = map->id,
                        .map = map->number,
                        .offset = offset,
                        .bytes = (uint32_t)size}};
        struct map_request *q;
        int r;

        if (size > sizeof(m.bytes))
                return -EMSGSIZE;
        if (o->map_request_count >= REQUESTS_MAX)
                return -EBUSY;
        q = request_new(o, 0, done, done_data);
        if (!q)
                return -ENOMEM;
        m.head.request = q->number;
        memcpy(m.bytes, bytes, size);
        r = agent_send(o->agent, AGENT_WRITE_MAP, &m, sizeof(m.head) + size, NULL, 0);
        return r < 0 ? drop_request(o, q, r) : 0;
}

static int read_all(int fd, uint8_t *to, uint64_t bytes)
{
        for (uint64_t done = 0; done < bytes;) {
                ssize_t n = pread(fd, to + done, bytes - done, (off_t)done);

                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                done += (uint64_t)n;
        }
        return 0;
}

/* The agent may go on writing: it is looked at in a copy of our own. */
static void finish_read(struct observed *o, struct map_request *q, const struct agent_map_done *m)
{
        _cleanup_free_ uint8_t *bytes = malloc(q->bytes ?: 1);
        struct api_map_reading reading = {.bytes = bytes,
                                          .heap = bytes,
                                          .size = q->bytes,
                                          .settled = m->settled != 0,
                                          .before_ns = m->before_ns,
                                          .after_ns = m->after_ns};
        int r = bytes ? read_all(q->fd, bytes, q->bytes) : -ENOMEM;

        finish(o, q, r, r == 0 ? &reading : NULL);
        bytes = reading.heap;
}

bool attachment_map_done(struct observed *o, const struct agent_map_done *m)
{
        struct map_request *q;

        DL_FOREACH(o->map_requests, q)
        if (q->number == m->request)
                break;
        if (!q)
                return was_asked(m->request, o->last_map_request);
        if (m->result == 0 && q->fd >= 0)
                finish_read(o, q, m);
        else
                finish(o, q, m->result < 0 ? m->result : 0, NULL);
        return true;
}

/* ---- time, and the end ---- */

void attachments_tick(struct observed *o, uint64_t now)
{
        struct map_request *q, *next_q;
        struct attachment *a;

        DL_FOREACH_SAFE(o->map_requests, q, next_q)
        if (now - q->asked_ns > ANSWER_NS)
                finish(o, q, -ETIMEDOUT, NULL);
        DL_FOREACH(o->attachments, a)
        if ((a->state == ATTACHMENT_ASKED || a->state == ATTACHMENT_LEAVING) && !a->reason[0] &&
            now - a->asked_ns > ANSWER_NS)
                snprintf(a->reason, sizeof(a->reason), "the agent has not answered yet");
}

void attachments_done(struct observed *o)
{
        struct map_request *q, *next_q;
        struct attachment *a, *next_a;

        DL_FOREACH_SAFE(o->map_requests, q, next_q)
        finish(o, q, -EPIPE, NULL);
        DL_FOREACH_SAFE(o->attachments, a, next_a)
        attachment_free(o, a);
}

bool attachment_is_active(const struct observed *o, uint64_t id)
{
        const struct attachment *a = find(o, id);

        return o->agent && a && a->state == ATTACHMENT_ACTIVE;
}

bool attachment_describe(const struct observed *o, uint64_t id, struct api_attachment *ret_row)
{
        static const enum gpuobs_attached states[] = {
                [ATTACHMENT_ASKED] = GPUOBS_ATTACHED_ASKED,
                [ATTACHMENT_ACTIVE] = GPUOBS_ATTACHED_ACTIVE,
                [ATTACHMENT_REFUSED] = GPUOBS_ATTACHED_REFUSED,
                [ATTACHMENT_LEAVING] = GPUOBS_ATTACHED_LEAVING,
                [ATTACHMENT_LEFT] = GPUOBS_ATTACHED_LEFT,
        };
        const struct attachment *a = find(o, id);

        if (!id && o->agent) {
                ret_row->state = GPUOBS_ATTACHED_ACTIVE;
                ret_row->code = true;
                return true;
        }
        if (!a)
                return false;
        ret_row->state = states[a->state];
        ret_row->code = a->code;
        ret_row->gpu_bytes = a->gpu_bytes;
        ret_row->reason = a->reason[0] ? a->reason : NULL;
        return true;
}
