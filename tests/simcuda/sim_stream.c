/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Streams: the queues between the application's threads and the workers, the
 * order between them (legacy default stream, events), and the API on them.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

struct sim_stream *sim_stream_ref(struct sim_stream *stream)
{
        atomic_fetch_add(&stream->references, 1);
        return stream;
}

void sim_stream_unref(struct sim_stream *stream)
{
        if (!stream || atomic_fetch_sub(&stream->references, 1) != 1)
                return;
        pthread_mutex_destroy(&stream->lock);
        free(stream->ring);
        SIM_FREE(stream, STREAM);
}

static bool is_blocking(const struct sim_stream *stream)
{
        return !stream->is_legacy && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

CUresult sim_stream_new(struct sim_context *context, unsigned flags, int priority, bool is_legacy,
                        struct sim_stream **ret_stream)
{
        struct sim_stream *stream = SIM_NEW(struct sim_stream, STREAM);

        if (!stream)
                return CUDA_ERROR_OUT_OF_MEMORY;
        stream->ring = calloc(sim_driver.config.queue_entries, sizeof(*stream->ring));
        if (!stream->ring) {
                SIM_FREE(stream, STREAM);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        stream->references = 1;
        stream->wake_at = UINT64_MAX;
        stream->context = context;
        stream->flags = flags;
        stream->priority = priority;
        stream->is_legacy = is_legacy;
        sim_descriptors_of_stream(&stream->descriptors);
        stream->id = atomic_fetch_add(&context->next_stream_id, 1);
        pthread_mutex_init(&stream->lock, NULL);
        pthread_mutex_lock(&context->lock);
        stream->next = context->streams;
        stream->link = &context->streams;
        if (stream->next)
                stream->next->link = &stream->next;
        context->streams = stream;
        if (is_blocking(stream))
                atomic_fetch_add(&context->blocking_streams, 1);
        pthread_mutex_unlock(&context->lock);
        *ret_stream = stream;
        return CUDA_SUCCESS;
}

void sim_stream_retire(struct sim_stream *stream)
{
        struct sim_context *context = stream->context;
        bool linked;

        pthread_mutex_lock(&context->lock);
        linked = stream->link != NULL;
        if (linked) {
                *stream->link = stream->next;
                if (stream->next)
                        stream->next->link = stream->link;
                stream->link = NULL;
                if (is_blocking(stream))
                        atomic_fetch_sub(&context->blocking_streams, 1);
        }
        pthread_mutex_unlock(&context->lock);
        if (!linked)
                return;
        sim_descriptors_done(&stream->descriptors);
        sim_stream_unref(stream);
}

static bool is_idle(const struct sim_stream *stream)
{
        return atomic_load(&stream->completed) == atomic_load(&stream->submitted);
}

/*
 * The handle is dead at once; the stream stays in its context until its work is
 * done. Whoever of us and its worker comes last takes it out: if all is done we do,
 * though the worker may not have let go of it yet, so that its block can be used again.
 */
static void destroy_stream(struct sim_stream *stream)
{
        sim_stream_ref(stream);
        stream->magic = 0;
        atomic_store(&stream->destroyed, true);
        if (!atomic_load(&stream->scheduled) || is_idle(stream))
                sim_stream_retire(stream);
        sim_stream_unref(stream);
}

/* ---- per-thread default streams ---- */

struct thread_stream {
        struct thread_stream *next;
        struct sim_context *context;
        struct sim_stream *stream;
};

static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;

static void free_thread_streams(void *argument)
{
        struct thread_stream *entry = argument;

        while (entry) {
                struct thread_stream *next = entry->next;

                destroy_stream(entry->stream);
                free(entry);
                entry = next;
        }
}

static void make_thread_key(void)
{
        pthread_key_create(&thread_key, free_thread_streams);
}

static CUresult thread_stream(struct sim_context *context, struct sim_stream **ret_stream)
{
        struct thread_stream *first, *entry;
        CUresult r;

        pthread_once(&thread_key_once, make_thread_key);
        first = pthread_getspecific(thread_key);
        for (entry = first; entry; entry = entry->next) {
                if (entry->context == context) {
                        *ret_stream = entry->stream;
                        return CUDA_SUCCESS;
                }
        }
        entry = calloc(1, sizeof(*entry));
        if (!entry)
                return CUDA_ERROR_OUT_OF_MEMORY;
        r = sim_stream_new(context, CU_STREAM_DEFAULT, 0, false, &entry->stream);
        if (r) {
                free(entry);
                return r;
        }
        entry->context = context;
        entry->next = first;
        pthread_setspecific(thread_key, entry);
        *ret_stream = entry->stream;
        return CUDA_SUCCESS;
}

CUresult sim_stream_resolve(CUstream handle, bool per_thread, struct sim_context **ret_context,
                            struct sim_stream **ret_stream)
{
        CUresult r;

        if (handle > CU_STREAM_PER_THREAD) {
                int error;

                r = sim_check_ready();
                if (r)
                        return r;
                if (!SIM_IS(handle, STREAM))
                        return CUDA_ERROR_INVALID_HANDLE;
                error = atomic_load(&handle->context->error);
                if (error)
                        return error;
                *ret_context = handle->context;
                *ret_stream = handle;
                return CUDA_SUCCESS;
        }
        r = sim_context_current(ret_context);
        if (r)
                return r;
        if (handle == CU_STREAM_PER_THREAD || (!handle && per_thread))
                return thread_stream(*ret_context, ret_stream);
        *ret_stream = (*ret_context)->legacy;
        return CUDA_SUCCESS;
}

/* ---- order between streams ---- */

static CUresult add_wait(struct sim_command *command, struct sim_stream *stream, uint64_t seq)
{
        struct sim_wait *more;

        if (atomic_load(&stream->completed) >= seq)
                return CUDA_SUCCESS;
        if (!command->wait.stream) {
                command->wait = (struct sim_wait){sim_stream_ref(stream), seq};
                return CUDA_SUCCESS;
        }
        more = realloc(command->more_waits, (command->more_wait_count + 1) * sizeof(*more));
        if (!more)
                return CUDA_ERROR_OUT_OF_MEMORY;
        command->more_waits = more;
        more[command->more_wait_count++] = (struct sim_wait){sim_stream_ref(stream), seq};
        return CUDA_SUCCESS;
}

/* The legacy stream waits for all blocking streams; they wait for it. */
static CUresult add_legacy_waits(struct sim_stream *stream, struct sim_command *command)
{
        struct sim_context *context = stream->context;
        struct sim_stream *legacy = context->legacy;
        CUresult r = CUDA_SUCCESS;

        if (stream->is_legacy && atomic_load(&context->blocking_streams)) {
                pthread_mutex_lock(&context->lock);
                for (struct sim_stream *s = context->streams; s && !r; s = s->next) {
                        if (!is_blocking(s))
                                continue;
                        if (s->capture) {
                                sim_capture_invalidate(s->capture);
                                r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
                        } else {
                                r = add_wait(command, s, atomic_load(&s->submitted));
                        }
                }
                pthread_mutex_unlock(&context->lock);
        } else if (is_blocking(stream)) {
                uint64_t seq = atomic_load(&legacy->submitted);

                if (seq > stream->legacy_seq) {
                        r = add_wait(command, legacy, seq);
                        stream->legacy_seq = seq;
                }
        }
        return r;
}

/* Copy a command to its slot; the parameters may be inside it. */
static void put_command(struct sim_command *slot, const struct sim_command *command)
{
        if (command->kind != SIM_COMMAND_KERNEL) {
                *slot = *command;
                return;
        }
        memcpy(slot, command, offsetof(struct sim_command, kernel.inline_params));
        if (command->kernel.params == command->kernel.inline_params) {
                memcpy(slot->kernel.inline_params, command->kernel.inline_params,
                       command->kernel.function->info->param_bytes);
                slot->kernel.params = slot->kernel.inline_params;
        }
}

CUresult sim_stream_submit(struct sim_stream *stream, struct sim_command *command,
                           uint64_t *ret_seq)
{
        unsigned entries = sim_driver.config.queue_entries;
        uint64_t seq;
        CUresult r;

        pthread_mutex_lock(&stream->lock);
        if (stream->capture) {
                r = sim_capture_add(stream, command);
                pthread_mutex_unlock(&stream->lock);
                if (ret_seq)
                        *ret_seq = 0;
                return r;
        }
        seq = atomic_load(&stream->submitted);
        /* Full: wait for room for many, not to go to sleep again at the next launch. */
        if (seq - atomic_load(&stream->completed) >= entries)
                sim_sched_wait(stream, seq - entries / 2);
        r = add_legacy_waits(stream, command);
        if (r) {
                pthread_mutex_unlock(&stream->lock);
                sim_command_done(command);
                return r;
        }
        /* Under the lock: ids of a stream grow in the order of its commands. */
        sim_assign_grid(stream->context, &stream->descriptors, command);
        if (sim_driver.config.start_delay_ns)
                command->submit_ns = sim_monotonic_ns();
        put_command(&stream->ring[seq % entries], command);
        atomic_store(&stream->submitted, seq + 1);
        if (!atomic_load(&stream->scheduled) && atomic_exchange(&stream->scheduled, 1) == 0)
                sim_sched_add(sim_stream_ref(stream));
        pthread_mutex_unlock(&stream->lock);
        if (ret_seq)
                *ret_seq = seq + 1;
        return CUDA_SUCCESS;
}

void sim_command_done(struct sim_command *command)
{
        sim_stream_unref(command->wait.stream);
        for (unsigned i = 0; i < command->more_wait_count; i++)
                sim_stream_unref(command->more_waits[i].stream);
        free(command->more_waits);
        if (command->kind == SIM_COMMAND_KERNEL &&
            command->kernel.params != command->kernel.inline_params)
                free(command->kernel.params);
        if (command->kind == SIM_COMMAND_EVENT)
                sim_event_unref(command->event.event);
        if (command->kind == SIM_COMMAND_GRAPH)
                sim_exec_unref(command->exec);
}

void sim_stream_wait(struct sim_stream *stream, uint64_t seq)
{
        sim_sched_wait(stream, seq);
}

/* Everything that is in the context's streams now; streams may come and go meanwhile. */
CUresult sim_context_drain(struct sim_context *context)
{
        struct sim_stream *streams[64];
        size_t count;
        bool more;

        do {
                count = 0;
                more = false;
                pthread_mutex_lock(&context->lock);
                for (struct sim_stream *s = context->streams; s; s = s->next) {
                        if (atomic_load(&s->completed) == atomic_load(&s->submitted))
                                continue;
                        if (count == 64) {
                                more = true;
                                break;
                        }
                        streams[count++] = sim_stream_ref(s);
                }
                pthread_mutex_unlock(&context->lock);
                for (size_t i = 0; i < count; i++) {
                        sim_stream_wait(streams[i], atomic_load(&streams[i]->submitted));
                        sim_stream_unref(streams[i]);
                }
        } while (more);
        return atomic_load(&context->error);
}

/* ---- API ---- */

static CUresult create(CUstream *ret_stream, unsigned flags, int priority)
{
        struct sim_context *context;
        CUresult r = sim_context_current(&context);

        if (r)
                return r;
        if (!ret_stream || flags & ~CU_STREAM_NON_BLOCKING)
                return CUDA_ERROR_INVALID_VALUE;
        priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
        return sim_stream_new(context, flags, priority, false, ret_stream);
}

SIM_API cuStreamCreate(CUstream *stream, unsigned flags)
{
        SIM_ENTER();
        return create(stream, flags, 0);
}

SIM_API cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
        SIM_ENTER();
        return create(stream, flags, priority);
}

/* Work that was given goes on; the stream ends after it. */
SIM_API cuStreamDestroy_v2(CUstream stream)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (stream <= CU_STREAM_PER_THREAD || !SIM_IS(stream, STREAM) || stream->is_legacy)
                return CUDA_ERROR_INVALID_HANDLE;
        if (stream->capture)
                return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
        destroy_stream(stream);
        return CUDA_SUCCESS;
}

