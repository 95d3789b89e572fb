/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch.h"
#include "clock.h"
#include "control.h"
#include "grid_check.h"
#include "launches.h"
#include "pace.h"
#include "session.h"

#define WAIT_MS      1000 /* for a GPU that is busy, at the first image */
#define LATE_WAIT_MS 3000 /* ... in a process that works already; it does not wait for this */

/* Everything that is known of the process before the daemon answers. */
struct opening {
        struct session *session;
        struct wire_welcome welcome;
        void *blob; /* the daemon's own programs */
        char *reason;
};

static int refuse(struct opening *o, int error, const char *reason)
{
        snprintf(o->reason, SESSION_REASON_BYTES, "%s", reason);
        return error;
}

static int refuse_cuda(struct opening *o, const char *what, int result)
{
        snprintf(o->reason, SESSION_REASON_BYTES, "%s: %s", what,
                 cuda_error_name(o->session->api, result));
        return -EIO;
}

static int read_sm(const struct cuda_api *api, int device, uint32_t *ret_sm)
{
        int major = 0, minor = 0, r;

        r = api->device_get_attribute(&major, CUDA_ATTRIBUTE_MAJOR, device);
        if (r == CUDA_OK)
                r = api->device_get_attribute(&minor, CUDA_ATTRIBUTE_MINOR, device);
        *ret_sm = (uint32_t)(10 * major + minor);
        return r;
}

/* The device in use: of the current context, else one whose primary context lives, else 0. */
static int choose_device(const struct cuda_api *api, int count)
{
        cuda_handle context = NULL;
        unsigned flags;
        int device, active;

        if (api->context_get_current(&context) == CUDA_OK && context &&
            api->context_get_device(&device) == CUDA_OK)
                return device;
        for (int i = 0; i < count && api->primary_get_state; i++)
                if (api->device_get(&device, i) == CUDA_OK &&
                    api->primary_get_state(device, &flags, &active) == CUDA_OK && active)
                        return device;
        return api->device_get(&device, 0) == CUDA_OK ? device : 0;
}

static int inspect_devices(struct opening *o)
{
        struct session *s = o->session;
        int r;

        r = s->api->device_get_count(&s->device_count);
        if (r != CUDA_OK || s->device_count < 1)
                return refuse_cuda(o, "the devices cannot be listed", r);
        s->device = choose_device(s->api, s->device_count);
        r = read_sm(s->api, s->device, &s->sm);
        return r == CUDA_OK ? 0 : refuse_cuda(o, "the device cannot be read", r);
}

static int check_same_sm(struct opening *o)
{
        struct session *s = o->session;

        for (int i = 0; i < s->device_count; i++) {
                uint32_t sm = 0;
                int device;

                if (s->api->device_get(&device, i) != CUDA_OK ||
                    read_sm(s->api, device, &sm) != CUDA_OK || sm != s->sm)
                        return refuse(o, -ENOTSUP, "GPUs of different architectures");
        }
        return 0;
}

/*
 * A device whose UUID cannot be had is one the daemon does not know. With more than
 * there is room for nothing is probed anyway (gpu_maps.c).
 */
static void name_devices(const struct session *s, struct agent_hello *hello)
{
        hello->device_count = (uint32_t)s->device_count;
        if (hello->device_count > AGENT_DEVICES_MAX)
                hello->device_count = AGENT_DEVICES_MAX;
        if (hello->device >= hello->device_count)
                hello->device = 0;
        for (uint32_t i = 0; i < hello->device_count && s->api->device_get_uuid; i++) {
                int device;

                if (s->api->device_get(&device, (int)i) == CUDA_OK)
                        s->api->device_get_uuid((struct cuda_uuid *)hello->device_uuids[i], device);
        }
}

