/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "sim.h"

void sim_event_ref(struct sim_event *event)
{
        atomic_fetch_add(&event->references, 1);
}

void sim_event_unref(struct sim_event *event)
{
        if (!event || atomic_fetch_sub(&event->references, 1) != 1)
                return;
        sim_stream_unref(event->recorded.stream);
        pthread_mutex_destroy(&event->lock);
        SIM_FREE(event, EVENT);
}

static CUresult check_event(const struct sim_event *event)
{
        CUresult r = sim_check_ready();

        if (r)
                return r;
        if (!SIM_IS(event, EVENT))
                return CUDA_ERROR_INVALID_HANDLE;
        return atomic_load(&event->context->error);
}

SIM_API cuEventCreate(CUevent *ret_event, unsigned flags)
{
        struct sim_context *context;
        struct sim_event *event;
        CUresult r;

        SIM_ENTER();
        r = sim_context_current(&context);
        if (r)
                return r;
        if (!ret_event)
                return CUDA_ERROR_INVALID_VALUE;
        event = SIM_NEW(struct sim_event, EVENT);
        if (!event)
                return CUDA_ERROR_OUT_OF_MEMORY;
        event->references = 1;
        event->context = context;
        event->flags = flags;
        pthread_mutex_init(&event->lock, NULL);
        *ret_event = event;
        return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream handle, bool per_thread)
{
        struct sim_command command = {.kind = SIM_COMMAND_EVENT};
        struct sim_context *context;
        struct sim_stream *stream;
        uint64_t seq;
        CUresult r = sim_stream_resolve(handle, per_thread, &context, &stream);

        if (r)
                return r;
        if (!SIM_IS(event, EVENT) || event->context != context)
                return CUDA_ERROR_INVALID_HANDLE;
        if (stream->capture)
                return sim_capture_event_record(stream, event);
        sim_event_ref(event);
        command.event.event = event;
        pthread_mutex_lock(&event->lock);
        event->capture = NULL;
        command.event.generation = ++event->generation;
        r = sim_stream_submit(stream, &command, &seq);
        if (!r) {
                sim_stream_unref(event->recorded.stream);
                event->recorded = (struct sim_wait){sim_stream_ref(stream), seq};
        }
        pthread_mutex_unlock(&event->lock);
        return r;
}

SIM_API cuEventRecord(CUevent event, CUstream stream)
{
        SIM_ENTER();
        return record(event, stream, false);
}

SIM_API cuEventRecord_ptsz(CUevent event, CUstream stream)
{
        SIM_ENTER();
        return record(event, stream, true);
}

/* The last recording, as a wait with a reference of its own; stream NULL: none. */
static struct sim_wait last_recording(struct sim_event *event)
{
        struct sim_wait wait;

        pthread_mutex_lock(&event->lock);
        wait = event->recorded;
        if (wait.stream)
                sim_stream_ref(wait.stream);
        pthread_mutex_unlock(&event->lock);
        return wait;
}

SIM_API cuEventQuery(CUevent event)
{
        struct sim_wait wait;
        CUresult r;

        SIM_ENTER();
        r = check_event(event);
        if (r)
                return r;
        if (event->capture)
                return CUDA_ERROR_CAPTURED_EVENT;
        r = sim_capture_check_unsafe();
        if (r)
                return r;
        wait = last_recording(event);
        if (!wait.stream)
                return CUDA_SUCCESS;
        if (atomic_load(&wait.stream->completed) < wait.seq)
                r = CUDA_ERROR_NOT_READY;
        sim_stream_unref(wait.stream);
        return r;
}

SIM_API cuEventSynchronize(CUevent event)
{
        struct sim_wait wait;
        CUresult r;

        SIM_ENTER();
        r = check_event(event);
        if (r)
                return r;
        if (event->capture)
                return CUDA_ERROR_CAPTURED_EVENT;
        wait = last_recording(event);
        if (!wait.stream)
                return CUDA_SUCCESS;
        sim_stream_wait(wait.stream, wait.seq);
        sim_stream_unref(wait.stream);
        return atomic_load(&event->context->error);
}

static bool is_recorded(struct sim_event *event, bool *ret_done)
{
        struct sim_wait wait = last_recording(event);

        if (!wait.stream || event->flags & CU_EVENT_DISABLE_TIMING) {
                sim_stream_unref(wait.stream);
                return false;
        }
        *ret_done = atomic_load(&wait.stream->completed) >= wait.seq;
        sim_stream_unref(wait.stream);
        return true;
}

static CUresult elapsed(float *ms, CUevent start, CUevent end)
{
        bool start_done, end_done;
        CUresult r = check_event(start);

        if (!r)
                r = check_event(end);
        if (r)
                return r;
        if (!ms)
                return CUDA_ERROR_INVALID_VALUE;
        if (!is_recorded(start, &start_done) || !is_recorded(end, &end_done))
                return CUDA_ERROR_INVALID_HANDLE;
        if (!start_done || !end_done)
                return CUDA_ERROR_NOT_READY;
        *ms = (float)((double)(int64_t)(atomic_load(&end->device_ns) -
                                        atomic_load(&start->device_ns)) /
                      1e6);
        return CUDA_SUCCESS;
}

SIM_API cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
        SIM_ENTER();
        return elapsed(ms, start, end);
}

SIM_API cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
        SIM_ENTER();
        return elapsed(ms, start, end);
}

SIM_API cuEventDestroy_v2(CUevent event)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (!SIM_IS(event, EVENT))
                return CUDA_ERROR_INVALID_HANDLE;
        event->magic = 0;
        sim_event_unref(event);
        return CUDA_SUCCESS;
}
