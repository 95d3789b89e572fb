/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Decisions of the managed-memory driver: probes on functions inside nvidia_uvm.
 *
 * Nothing of that module is promised, so nothing is assumed. Which function stands
 * at a point and which of its arguments is what, the daemon reads in the module's
 * BTF and writes into `arguments`; fields of its structs are found through BTF as
 * well (CO-RE), each only if it exists. Without BTF there are counts and times.
 *
 * Functions call each other (making pages resident may evict others), so that what
 * is known at entry waits on a small stack of the thread. A return that was missed
 * leaves a frame behind; it is known by its stack pointer, since a call below
 * another one has a lower one.
 *
 * Each point has its programs twice: kprobe and kretprobe, and fentry and fexit. The
 * daemon loads those it attaches. A traced function is called by a trampoline, whose
 * frame on the stack stands for the function's: it is the same when the call returns.
 */
#include "../bpf/gpuobs_core.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "uvm_probe_abi.h"
#include "uvm_types.h"

#define FRAMES 8
#define WORD   sizeof(long)

/* ---- what is shared ---- */

struct frame {
        __u64 enter_ns;
        __u64 sp;
        __u64 arguments[UVM_ROLE_COUNT];
        __u64 physical; /* of the chunk, and its state when it was chosen */
        __u32 state;
        __u16 has; /* enum uvm_probe_has */
        __u16 point;
};

struct thread {
        __u32 depth;
        __u32 pad;
        struct frame frames[FRAMES];
};

struct {
        __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, int);
        __type(value, struct thread);
} threads SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 1 << 20);
} events SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, UVM_PROBE_LOSS_COUNT);
        __type(key, __u32);
        __type(value, __u64);
} losses SEC(".maps");

/* Where an argument is, by point and role; UVM_ARGUMENT_NONE. */
const volatile __u8 arguments[UVM_POINT_COUNT][UVM_ROLE_COUNT] = {};
const volatile __u8 gpu_type[UVM_POINT_COUNT] = {};

static __always_inline void count_loss(__u32 which)
{
        __u64 *count = bpf_map_lookup_elem(&losses, &which);

        if (count)
                __sync_fetch_and_add(count, 1);
}

static __always_inline bool is_known(__u32 point, __u32 role)
{
        return arguments[point][role] != UVM_ARGUMENT_NONE;
}

/* The verifier of older kernels forgets that an index was compared: this shows it. */
static __always_inline struct frame *frame_at(struct thread *t, __u64 index)
{
        asm volatile("%0 &= %1" : "+r"(index) : "i"(FRAMES - 1));
        return &t->frames[index];
}

/* ---- entry ---- */

/* At a function's first instruction: six in registers, the others above the return address. */
#define REGISTERS 6

static __always_inline __u64 argument(const __u64 registers[REGISTERS], __u64 sp, __u8 index)
{
        __u64 value = 0;

        if (index < REGISTERS)
                return registers[index];
        if (index < UVM_ARGUMENTS_MAX)
                bpf_probe_read_kernel(&value, sizeof(value),
                                      (void *)(sp + (index - REGISTERS + 1) * WORD));
        return value;
}

/* Frames of calls that must have ended: nothing below this one can be running. */
static __always_inline void drop_stale(struct thread *t, __u64 sp)
{
        for (int i = 0; i < FRAMES; i++) {
                __u32 top = t->depth - 1;

                if (top >= FRAMES || frame_at(t, top)->sp > sp)
                        return;
                t->depth = top;
        }
}

/* Before it is emptied: afterwards its state says nothing. */
static __always_inline void read_chunk(struct frame *f)
{
        struct uvm_gpu_root_chunk_struct *root = (void *)f->arguments[UVM_ROLE_CHUNK];

        if (!bpf_core_field_exists(root->chunk.address) ||
            !bpf_core_field_exists(root->chunk.state))
                return;
        f->physical = BPF_CORE_READ(root, chunk.address);
        f->state = BPF_CORE_READ_BITFIELD_PROBED(root, chunk.state);
        f->has = UVM_PROBE_HAS_CHUNK;
}

/* A frame for the call whose stack begins at sp; NULL: there is no place, it is counted as lost. */
static __always_inline struct frame *push(struct thread *t, __u32 point, __u64 sp)
{
        struct frame *f;

        if (t)
                drop_stale(t, sp);
        if (!t || t->depth >= FRAMES) {
                count_loss(UVM_PROBE_LOSS_THREAD);
                return NULL;
        }
        f = frame_at(t, t->depth);
        f->point = point;
        f->has = 0;
        f->physical = 0;
        f->state = 0;
        f->sp = sp;
        return f;
}

static __always_inline void entered(struct thread *t, struct frame *f, __u32 point)
{
        if (is_known(point, UVM_ROLE_CHUNK))
                read_chunk(f);
        t->depth++;
        f->enter_ns = bpf_ktime_get_ns();
}

