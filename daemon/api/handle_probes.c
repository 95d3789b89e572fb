/* SPDX-License-Identifier: Apache-2.0 */

/* probes.list, .load, .show, .attach, .detach, .unload */
#include <errno.h>

#include "api/handlers.h"
#include "api/internal.h"
#include "api/probe_rows.h"
#include "util/log.h"

#define ERROR_BYTES 600

struct gathering {
        struct api_call *call;
        struct gpuobs_probe *rows;
        size_t count, room;
        bool failed;
};

static int count_probe(void *data, const struct api_probe *p)
{
        struct gathering *g = data;

        g->room++;
        return 0;
}

static int gather_probe(void *data, const struct api_probe *p)
{
        struct gathering *g = data;

        if (!probe_row(g->call, p, false, &g->rows[g->count]))
                g->failed = true;
        g->count++;
        return g->failed || g->count == g->room;
}

void api_handle_probes_list(struct api_call *call, const struct gpuobs_probes_params *params)
{
        struct gathering g = {.call = call};
        struct api_server *s = call->server;
        struct gpuobs_probes result = {0};

        s->backend->probes(s->data, count_probe, &g);
        g.rows = codec_arena_alloc(&call->arena, (g.room + 1) * sizeof(*g.rows));
        g.failed = !g.rows;
        if (g.rows && g.room)
                s->backend->probes(s->data, gather_probe, &g);
        if (g.failed) {
                api_call_fail_error(call, -ENOMEM, NULL);
                return;
        }
        result.probes = g.rows;
        result.n_probes = g.count;
        api_call_reply(call, &result, NULL, 0);
}

/* The row of the one that is named; false: the call has been failed. */
static bool gather_one(struct api_call *call, const char *name, bool ptx,
                       struct gpuobs_probe *ret_row)
{
        struct api_probe probe;

        if (!probe_find(call, name, &probe)) {
                api_call_fail_param(call, "name", "is not that of a loaded object");
                return false;
        }
        if (!probe_row(call, &probe, ptx, ret_row)) {
                api_call_fail_error(call, -ENOMEM, NULL);
                return false;
        }
        return true;
}

void api_handle_probes_show(struct api_call *call, const struct gpuobs_probe_show_params *p)
{
        struct gpuobs_probe_details result;

        if (gather_one(call, p->name, p->has_ptx && p->ptx, &result.probe))
                api_call_reply(call, &result, NULL, 0);
}

/* ---- changes ---- */

static struct api_target target_of(bool has_pid, uint32_t pid, const char *process, bool all,
                                   const char *kernels)
{
        return (struct api_target){
                .pid = has_pid ? pid : 0, .comm = process, .all = all, .kernels = kernels};
}

static bool check_target(struct api_call *call, bool has_pid, uint32_t pid)
{
        if (has_pid && !pid) {
                api_call_fail_param(call, "pid", "is not that of a process");
                return false;
        }
        return true;
}

void api_handle_probes_load(struct api_call *call, const struct gpuobs_probe_load_params *p)
{
        const struct api_target t =
                target_of(p->has_pid, p->pid, p->process, p->has_all && p->all, p->kernels);
        struct api_server *s = call->server;
        struct gpuobs_probe_loaded result;
        char error[ERROR_BYTES] = "", ignored[ERROR_BYTES];
        int r;

        if (!check_target(call, p->has_pid, p->pid))
                return;
        r = s->backend->probe_load(s->data, p->name, p->object, p->n_object, error, sizeof(error));
        if (r == 0 && (t.pid || t.comm || t.all)) {
                r = s->backend->probe_attach(s->data, p->name, &t, error, sizeof(error));
                if (r < 0)
                        (void)s->backend->probe_unload(s->data, p->name, ignored, sizeof(ignored));
        }
        if (r < 0) {
                api_call_fail_error(call, r, error);
                return;
        }
        log_notice("device programs %s were loaded for user %u", p->name, (unsigned)call->peer.uid);
        if (gather_one(call, p->name, false, &result.probe))
                api_call_reply(call, &result, NULL, 0);
}

void api_handle_probes_attach(struct api_call *call, const struct gpuobs_probe_attach_params *p)
{
        const struct api_target t =
                target_of(p->has_pid, p->pid, p->process, p->has_all && p->all, p->kernels);
        struct api_server *s = call->server;
        struct gpuobs_probe_attached result;
        char error[ERROR_BYTES] = "";
        int r;

        if (!check_target(call, p->has_pid, p->pid))
                return;
        r = s->backend->probe_attach(s->data, p->name, &t, error, sizeof(error));
        if (r < 0)
                api_call_fail_error(call, r, error);
        else if (gather_one(call, p->name, false, &result.probe))
                api_call_reply(call, &result, NULL, 0);
}

void api_handle_probes_detach(struct api_call *call, const struct gpuobs_probe_detach_params *p)
{
        const struct api_target t = {.pid = p->has_pid ? p->pid : 0};
        struct api_server *s = call->server;
        struct gpuobs_probe_detached result;
        char error[ERROR_BYTES] = "";
        int r;

        if (!check_target(call, p->has_pid, p->pid))
                return;
        r = s->backend->probe_detach(s->data, p->name, &t, error, sizeof(error));
        if (r < 0)
                api_call_fail_error(call, r, error);
        else if (gather_one(call, p->name, false, &result.probe))
                api_call_reply(call, &result, NULL, 0);
}

void api_handle_probes_unload(struct api_call *call, const struct gpuobs_probe_unload_params *p)
{
        struct gpuobs_probe_unloaded result = {0};
        struct api_server *s = call->server;
        char error[ERROR_BYTES] = "";
        int r = s->backend->probe_unload(s->data, p->name, error, sizeof(error));

        if (r < 0) {
                api_call_fail_error(call, r, error);
                return;
        }
        log_notice("device programs %s were unloaded for user %u", p->name,
                   (unsigned)call->peer.uid);
        api_call_reply(call, &result, NULL, 0);
}
