/* SPDX-License-Identifier: Apache-2.0 */
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "borrow.h"

#define FIND_MS  10000 /* for a thread at a good moment */
#define STOP_MS  2000  /* for a thread to stop */
#define CALL_MS  20000 /* for the call */
#define PATCH_MS 10000

#define STACK_LOOK  65536 /* bytes of a stack that are looked at */
#define RED_ZONE    128
#define AREA_BYTES  (512u << 10)
#define CODE_BYTES  4096u
#define XSTATE_MAX  (12u << 10)
#define SIGMASK_ALL (~0ull)
#define USER_CS     0x33

/* What the kernel keeps in a register of a call that it will go on with. */
#define RESTART_FIRST 512
#define RESTART_LAST  516

static uint64_t now_ms(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void nap_us(long us)
{
        struct timespec ts = {.tv_nsec = us * 1000};

        nanosleep(&ts, NULL);
}

/* ---- one thread ---- */

static bool is_event_stop(int status)
{
        return WIFSTOPPED(status) && status >> 16 == PTRACE_EVENT_STOP;
}

/* The next thing that happens to a thread. 0; -ETIMEDOUT; -ESRCH it has ended. */
static int wait_for(pid_t thread, uint64_t until_ms, int *ret_status)
{
        for (;;) {
                pid_t got = waitpid(thread, ret_status, __WALL | WNOHANG);

                if (got == thread)
                        return WIFSTOPPED(*ret_status) ? 0 : -ESRCH;
                if (got < 0 && errno != EINTR)
                        return -errno;
                if (now_ms() > until_ms)
                        return -ETIMEDOUT;
                nap_us(50);
        }
}

/* Stop it; signals that come first are given to it. 0; -EAGAIN the whole process is stopped. */
static int interrupt(pid_t thread, uint64_t until_ms)
{
        int status, r;

        if (ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) < 0)
                return -errno;
        for (;;) {
                r = wait_for(thread, until_ms, &status);
                if (r < 0)
                        return r;
                if (is_event_stop(status))
                        return WSTOPSIG(status) == SIGTRAP ? 0 : -EAGAIN;
                ptrace(PTRACE_CONT, thread, NULL,
                       status >> 16 ? NULL : (void *)(uintptr_t)WSTOPSIG(status));
        }
}

/* A thread that could not be stopped in time must be let go, too: it has to stop for that. */
static void let_go(pid_t thread)
{
        if (ptrace(PTRACE_DETACH, thread, NULL, NULL) == 0 || errno == ESRCH)
                return;
        if (interrupt(thread, now_ms() + STOP_MS) == 0)
                ptrace(PTRACE_DETACH, thread, NULL, NULL);
}

static int seize(struct target *t, pid_t thread)
{
        if (ptrace(PTRACE_SEIZE, thread, NULL, (void *)(uintptr_t)PTRACE_O_TRACESYSGOOD) == 0)
                return 0;
        return errno == EPERM ? target_refuse_tracing(t) : -errno;
}

/* ---- a good moment ---- */

/* Words of the stack that make the moment a bad one. */
struct stack_rule {
        const uint64_t *exact; /* addresses of returns of signal handlers */
        size_t exact_count;
        const struct borrow_patch *patches; /* or inside of what is to be changed */
        size_t patch_count;
};

static bool in_patch(const struct stack_rule *rule, uint64_t word)
{
        for (size_t i = 0; i < rule->patch_count; i++)
                if (word > rule->patches[i].address &&
                    word < rule->patches[i].address + rule->patches[i].avoid)
                        return true;
        return false;
}

/* Conservative: what lies on the stack without meaning counts as well. */
static bool stack_has(const struct target *t, uint64_t sp, const struct stack_rule *rule)
{
        const struct target_mapping *m = target_mapping(t, sp);
        static uint64_t words[STACK_LOOK / sizeof(uint64_t)];
        uint64_t from = sp & ~7ull;
        size_t size = sizeof(words);
        bool found = false;

        if (m && size > m->end - from)
                size = m->end - from;
        if (!target_read(t, from, words, size))
                return true;
        for (size_t i = 0; i < size / sizeof(*words) && !found; i++) {
                for (size_t k = 0; k < rule->exact_count; k++)
                        found |= words[i] == rule->exact[k];
                found |= in_patch(rule, words[i]);
        }
        return found;
}

