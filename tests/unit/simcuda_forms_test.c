/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Which forms of instructions the PTX interpreter takes: what it takes, NVIDIA's
 * assembler takes too, else a test on the simulated GPU would pass for code that
 * no real driver loads. The lists are checked against ptxas where one is installed.
 */
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ptx_interp.h"
#include "test.h"

/* Taken by both. */
static const char *const good[] = {
        "cvt.u64.u32 %rd0, %tid.x; mov.b32 %r0, %tid.x; mov.s32 %r0, %tid.x;",
        "add.u32 %r0, %r1, WARP_SZ; mov.b64 %rd0, %globaltimer; mov.u32 %r0, %globaltimer_lo;",
        "mov.u32 %r0, %gridid; mov.u64 %rd0, %gridid; mov.u32 %r0, %clock_hi; mov.u64 %rd0, "
        "%clock64;",
        "mov.u32 %r0, %laneid; mov.u32 %r0, %warpid; mov.u32 %r0, %smid; mov.u32 %r0, %nsmid;",
        "mov.u32 %r0, %dynamic_smem_size; mov.u32 %r0, %total_smem_size; mov.u32 %r0, "
        "%lanemask_ge;",
        "mov.f32 %f0, 1.0; mov.f32 %f0, -1.5; mov.b32 %r0, 0f3F800000; mov.f64 %d0, "
        "0d3FF0000000000000;",
        "mov.u32 %r0, -5; mov.u32 %r0, 0xFFFFFFFFFF; mov.u64 %rd0, 0xFFFFFFFFFFFFFFFF; mov.u32 "
        "%r0, "
        "010; mov.u32 %r0, 5U;",
        "mov.u16 %h0, 5; mov.b16 %h0, 0x1234; mov.pred %p0, 1; mov.pred %p0, %p1;",
        "mov.b64 %rd0, {%r0, %r1}; mov.b64 {%r0, _}, %rd0; mov.b32 {%h0,%h1}, %r0; mov.b64 "
        "{%h0,%h1,%h2,%h3}, %rd0;",
        "add.s64 %rd0, %rd1, 0xffffffffffffffff; add.u16 %h0, %h1, 70000; and.b32 %f0, %f1, %f2;",
        "ld.global.u32 %rd0, [%rd1]; ld.global.f32 %r0, [%rd1]; ld.global.u8 %h0, [%rd1];",
        "st.global.u8 [%rd1], %r0; st.global.u32 [%rd1], %rd0; st.global.u32 [%rd0], 5;",
        "st.global.v2.u64 [%rd0], {1, 2}; st.v2.u64 [%rd0], {%rd1, %rd2}; st.global.f32 [%rd0], "
        "1.5;",
        "ld.shared.u32 %r0, [%r1]; ld.shared.u32 %r0, [S+4]; ld.global.u64 %rd0, [%rd1+-8]; "
        "ld.local.u64 %rd0, [8];",
        "ld.global.v2.u32 {_, %r0}, [%rd0]; ld.global.nc.v4.f32 {%f0,%f1,%f2,%f0}, [%rd0]; "
        "ld.global.cg.u32 %r0, [%rd0];",
        "ld.relaxed.sys.global.u64 %rd0, [%rd1]; st.release.gpu.global.u32 [%rd0], %r1; "
        "ld.volatile.u32 %r0, [%rd0]; ld.weak.global.u32 %r0, [%rd0];",
        "ld.acquire.gpu.u32 %r0, [%rd0];",
        "ld.param.u64 %rd0, [q]; prefetch.global.L2 [%rd0]; prefetchu.L1 [%rd0];",
        "cvta.to.global.u64 %rd0, %rd1; cvta.shared.u64 %rd0, S; cvta.global.u64 %rd0, %rd1; "
        "cvta.to.shared.u64 %rd0, %rd1; isspacep.global %p0, %rd0;",
        "atom.global.cas.b64 %rd0, [%rd1], %rd2, %rd3; atom.global.exch.b32 %r0, [%rd1], %r2; "
        "atom.global.and.b32 %r0, [%rd1], %r2;",
        "atom.global.add.f32 %f0, [%rd1], %f1; atom.global.add.f64 %d0, [%rd1], %d1; "
        "atom.global.add.s32 %r0, [%rd1], 1; atom.shared.max.s64 %rd0, [%r0], %rd2;",
        "atom.relaxed.global.add.u32 %r0, [%rd0], 1; atom.acq_rel.sys.global.add.u32 %r0, [%rd0], "
        "1;",
        "red.gpu.global.add.u32 [%rd0], 1; red.release.gpu.global.or.b32 [%rd0], %r1; "
        "red.relaxed.gpu.global.max.u64 [%rd0], %rd1; atom.inc.u32 %r0, [%rd0], 7;",
        "selp.u32 %r0, 1, 0, !%p0; selp.b32 %f0, %f1, %f2, %p0; selp.u16 %h0, %h1, %h2, %p0;",
        "setp.lt.u16 %p0, %h0, 5; setp.eq.b64 %p0, %rd0, %rd1; setp.lo.u32 %p0, %r0, %r1; "
        "setp.lt.and.s32 %p0|%p1, %r0, 3, !%p2;",
        "set.eq.u32.u32 %r0, %r1, %r2; set.lt.f32.s32 %f0, %r0, %r1; set.lt.s32.f64 %r0, %d0, %d1;",
        "div.rn.f32 %f0, %f1, %f2; div.full.f32 %f0, %f1, %f2; fma.rn.f64 %d0, %d1, %d2, %d0; "
        "mad.rn.f32 %f0, %f1, %f2, %f1;",
        "sqrt.rn.f32 %f0, %f1; rcp.rn.f64 %d0, %d1; rsqrt.approx.f64 %d0, %d1; sin.approx.f32 %f0, "
        "%f1; ex2.approx.ftz.f32 %f0, %f1;",
        "min.f32 %f0, %f1, 0f00000000; abs.f32 %f0, %f1; neg.f64 %d0, %d1; copysign.f32 %f0, %f1, "
        "%f2; testp.finite.f32 %p0, %f0; testp.notanumber.f64 %p0, %d0;",
        "mul.wide.s16 %r0, %h0, %h1; mad.hi.s32 %r0, %r1, %r2, %r3; mad.hi.u16 %h0, %h1, %h2, %h0; "
        "mad.lo.s64 %rd0, %rd1, 3, %rd2;",
        "mad.lo.cc.u32 %r0, %r1, %r2, %r3; madc.hi.u32 %r0, %r1, %r2, %r3; add.cc.u64 %rd0, %rd1, "
        "%rd2; addc.cc.u64 %rd0, %rd1, %rd2;",
        "mul24.lo.u32 %r0, %r1, %r2; mad24.hi.s32 %r0, %r1, %r2, %r3; sad.u16 %h0, %h1, %h2, %h3;",
        "shf.l.wrap.b32 %r0, %r1, %r2, %r3; lop3.b32 %r0, %r1, %r2, %r3, 0x80; prmt.b32 %r0, %r1, "
        "%r2, 0x3210; shr.b32 %r0, %r1, 3;",
        "bfe.s64 %rd0, %rd1, %r0, 5; bfi.b64 %rd0, %rd1, %rd2, 1, %r1; bfind.shiftamt.u64 %r0, "
        "%rd0; "
        "popc.b64 %r0, %rd0; clz.b64 %r0, %rd0; brev.b64 %rd0, %rd1;",
        "cvt.u32.u32 %rd0, %r0; cvt.u64.u32 %rd0, %rd1; cvt.u8.u32 %r0, %r1; cvt.sat.u8.s32 %r0, "
        "%r1; cvt.s64.s16 %rd0, %h0;",
        "cvt.rni.s64.f64 %rd0, %d0; cvt.rn.f32.u64 %f0, %rd0; cvt.f64.f32 %d0, %f0; "
        "cvt.rzi.f32.f32 "
        "%f0, %f1; cvt.sat.f32.f32 %f0, %f1; cvt.rn.f32.f64 %f0, %d0;",
        "membar.gl; membar.cta; fence.acq_rel.gpu; fence.sc.sys; nanosleep.u32 100; "
        "griddepcontrol.wait;",
        "bar.sync %r0, %r1; bar.sync 15; barrier.sync 0; bar.cta.sync 0; barrier.cta.sync.aligned "
        "1, "
        "32; bar.arrive 0, 64;",
        "bar.red.popc.u32 %r0, 0, %p0; bar.red.and.pred %p0, 0, 64, !%p1; bar.warp.sync -1;",
        "shfl.sync.idx.b32 %f0, %f1, 0, 31, -1; shfl.sync.up.b32 %r0|%p0, %r1, 1, 0, -1; "
        "vote.sync.ballot.b32 %r0, !%p0, -1; activemask.b32 %r0;",
        "redux.sync.and.b32 %r0, %r1, -1; redux.sync.max.u32 %r0, %r1, -1; match.any.sync.b32 %r0, "
        "%r1, -1; match.all.sync.b64 %r0|%p0, %rd0, -1; elect.sync _|%p0, -1;",
        "{ .reg .u32 %r<3>; mov.u32 %r0, 1; mov.u32 %r5, 1; }",
        "@!%p0 bra L2; @%p1 ret; L2: exit;",
        "{ .reg .pred %p<2>; setp.ne.u32 %p0, %r0, 0; @%p0 bra X; mov.u32 %r0, 2; X: }",
        "bra.uni Y; Y:",
};

