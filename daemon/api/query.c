/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Queries of the database: at most limits.queries at a time in libuv's thread
 * pool, each with a reader of its own that is kept for the next one. The rest
 * wait in order, but a uid that has nothing running goes first, and a uid that
 * is not privileged never takes the last worker when there are several.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "api/internal.h"

static void start_waiting(struct api_server *s);

bool query_cancelled(struct api_call *call)
{
        return atomic_load(&call->cancelled);
}

/* ---- in a worker ---- */

/* The database's own sentence, while the reader is there to ask; or what was said already. */
static void say_why(struct api_call *call)
{
        const char *why = call->reader ? store_reader_error(call->reader) : "";

        if (!call->query_why[0])
                snprintf(call->query_why, sizeof(call->query_why), "%s",
                         *why ? why : strerror(-call->query_error));
}

static void work(uv_work_t *request)
{
        struct api_call *call = request->data;

        if (query_cancelled(call)) {
                call->query_error = -ECANCELED;
                return;
        }
        call->query_error = 0;
        if (!call->reader && !call->ops->without_reader)
                call->query_error = store_reader_new(call->server->store_path, &call->reader);
        if (call->query_error == 0)
                call->query_error = call->ops->run(call, call->reader, call->query);
        if (call->query_error < 0)
                say_why(call);
}

/* ---- on the loop ---- */

/* A reader after an error may be of a file that is gone: only good ones are kept. */
static void keep_reader(struct api_server *s, struct api_call *call)
{
        bool good = call->query_error == 0 || call->query_error == -ECANCELED ||
                    call->query_error == -ETIME;

        if (call->reader && good && !s->closing)
                s->readers[s->reader_count++] = call->reader;
        else
                store_reader_free(call->reader);
        call->reader = NULL;
}

static void answer(struct api_call *call)
{
        if (call->query_error == 0)
                call->ops->done(call, call->query);
        else if (call->query_error == -ETIME)
                api_call_fail(call, GPUOBS_ERROR_TIMEOUT, NULL, call->query_why);
        else
                api_call_fail(call, GPUOBS_ERROR_STORE_FAILED, NULL, call->query_why);
}

static void query_end(struct api_call *call)
{
        const struct query_ops *ops = call->ops;
        void *query = call->query;

        if (call->connection)
                answer(call);
        else
                api_call_end(call);
        ops->free(query);
}

static void after_work(uv_work_t *request, int status)
{
        struct api_call *call = request->data;
        struct api_server *s = call->server;

        s->running--;
        call->account->queries--;
        if (status < 0)
                call->query_error = status;
        keep_reader(s, call);
        query_end(call);
        start_waiting(s);
        server_release(s);
}

static void start(struct api_server *s, struct api_call *call)
{
        call->work.data = call;
        if (s->reader_count && !call->ops->without_reader)
                call->reader = s->readers[--s->reader_count];
        if (uv_queue_work(s->loop, &call->work, work, after_work) < 0) {
                call->query_error = -EAGAIN;
                say_why(call);
                keep_reader(s, call);
                query_end(call);
                return;
        }
        s->running++;
        s->open++;
        call->account->queries++;
}

static bool may_start(const struct api_server *s, const struct api_call *call)
{
        return call->peer.privileged || s->limits.queries == 1 ||
               call->account->queries + 1 < s->limits.queries;
}

static struct api_call *next_waiting(const struct api_server *s)
{
        struct api_call *call, *first = NULL;

        LL_FOREACH2(s->waiting, call, next_waiting)
        {
                if (!may_start(s, call))
                        continue;
                if (!call->account->queries)
                        return call;
                if (!first)
                        first = call;
        }
        return first;
}

/* Queries nobody waits for are thrown out wherever they stand. */
static void drop_abandoned(struct api_server *s)
{
        struct api_call *call, *next;

        LL_FOREACH_SAFE2(s->waiting, call, next, next_waiting)
        {
                if (call->connection)
                        continue;
                LL_DELETE2(s->waiting, call, next_waiting);
                query_end(call);
        }
}

static void start_waiting(struct api_server *s)
{
        struct api_call *call;

        drop_abandoned(s);
        while (s->running < s->limits.queries && (call = next_waiting(s))) {
                LL_DELETE2(s->waiting, call, next_waiting);
                start(s, call);
        }
}

void query_start(struct api_call *call, const struct query_ops *ops, void *query)
{
        struct api_server *s = call->server;

        call->ops = ops;
        call->query = query;
        call->timeout_ms = s->limits.query_timeout_ms;
        if (!s->store_path && !ops->without_reader) {
                call->query_error = -ENOENT;
                say_why(call);
                query_end(call);
                return;
        }
        LL_APPEND2(s->waiting, call, next_waiting);
        start_waiting(s);
}

void query_free_readers(struct api_server *s)
{
        while (s->reader_count)
                store_reader_free(s->readers[--s->reader_count]);
}