static CUresult query(CUstream handle, bool per_thread)
{
        struct sim_context *context;
        struct sim_stream *stream;
        CUresult r = sim_stream_resolve(handle, per_thread, &context, &stream);

        if (r)
                return r;
        if (stream->capture)
                return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        if (atomic_load(&stream->completed) != atomic_load(&stream->submitted))
                return CUDA_ERROR_NOT_READY;
        return atomic_load(&context->error);
}

SIM_API cuStreamQuery(CUstream stream)
{
        SIM_ENTER();
        return query(stream, false);
}

SIM_API cuStreamQuery_ptsz(CUstream stream)
{
        SIM_ENTER();
        return query(stream, true);
}

static CUresult synchronize(CUstream handle, bool per_thread)
{
        struct sim_context *context;
        struct sim_stream *stream;
        CUresult r = sim_stream_resolve(handle, per_thread, &context, &stream);

        if (r)
                return r;
        if (stream->capture)
                return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        /* The legacy stream's work includes that of the blocking streams before it. */
        if (stream->is_legacy && atomic_load(&context->blocking_streams)) {
                struct sim_command empty = {.kind = SIM_COMMAND_EMPTY};

                r = sim_stream_submit(stream, &empty, NULL);
                if (r)
                        return r;
        }
        sim_stream_wait(stream, atomic_load(&stream->submitted));
        return atomic_load(&context->error);
}