/* Refused by both. */
static const char *const bad[] = {
        "st.global.u32 [%rd0], %tid.x;",
        "mad.lo.u32 %r0, %ctaid.x, 3, %r1;",
        "setp.eq.u32 %p0, %tid.x, 0;",
        "cvt.u64.u64 %rd0, %tid.x;",
        "mov.u32 %r0, %globaltimer;",
        "mov.b64 %rd0, %tid.x;",
        "mov.f32 %f0, 1;",
        "mov.b32 %r0, 1.5;",
        "mov.u32 %r0, 0f3F800000;",
        "mov.b32 %r0, -0f3F800000;",
        "mov.u32 %r0, 08;",
        "mov.u32 %rd0, 1;",
        "mov.u32 _, %r0;",
        "mov.u8 %h0, 5;",
        "add.u64 %rd0, %r0, 1;",
        "add.f32 %f0, %f1, 2;",
        "add.s32 %f0, %f1, 1;",
        "add.u8 %h0, %h1, %h2;",
        "add.cc.b32 %r0, %r1, %r2;",
        "mul.u32 %r0, %r1, 3;",
        "shl.b32 %r0, %r1, %rd1;",
        "shl.u32 %r0, %r1, 1;",
        "and.u32 %r0, %r1, 1;",
        "abs.u32 %r0, %r1;",
        "neg.u32 %r0, %r1;",
        "popc.b64 %rd0, %rd1;",
        "ld.global.u32 %f0, [%rd1];",
        "ld.global.u32 %r0, [S];",
        "ld.global.v2.u32 %r0, [%rd0];",
        "ld.global.u64 %rd0, [%rd1-8];",
        "ld.global.u64 %rd0, [0x6f0000000000];",
        "ld.relaxed.u32 %r0, [%rd0];",
        "ld.sys.u32 %r0, [%rd0];",
        "st.acquire.gpu.u32 [%rd0], %r0;",
        "red.acquire.gpu.global.or.b32 [%rd0], %r1;",
        "st.global.f32 [%rd0], 1;",
        "cvt.u32.u64 %r0, %r1;",
        "cvt.f32.f64 %f0, %d0;",
        "cvt.rn.f64.f32 %d0, %f0;",
        "cvt.f32.s32 %f0, %r0;",
        "cvt.s32.f32 %r0, %f0;",
        "cvt.u32.b32 %r0, %r1;",
        "cvt.rn.f32.f32 %f0, %f1;",
        "atom.global.add.s64 %rd0, [%rd1], %rd2;",
        "atom.global.and.u32 %r0, [%rd1], %r2;",
        "atom.global.exch.s32 %r0, [%rd1], %r2;",
        "atom.global.cas.u64 %rd0, [%rd1], %rd2, %rd3;",
        "atom.global.max.b32 %r0, [%rd1], %r2;",
        "setp.lt.b32 %p0, %r0, %r1;",
        "setp.eq.pred %p0, %p1, %p2;",
        "setp.equ.s32 %p0, %r0, %r1;",
        "setp.lo.s32 %p0, %r0, %r1;",
        "setp.eq.u8 %p0, %h0, %h1;",
        "div.f32 %f0, %f1, %f2;",
        "sqrt.f32 %f0, %f1;",
        "fma.f32 %f0, %f1, %f2, %f1;",
        "rcp.f64 %d0, %d1;",
        "rsqrt.f32 %f0, %f1;",
        "sin.f32 %f0, %f1;",
        "@%r0 mov.u32 %r0, 1;",
        "bar.sync 16;",
        "bar.arrive 0;",
        "membar;",
        "st.mmio.relaxed.sys.global.u32 [%rd0], %r1;",
        "membar.gpu;",
        "fence.sc;",
        "fence.gl;",
        "redux.sync.add.b32 %r0, %r1, -1;",
        "redux.sync.and.u32 %r0, %r1, -1;",
        "match.any.sync.b32 %r0|%p0, %r1, -1;",
        "vote.ballot.b32 %r0, %p0;",
        "shfl.bfly.b32 %r0, %r1, 1, 31;",
        ".reg .u32 again; again: bra again;",
        "bra nowhere;",
};