static int shake_hands(struct opening *o)
{
        struct session *s = o->session;
        struct agent_hello hello = {.sm = s->sm, .device = (uint32_t)s->device};
        int version = 0, r;

        s->api->driver_get_version(&version);
        hello.driver_version = (uint32_t)version;
        name_devices(s, &hello);
        r = wire_hello(s->wire, &hello, &o->welcome);
        s->welcome = o->welcome.welcome;
        if (r == -EACCES)
                return refuse(o, r, o->welcome.refusal);
        return r < 0 ? refuse(o, r, "the daemon does not answer") : 0;
}

static int read_blob(struct opening *o)
{
        uint64_t size = o->welcome.welcome.blob_bytes;

        if (!size || size > PROGRAMS_BYTES_MAX)
                return refuse(o, -EPROTO, "the daemon's programs have an impossible size");
        o->blob = programs_read(o->welcome.blob_fd, size);
        return o->blob ? 0 : refuse(o, -EPROTO, "the daemon's programs cannot be read");
}

static int map_ring(struct opening *o)
{
        int r = ring_map(o->welcome.map_fd, &o->welcome.welcome);

        if (r == -EEXIST)
                return refuse(o, r, "the shared map's address is taken");
        return r < 0 ? refuse(o, r, "the shared map cannot be mapped") : 0;
}

/* Records do without context and stream where that is not known for sure. */
static void find_layout(struct session *s)
{
        const char *why = "not known for this architecture";

        s->layout = grid_layout_find(s->sm);
        if (s->layout)
                why = grid_check(s->api, s->wire, s->layout, s->late ? LATE_WAIT_MS : WAIT_MS);
        if (!why)
                return;
        s->layout = NULL;
        wire_note(s->wire, AGENT_NOTE_INFO, "GPU records do not tell context and stream: %s", why);
}

/* Every map of the daemon's own programs in host memory is the ring. */
static int add_own_programs(struct opening *o)
{
        struct session *s = o->session;
        struct probe_object own = {.blob = o->blob, .blob_bytes = o->welcome.welcome.blob_bytes};
        const char *code_refusal;
        int r;

        for (int i = 0; i < AGENT_MAP_MAX; i++)
                own.host[i] = s->welcome.ring_address;
        r = probe_set_add(s->set, &own, o->reason);
        if (r < 0)
                return r;
        code_refusal = probe_set_code_refusal(s->set, 0);
        if (code_refusal && arch_find(s->sm))
                wire_note(s->wire, AGENT_NOTE_INFO, "no probes for machine code: %s", code_refusal);
        return 0;
}

static int place_and_build(struct opening *o)
{
        struct session *s = o->session;
        struct probe_set_options options = {
                .place = {s->api, s->device, s->device_count},
                .sm = s->sm,
                .map_bytes = s->welcome.map_bytes,
        };
        const char *refusal = gpu_place_check(&options.place);

        if (!refusal)
                refusal = ring_register(s->api, &s->welcome);
        if (refusal)
                return refuse(o, -ENOTSUP, refusal);
        find_layout(s);
        options.layout = s->layout;
        s->set = probe_set_new(&options);
        return s->set ? add_own_programs(o) : refuse(o, -ENOMEM, "out of memory");
}

/* Programs that are to be in from the first image on; where that fails only they are missing. */
static void hear_daemon(struct session *s)
{
        int r = control_start(s->wire, s->welcome.attach_count);

        if (r < 0)
                wire_note(s->wire, AGENT_NOTE_ERROR, "the daemon will not be heard any more: %s",
                          strerror(-r));
}

static int in_primary_context(struct opening *o)
{
        struct session *s = o->session;
        cuda_handle popped;
        int r;

        r = s->api->primary_retain(&s->context, s->device);
        if (r != CUDA_OK)
                return refuse_cuda(o, "the primary context cannot be had", r);
        r = s->api->context_push(s->context);
        if (r != CUDA_OK)
                return refuse_cuda(o, "the primary context cannot be used", r);
        r = place_and_build(o);
        if (r == 0)
                hear_daemon(s);
        s->api->context_pop(&popped);
        return r;
}

