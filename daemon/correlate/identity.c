/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Which kernel is it? A launch names a handle (CUfunction or CUkernel), a device
 * record a kernel id. Between them stands (image handle, kernel name): handle
 * events give it for handles, the agent gives it for ids, in no order. So a
 * function is looked up when it is needed, and again only after something new
 * was learned about any identity of the process.
 *
 * An image handle may come back after its image was unloaded. Two kernels with
 * the same (image, name) count as the same, the older one is then a reloaded
 * image's.
 */
#include "correlate/join.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/cpu_abi.h"

#define PARENTS_MAX 4 /* CUfunction -> CUkernel -> library */

struct function *function_unref(struct function *f)
{
        if (f && --f->references == 0)
                free(f);
        return NULL;
}

static struct function *function_find(struct correlated_process *p, uint64_t handle)
{
        struct function *f;

        HASH_FIND(hh, p->functions, &handle, sizeof(handle), f);
        return f;
}

static void function_remove(struct correlated_process *p, struct function *f)
{
        HASH_DELETE(hh, p->functions, f);
        function_unref(f);
}

/* The table's newest entry for a handle, made if need be. NULL on no memory. */
static struct function *function_add(struct correlated_process *p, uint64_t handle)
{
        struct function *f = function_find(p, handle);

        if (f)
                return f;
        if (HASH_CNT(hh, p->functions) >= FUNCTIONS_MAX)
                function_remove(p, p->functions);
        f = calloc(1, sizeof(*f));
        if (!f)
                return NULL;
        f->handle = handle;
        f->references = 1;
        f->generation = UINT64_MAX;
        HASH_ADD(hh, p->functions, handle, sizeof(f->handle), f);
        return f;
}

struct function *function_get(struct correlated_process *p, uint64_t handle)
{
        struct function *f = function_add(p, handle);

        if (f)
                f->references++;
        return f;
}

/* 0 when it is empty, or the process has named more than it may. */
static uint64_t name_of(struct correlated_process *p, const char *text, size_t length)
{
        uint64_t before = intern_count(p->correlator->names), id;

        if (length == 0 || p->names_added >= NAMES_MAX)
                return 0;
        id = intern_id(p->correlator->names, text, length);
        p->names_added += intern_count(p->correlator->names) - before;
        return id;
}

static void image_destroyed(struct correlated_process *p, uint64_t image)
{
        struct function *f, *next;

        HASH_ITER (hh, p->functions, f, next)
                if (f->parent == image)
                        function_remove(p, f);
}

static void function_created(struct correlated_process *p, const struct cpu_handle_event *ev)
{
        uint64_t name = name_of(p, ev->name, ev->name_length);
        struct function *f = function_find(p, ev->handle);

        if (f && f->parent == ev->parent && f->name == name)
                return;
        /* Another meaning: launches made so far keep the old one. */
        if (f && (f->parent || f->name))
                function_remove(p, f);
        f = function_add(p, ev->handle);
        if (!f)
                return;
        f->parent = ev->parent;
        f->name = name;
        f->name_cut = ev->name_truncated;
        f->kernel = NULL;
        p->identity_generation++;
}

void identity_handle(struct correlated_process *p, const struct cpu_handle_event *ev)
{
        struct function *f;

        switch (ev->kind) {
        case CPU_HANDLE_FUNCTION:
        case CPU_HANDLE_KERNEL:
                if (!ev->destroyed) {
                        function_created(p, ev);
                        break;
                }
                f = function_find(p, ev->handle);
                if (f)
                        function_remove(p, f);
                break;
        case CPU_HANDLE_MODULE:
                if (ev->destroyed)
                        image_destroyed(p, ev->handle);
                else if (ev->parent)
                        /* A library's module: a step on the way from function to library. */
                        function_created(p, ev);
                break;
        case CPU_HANDLE_LIBRARY:
                if (ev->destroyed)
                        image_destroyed(p, ev->handle);
                break;
        default:
                break;
        }
}

struct kernel *kernel_find(struct correlated_process *p, uint32_t kernel_id)
{
        struct kernel *k;

        HASH_FIND(by_id, p->kernels_by_id, &kernel_id, sizeof(kernel_id), k);
        return k;
}

uint64_t correlated_process_kernel(struct correlated_process *p, uint32_t kernel_id)
{
        const struct kernel *k = kernel_find(p, kernel_id);

        return k ? k->key.name : 0;
}

static struct kernel *kernel_find_named(struct correlated_process *p, uint64_t image, uint64_t name)
{
        struct kernel_name key = {image, name};
        struct kernel *k;

        HASH_FIND(by_name, p->kernels_by_name, &key, sizeof(key), k);
        return k;
}

