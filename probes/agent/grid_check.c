/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <sys/mman.h>

#include "grid_check.h"
#include "monotonic.h"
#include "text.h"

#define STREAMS    2
#define LAUNCHES   20 /* of an attempt: each stream goes around its descriptors once */
#define ATTEMPTS   5
#define WAIT_SPINS 64 /* looks before the CPU is given away */
#define PAGE_BYTES 4096

/* What the kernel writes; `done` after the rest is visible. */
struct slot {
        struct grid_words words;
        uint64_t done;
        uint64_t pad;
};
_Static_assert(sizeof(struct slot) == 32 && LAUNCHES * sizeof(struct slot) <= PAGE_BYTES,
               "the slots of an attempt fit in a page");

struct check {
        const struct cuda_api *api;
        cuda_handle function;
        cuda_handle streams[STREAMS];
        volatile struct slot *slots; /* host memory the GPU writes */
        cuda_address slots_address;
};

static void write_kernel(const struct grid_layout *layout, struct text *ret_ptx)
{
        text_print(ret_ptx, ".version 8.0\n.target sm_%u\n.address_size 64\n", layout->sm);
        text_print(ret_ptx, ".visible .entry gpuobs_grid(.param .u64 where)\n{\n"
                            ".reg .b64 %%a, %%g, %%one;\n.reg .b32 %%c, %%q;\n"
                            "ld.param.u64 %%a, [where];\n"
                            "mov.u64 %%g, %%gridid;\n"
                            "mov.u64 %%one, 1;\n");
        text_print(ret_ptx, "mov.u32 %%c, %s;\nld.param.u32 %%q, [where+%d];\n", layout->context,
                   (int)layout->queue_offset);
        text_print(ret_ptx, "st.global.u64 [%%a], %%g;\n"
                            "st.global.v2.u32 [%%a+8], {%%c, %%q};\n"
                            "membar.sys;\n"
                            "st.global.u64 [%%a+16], %%one;\nret;\n}\n");
}

static const char *load_kernel(struct check *c, const struct grid_layout *layout)
{
        struct text ptx = {0};
        cuda_handle module;
        int r = CUDA_INVALID_VALUE;

        write_kernel(layout, &ptx);
        if (!ptx.failed)
                r = c->api->module_load_data(&module, ptx.bytes);
        if (r == CUDA_OK)
                r = c->api->module_get_function(&c->function, module, "gpuobs_grid");
        text_done(&ptx);
        return r == CUDA_OK ? NULL : "the driver does not take the kernel that would tell";
}

static const char *map_slots(struct check *c)
{
        void *page =
                mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (page == MAP_FAILED)
                return "out of memory";
        /* A child of a fork has no use for it, and the GPU writes to the parent's. */
        madvise(page, PAGE_BYTES, MADV_DONTFORK);
        if (c->api->host_register(page, PAGE_BYTES,
                                  CUDA_HOST_REGISTER_PORTABLE | CUDA_HOST_REGISTER_DEVICEMAP) !=
            CUDA_OK) {
                munmap(page, PAGE_BYTES);
                return "the driver does not register memory to answer in";
        }
        if (c->api->host_device_pointer(&c->slots_address, page, 0) != CUDA_OK)
                return "the GPU does not see the memory to answer in";
        c->slots = page;
        return NULL;
}

static const char *create_streams(struct check *c)
{
        for (int i = 0; i < STREAMS; i++)
                if (c->api->stream_create(&c->streams[i], CUDA_STREAM_NON_BLOCKING) != CUDA_OK)
                        return "no stream to ask on";
        return NULL;
}

static void destroy_streams(struct check *c)
{
        for (int i = 0; i < STREAMS; i++)
                if (c->streams[i])
                        c->api->stream_destroy(c->streams[i]);
}

static const char *launch_all(const struct check *c)
{
        for (unsigned i = 0; i < LAUNCHES; i++) {
                cuda_address where = c->slots_address + i * sizeof(struct slot);
                void *parameters[] = {&where};

                c->slots[i].done = 0;
                if (c->api->launch_kernel(c->function, 1, 1, 1, 1, 1, 1, 0, c->streams[i % STREAMS],
                                          parameters, NULL) != CUDA_OK)
                        return "a launch failed";
        }
        return NULL;
}

/* Not by synchronising: that could wait for work of the application, without end. */
static const char *wait_for_all(const struct check *c, uint64_t until_ns)
{
        for (unsigned i = 0, looks = 0; i < LAUNCHES;) {
                bool over = now_ns() > until_ns; /* a thread that is stopped here looks once more */

                if (c->slots[i].done)
                        i++;
                else if (over)
                        return "the GPU did not answer in time";
                else if (++looks % WAIT_SPINS == 0)
                        sched_yield();
        }
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        return NULL;
}

static const char *attempt(const struct check *c, uint64_t until_ns, enum grid_verdict *ret_verdict)
{
        struct grid_words words[LAUNCHES];
        const char *why = launch_all(c);

        *ret_verdict = GRID_OTHERWISE;
        if (!why)
                why = wait_for_all(c, until_ns);
        if (why)
                return why;
        for (unsigned i = 0; i < LAUNCHES; i++)
                words[i] = (struct grid_words){.gridid = c->slots[i].words.gridid,
                                               .context = c->slots[i].words.context,
                                               .queue = c->slots[i].words.queue};
        *ret_verdict = grid_judge(words, LAUNCHES, &why);
        return why;
}

static const char *ask(const struct check *c, unsigned wait_ms)
{
        uint64_t until_ns = now_ns() + wait_ms * 1000000ull;
        enum grid_verdict verdict = GRID_UNCLEAR;
        const char *why = NULL;

        for (int i = 0; i < ATTEMPTS && verdict == GRID_UNCLEAR; i++)
                why = attempt(c, until_ns, &verdict);
        return why;
}

const char *grid_check(const struct cuda_api *api, struct wire *wire,
                       const struct grid_layout *layout, unsigned wait_ms)
{
        struct check c = {.api = api};
        struct agent_handle handle = {0};
        const char *why = load_kernel(&c, layout);

        if (!why) {
                handle.func = (uint64_t)(uintptr_t)c.function;
                wire_send(wire, AGENT_HANDLE, &handle, sizeof(handle));
                why = map_slots(&c);
        }
        if (!why)
                why = create_streams(&c);
        if (!why)
                why = ask(&c, wait_ms);
        destroy_streams(&c);
        return why;
}