SIM_API cuStreamSynchronize(CUstream stream)
{
        SIM_ENTER();
        return synchronize(stream, false);
}

SIM_API cuStreamSynchronize_ptsz(CUstream stream)
{
        SIM_ENTER();
        return synchronize(stream, true);
}

static CUresult wait_event(CUstream handle, CUevent event, bool per_thread)
{
        struct sim_command command = {.kind = SIM_COMMAND_EMPTY};
        struct sim_context *context;
        struct sim_stream *stream;
        CUresult r = sim_stream_resolve(handle, per_thread, &context, &stream);

        if (r)
                return r;
        if (!SIM_IS(event, EVENT))
                return CUDA_ERROR_INVALID_HANDLE;
        if (event->capture)
                return sim_capture_event_wait(stream, event);
        if (stream->capture)
                return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        pthread_mutex_lock(&event->lock);
        if (event->recorded.stream)
                r = add_wait(&command, event->recorded.stream, event->recorded.seq);
        pthread_mutex_unlock(&event->lock);
        if (r || !command.wait.stream)
                return r;
        return sim_stream_submit(stream, &command, NULL);
}

SIM_API cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
        SIM_ENTER();
        return wait_event(stream, event, false);
}

SIM_API cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags)
{
        SIM_ENTER();
        return wait_event(stream, event, true);
}