static void make_text(char *text, size_t bytes, const char *body)
{
        snprintf(text, bytes,
                 ".version 8.0\n.target sm_90\n.address_size 64\n"
                 ".visible .entry k(.param .u64 q)\n{\n"
                 ".reg .b64 %%rd<9>; .reg .b32 %%r<9>; .reg .f32 %%f<3>; .reg .f64 %%d<3>;\n"
                 ".reg .pred %%p<4>; .reg .b16 %%h<4>; .local .b8 L[16]; .shared .u32 S[4];\n"
                 "%s\nret;\n}\n",
                 body);
}

static bool interpreter_takes(const char *body, char *log, size_t log_bytes)
{
        struct ptx_module *module;
        char text[2048];

        make_text(text, sizeof(text), body);
        if (ptx_module_load(text, strlen(text), 90, log, log_bytes, &module) < 0)
                return false;
        ptx_module_free(module);
        return true;
}

/* ptxas on a body; its messages are not shown. */
static bool assembler_takes(const char *ptxas, const char *file, const char *body)
{
        char text[2048], command[256];
        FILE *f = fopen(file, "w");
        int status;

        make_text(text, sizeof(text), body);
        CHECK(f && fputs(text, f) >= 0);
        fclose(f);
        snprintf(command, sizeof(command), "%s -arch=sm_90 -o /dev/null %s >/dev/null 2>&1", ptxas,
                 file);
        status = system(command);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) != 127);
        return WEXITSTATUS(status) == 0;
}