static __always_inline int enter(struct pt_regs *ctx, __u32 point)
{
        struct thread *t = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL,
                                                BPF_LOCAL_STORAGE_GET_F_CREATE);
        const __u64 registers[REGISTERS] = {ctx->di, ctx->si, ctx->dx, ctx->cx, ctx->r8, ctx->r9};
        struct frame *f = push(t, point, ctx->sp);

        if (!f)
                return 0;
        for (int role = 0; role < UVM_ROLE_COUNT; role++)
                f->arguments[role] = is_known(point, role)
                                             ? argument(registers, ctx->sp, arguments[point][role])
                                             : 0;
        entered(t, f, point);
        return 0;
}

/* What a trampoline does not hand on is 0. */
static __always_inline __u64 traced_argument(void *ctx, __u8 index)
{
        __u64 value = 0;

        bpf_get_func_arg(ctx, index, &value);
        return value;
}

static __always_inline int enter_traced(void *ctx, __u32 point)
{
        struct thread *t = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL,
                                                BPF_LOCAL_STORAGE_GET_F_CREATE);
        struct frame *f = push(t, point, (__u64)ctx);

        if (!f)
                return 0;
        for (int role = 0; role < UVM_ROLE_COUNT; role++)
                f->arguments[role] =
                        is_known(point, role) ? traced_argument(ctx, arguments[point][role]) : 0;
        entered(t, f, point);
        return 0;
}

/* ---- return: what the arguments lead to ---- */

static __always_inline struct uvm_va_space_struct *space_of(__u64 block)
{
        struct uvm_va_block_struct *b = (void *)block;
        struct uvm_va_block_struct___range *old = (void *)block;
        struct uvm_va_range_managed_struct *managed;

        if (bpf_core_field_exists(b->managed_range)) {
                managed = BPF_CORE_READ(b, managed_range);
                return managed ? BPF_CORE_READ(managed, va_range.va_space) : NULL;
        }
        if (bpf_core_field_exists(old->va_range))
                return BPF_CORE_READ(old, va_range, va_space);
        return NULL;
}

/* Faults are dealt with by the driver's own threads: the owner is found through the block. */
static __always_inline void read_owner(struct uvm_probe_event *e, __u64 block)
{
        struct uvm_va_space_struct *space = space_of(block);
        struct mm_struct___owner *mm = NULL;

        if (!space || !bpf_core_field_exists(space->va_space_mm.mm) ||
            !bpf_core_field_exists(mm->owner))
                return;
        mm = BPF_CORE_READ(space, va_space_mm.mm);
        e->tgid = mm ? BPF_CORE_READ(mm, owner, tgid) : 0;
        if (e->tgid)
                e->has |= UVM_PROBE_HAS_TGID;
}

static __always_inline void read_block(struct uvm_probe_event *e, __u64 block)
{
        struct uvm_va_block_struct *b = (void *)block;

        if (!bpf_core_field_exists(b->start) || !bpf_core_field_exists(b->end))
                return;
        e->start = BPF_CORE_READ(b, start);
        e->end = BPF_CORE_READ(b, end);
        e->has |= UVM_PROBE_HAS_BLOCK;
        read_owner(e, block);
}

static __always_inline void read_gpu(struct uvm_probe_event *e, __u32 point, __u64 gpu)
{
        struct uvm_parent_gpu_struct *parent = (void *)gpu;
        struct uvm_gpu_struct *plain = (void *)gpu;

        if (gpu_type[point] == UVM_GPU_PARENT) {
                if (bpf_core_field_exists(parent->uuid) &&
                    !bpf_core_read(e->uuid, sizeof(e->uuid), &parent->uuid))
                        e->has |= UVM_PROBE_HAS_UUID;
        } else if (bpf_core_field_exists(plain->uuid) &&
                   !bpf_core_read(e->uuid, sizeof(e->uuid), &plain->uuid)) {
                e->has |= UVM_PROBE_HAS_UUID;
        }
}

static __always_inline void read_faults(struct uvm_probe_event *e, __u64 batch)
{
        struct uvm_fault_service_batch_context_struct *b = (void *)batch;

        if (!bpf_core_field_exists(b->num_cached_faults) ||
            !bpf_core_field_exists(b->num_coalesced_faults) ||
            !bpf_core_field_exists(b->num_duplicate_faults) || !bpf_core_field_exists(b->batch_id))
                return;
        e->faults = BPF_CORE_READ(b, num_cached_faults);
        e->distinct = BPF_CORE_READ(b, num_coalesced_faults);
        e->duplicates = BPF_CORE_READ(b, num_duplicate_faults);
        e->batch = BPF_CORE_READ(b, batch_id);
        e->has |= UVM_PROBE_HAS_FAULTS;
}

static __always_inline void read_hint(struct uvm_probe_event *e, __u64 hint)
{
        uvm_perf_prefetch_hint_t *h = (void *)hint;

        if (!bpf_core_field_exists(h->residency.val) ||
            !bpf_core_field_exists(h->prefetch_pages_mask))
                return;
        e->chosen = BPF_CORE_READ(h, residency.val);
        if (!bpf_core_read(e->pages, sizeof(e->pages), &h->prefetch_pages_mask))
                e->has |= UVM_PROBE_HAS_HINT;
}

