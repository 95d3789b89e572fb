/* SPDX-License-Identifier: Apache-2.0 */
/* The structs that eBPF and the daemon share: the same size and layout on both sides. */
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <stddef.h>

#include "cpu/cpu_abi.h"
#include "cpu/cpu_state_abi.h"
#include "device/device_abi.h"
#include "driver/driver_abi.h"
#include "driver/uvm_probe_abi.h"
#include "unit/test.h"

struct member {
        const char *type;
        const char *name; /* NULL: the size of the type */
        size_t value;
};

#define SIZE(type)                                                                                 \
        {                                                                                          \
#type, NULL, sizeof(struct type)                                                   \
        }
#define OFFSET(type, member)                                                                       \
        {                                                                                          \
#type, #member, offsetof(struct type, member)                                      \
        }

static const struct member expected[] = {
        SIZE(cpu_launch_event),
        OFFSET(cpu_launch_event, enter_ns),
        OFFSET(cpu_launch_event, stream),
        OFFSET(cpu_launch_event, context),
        OFFSET(cpu_launch_event, seq),
        OFFSET(cpu_launch_event, duration_ns),
        OFFSET(cpu_launch_event, grid_x),
        OFFSET(cpu_launch_event, grid_z),
        OFFSET(cpu_launch_event, block_y),
        OFFSET(cpu_launch_event, type),
        OFFSET(cpu_launch_event, block_z),
        OFFSET(cpu_launch_event, result),
        SIZE(cpu_operation_event),
        OFFSET(cpu_operation_event, address),
        OFFSET(cpu_operation_event, handle),
        OFFSET(cpu_operation_event, launch_seq),
        OFFSET(cpu_operation_event, operation),
        OFFSET(cpu_operation_event, result),
        SIZE(cpu_handle_event),
        OFFSET(cpu_handle_event, parent),
        OFFSET(cpu_handle_event, name_length),
        OFFSET(cpu_handle_event, kind),
        OFFSET(cpu_handle_event, type),
        OFFSET(cpu_handle_event, name),
        SIZE(cpu_process_event),
        OFFSET(cpu_process_event, parent_tgid),
        OFFSET(cpu_process_event, what),
        OFFSET(cpu_process_event, launches_lost),
        OFFSET(cpu_process_event, type),
        SIZE(cpu_context),
        OFFSET(cpu_context, seq),
        OFFSET(cpu_context, completed),
        OFFSET(cpu_context, depth),
        SIZE(cpu_context_key),
        OFFSET(cpu_context_key, generation),
        SIZE(cpu_process),
        OFFSET(cpu_process, cursor),
        OFFSET(cpu_process, adjust),
        OFFSET(cpu_process, generation),
        OFFSET(cpu_process, ended),
        SIZE(cpu_depth),
        OFFSET(cpu_depth, launched),
        OFFSET(cpu_depth, lost),
        OFFSET(cpu_depth, position),
        OFFSET(cpu_depth, shared),
        SIZE(device_record),
        OFFSET(device_record, check),
        SIZE(driver_call_event),
        OFFSET(driver_call_event, bytes),
        OFFSET(driver_call_event, result),
        OFFSET(driver_call_event, what),
        OFFSET(driver_call_event, context_id),
        OFFSET(driver_call_event, minor),
        OFFSET(driver_call_event, has),
        SIZE(driver_device_range),
        OFFSET(driver_device_range, device),
        SIZE(uvm_probe_event),
        OFFSET(uvm_probe_event, pages),
        OFFSET(uvm_probe_event, tgid),
        OFFSET(uvm_probe_event, cause),
        OFFSET(uvm_probe_event, outer),
        OFFSET(uvm_probe_event, uuid),
        OFFSET(uvm_probe_event, point),
};

/* Where a member is, in bits, also inside of members without a name. False: there is none. */
static bool find_member(const struct btf *btf, const struct btf_type *type, const char *name,
                        uint32_t *ret_bits)
{
        const struct btf_member *m = btf_members(type);

        for (uint32_t i = 0; i < btf_vlen(type); i++) {
                const char *is = btf__name_by_offset(btf, m[i].name_off);
                const struct btf_type *inner = btf__type_by_id(btf, m[i].type);
                uint32_t bits;

                if (strcmp(is, name) == 0) {
                        *ret_bits = btf_member_bit_offset(type, i);
                        return true;
                }
                if (*is == '\0' && btf_is_composite(inner) &&
                    find_member(btf, inner, name, &bits)) {
                        *ret_bits = btf_member_bit_offset(type, i) + bits;
                        return true;
                }
        }
        return false;
}

static void check_offset(const struct btf *btf, const struct btf_type *type,
                         const struct member *expect)
{
        uint32_t bits;

        if (!find_member(btf, type, expect->name, &bits)) {
                fprintf(stderr, "struct %s has no %s\n", expect->type, expect->name);
                exit(1);
        }
        CHECK_EQ(bits, expect->value * 8);
}

/* The object that has the struct. */
static int find_type(struct btf *const *objects, int count, const char *type, struct btf **ret_btf)
{
        for (int i = 0; i < count; i++) {
                int id = btf__find_by_name_kind(objects[i], type, BTF_KIND_STRUCT);

                if (id <= 0)
                        continue;
                *ret_btf = objects[i];
                return id;
        }
        fprintf(stderr, "struct %s is in none of the objects\n", type);
        exit(1);
}

int main(int argc, char **argv)
{
        struct btf *objects[8], *btf = NULL;
        int count = argc - 1;
        size_t i;

        CHECK(count > 0 && count <= 8);
        for (int k = 0; k < count; k++) {
                objects[k] = btf__parse_elf(argv[1 + k], NULL);
                CHECK(objects[k]);
        }
        for (i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
                int id = find_type(objects, count, expected[i].type, &btf);

                if (expected[i].name)
                        check_offset(btf, btf__type_by_id(btf, (uint32_t)id), &expected[i]);
                else
                        CHECK_EQ(btf__resolve_size(btf, (uint32_t)id), expected[i].value);
        }
        for (int k = 0; k < count; k++)
                btf__free(objects[k]);
        printf("ok %zu sizes and offsets\n", i);
        return 0;
}
