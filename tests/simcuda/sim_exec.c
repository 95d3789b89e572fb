/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the workers do with a command. A worker has a PTX machine and the
 * environment it runs kernels in: the memory registry, the device clock, and the
 * faults that were asked for.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_abi.h"
#include "sim.h"

#define RECORD_BYTES sizeof(struct device_record)

struct sim_worker {
        struct ptx_machine *machine;
        struct ptx_env env;
        uint64_t random;
        uint64_t ready_ns; /* slow device: when the instructions so far are done */
        uint64_t record;   /* slot of the start/end map stored to last */
        bool record_dropped;
        unsigned device; /* of the command it runs */
};

static bool find_region(void *userdata, uint64_t address, struct ptx_region *ret_region)
{
        struct sim_memory memory;

        if (!sim_memory_find(address, 1, &memory))
                return false;
        *ret_region = (struct ptx_region){
                .start = memory.start,
                .end = memory.end,
                .read_only = memory.flags & CU_MEMHOSTREGISTER_READ_ONLY &&
                             memory.kind == SIM_MEMORY_REGISTERED,
                .watched = memory.start <= DEVICE_RING_ADDRESS &&
                           memory.end > DEVICE_RING_ADDRESS &&
                           (sim_driver.config.drop_records.number ||
                            sim_driver.config.drop_stores.number),
        };
        return true;
}

/* A record is dropped whole: the stores to one slot that follow each other share its fate. */
static bool drop_store(void *userdata, uint64_t address, unsigned bytes)
{
        struct sim_worker *worker = userdata;
        uint64_t slot = (address - DEVICE_RING_ADDRESS) / RECORD_BYTES + 1;

        if (address < DEVICE_RING_ADDRESS || address >= DEVICE_RING_ADDRESS + DEVICE_RING_BYTES)
                return false;
        if (slot != worker->record) {
                worker->record = slot;
                worker->record_dropped = sim_choice_hit(&sim_driver.config.drop_records);
        }
        return sim_choice_hit(&sim_driver.config.drop_stores) || worker->record_dropped;
}

uint64_t sim_device_ns(unsigned device)
{
        uint64_t apart = device * (uint64_t)sim_driver.config.clock_apart_ns;

        return sim_clock_device_ns(&sim_driver.config, sim_raw_ns()) + apart;
}

static uint64_t next_random(struct sim_worker *worker)
{
        uint64_t x = worker->random;

        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        return worker->random = x;
}

static uint64_t read_timer(void *userdata)
{
        struct sim_worker *worker = userdata;
        uint64_t jitter = sim_driver.config.clock_jitter_ns, now = sim_device_ns(worker->device);

        if (jitter)
                now += next_random(worker) % (2 * jitter + 1) - jitter;
        return now - now % sim_driver.config.clock_step_ns;
}

/* A slow device: wait until the instructions have had their time. */
static void charge(void *userdata, uint64_t instructions)
{
        struct sim_worker *worker = userdata;
        uint64_t now = sim_monotonic_ns();

        if (worker->ready_ns < now)
                worker->ready_ns = now;
        worker->ready_ns += instructions * sim_driver.config.instruction_ns;
        while (sim_monotonic_ns() < worker->ready_ns)
                sched_yield();
}

struct sim_worker *sim_worker_new(void)
{
        struct sim_worker *worker = calloc(1, sizeof(*worker));

        if (!worker)
                return NULL;
        worker->machine = ptx_machine_new();
        if (!worker->machine) {
                free(worker);
                return NULL;
        }
        worker->random = (uint64_t)worker | 1;
        worker->env = (struct ptx_env){
                .userdata = worker,
                .find_region = find_region,
                .region_generation = &sim_memory_generation,
                .globaltimer = read_timer,
                .drop_store = drop_store,
                .charge = sim_driver.config.instruction_ns ? charge : NULL,
                .sm_count = SIM_SM_COUNT,
        };
        return worker;
}

static CUresult fault_result(enum ptx_fault fault)
{
        switch (fault) {
        case PTX_FAULT_NONE:
                return CUDA_SUCCESS;
        case PTX_FAULT_ADDRESS:
                return CUDA_ERROR_ILLEGAL_ADDRESS;
        case PTX_FAULT_MISALIGNED:
                return CUDA_ERROR_MISALIGNED_ADDRESS;
        case PTX_FAULT_MEMORY:
                return CUDA_ERROR_OUT_OF_MEMORY;
        case PTX_FAULT_LIMIT:
                return CUDA_ERROR_LAUNCH_TIMEOUT;
        default:
                return CUDA_ERROR_LAUNCH_FAILED;
        }
}

static CUresult run_kernel(struct sim_worker *worker, const struct sim_kernel_work *work)
{
        enum ptx_fault fault;

        if (ptx_run(worker->machine, work->function->entry, &work->launch, work->params,
                    &worker->env, &fault) < 0)
                return CUDA_ERROR_LAUNCH_FAILED;
        return fault_result(fault);
}

static void run_copy(const struct sim_copy_work *work)
{
        for (uint64_t row = 0; row < work->height; row++)
                memmove((void *)(work->dst + row * work->dst_pitch),
                        (const void *)(work->src + row * work->src_pitch), work->width);
}

static void set_row(uint64_t dst, const struct sim_set_work *work)
{
        if (work->element == 1) {
                memset((void *)dst, (int)work->value, work->width);
                return;
        }
        for (uint64_t i = 0; i < work->width; i++)
                memcpy((void *)(dst + i * work->element), &work->value, work->element);
}

static void run_set(const struct sim_set_work *work)
{
        for (uint64_t row = 0; row < work->height; row++)
                set_row(work->dst + row * work->pitch, work);
}

static void run_event(const struct sim_context *context, struct sim_command *command)
{
        struct sim_event *event = command->event.event;

        if (atomic_load(&event->generation) == command->event.generation)
                atomic_store(&event->device_ns, sim_device_ns((unsigned)context->device));
}

/* After an error nothing that touches memory is done any more in the context. */
static CUresult run(struct sim_worker *worker, struct sim_context *context,
                    struct sim_command *command)
{
        switch (command->kind) {
        case SIM_COMMAND_KERNEL:
                return run_kernel(worker, &command->kernel);
        case SIM_COMMAND_COPY:
                run_copy(&command->copy);
                break;
        case SIM_COMMAND_SET:
                run_set(&command->set);
                break;
        case SIM_COMMAND_HOST:
                command->host.fn(command->host.data);
                break;
        case SIM_COMMAND_GRAPH:
                sim_exec_run(worker, context, command->exec);
                break;
        case SIM_COMMAND_FREE:
                sim_memory_release(command->free_address);
                break;
        default:
                break;
        }
        return CUDA_SUCCESS;
}

void sim_command_run(struct sim_worker *worker, struct sim_context *context,
                     struct sim_command *command)
{
        int none = CUDA_SUCCESS;
        CUresult r;

        worker->device = (unsigned)context->device;
        if (command->kind == SIM_COMMAND_EVENT)
                run_event(context, command);
        if (atomic_load(&context->error))
                return;
        r = run(worker, context, command);
        if (r)
                atomic_compare_exchange_strong(&context->error, &none, r);
}
