/* SPDX-License-Identifier: Apache-2.0 */

/* Copies and sets. Which of them take a grid id: see SIM_GRIDID_BYTES. */
#include <string.h>

#include "sim.h"

/* Host memory the device could reach by itself; else a copy has to finish before the call does. */
static bool is_pinned(uint64_t address, uint64_t bytes)
{
        struct sim_memory memory;

        return sim_memory_find(address, bytes, &memory);
}

static bool in_device(uint64_t address, uint64_t bytes)
{
        struct sim_memory m;

        return sim_memory_find(address, bytes, &m) && m.kind != SIM_MEMORY_HOST &&
               m.kind != SIM_MEMORY_REGISTERED;
}

/* Give work to a stream; `wait`: not return before it is done. */
static CUresult give(CUstream handle, bool per_thread, struct sim_command *command, bool wait)
{
        struct sim_context *context;
        struct sim_stream *stream;
        uint64_t seq;
        CUresult r = sim_stream_resolve(handle, per_thread, &context, &stream);

        if (r)
                return r;
        if (wait)
                r = stream->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                    : sim_capture_check_unsafe();
        if (r)
                return r;
        r = sim_stream_submit(stream, command, &seq);
        if (r || !wait)
                return r;
        sim_stream_wait(stream, seq);
        return atomic_load(&context->error);
}

enum direction {
        TO_DEVICE,
        FROM_DEVICE,
        ON_DEVICE,
        BY_ADDRESS,
};

static bool range_ok(uint64_t address, const struct sim_copy_work *c, uint64_t pitch)
{
        return is_pinned(address, (c->height - 1) * pitch + c->width);
}

/* Device addresses must be known; host addresses are the caller's responsibility. */
static CUresult check_copy(const struct sim_copy_work *c, enum direction direction)
{
        bool dst_known = range_ok(c->dst, c, c->dst_pitch);
        bool src_known = range_ok(c->src, c, c->src_pitch);

        if (c->dst == 0 || c->src == 0)
                return CUDA_ERROR_INVALID_VALUE;
        if (direction != FROM_DEVICE && !dst_known)
                return CUDA_ERROR_INVALID_VALUE;
        if (direction != TO_DEVICE && !src_known)
                return CUDA_ERROR_INVALID_VALUE;
        return CUDA_SUCCESS;
}

static CUresult copy_2d(struct sim_copy_work work, enum direction direction, CUstream handle,
                        bool per_thread, bool wait)
{
        struct sim_command command = {.kind = SIM_COMMAND_COPY};
        uint64_t bytes = work.width * work.height;
        CUresult r = sim_check_ready();

        if (r)
                return r;
        if (bytes == 0)
                return CUDA_SUCCESS;
        r = check_copy(&work, direction);
        if (r)
                return r;
        work.is_grid =
                bytes >= SIM_GRIDID_BYTES && in_device(work.dst, 1) && in_device(work.src, 1);
        wait |= !is_pinned(work.dst, 1) || !is_pinned(work.src, 1);
        command.copy = work;
        return give(handle, per_thread, &command, wait);
}

static CUresult copy(uint64_t dst, uint64_t src, uint64_t bytes, enum direction direction,
                     CUstream handle, bool per_thread, bool wait)
{
        struct sim_copy_work work = {.dst = dst,
                                     .src = src,
                                     .dst_pitch = bytes,
                                     .src_pitch = bytes,
                                     .width = bytes,
                                     .height = 1};

        return copy_2d(work, direction, handle, per_thread, wait);
}

SIM_API cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
        SIM_ENTER();
        return copy(dst, src, bytes, BY_ADDRESS, NULL, false, true);
}

SIM_API cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
        SIM_ENTER();
        return copy(dst, src, bytes, BY_ADDRESS, stream, false, false);
}

SIM_API cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t bytes)
{
        SIM_ENTER();
        return copy(dst, (uint64_t)src, bytes, TO_DEVICE, NULL, false, true);
}

SIM_API cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes)
{
        SIM_ENTER();
        return copy((uint64_t)dst, src, bytes, FROM_DEVICE, NULL, false, true);
}

SIM_API cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
        SIM_ENTER();
        return copy(dst, src, bytes, ON_DEVICE, NULL, false, false);
}

SIM_API cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
        SIM_ENTER();
        return copy(dst, (uint64_t)src, bytes, TO_DEVICE, stream, false, false);
}

SIM_API cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
        SIM_ENTER();
        return copy((uint64_t)dst, src, bytes, FROM_DEVICE, stream, false, false);
}

SIM_API cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
        SIM_ENTER();
        return copy(dst, src, bytes, ON_DEVICE, stream, false, false);
}

SIM_API cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
        SIM_ENTER();
        return copy(dst, (uint64_t)src, bytes, TO_DEVICE, stream, true, false);
}

SIM_API cuMemcpyDtoHAsync_v2_ptsz(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
        SIM_ENTER();
        return copy((uint64_t)dst, src, bytes, FROM_DEVICE, stream, true, false);
}

SIM_API cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
        SIM_ENTER();
        return copy(dst, src, bytes, ON_DEVICE, stream, true, false);
}

static CUresult side(int type, const void *host, CUdeviceptr device, uint64_t *ret_address)
{
        switch (type) {
        case CU_MEMORYTYPE_HOST:
                *ret_address = (uint64_t)host;
                return CUDA_SUCCESS;
        case CU_MEMORYTYPE_DEVICE:
        case CU_MEMORYTYPE_UNIFIED:
                *ret_address = device;
                return CUDA_SUCCESS;
        default:
                return CUDA_ERROR_NOT_SUPPORTED; /* arrays */
        }
}