static __always_inline void read_arguments(struct uvm_probe_event *e, const struct frame *f)
{
        __u32 point = e->point;

        if (is_known(point, UVM_ROLE_GPU))
                read_gpu(e, point, f->arguments[UVM_ROLE_GPU]);
        if (is_known(point, UVM_ROLE_FAULTS))
                read_faults(e, f->arguments[UVM_ROLE_FAULTS]);
        if (is_known(point, UVM_ROLE_BLOCK))
                read_block(e, f->arguments[UVM_ROLE_BLOCK]);
        if (is_known(point, UVM_ROLE_HINT))
                read_hint(e, f->arguments[UVM_ROLE_HINT]);
        if (is_known(point, UVM_ROLE_PROCESSOR)) {
                e->processor = f->arguments[UVM_ROLE_PROCESSOR];
                e->has |= UVM_PROBE_HAS_PROCESSOR;
        }
        if (is_known(point, UVM_ROLE_REGION)) {
                e->first = f->arguments[UVM_ROLE_REGION];
                e->outer = f->arguments[UVM_ROLE_REGION] >> 16;
                e->has |= UVM_PROBE_HAS_REGION;
        }
        if (is_known(point, UVM_ROLE_CAUSE)) {
                e->cause = f->arguments[UVM_ROLE_CAUSE];
                e->has |= UVM_PROBE_HAS_CAUSE;
        }
        if (is_known(point, UVM_ROLE_ASKER)) {
                e->cause = f->arguments[UVM_ROLE_ASKER];
                e->has |= UVM_PROBE_HAS_CAUSE;
        }
}

/* Only written through a pointer, the event's type would not be in the object; a test compares it.
 */
static __always_inline void keep_types(void)
{
        asm volatile("" ::"r"((__u64)bpf_core_type_id_local(struct uvm_probe_event)));
}

static __always_inline void put_event(const struct frame *f, __u32 point, __u32 status)
{
        struct uvm_probe_event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
        __u64 duration = bpf_ktime_get_ns() - f->enter_ns;

        if (!e) {
                count_loss(UVM_PROBE_LOSS_RING);
                return;
        }
        keep_types();
        __builtin_memset(e, 0, sizeof(*e));
        e->enter_ns = f->enter_ns;
        e->duration_ns = duration > 0xffffffff ? 0xffffffff : duration;
        e->status = status;
        e->point = point;
        e->has = f->has;
        e->physical = f->physical;
        e->state = f->state;
        read_arguments(e, f);
        bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

/* The innermost call of this point is the one that returns. */
static __always_inline int leave(struct pt_regs *ctx, __u32 point, bool has_status)
{
        struct thread *t = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL, 0);
        const struct frame *f;

        if (!t)
                return 0;
        for (int i = 0; i < FRAMES; i++) {
                __u32 top = t->depth - 1;

                if (top >= FRAMES)
                        return 0;
                t->depth = top;
                f = frame_at(t, top);
                if (f->point != point)
                        continue;
                put_event(f, point, has_status ? ctx->ax : 0);
                return 0;
        }
        return 0;
}

/* The frame says which call it is; one whose entry was not seen is left out. */
static __always_inline int leave_traced(void *ctx, __u32 point, bool has_status)
{
        struct thread *t = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL, 0);
        const struct frame *f;
        __u64 status = 0;

        if (!t)
                return 0;
        for (int i = 0; i < FRAMES; i++) {
                __u32 top = t->depth - 1;

                if (top >= FRAMES)
                        return 0;
                f = frame_at(t, top);
                if (f->sp > (__u64)ctx)
                        return 0;
                t->depth = top;
                if (f->sp != (__u64)ctx || f->point != point)
                        continue;
                if (has_status)
                        bpf_get_func_ret(ctx, &status);
                put_event(f, point, status);
                return 0;
        }
        return 0;
}

#define POINT(name, number, has_status)                                                            \
        SEC("kprobe")                                                                              \
        int name##_enter(struct pt_regs *ctx)                                                      \
        {                                                                                          \
                return enter(ctx, number);                                                         \
        }                                                                                          \
        SEC("kretprobe")                                                                           \
        int name##_leave(struct pt_regs *ctx)                                                      \
        {                                                                                          \
                return leave(ctx, number, has_status);                                             \
        }                                                                                          \
        SEC("?fentry")                                                                             \
        int name##_enter_traced(void *ctx)                                                         \
        {                                                                                          \
                return enter_traced(ctx, number);                                                  \
        }                                                                                          \
        SEC("?fexit")                                                                              \
        int name##_leave_traced(void *ctx)                                                         \
        {                                                                                          \
                return leave_traced(ctx, number, has_status);                                      \
        }

POINT(batch, UVM_POINT_BATCH, true)
POINT(prefetch, UVM_POINT_PREFETCH, false)
POINT(pick, UVM_POINT_PICK, true)
POINT(evict, UVM_POINT_EVICT, true)
POINT(move, UVM_POINT_MOVE, true)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