static bool is_restart(const struct user_regs_struct *r)
{
        long value = -(long)r->rax;

        return (long)r->orig_rax >= 0 && value >= RESTART_FIRST && value <= RESTART_LAST;
}

static bool is_quiet(const struct user_regs_struct *r)
{
        const struct target_call c = {.number = (long)r->orig_rax,
                                      .arguments = {r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9}};

        return target_call_is_quiet(&c);
}

static bool is_good_moment(const struct target *t, const struct user_regs_struct *r)
{
        const struct stack_rule handlers = {.exact = t->returns, .exact_count = t->return_count};
        const struct target_mapping *m = target_mapping(t, r->rip);

        if (r->cs != USER_CS || !m || stack_has(t, r->rsp, &handlers))
                return false;
        if (is_restart(r))
                return is_quiet(r);
        return !m->unsafe;
}

/* ---- the borrowed thread ---- */

struct borrowed {
        struct target *target;
        pid_t thread;
        struct user_regs_struct regs;
        uint8_t xstate[XSTATE_MAX];
        size_t xstate_bytes;
        uint64_t sigmask;
        uint64_t area; /* data and stack */
        uint64_t code;
};

static int save(struct borrowed *b)
{
        struct iovec v = {b->xstate, sizeof(b->xstate)};

        if (ptrace(PTRACE_GETREGS, b->thread, NULL, &b->regs) < 0 ||
            ptrace(PTRACE_GETSIGMASK, b->thread, sizeof(b->sigmask), &b->sigmask) < 0 ||
            ptrace(PTRACE_GETREGSET, b->thread, NT_X86_XSTATE, &v) < 0)
                return -errno;
        b->xstate_bytes = v.iov_len;
        return v.iov_len + 4 <= sizeof(b->xstate) ? 0 : -ENOTSUP;
}

static int restore(const struct borrowed *b)
{
        struct iovec v = {(void *)(uintptr_t)b->xstate, b->xstate_bytes};

        if (ptrace(PTRACE_SETREGSET, b->thread, NT_X86_XSTATE, &v) < 0 ||
            ptrace(PTRACE_SETREGS, b->thread, NULL, &b->regs) < 0 ||
            ptrace(PTRACE_SETSIGMASK, b->thread, sizeof(b->sigmask), &b->sigmask) < 0)
                return -errno;
        return 0;
}

static int block_signals(const struct borrowed *b)
{
        uint64_t all = SIGMASK_ALL;

        return ptrace(PTRACE_SETSIGMASK, b->thread, sizeof(all), &all) < 0 ? -errno : 0;
}

/* One system call, by a step over the instruction. */
static int call_kernel(const struct borrowed *b, long number, const uint64_t arguments[6],
                       uint64_t *ret_value)
{
        struct user_regs_struct r = b->regs;
        int status, error;

        r.rip = b->target->syscall;
        r.orig_rax = (unsigned long)-1L; /* what was interrupted is not gone on with now */
        r.rax = (unsigned long)number;
        r.rdi = arguments[0];
        r.rsi = arguments[1];
        r.rdx = arguments[2];
        r.r10 = arguments[3];
        r.r8 = arguments[4];
        r.r9 = arguments[5];
        if (ptrace(PTRACE_SETREGS, b->thread, NULL, &r) < 0 ||
            ptrace(PTRACE_SINGLESTEP, b->thread, NULL, NULL) < 0)
                return -errno;
        error = wait_for(b->thread, now_ms() + STOP_MS, &status);
        if (error < 0)
                return error;
        if (ptrace(PTRACE_GETREGS, b->thread, NULL, &r) < 0)
                return -errno;
        *ret_value = r.rax;
        return (long)r.rax < 0 && (long)r.rax > -4096 ? (int)(long)r.rax : 0;
}

static int map(const struct borrowed *b, uint64_t bytes, int protection, uint64_t *ret_address)
{
        const uint64_t arguments[6] = {
                0, bytes, (uint64_t)protection, MAP_PRIVATE | MAP_ANONYMOUS, (uint64_t)-1L, 0};

        return call_kernel(b, SYS_mmap, arguments, ret_address);
}

static void unmap(const struct borrowed *b, uint64_t address, uint64_t bytes)
{
        const uint64_t arguments[6] = {address, bytes};
        uint64_t unused;

        if (address)
                (void)call_kernel(b, SYS_munmap, arguments, &unused);
}

