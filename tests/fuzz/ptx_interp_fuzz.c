/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The PTX interpreter: whatever the text, it is refused with a line and a reason,
 * or its kernels run to an end without touching memory that is not theirs.
 */
#include "simcuda/ptx_interp.h"

#include "unit/test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool only_own_data(void *userdata, uint64_t address, struct ptx_region *ret_region)
{
        size_t bytes;
        uint64_t start = (uint64_t)ptx_module_data(userdata, &bytes);

        if (!start || address < start || address >= start + bytes)
                return false;
        *ret_region = (struct ptx_region){.start = start, .end = start + bytes};
        return true;
}

static void run_entry(struct ptx_machine *machine, struct ptx_module *module,
                      const struct ptx_entry *entry)
{
        const struct ptx_entry_info *info = ptx_entry_info(entry);
        struct ptx_env env = {
                .userdata = module, .find_region = only_own_data, .max_instructions = 20000};
        struct ptx_launch launch = {.grid = {2, 1, 1}, .block = {33, 1, 1}, .shared_bytes = 64};
        enum ptx_fault fault;
        uint8_t *params;

        if (info->shared_bytes > 1 << 20 || info->local_bytes > 1 << 14)
                return; /* allowed, only slow */
        params = calloc(1, info->param_bytes + 1);
        CHECK(params);
        if (ptx_run(machine, entry, &launch, params, &env, &fault) == 0)
                CHECK(fault <= PTX_FAULT_MEMORY);
        free(params);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct ptx_machine *machine;
        struct ptx_module *module;
        char log[200];
        int r = ptx_module_load((const char *)data, size, 0, log, sizeof(log), &module);

        if (r < 0) {
                CHECK(strncmp(log, "line ", 5) == 0 && strlen(log) > 8);
                return 0;
        }
        machine = ptx_machine_new();
        CHECK(machine);
        for (size_t i = 0; i < ptx_module_entry_count(module); i++)
                run_entry(machine, module, ptx_module_entry(module, i));
        ptx_machine_free(machine);
        ptx_module_free(module);
        return 0;
}
