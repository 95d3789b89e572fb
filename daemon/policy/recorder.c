/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/recorder.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/sim/trace.h"
#include "policy/targets.h"

#define PAGE_BYTES 4096ull

struct policy_recorder {
        FILE *file;
        struct uvm_trace_head head;
        struct targets processes; /* pid: number in the trace */
        uint8_t used[UVM_TRACE_PROCESSES];
        uint64_t last_ns; /* of faults */
        uint64_t records_max;
        bool full;
        int error;
};

/* ---- the file ---- */

static void put(struct policy_recorder *r, const struct uvm_trace_record *record)
{
        if (r->error)
                return;
        if (r->head.records == r->records_max)
                r->full = true;
        else if (fwrite(record, sizeof(*record), 1, r->file) == 1)
                r->head.records++;
        else
                r->error = -errno;
}

int policy_recorder_flush(struct policy_recorder *r)
{
        long end;

        if (!r || r->error)
                return r ? r->error : 0;
        end = ftell(r->file);
        /* The records are in the file before the head says so. */
        if (end < 0 || fflush(r->file) != 0 || fseek(r->file, 0, SEEK_SET) != 0 ||
            fwrite(&r->head, sizeof(r->head), 1, r->file) != 1 || fflush(r->file) != 0 ||
            fseek(r->file, end, SEEK_SET) != 0)
                r->error = errno ? -errno : -EIO;
        else if (r->full)
                r->error = -EFBIG;
        return r->error;
}

int policy_recorder_new(const char *path, uint64_t records_max,
                        struct policy_recorder **ret_recorder)
{
        struct policy_recorder *r = calloc(1, sizeof(*r));
        int e;

        if (!r)
                return -ENOMEM;
        r->file = fopen(path, "w+e");
        if (!r->file) {
                e = -errno;
                free(r);
                return e;
        }
        r->records_max = records_max;
        memcpy(r->head.magic, UVM_TRACE_MAGIC, sizeof(r->head.magic));
        r->head.version = UVM_TRACE_VERSION;
        r->head.record_bytes = sizeof(struct uvm_trace_record);
        snprintf(r->head.pattern, sizeof(r->head.pattern), "recorded");
        if (fwrite(&r->head, sizeof(r->head), 1, r->file) != 1)
                r->error = -errno;
        *ret_recorder = r;
        return 0;
}

struct policy_recorder *policy_recorder_free(struct policy_recorder *r)
{
        if (!r)
                return NULL;
        (void)policy_recorder_flush(r);
        fclose(r->file);
        targets_done(&r->processes);
        free(r);
        return NULL;
}

/* ---- processes ---- */

/* A number that no live process has; UVM_TRACE_PROCESSES when all are taken. */
static uint32_t free_number(const struct policy_recorder *r)
{
        uint32_t n = 0;

        while (n < UVM_TRACE_PROCESSES && r->used[n])
                n++;
        return n;
}

int policy_recorder_start(struct policy_recorder *r, uint64_t process, const char *comm)
{
        struct uvm_trace_record record = {.kind = UVM_TRACE_PROCESS};
        char name[16] = {0};
        struct target *t;
        uint32_t number;

        if (!r || targets_find(&r->processes, process))
                return 0;
        number = free_number(r);
        if (number == UVM_TRACE_PROCESSES)
                return -ENOSPC;
        t = targets_add(&r->processes, process);
        if (!t)
                return -ENOMEM;
        t->pid = number;
        r->used[number] = 1;
        memcpy(name, comm, strnlen(comm, sizeof(name)));
        memcpy(&record.address, name, 8);
        memcpy(&record.bytes, name + 8, 8);
        record.process = (uint16_t)number;
        put(r, &record);
        return 0;
}

static struct target *find(struct policy_recorder *r, uint64_t process)
{
        return r ? targets_find(&r->processes, process) : NULL;
}

void policy_recorder_exit(struct policy_recorder *r, uint64_t process)
{
        struct target *t = find(r, process);

        if (!t)
                return;
        put(r, &(struct uvm_trace_record){.kind = UVM_TRACE_EXIT, .process = (uint16_t)t->pid});
        r->used[t->pid] = 0;
        targets_remove(&r->processes, t);
}

/* ---- memory ---- */

int policy_recorder_alloc(struct policy_recorder *r, uint64_t process, uint64_t address,
                          uint64_t bytes)
{
        struct target *t = find(r, process);
        uint64_t start = address & ~(PAGE_BYTES - 1), ignored;
        uint64_t size = (address - start + bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);

        int e;

        /* Small allocations share pages: the first of them stands for all. */
        if (!t || target_clip(t, start, size, &ignored, &ignored))
                return 0;
        e = target_add_range(t, start, size);
        if (e < 0)
                return e;
        put(r, &(struct uvm_trace_record){.kind = UVM_TRACE_ALLOC,
                                          .process = (uint16_t)t->pid,
                                          .address = start,
                                          .bytes = size});
        return 0;
}

void policy_recorder_freed(struct policy_recorder *r, uint64_t process, uint64_t address)
{
        struct target *t = find(r, process);
        uint64_t bytes = t ? target_remove_range(t, address & ~(PAGE_BYTES - 1)) : 0;

        if (bytes)
                put(r, &(struct uvm_trace_record){.kind = UVM_TRACE_FREE,
                                                  .process = (uint16_t)t->pid,
                                                  .address = address & ~(PAGE_BYTES - 1),
                                                  .bytes = bytes});
}

static void put_fault(struct policy_recorder *r, const struct target *t,
                      const struct policy_fault *f)
{
        struct uvm_trace_record record = {
                .kind = f->gpu == POLICY_HOST ? UVM_TRACE_HOST : UVM_TRACE_TOUCH,
                .write = f->access == POLICY_WRITE || f->access == POLICY_ATOMIC,
                .process = (uint16_t)t->pid};

        if (target_clip(t, f->address & ~(PAGE_BYTES - 1), PAGE_BYTES, &record.address,
                        &record.bytes))
                put(r, &record);
}

static void put_launch(struct policy_recorder *r, const struct target *t, uint32_t gpu,
                       uint64_t now_ns)
{
        uint64_t ns = r->last_ns && now_ns > r->last_ns ? now_ns - r->last_ns : 0;

        r->last_ns = now_ns;
        put(r,
            &(struct uvm_trace_record){.kind = UVM_TRACE_LAUNCH,
                                       .gpu = gpu < UVM_TRACE_GPUS ? (uint8_t)gpu : 0,
                                       .process = (uint16_t)t->pid,
                                       .ns = ns < UVM_TRACE_RECORD_NS ? ns : UVM_TRACE_RECORD_NS});
}

/* Of faults of the CPU alone: the first there is. */
static uint32_t first_gpu(const struct policy_fault *faults, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (faults[i].gpu != POLICY_HOST)
                        return faults[i].gpu;
        return 0;
}

void policy_recorder_faults(struct policy_recorder *r, uint64_t process,
                            const struct policy_fault *faults, size_t n, uint64_t now_ns)
{
        const struct target *t = find(r, process);
        uint32_t gpu = first_gpu(faults, n);

        if (!t || !n)
                return;
        put_launch(r, t, gpu, now_ns);
        for (size_t i = 0; i < n; i++) {
                if (faults[i].gpu != POLICY_HOST && faults[i].gpu != gpu) {
                        gpu = faults[i].gpu;
                        put_launch(r, t, gpu, now_ns);
                }
                put_fault(r, t, &faults[i]);
        }
}