/* ---- what is put into the process ---- */

/* The data the code below works on; offsets are in the code. */
struct remote {
        uint64_t dlopen, dlsym, dlerror;  /* 0, 8, 16 */
        uint64_t library, function;       /* 24, 32: addresses of texts */
        uint64_t argument;                /* 40 */
        uint64_t handle, symbol, message; /* 48, 56, 64 */
        uint64_t result, done;            /* 72, 80 */
        uint64_t frame;                   /* 88: stack pointer for the return */
};

/*
 * rbx: the data. Load, look up, call; the linker's message if one of the first two fails;
 * then return from a signal.
 */
static const uint8_t remote_code[] = {
        0x48, 0x8b, 0x7b, 0x18,       /*       mov 24(%rbx),%rdi */
        0xbe, 0x02, 0x00, 0x00, 0x00, /*       mov $RTLD_NOW,%esi */
        0xff, 0x13,                   /*       call *(%rbx) */
        0x48, 0x89, 0x43, 0x30,       /*       mov %rax,48(%rbx) */
        0x48, 0x85, 0xc0,             /*       test %rax,%rax */
        0x74, 0x21,                   /*       jz error */
        0x48, 0x89, 0xc7,             /*       mov %rax,%rdi */
        0x48, 0x8b, 0x73, 0x20,       /*       mov 32(%rbx),%rsi */
        0xff, 0x53, 0x08,             /*       call *8(%rbx) */
        0x48, 0x89, 0x43, 0x38,       /*       mov %rax,56(%rbx) */
        0x48, 0x85, 0xc0,             /*       test %rax,%rax */
        0x74, 0x0e,                   /*       jz error */
        0x48, 0x8b, 0x7b, 0x28,       /*       mov 40(%rbx),%rdi */
        0xff, 0xd0,                   /*       call *%rax */
        0x48, 0x98,                   /*       cltq */
        0x48, 0x89, 0x43, 0x48,       /*       mov %rax,72(%rbx) */
        0xeb, 0x07,                   /*       jmp end */
        0xff, 0x53, 0x10,             /* error: call *16(%rbx) */
        0x48, 0x89, 0x43, 0x40,       /*       mov %rax,64(%rbx) */
        0xc6, 0x43, 0x50, 0x01,       /* end:  movb $1,80(%rbx) */
        0x48, 0x8b, 0x63, 0x58,       /*       mov 88(%rbx),%rsp */
        0xb8, 0x0f, 0x00, 0x00, 0x00, /*       mov $SYS_rt_sigreturn,%eax */
        0x0f, 0x05,                   /*       syscall */
        0x0f, 0x0b,                   /*       ud2 */
};

#define TEXTS_AT  0x200u
#define TEXT_ROOM 0x1000u
#define FRAME_AT  0x4000u
#define XSTATE_AT 0x5000u

/* What a signal would have left on the stack: struct rt_sigframe up to the mask. */
struct frame {
        uint64_t return_address;
        uint64_t flags, link;
        uint64_t stack[3];
        uint64_t r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip,
                eflags;
        uint16_t cs, gs, fs, ss;
        uint64_t error, trap, old_mask, cr2, xstate, reserved[8];
        uint64_t mask;
};
_Static_assert(sizeof(struct frame) == 312, "rt_sigframe");

/* A call that was interrupted: begun again where that is right, else it says so. */
static void settle_call(struct frame *f, const struct user_regs_struct *r)
{
        long value = -(long)r->rax;

        if (!is_restart(r))
                return;
        if (value == 512 || value == 513) { /* ERESTARTSYS, ERESTARTNOINTR */
                f->rax = r->orig_rax;
                f->rip = r->rip - 2;
        } else {
                f->rax = (uint64_t)-EINTR;
        }
}

static struct frame make_frame(const struct borrowed *b)
{
        const struct user_regs_struct *r = &b->regs;
        struct frame f = {
                .flags = 7,
                /* Flags no alternate stack can have: the one there is stays. */
                .stack = {0, 0x1234, 0},
                .r8 = r->r8,
                .r9 = r->r9,
                .r10 = r->r10,
                .r11 = r->r11,
                .r12 = r->r12,
                .r13 = r->r13,
                .r14 = r->r14,
                .r15 = r->r15,
                .rdi = r->rdi,
                .rsi = r->rsi,
                .rbp = r->rbp,
                .rbx = r->rbx,
                .rdx = r->rdx,
                .rax = r->rax,
                .rcx = r->rcx,
                .rsp = r->rsp,
                .rip = r->rip,
                .eflags = r->eflags,
                .cs = (uint16_t)r->cs,
                .ss = (uint16_t)r->ss,
                .xstate = b->area + XSTATE_AT,
                .mask = b->sigmask,
        };

