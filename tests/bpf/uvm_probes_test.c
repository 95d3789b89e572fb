/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The probes inside the managed-memory driver, as far as a machine goes that does
 * not have it: the kernel accepts the programs whatever arguments they are told to
 * read, and without the module the tier says so. What they see is tested in a
 * virtual machine (tests/vm).
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

#include "probe/uvm_probes.h"
#include "unit/test.h"
#include "uvm.skel.h"

static int load(int argument)
{
        struct uvm_bpf *bpf = uvm_bpf__open();
        int r;

        CHECK(bpf);
        memset((void *)bpf->rodata->arguments, argument, sizeof(bpf->rodata->arguments));
        r = uvm_bpf__load(bpf);
        uvm_bpf__destroy(bpf);
        return r;
}

static void the_kernel_accepts_them(void)
{
        int r = load(UVM_ARGUMENT_NONE);

        if (r == -EPERM)
                test_skip("the kernel does not let us load eBPF");
        CHECK_EQ(r, 0);
        for (int argument = 0; argument < UVM_ARGUMENTS_MAX; argument++)
                CHECK_EQ(load(argument), 0);
}

/* Any function of the kernel's own stands in for the driver's. */
static int load_traced(int argument)
{
        struct uvm_bpf *bpf = uvm_bpf__open();
        struct bpf_program *program;
        int r = 0;

        CHECK(bpf);
        memset((void *)bpf->rodata->arguments, argument, sizeof(bpf->rodata->arguments));
        bpf_object__for_each_program(program, bpf->obj)
        {
                bool traced = bpf_program__type(program) == BPF_PROG_TYPE_TRACING;

                CHECK_EQ(bpf_program__autoload(program), !traced);
                CHECK_EQ(bpf_program__set_autoload(program, traced), 0);
                if (r == 0 && traced)
                        r = bpf_program__set_attach_target(program, 0, "vfs_read");
        }
        if (r == 0)
                r = uvm_bpf__load(bpf);
        uvm_bpf__destroy(bpf);
        return r;
}

static void the_kernel_accepts_those_by_fentry(void)
{
        int r = load_traced(UVM_ARGUMENT_NONE);

        if (r == -EPERM) {
                printf("note: the kernel does not let us load fentry programs\n");
                return;
        }
        CHECK_EQ(r, 0);
        for (int argument = 0; argument < UVM_ARGUMENTS_MAX; argument++)
                CHECK_EQ(load_traced(argument), 0);
}

static void without_the_module_it_says_so(void)
{
        struct uvm_probes *p = NULL;
        struct uvm_btf btf;
        char text[64] = "x";

        if (uvm_probes_module())
                return;
        uvm_btf_read(&btf);
        CHECK(!btf.kernel && !btf.module);
        CHECK_EQ(uvm_probes_new(&btf, false, 1 << 20, &p), -ENODEV);
        CHECK(!p);
        CHECK_EQ(uvm_probes_struct_ops(&btf, text, sizeof(text)), 0);
        CHECK_STR(text, "");
        uvm_btf_done(&btf);
}

int main(void)
{
        TEST(the_kernel_accepts_them);
        TEST(without_the_module_it_says_so);
        TEST(the_kernel_accepts_those_by_fentry);
        return 0;
}
