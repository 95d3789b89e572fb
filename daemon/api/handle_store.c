/* SPDX-License-Identifier: Apache-2.0 */

/* store.flush, store.prune: both wait for the database's writer, in a worker. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/handlers.h"
#include "api/internal.h"
#include "util/time.h"

struct order {
        struct store *store;
        uint64_t older_than_ns;
        bool sums;
        uint64_t deleted;
};

static void order_start(struct api_call *call, const struct query_ops *ops, struct order wanted)
{
        struct api_server *s = call->server;
        struct order *o = malloc(sizeof(*o));

        if (!o) {
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
                return;
        }
        *o = wanted;
        o->store = s->backend->store(s->data);
        query_start(call, ops, o);
}

/* Why the writer did not do it. */
static int say_why(struct api_call *call, struct store *store, int error)
{
        struct store_status status;
        const char *why = "the database's writer is busy: try again, or raise query_timeout_ms";

        if (error == 0)
                return 0;
        store_get_status(store, &status);
        if (status.failing)
                why = status.error;
        else if (error == -EBUSY)
                why = "somebody else prunes: try again";
        snprintf(call->query_why, sizeof(call->query_why), "%s", why);
        return error == -ETIMEDOUT && !status.failing ? -ETIME : -EIO;
}

/* ---- store.flush ---- */

static int flush(struct api_call *call, struct store_reader *reader, void *query)
{
        struct order *o = query;

        return say_why(call, o->store, store_flush(o->store, call->timeout_ms * NSEC_PER_MSEC));
}

static void flush_done(struct api_call *call, void *query)
{
        struct order *o = query;
        struct store_status status;

        store_get_status(o->store, &status);
        api_call_reply(call, &(struct gpuobs_flushed){.launches = status.launches}, NULL, 0);
}

static const struct query_ops flush_ops = {
        .run = flush, .done = flush_done, .free = free, .without_reader = true};

void api_handle_store_flush(struct api_call *call, const struct gpuobs_flush_params *params)
{
        order_start(call, &flush_ops, (struct order){0});
}

/* ---- store.prune ---- */

static int prune(struct api_call *call, struct store_reader *reader, void *query)
{
        struct order *o = query;

        return say_why(call, o->store,
                       store_prune(o->store, o->older_than_ns, o->sums,
                                   call->timeout_ms * NSEC_PER_MSEC, &o->deleted));
}

static void prune_done(struct api_call *call, void *query)
{
        struct order *o = query;

        api_call_reply(call, &(struct gpuobs_pruned){.launches = o->deleted}, NULL, 0);
}

static const struct query_ops prune_ops = {
        .run = prune, .done = prune_done, .free = free, .without_reader = true};

void api_handle_store_prune(struct api_call *call, const struct gpuobs_prune_params *params)
{
        if (params->older_than_s > UINT64_MAX / NSEC_PER_SEC)
                api_call_fail_param(call, "older_than_s", "is out of range");
        else
                order_start(call, &prune_ops,
                            (struct order){.older_than_ns = params->older_than_s * NSEC_PER_SEC,
                                           .sums = params->has_sums && params->sums});
}