static void start_clock(struct session *s)
{
        int r;

        if (!s->welcome.clock_devices)
                return;
        r = clock_start(s->api, s->wire, s->context, s->device, s->welcome.clock_devices);
        if (r < 0)
                wire_note(s->wire, AGENT_NOTE_ERROR, "the clock thread cannot be started: %s",
                          strerror(-r));
}

/* Where that cannot be, launches stay with the kernel's probes. */
static void record_launches(const struct opening *o)
{
        const char *refusal;

        if (o->welcome.launch_fd < 0)
                return;
        refusal = launches_begin(o->session->api, o->session->wire, o->welcome.launch_fd);
        if (refusal)
                wire_note(o->session->wire, AGENT_NOTE_INFO, "launches are left to the kernel: %s",
                          refusal);
        else
                pace_begin(o->session->api, launches_map(),
                           (const void *)(uintptr_t)o->welcome.welcome.ring_address,
                           o->welcome.welcome.ring_entries);
}

int session_open(const struct cuda_api *api, struct wire *wire, bool late,
                 struct session *ret_session, char reason[SESSION_REASON_BYTES])
{
        struct opening o = {.session = ret_session,
                            .welcome = {.map_fd = -1, .blob_fd = -1, .launch_fd = -1},
                            .reason = reason};
        int r;

        *ret_session = (struct session){.api = api, .wire = wire, .late = late};
        r = inspect_devices(&o);
        if (r == 0)
                r = shake_hands(&o);
        if (r == 0)
                r = check_same_sm(&o);
        if (r == 0)
                r = read_blob(&o);
        if (r == 0)
                r = map_ring(&o);
        if (r == 0)
                r = in_primary_context(&o);
        if (r == 0)
                record_launches(&o);
        if (r == 0)
                start_clock(ret_session);
        wire_welcome_done(&o.welcome);
        free(o.blob);
        return r;
}

void session_close(struct session *s)
{
        cuda_handle popped;

        if (!s->context || s->api->context_push(s->context) != CUDA_OK)
                return;
        probe_set_free(s->set);
        ring_unregister(s->api, &s->welcome);
        s->api->context_pop(&popped);
        if (s->api->primary_release)
                s->api->primary_release(s->device);
        *s = (struct session){0};
}

const char *session_revive(struct session *s, cuda_handle context)
{
        const char *refusal;
        cuda_handle popped;

        if (s->api->context_push(context) != CUDA_OK)
                return "the primary context cannot be used after a reset";
        refusal = ring_register(s->api, &s->welcome);
        if (!refusal)
                refusal = probe_set_revive(s->set);
        s->api->context_pop(&popped);
        /* A reset counts nobody's references: take ours again. */
        if (!refusal && s->api->primary_retain(&s->context, s->device) != CUDA_OK)
                refusal = "the primary context cannot be had after a reset";
        if (!refusal)
                start_clock(s);
        return refusal;
}

/* Is this the primary context of its device? Asking does not create one. */
static bool is_primary(const struct session *s, cuda_handle context)
{
        int device;

        if (context == s->context)
                return true;
        return s->api->context_get_device(&device) == CUDA_OK && device != s->device &&
               cuda_primary_context(s->api, device) == context;
}

const char *session_context_refusal(const struct session *s)
{
        cuda_handle context = cuda_current_context(s->api);

        if (!context)
                return NULL; /* a library, or a call that will fail anyway */
        if (GPU_MAPS_IN_ANY_CONTEXT || is_primary(s, context))
                return NULL;
        return "loaded in a context that is not the device's primary one";
}

struct rewrite_probes session_probes(const struct session *s)
{
        struct rewrite_probes probes = {
                .sm = s->sm, .list = *probe_set_list(s->set), .layout = s->layout};

        probes.list.rules = &s->rules;
        return probes;
}