        settle_call(&f, r);
        return f;
}

/* As the kernel marks it in a frame. */
static void mark_xstate(const struct borrowed *b, uint8_t *xstate)
{
        uint32_t head[] = {0x46505853, (uint32_t)b->xstate_bytes + 4},
                 size = (uint32_t)b->xstate_bytes, tail = 0x46505845;
        uint64_t features;

        memcpy(&features, b->xstate + 464, sizeof(features)); /* those that are enabled */
        memset(xstate + 464, 0, 48);
        memcpy(xstate + 464, head, sizeof(head));
        memcpy(xstate + 472, &features, sizeof(features));
        memcpy(xstate + 480, &size, sizeof(size));
        memcpy(xstate + b->xstate_bytes, &tail, sizeof(tail));
}

static bool put_texts(const struct borrowed *b, const struct borrow_call *call)
{
        size_t library = strlen(call->library) + 1, function = strlen(call->function) + 1;

        return library <= TEXT_ROOM && function <= TEXT_ROOM &&
               target_write(b->target, b->area + TEXTS_AT, call->library, library) &&
               target_write(b->target, b->area + TEXTS_AT + TEXT_ROOM, call->function, function);
}

static bool put(const struct borrowed *b, const struct borrow_call *call)
{
        const struct remote remote = {
                .dlopen = b->target->dlopen,
                .dlsym = b->target->dlsym,
                .dlerror = b->target->dlerror,
                .library = b->area + TEXTS_AT,
                .function = b->area + TEXTS_AT + TEXT_ROOM,
                .argument = (uint64_t)call->argument,
                .frame = b->area + FRAME_AT + sizeof(uint64_t),
        };
        struct frame frame = make_frame(b);
        uint8_t xstate[XSTATE_MAX];

        memcpy(xstate, b->xstate, b->xstate_bytes);
        mark_xstate(b, xstate);
        return put_texts(b, call) && target_write(b->target, b->area, &remote, sizeof(remote)) &&
               target_write(b->target, b->area + FRAME_AT, &frame, sizeof(frame)) &&
               target_write(b->target, b->area + XSTATE_AT, xstate, b->xstate_bytes + 4) &&
               target_write(b->target, b->code, remote_code, sizeof(remote_code));
}

/* ---- the call ---- */

static bool is_return(const struct borrowed *b, const struct user_regs_struct *r)
{
        return (long)r->orig_rax == SYS_rt_sigreturn && r->rip >= b->code &&
               r->rip < b->code + CODE_BYTES;
}

/* Until it is about to return; a fault of it is a failure, and everything is put back. */
static int run_to_return(struct borrowed *b, uint64_t until_ms)
{
        struct user_regs_struct r;
        int status, error;

        for (;;) {
                if (ptrace(PTRACE_SYSCALL, b->thread, NULL, NULL) < 0)
                        return -errno;
                error = wait_for(b->thread, until_ms, &status);
                if (error < 0)
                        return error;
                if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
                        if (is_event_stop(status))
                                continue;
                        return target_refuse(b->target, -EFAULT,
                                             "loading the agent failed with signal %d",
                                             WSTOPSIG(status));
                }
                if (ptrace(PTRACE_GETREGS, b->thread, NULL, &r) < 0)
                        return -errno;
                if (is_return(b, &r))
                        break;
        }
        /* Not to be carried out: stop before the thread is back in its code. */
        r.orig_rax = (unsigned long)-1L;
        if (ptrace(PTRACE_SETREGS, b->thread, NULL, &r) < 0 ||
            ptrace(PTRACE_INTERRUPT, b->thread, NULL, NULL) < 0 ||
            ptrace(PTRACE_CONT, b->thread, NULL, NULL) < 0)
                return -errno;
        return wait_for(b->thread, now_ms() + STOP_MS, &status);
}