SIM_API cuStreamGetPriority(CUstream handle, int *priority)
{
        struct sim_context *context;
        struct sim_stream *stream;
        CUresult r;

        SIM_ENTER();
        r = sim_stream_resolve(handle, false, &context, &stream);
        if (!r && !priority)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *priority = stream->priority;
        return r;
}

SIM_API cuStreamGetFlags(CUstream handle, unsigned *flags)
{
        struct sim_context *context;
        struct sim_stream *stream;
        CUresult r;

        SIM_ENTER();
        r = sim_stream_resolve(handle, false, &context, &stream);
        if (!r && !flags)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *flags = stream->flags;
        return r;
}

SIM_API cuStreamGetCtx(CUstream handle, CUcontext *ret_context)
{
        struct sim_context *context;
        struct sim_stream *stream;
        CUresult r;

        SIM_ENTER();
        r = sim_stream_resolve(handle, false, &context, &stream);
        if (!r && !ret_context)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *ret_context = context;
        return r;
}

SIM_API cuStreamGetId(CUstream handle, unsigned long long *id)
{
        struct sim_context *context;
        struct sim_stream *stream;
        CUresult r;

        SIM_ENTER();
        r = sim_stream_resolve(handle, false, &context, &stream);
        if (!r && !id)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *id = stream->id;
        return r;
}