static CUresult copy_described(const CUDA_MEMCPY2D *d, CUstream stream, bool wait)
{
        struct sim_copy_work work = {0};
        enum direction direction = BY_ADDRESS;
        CUresult r;

        if (!d || d->Height > UINT32_MAX || d->WidthInBytes > UINT32_MAX)
                return CUDA_ERROR_INVALID_VALUE;
        r = side(d->srcMemoryType, d->srcHost, d->srcDevice, &work.src);
        if (!r)
                r = side(d->dstMemoryType, d->dstHost, d->dstDevice, &work.dst);
        if (r)
                return r;
        work.width = d->WidthInBytes;
        work.height = d->Height;
        work.src_pitch = d->srcPitch ? d->srcPitch : work.width;
        work.dst_pitch = d->dstPitch ? d->dstPitch : work.width;
        work.src += d->srcXInBytes + d->srcY * work.src_pitch;
        work.dst += d->dstXInBytes + d->dstY * work.dst_pitch;
        if (work.src_pitch < work.width || work.dst_pitch < work.width)
                return CUDA_ERROR_INVALID_VALUE;
        if (d->srcMemoryType == CU_MEMORYTYPE_HOST)
                direction = TO_DEVICE;
        else if (d->dstMemoryType == CU_MEMORYTYPE_HOST)
                direction = FROM_DEVICE;
        return copy_2d(work, direction, stream, false, wait);
}

SIM_API cuMemcpy2D_v2(const CUDA_MEMCPY2D *description)
{
        SIM_ENTER();
        return copy_described(description, NULL, true);
}

SIM_API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *description, CUstream stream)
{
        SIM_ENTER();
        return copy_described(description, stream, false);
}

/* ---- sets ---- */

static CUresult set_2d(CUdeviceptr dst, size_t pitch, uint32_t value, uint32_t element,
                       size_t width, size_t height, CUstream handle, bool per_thread)
{
        struct sim_command command = {.kind = SIM_COMMAND_SET};
        uint64_t row = width * element;
        CUresult r = sim_check_ready();

        if (r)
                return r;
        if (width == 0 || height == 0)
                return CUDA_SUCCESS;
        if (height == 1)
                pitch = row;
        if (dst % element || pitch < row || width > UINT64_MAX / element ||
            !is_pinned(dst, (height - 1) * pitch + row))
                return CUDA_ERROR_INVALID_VALUE;
        command.set = (struct sim_set_work){
                .dst = dst,
                .pitch = pitch,
                .width = width,
                .height = height,
                .value = value,
                .element = element,
                .is_grid = height > 1 || row >= SIM_GRIDID_BYTES,
        };
        return give(handle, per_thread, &command, false);
}

SIM_API cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t count)
{
        SIM_ENTER();
        return set_2d(dst, 0, value, 1, count, 1, NULL, false);
}

SIM_API cuMemsetD16_v2(CUdeviceptr dst, unsigned short value, size_t count)
{
        SIM_ENTER();
        return set_2d(dst, 0, value, 2, count, 1, NULL, false);
}

SIM_API cuMemsetD32_v2(CUdeviceptr dst, unsigned value, size_t count)
{
        SIM_ENTER();
        return set_2d(dst, 0, value, 4, count, 1, NULL, false);
}

SIM_API cuMemsetD2D8_v2(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
                        size_t height)
{
        SIM_ENTER();
        return set_2d(dst, pitch, value, 1, width, height, NULL, false);
}

SIM_API cuMemsetD2D16_v2(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width,
                         size_t height)
{
        SIM_ENTER();
        return set_2d(dst, pitch, value, 2, width, height, NULL, false);
}

SIM_API cuMemsetD2D32_v2(CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height)
{
        SIM_ENTER();
        return set_2d(dst, pitch, value, 4, width, height, NULL, false);
}

SIM_API cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream)
{
        SIM_ENTER();
        return set_2d(dst, 0, value, 1, count, 1, stream, false);
}

SIM_API cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t count, CUstream stream)
{
        SIM_ENTER();
        return set_2d(dst, 0, value, 2, count, 1, stream, false);
}

SIM_API cuMemsetD32Async(CUdeviceptr dst, unsigned value, size_t count, CUstream stream)
{
        SIM_ENTER();
        return set_2d(dst, 0, value, 4, count, 1, stream, false);
}

SIM_API cuMemsetD8Async_ptsz(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream)
{
        SIM_ENTER();
        return set_2d(dst, 0, value, 1, count, 1, stream, true);
}

SIM_API cuMemsetD32Async_ptsz(CUdeviceptr dst, unsigned value, size_t count, CUstream stream)
{
        SIM_ENTER();
        return set_2d(dst, 0, value, 4, count, 1, stream, true);
}

SIM_API cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
                          size_t height, CUstream stream)
{
        SIM_ENTER();
        return set_2d(dst, pitch, value, 1, width, height, stream, false);
}

SIM_API cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width,
                           size_t height, CUstream stream)
{
        SIM_ENTER();
        return set_2d(dst, pitch, value, 2, width, height, stream, false);
}

SIM_API cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned value, size_t width,
                           size_t height, CUstream stream)
{
        SIM_ENTER();
        return set_2d(dst, pitch, value, 4, width, height, stream, false);
}