static int start_call(const struct borrowed *b)
{
        struct user_regs_struct r = b->regs;

        r.orig_rax = (unsigned long)-1L;
        r.rip = b->code;
        r.rbx = b->area;
        r.rsp = b->area + AREA_BYTES - 64;
        r.eflags &= ~0x400ul; /* the direction strings are copied in */
        return ptrace(PTRACE_SETREGS, b->thread, NULL, &r) < 0 ? -errno : 0;
}

static int take_result(struct borrowed *b, struct borrow_call *call)
{
        struct remote remote;

        if (!target_read(b->target, b->area, &remote, sizeof(remote)) || !(remote.done & 1))
                return target_refuse(b->target, -EIO, "the call left no result");
        if (!remote.symbol) {
                for (size_t i = 0; remote.message && i + 1 < sizeof(call->error); i++)
                        if (!target_read(b->target, remote.message + i, &call->error[i], 1) ||
                            !call->error[i])
                                break;
                return target_refuse(b->target, -ELIBACC, "the agent cannot be loaded: %s",
                                     call->error[0] ? call->error : "the linker does not say why");
        }
        call->result = (int)remote.result;
        return 0;
}

/* The thread is stopped at a good moment. It is given back in any case. */
static int call_on(struct target *t, pid_t thread, struct borrow_call *call)
{
        struct borrowed b = {.target = t, .thread = thread};
        int r = save(&b);

        if (r < 0)
                return target_refuse(t, r, "its registers cannot be saved: %s", strerror(-r));
        r = block_signals(&b);
        if (r == 0)
                r = map(&b, AREA_BYTES, PROT_READ | PROT_WRITE, &b.area);
        if (r == 0)
                r = map(&b, CODE_BYTES, PROT_READ | PROT_EXEC, &b.code);
        if (r == 0 && !put(&b, call))
                r = -EFAULT;
        if (r == 0)
                r = start_call(&b);
        if (r < 0) {
                target_refuse(t, r, "the call cannot be prepared in it: %s", strerror(-r));
        } else {
                r = run_to_return(&b, now_ms() + CALL_MS);
                if (r == -ETIMEDOUT)
                        return target_refuse(
                                t, r,
                                "the agent was not loaded in %d s; the process goes on "
                                "with it when it can",
                                CALL_MS / 1000);
                if (r == 0)
                        r = take_result(&b, call);
        }
        if (r != -ESRCH) {
                unmap(&b, b.area, AREA_BYTES);
                unmap(&b, b.code, CODE_BYTES);
                restore(&b);
        }
        return r;
}

/* -EAGAIN: not now. */
static int try_thread(struct target *t, pid_t thread, struct borrow_call *call)
{
        struct user_regs_struct r;
        int error = seize(t, thread);

        if (error < 0)
                return error == -ESRCH ? -EAGAIN : error;
        error = interrupt(thread, now_ms() + STOP_MS);
        if (error == 0 && ptrace(PTRACE_GETREGS, thread, NULL, &r) == 0 && is_good_moment(t, &r)) {
                error = target_check_seccomp(t); /* it may have confined itself since */
                if (error == 0)
                        error = call_on(t, thread, call);
        } else {
                error = -EAGAIN;
        }
        let_go(thread);
        return error;
}

/* First those that wait: they are the least disturbed. */
static int try_threads(struct target *t, struct borrow_call *call, bool waiting)
{
        struct target_call c;
        pid_t *threads = NULL;
        ssize_t count = target_threads(t, &threads);
        int r = -EAGAIN;

        if (count < 0)
                return target_refuse(t, (int)count, "the process has ended");
        for (ssize_t i = 0; r == -EAGAIN && i < count; i++)
                if (target_call(t, threads[i], &c) &&
                    (waiting ? !c.running && target_call_is_quiet(&c) : c.running))
                        r = try_thread(t, threads[i], call);
        free(threads);
        return r;
}

int borrow_and_call(struct target *t, struct borrow_call *call)
{
        uint64_t until = now_ms() + FIND_MS;
        unsigned seed = (unsigned)until;
        int r;

        do {
                r = try_threads(t, call, true);
                if (r == -EAGAIN)
                        r = try_threads(t, call, false);
                if (r != -EAGAIN)
                        return r;
                /* Not in step with what the process does. */
                nap_us(100 + rand_r(&seed) % 3000);
        } while (now_ms() < until);
        return target_refuse(t, -EBUSY,
                             "none of its threads came to a place where it could be asked; "
                             "try again");
}