void identity_kernel(struct correlated_process *p, const struct correlated_kernel *kernel)
{
        struct kernel *k = kernel_find(p, kernel->kernel_id), *old;

        p->nothing_probed &= !kernel->entry_probed;
        /* An id means one kernel for the life of the process, but what is in it may change. */
        if (k) {
                k->entry_probed = kernel->entry_probed;
                k->exit_probed = kernel->exit_probed;
                p->identity_generation++;
                return;
        }
        if (HASH_CNT(by_id, p->kernels_by_id) >= KERNELS_MAX)
                return;
        k = calloc(1, sizeof(*k));
        if (!k)
                return;
        k->kernel_id = kernel->kernel_id;
        if (k->kernel_id > p->kernel_id_max)
                p->kernel_id_max = k->kernel_id;
        k->key.image = kernel->image_handle;
        k->key.name = name_of(p, kernel->name, kernel->name_length);
        k->entry_probed = kernel->entry_probed;
        k->exit_probed = kernel->exit_probed;
        k->may_nest = kernel->may_nest;
        HASH_ADD(by_id, p->kernels_by_id, kernel_id, sizeof(k->kernel_id), k);
        p->identity_generation++;
        if (!k->key.image || !k->key.name)
                return;
        old = kernel_find_named(p, k->key.image, k->key.name);
        if (old)
                HASH_DELETE(by_name, p->kernels_by_name, old);
        HASH_ADD(by_name, p->kernels_by_name, key, sizeof(k->key), k);
}

bool kernel_same(const struct kernel *a, const struct kernel *b)
{
        return a == b || (a && b && a->key.image && a->key.name && a->key.image == b->key.image &&
                          a->key.name == b->key.name);
}

static void function_resolve(struct correlated_process *p, struct function *f)
{
        uint64_t parent = f->parent, name = f->name;
        const struct function *up;
        struct kernel *k;

        for (int i = 0; i < PARENTS_MAX; i++) {
                k = kernel_find_named(p, parent, name);
                if (k) {
                        f->kernel = k;
                        if (!f->name)
                                f->name = name;
                        return;
                }
                up = function_find(p, parent);
                if (!up)
                        return;
                parent = up->parent;
                if (up->name)
                        name = up->name;
                /* The name is known before the agent has told of the kernel. */
                if (!f->name)
                        f->name = name;
        }
}

struct kernel *function_kernel(struct correlated_process *p, struct function *f)
{
        if (!f)
                return NULL;
        if (!f->kernel && f->generation != p->identity_generation) {
                f->generation = p->identity_generation;
                function_resolve(p, f);
        }
        return f->kernel;
}

/* What may be launched by its name alone; 0 not known. */
static uint64_t whole_name(struct correlated_process *p, struct function *f)
{
        const struct kernel *k = function_kernel(p, f);

        if (k)
                return k->key.name;
        return f->name_cut ? 0 : f->name;
}

static bool name_list(struct correlated_process *p, uint64_t name)
{
        struct launched_name *n;

        HASH_FIND(hh, p->launched_names, &name, sizeof(name), n);
        if (n)
                return true;
        n = calloc(1, sizeof(*n));
        if (!n)
                return false;
        n->name = name;
        HASH_ADD(hh, p->launched_names, name, sizeof(n->name), n);
        return true;
}

void function_launched(struct correlated_process *p, struct function *f)
{
        uint64_t name;

        if (!f) {
                p->unlisted_count++;
                return;
        }
        if (f->listed || f->own)
                return;
        name = whole_name(p, f);
        f->listed = name && name_list(p, name);
        p->unlisted_count += !f->listed && !f->unlisted;
        p->unlisted_count -= f->listed && f->unlisted;
        f->unlisted = !f->listed;
}

/* Some launch may have been made that nobody saw, or whose kernel nobody knows. */
static bool launches_unseen(const struct correlated_process *p)
{
        const uint64_t *lost = p->ledger->lost;

        return p->unlisted_count || p->graphs_seen || lost[LOSS_cpu_ring_full] ||
               lost[LOSS_cpu_ring_full_other] || lost[LOSS_thread_state] ||
               lost[LOSS_agent_ring_overrun] || lost[LOSS_agent_record_torn] ||
               lost[LOSS_attach_gap];
}

bool kernel_is_nested(const struct correlated_process *p, const struct kernel *k)
{
        struct launched_name *n;

        if (!k || !k->may_nest || !k->key.name || launches_unseen(p))
                return false;
        HASH_FIND(hh, p->launched_names, &k->key.name, sizeof(n->name), n);
        return !n;
}

enum identity function_identity(struct correlated_process *p, struct function *f,
                                const struct kernel *k)
{
        const struct kernel *own = function_kernel(p, f);

        if (!own && f && f->name && k && k->key.name && f->name != k->key.name)
                return IDENTITY_DIFFERS;
        if (!own || !k)
                return IDENTITY_UNKNOWN;
        return kernel_same(own, k) ? IDENTITY_EQUAL : IDENTITY_DIFFERS;
}

void identity_forget_kernels(struct correlated_process *p)
{
        struct function *f, *next_function;
        struct kernel *k, *next_kernel;

        HASH_CLEAR(by_name, p->kernels_by_name);
        HASH_ITER (by_id, p->kernels_by_id, k, next_kernel) {
                HASH_DELETE(by_id, p->kernels_by_id, k);
                free(k);
        }
        HASH_ITER (hh, p->functions, f, next_function) {
                f->kernel = NULL;
                f->generation = UINT64_MAX;
        }
}

void identity_done(struct correlated_process *p)
{
        struct launched_name *n, *next_name;
        struct function *f, *next;

        identity_forget_kernels(p);
        HASH_ITER (hh, p->functions, f, next)
                function_remove(p, f);
        HASH_ITER (hh, p->launched_names, n, next_name) {
                HASH_DELETE(hh, p->launched_names, n);
                free(n);
        }
}
