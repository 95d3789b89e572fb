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

static void without_the_module_it_says_so(void)
{
        struct uvm_probes *p = NULL;
        struct uvm_btf btf;
        char text[64] = "x";

        if (uvm_probes_module())
                return;
        uvm_btf_read(&btf);
        CHECK(!btf.kernel && !btf.module);
        CHECK_EQ(uvm_probes_new(&btf, 1 << 20, &p), -ENODEV);
        CHECK(!p);
        CHECK_EQ(uvm_probes_struct_ops(&btf, text, sizeof(text)), 0);
        CHECK_STR(text, "");
        uvm_btf_done(&btf);
}

int main(void)
{
        TEST(the_kernel_accepts_them);
        TEST(without_the_module_it_says_so);
        return 0;
}