/* ---- changing code ---- */

struct stopped {
        pid_t *threads;
        size_t count;
};

static bool is_stopped(const struct stopped *s, pid_t thread)
{
        for (size_t i = 0; i < s->count; i++)
                if (s->threads[i] == thread)
                        return true;
        return false;
}

static void go_on(struct stopped *s)
{
        for (size_t i = 0; i < s->count; i++)
                let_go(s->threads[i]);
        free(s->threads);
        *s = (struct stopped){0};
}

/* 1: stopped; 0: it is gone, or waits where it may be left alone. */
static int stop_one(struct target *t, pid_t thread)
{
        struct target_call c;
        int r;

        /* It would notice being stopped; it does not run, and its place is in the C library. */
        if (target_call(t, thread, &c) && !c.running && target_call_breaks(&c))
                return 0;
        r = seize(t, thread);
        if (r < 0)
                return r == -ESRCH ? 0 : r;
        r = interrupt(thread, now_ms() + STOP_MS);
        if (r == 0)
                return 1;
        let_go(thread);
        return r == -ESRCH ? 0 : r;
}

/* New threads may come while the others are being stopped. */
static int stop_all(struct target *t, struct stopped *s)
{
        bool more = true;
        int r = 0;

        while (more && r >= 0) {
                pid_t *threads = NULL, *grown;
                ssize_t count = target_threads(t, &threads);

                more = false;
                r = count < 0 ? (int)count : 0;
                for (ssize_t i = 0; r >= 0 && i < count; i++) {
                        if (is_stopped(s, threads[i]))
                                continue;
                        r = stop_one(t, threads[i]);
                        if (r <= 0)
                                continue;
                        grown = reallocarray(s->threads, s->count + 1, sizeof(*grown));
                        if (!grown) {
                                let_go(threads[i]);
                                r = -ENOMEM;
                                break;
                        }
                        s->threads = grown;
                        s->threads[s->count++] = threads[i];
                        more = true;
                }
                free(threads);
        }
        return r < 0 ? r : 0;
}

static bool all_are_outside(const struct target *t, const struct stopped *s,
                            const struct stack_rule *rule)
{
        struct user_regs_struct r;

        for (size_t i = 0; i < s->count; i++)
                if (ptrace(PTRACE_GETREGS, s->threads[i], NULL, &r) < 0 || in_patch(rule, r.rip) ||
                    stack_has(t, r.rsp - RED_ZONE, rule))
                        return false;
        return true;
}

static int write_all(struct target *t, const struct borrow_patch *patches, size_t count)
{
        uint8_t there[16];

        for (size_t i = 0; i < count; i++)
                if (!target_read(t, patches[i].address, there, patches[i].size) ||
                    memcmp(there, patches[i].from, patches[i].size) != 0)
                        return target_refuse(t, -EBUSY,
                                             "something else has changed the driver's code");
        for (size_t i = 0; i < count; i++) {
                if (target_write(t, patches[i].address, patches[i].to, patches[i].size))
                        continue;
                while (i-- > 0)
                        (void)target_write(t, patches[i].address, patches[i].from, patches[i].size);
                return target_refuse(t, -EPERM, "the driver's code cannot be written");
        }
        return 0;
}

int borrow_patch(struct target *t, const struct borrow_patch *patches, size_t count)
{
        const struct stack_rule rule = {.patches = patches, .patch_count = count};
        uint64_t until = now_ms() + PATCH_MS;
        int r;

        do {
                struct stopped s = {0};

                r = target_read_mappings(t);
                if (r == 0)
                        r = stop_all(t, &s);
                if (r == 0)
                        r = all_are_outside(t, &s, &rule) ? write_all(t, patches, count) : -EAGAIN;
                go_on(&s);
                if (r != -EAGAIN && r != -ETIMEDOUT)
                        break;
                nap_us(1000);
        } while (now_ms() < until);
        if (r == -EAGAIN || r == -ETIMEDOUT)
                return target_refuse(t, -EBUSY,
                                     "its threads could not be stopped outside of the driver's "
                                     "functions; try again");
        if (r < 0 && !t->reason[0])
                target_refuse(t, r, "its threads cannot be stopped: %s", strerror(-r));
        return r;
}
