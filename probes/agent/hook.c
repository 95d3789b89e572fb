/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hook.h"
#include "memory_map.h"
#include "x86.h"

#define CODE_MAX    65536 /* longest function that is checked */
#define CODE_GUESS  4096  /* looked at when its size is not known */
#define INT3        0xcc
#define PROBE_STEP  0x100000ULL   /* distance between tried places */
#define PROBE_REACH 0x70000000ULL /* stay clear of the 2 GiB limit */

/* A page within reach of a 32-bit jump from the target, where nothing else is. */
static void *map_near(uintptr_t target, size_t size)
{
        for (uint64_t distance = PROBE_STEP; distance < PROBE_REACH; distance += PROBE_STEP)
                for (int side = 0; side < 2; side++) {
                        uintptr_t at = (side ? target + distance : target - distance) & ~0xfffULL;
                        void *p;

                        if (!side && distance > target)
                                continue;
                        p = mmap((void *)at, size, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
                        if (p == (void *)at)
                                return p;
                        if (p != MAP_FAILED)
                                munmap(p, size); /* a kernel that takes the flag for a hint */
                }
        return NULL;
}

static size_t symbol_extent(const void *target)
{
        const ElfW(Sym) *symbol = NULL;
        Dl_info info;

        if (!dladdr1(target, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol ||
            info.dli_saddr != target)
                return 0;
        return symbol->st_size;
}

/*
 * The function's original bytes. A uprobe may have put an int3 anywhere; any
 * other difference between file and memory means that the file is not what was
 * loaded, or that somebody else has patched the function.
 */
static const char *read_code(const uint8_t *target, uint8_t *code, size_t *size)
{
        size_t readable = memory_readable_bytes(target, *size);
        ssize_t n;

        if (!readable)
                return "the process's memory map cannot be read";
        if (*size > readable)
                *size = readable;
        n = memory_file_bytes((uintptr_t)target, code, *size);
        if (n <= 0) {
                /* No file to look at: memory will do as long as no uprobe shows. */
                memcpy(code, target, *size);
                return code[0] == INT3 ? "the library's file cannot be read" : NULL;
        }
        *size = (size_t)n;
        for (size_t i = 0; i < *size; i++)
                if (code[i] != target[i] && target[i] != INT3)
                        return "the function differs from the library's file";
        return NULL;
}

static const char *plan_one(const struct hook *h, uint8_t *code, uintptr_t slot,
                            struct hook_plan *ret_plan)
{
        size_t extent, size;
        const char *refusal;

        if (!h->target)
                return "the driver has no such function";
        extent = symbol_extent(h->target);
        size = !extent ? CODE_GUESS : extent < CODE_MAX ? extent : CODE_MAX;
        refusal = read_code(h->target, code, &size);
        if (refusal)
                return refusal;
        return hook_plan(code, size, extent, (uintptr_t)h->target, slot, (uintptr_t)h->replacement,
                         ret_plan);
}

typedef void planned_fn(const struct hook *h, const struct hook_plan *plan);

static const char *commit_one(struct hook *h, const struct hook_plan *p, uint8_t *slot,
                              planned_fn *planned)
{
        __atomic_store_n(h->original, slot, __ATOMIC_RELEASE);
        if (planned) {
                planned(h, p);
                return NULL;
        }
        return hook_write((uint8_t *)h->target + p->first_bytes, p->expected, p->patch);
}

static int install(struct hook *hooks, size_t count, struct hook_plan *plans, uint8_t *code,
                   uint8_t *page, size_t page_bytes, planned_fn *planned, const char **ret_reason)
{
        int installed = 0;

        for (size_t i = 0; i < count; i++) {
                uint8_t *slot = page + i * HOOK_SLOT_BYTES;

                hooks[i].refusal = plan_one(&hooks[i], code, (uintptr_t)slot, &plans[i]);
                if (!hooks[i].refusal)
                        memcpy(slot, plans[i].slot, HOOK_SLOT_BYTES);
        }
        if (mprotect(page, page_bytes, PROT_READ | PROT_EXEC) < 0) {
                *ret_reason = "this system does not let memory become code";
                return -EPERM;
        }
        for (size_t i = 0; i < count; i++) {
                if (!hooks[i].refusal)
                        hooks[i].refusal = commit_one(&hooks[i], &plans[i],
                                                      page + i * HOOK_SLOT_BYTES, planned);
                installed += !hooks[i].refusal;
        }
        return installed;
}

static void *first_target(const struct hook *hooks, size_t count)
{
        for (size_t i = 0; i < count; i++)
                if (hooks[i].target)
                        return hooks[i].target;
        return NULL;
}

static void *map_scratch(size_t size)
{
        void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        return p == MAP_FAILED ? NULL : p;
}

static int install_all(struct hook *hooks, size_t count, planned_fn *planned,
                       const char **ret_reason)
{
        size_t scratch_bytes = CODE_MAX + HOOK_MAX * sizeof(struct hook_plan);
        size_t page_bytes = HOOK_MAX * HOOK_SLOT_BYTES;
        void *target = first_target(hooks, count);
        const char *reason = NULL;
        uint8_t *scratch, *page;
        int r;

        if (!ret_reason)
                ret_reason = &reason;
        if (count > HOOK_MAX || !target) {
                *ret_reason = "nothing to hook";
                return -EINVAL;
        }
        r = x86_open();
        if (r < 0) {
                *ret_reason = "the instruction decoder (libZydis.so.4.0) is not available";
                return r;
        }
        scratch = map_scratch(scratch_bytes);
        page = scratch ? map_near((uintptr_t)target, page_bytes) : NULL;
        if (!page) {
                *ret_reason = "no free memory near the driver's code";
                r = -ENOMEM;
        } else {
                r = install(hooks, count, (struct hook_plan *)(scratch + CODE_MAX), scratch, page,
                            page_bytes, planned, ret_reason);
        }
        if (scratch)
                munmap(scratch, scratch_bytes);
        if (r <= 0 && page)
                munmap(page, page_bytes);
        return r;
}

int hooks_install(struct hook *hooks, size_t count, const char **ret_reason)
{
        return install_all(hooks, count, NULL, ret_reason);
}

int hooks_prepare(struct hook *hooks, size_t count,
                  void (*planned)(const struct hook *h, const struct hook_plan *plan),
                  const char **ret_reason)
{
        return install_all(hooks, count, planned, ret_reason);
}