static void test_interpreter(void)
{
        char log[200];

        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
                if (!interpreter_takes(good[i], log, sizeof(log))) {
                        fprintf(stderr, "refused: %s\n%s\n", good[i], log);
                        exit(1);
                }
        }
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                if (interpreter_takes(bad[i], log, sizeof(log))) {
                        fprintf(stderr, "taken: %s\n", bad[i]);
                        exit(1);
                }
        }
}

static void test_assembler(void)
{
        static const char *const places[] = {"/usr/local/cuda/bin/ptxas", "/usr/bin/ptxas"};
        const char *ptxas = getenv("PTXAS");
        char file[] = "/tmp/simcuda-forms-XXXXXX";
        int fd;

        for (size_t i = 0; i < 2 && !ptxas; i++) {
                if (access(places[i], X_OK) == 0)
                        ptxas = places[i];
        }
        if (!ptxas) {
                printf("no ptxas here: the lists were not compared with it\n");
                return;
        }
        fd = mkstemp(file);
        CHECK(fd >= 0);
        close(fd);
        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
                if (!assembler_takes(ptxas, file, good[i])) {
                        fprintf(stderr, "ptxas refuses: %s\n", good[i]);
                        exit(1);
                }
        }
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                if (assembler_takes(ptxas, file, bad[i])) {
                        fprintf(stderr, "ptxas takes: %s\n", bad[i]);
                        exit(1);
                }
        }
        unlink(file);
}

int main(void)
{
        TEST(test_interpreter);
        TEST(test_assembler);
        return 0;
}
