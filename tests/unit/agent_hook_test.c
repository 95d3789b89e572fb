/* SPDX-License-Identifier: Apache-2.0 */

/* The hook engine, on hand-assembled functions and on what the compiler makes. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/hook.h"
#include "agent/memory_map.h"
#include "agent/x86.h"
#include "unit/test.h"

/* clang-format off */
#define FUNCTION(name, body)                                                                       \
        __asm__(".pushsection .text\n.balign 16\n.globl " name "\n.type " name ", @function\n"     \
                name ":\n" body ".size " name ", . - " name "\n.popsection\n")

__asm__(".pushsection .data\n.globl target_number\ntarget_number: .long 1000\n.popsection\n");

/* The beginning of the driver's functions: 55 48 89 e5 41 54 48 83 ec 08, rip-relative compare. */
FUNCTION("like_driver",
         "push %rbp\nmov %rsp, %rbp\npush %r12\nsub $8, %rsp\ncmpl $0, target_number(%rip)\n"
         "je 1f\nmov %edi, %eax\nadd %esi, %eax\nadd $8, %rsp\npop %r12\npop %rbp\nret\n"
         "1: xor %eax, %eax\nadd $8, %rsp\npop %r12\npop %rbp\nret\n");
FUNCTION("rip_relative",
         "push %r15\nmov target_number(%rip), %r15d\nlea (%r15, %rdi), %eax\npop %r15\nret\n");
FUNCTION("with_endbr", "endbr64\npush %rbp\nmov %rsp, %rbp\nlea 3(%rdi), %eax\npop %rbp\nret\n");
FUNCTION("with_nop", "nopl 0(%rax)\nmov $5, %eax\nadd %edi, %eax\nret\n");
FUNCTION("with_call", "push %rbx\ncall helper_seven\nmov %eax, %ebx\nadd %edi, %eax\npop %rbx\nret\n");
FUNCTION("helper_seven", "mov $7, %eax\nret\n");
FUNCTION("jumps_away", "push %rbp\npop %rbp\n.byte 0xe9\n.long helper_nine - . - 4\n");
FUNCTION("helper_nine", "lea 9(%rdi), %eax\nret\n");
FUNCTION("recursive",
         "push %rbp\nmov %rsp, %rbp\npush %rdi\ntest %edi, %edi\nje 1f\ndec %edi\ncall recursive\n"
         "add -8(%rbp), %eax\nleave\nret\n1: xor %eax, %eax\nleave\nret\n");

FUNCTION("starts_with_sub", "sub $8, %rsp\nlea 1(%rdi), %eax\nadd $8, %rsp\nret\n");
FUNCTION("branch_below", "push %rbp\n1: mov %rsp, %rbp\npush %r12\ndec %edi\npop %r12\njnz 1b\n"
                         "mov %edi, %eax\npop %rbp\nret\n");
FUNCTION("short_branch", "push %rbp\ntest %edi, %edi\nje 1f\nmov %edi, %eax\npop %rbp\nret\n"
                         "1: mov $-1, %eax\npop %rbp\nret\n");
FUNCTION("too_short", "push %rbp\npop %rbp\nret\n");
FUNCTION("undecodable", "push %rbp\nmov %rsp, %rbp\npush %r12\npop %r12\npop %rbp\n.byte 0x06\nret\n");
/* clang-format on */

int like_driver(int a, int b);
int rip_relative(long a);
int with_endbr(int a);
int with_nop(int a);
int with_call(int a);
int jumps_away(int a);
int recursive(int a);
int starts_with_sub(int a);
int branch_below(int a);
int short_branch(int a);
int too_short(void);
int undecodable(void);
int compiled(int a, const char *b);

/* What gcc makes of an ordinary function. */
__attribute__((noinline, visibility("default"))) int compiled(int a, const char *b)
{
        char buffer[64];

        snprintf(buffer, sizeof(buffer), "%d %s", a, b);
        return (int)strlen(buffer) + a;
}

static int (*original_2)(int, int);
static int (*original_long)(long);
static int (*original_1)(int);
static int (*original_compiled)(int, const char *);
static int hits;

static int on_2(int a, int b)
{
        hits++;
        return original_2(a, b) + 100000;
}

static int on_long(long a)
{
        hits++;
        return original_long(a) + 100000;
}

static int on_1(int a)
{
        hits++;
        return original_1(a) + 100000;
}

static int on_compiled(int a, const char *b)
{
        hits++;
        return original_compiled(a, b) + 100000;
}

static const char *hook_one(void *target, void *replacement, void **original)
{
        struct hook h = {
                .name = "x", .target = target, .replacement = replacement, .original = original};
        const char *reason = NULL;
        int r = hooks_install(&h, 1, &reason);

        if (r < 0)
                return reason;
        CHECK_EQ(r, h.refusal == NULL);
        return h.refusal;
}

static void check_accepted(const char *refusal)
{
        if (refusal)
                fprintf(stderr, "refused: %s\n", refusal);
        CHECK(!refusal);
}

static void hooks_driver_prologue(void)
{
        struct memory_mapping m;

        CHECK_EQ(like_driver(3, 4), 7);
        check_accepted(hook_one(like_driver, on_2, (void **)&original_2));
        hits = 0;
        CHECK_EQ(like_driver(3, 4), 100007);
        CHECK_EQ(original_2(3, 4), 7);
        CHECK_EQ(hits, 1);
        CHECK_EQ(*(uint8_t *)like_driver, 0x55);
        CHECK_EQ(((uint8_t *)like_driver)[1], 0xe9);
        CHECK_EQ(((uint8_t *)like_driver)[6], 0x48);
        CHECK_EQ(memory_mapping_find((uintptr_t)like_driver, &m), 0);
        CHECK(m.executable && !m.writable);
        CHECK_EQ(memory_mapping_find((uintptr_t)original_2, &m), 0);
        CHECK(m.executable && !m.writable);
}

static void hooks_other_shapes(void)
{
        check_accepted(hook_one(rip_relative, on_long, (void **)&original_long));
        CHECK_EQ(rip_relative(5), 101005);
        check_accepted(hook_one(with_endbr, on_1, (void **)&original_1));
        CHECK_EQ(with_endbr(4), 100007);
        check_accepted(hook_one(with_nop, on_1, (void **)&original_1));
        CHECK_EQ(with_nop(4), 100009);
        check_accepted(hook_one(with_call, on_1, (void **)&original_1));
        CHECK_EQ(with_call(1), 100008);
        check_accepted(hook_one(jumps_away, on_1, (void **)&original_1));
        CHECK_EQ(jumps_away(1), 100010);
}

static void hooks_recursion(void)
{
        CHECK_EQ(recursive(4), 10);
        check_accepted(hook_one(recursive, on_1, (void **)&original_1));
        hits = 0;
        CHECK_EQ(recursive(4), 500010);
        CHECK_EQ(hits, 5);
}

static void hooks_compiled_code(void)
{
        int plain = compiled(12, "abc");

        check_accepted(hook_one(compiled, on_compiled, (void **)&original_compiled));
        CHECK_EQ(compiled(12, "abc"), plain + 100000);
}

static void refuses(void)
{
        CHECK_STR(hook_one(starts_with_sub, on_1, (void **)&original_1),
                  "the first instruction is neither a push nor a nop");
        CHECK_STR(hook_one(branch_below, on_1, (void **)&original_1),
                  "a branch in the function leads under the jump");
        CHECK_STR(hook_one(short_branch, on_1, (void **)&original_1),
                  "a short branch is under the jump");
        CHECK_STR(hook_one(too_short, on_1, (void **)&original_1), "the function is too short");
        CHECK_STR(hook_one(undecodable, on_1, (void **)&original_1),
                  "the function's code cannot be decoded");
        /* Hooking twice: the second sees that the function is not the file's. */
        CHECK_STR(hook_one(like_driver, on_2, (void **)&original_2),
                  "the function differs from the library's file");
        CHECK_EQ(starts_with_sub(1), 2);
        CHECK_EQ(short_branch(3), 3);
        CHECK_EQ(branch_below(3), 0);
}

static void refuses_missing(void)
{
        void *way = NULL;
        struct hook h[2] = {{.name = "a", .replacement = on_1, .original = &way},
                            {.name = "b", .replacement = on_1, .original = &way}};
        const char *reason = NULL;

        CHECK_EQ(hooks_install(h, 2, &reason), -EINVAL);
        CHECK_STR(reason, "nothing to hook");
}

/* Distances that a 32-bit field cannot hold. */
static void plan_checks_reach(void)
{
        uint8_t code[64];
        struct hook_plan p;
        uintptr_t at = (uintptr_t)rip_relative;

        CHECK_EQ(memory_file_bytes(at, code, sizeof(code)), (int)sizeof(code));
        CHECK_STR(hook_plan(code, sizeof(code), 16, at, at + (4ull << 30), 0x1000, &p),
                  "an operand is out of reach of the copied instruction");
        CHECK_EQ(memory_file_bytes((uintptr_t)with_endbr, code, sizeof(code)), (int)sizeof(code));
        CHECK_STR(hook_plan(code, sizeof(code), 13, at, at + (4ull << 30), 0x1000, &p),
                  "no memory near enough");
        CHECK(hook_plan(code, sizeof(code), 13, at, at + (1ull << 30), 0x1000, &p) == NULL);
        CHECK_EQ(p.first_bytes, 4);
        CHECK(hook_plan(code, sizeof(code), 0, at, at + (1ull << 30), 0x1000, &p) == NULL);
        for (size_t n = 0; n < 9; n++)
                CHECK(hook_plan(code, n, 0, at, at + 4096, 0x1000, &p) != NULL);
}

/* Random bytes never make the planner read out of bounds (run under ASan) or accept nonsense. */
static void plan_survives_noise(void)
{
        uint64_t seed = 7;
        struct hook_plan p;
        unsigned accepted = 0;

        for (int round = 0; round < 20000; round++) {
                size_t n = 1 + test_random(&seed) % 48;
                uint8_t *code = malloc(n);

                for (size_t i = 0; i < n; i++)
                        code[i] = (uint8_t)test_random(&seed);
                code[0] = 0x55;
                if (!hook_plan(code, n, test_random(&seed) & 1 ? n : 0, 0x7f0000001000,
                               0x7f0000100000, 0x1234, &p)) {
                        accepted++;
                        CHECK(p.displaced_bytes >= HOOK_PATCH_BYTES);
                        CHECK(p.first_bytes + p.displaced_bytes <= n);
                }
                free(code);
        }
        CHECK(accepted > 0);
}

/* clang-format off */
FUNCTION("probed", "push %rbp\nmov %rsp, %rbp\npush %r12\nlea 20(%rdi), %eax\npop %r12\npop %rbp\nret\n");
FUNCTION("probed_later", "push %rbp\nmov %rsp, %rbp\npush %r12\nlea 30(%rdi), %eax\npop %r12\npop %rbp\nret\n");
FUNCTION("exchanged", "push %rbp\nmov %rsp, %rbp\npush %r12\nlea 40(%rdi), %eax\npop %r12\npop %rbp\nret\n");
/* clang-format on */
int probed(int a);
int probed_later(int a);
int exchanged(int a);

/* A uprobe on a function's first byte in this process; -1 when that is not allowed. */
static int attach_uprobe(void *function, bool at_return)
{
        struct perf_event_attr attr = {.size = sizeof(attr), .config = at_return};
        static char path[PATH_MAX];
        struct memory_mapping m;
        FILE *f = fopen("/sys/bus/event_source/devices/uprobe/type", "re");
        unsigned type;

        if (!f)
                return -1;
        CHECK_EQ(fscanf(f, "%u", &type), 1);
        fclose(f);
        CHECK_EQ(memory_mapping_find((uintptr_t)function, &m), 0);
        snprintf(path, sizeof(path), "%s", m.path);
        attr.type = type;
        attr.config1 = (uintptr_t)path;
        attr.config2 = m.offset + ((uintptr_t)function - m.start);
        return (int)syscall(SYS_perf_event_open, &attr, getpid(), -1, -1, 0);
}

static uint64_t uprobe_hits(int fd)
{
        uint64_t count = 0;

        CHECK_EQ(read(fd, &count, sizeof(count)), (int)sizeof(count));
        return count;
}

static void lives_with_uprobes(void)
{
        int fd = attach_uprobe(probed, false), fd_return, fd_later;

        if (fd < 0) {
                printf("   not checked: uprobes are not available here\n");
                return;
        }
        fd_return = attach_uprobe(probed, true);
        CHECK(fd_return >= 0);
        CHECK_EQ(*(volatile uint8_t *)probed, 0xcc);
        CHECK_EQ(probed(1), 21);
        CHECK_EQ(uprobe_hits(fd), 1);

        check_accepted(hook_one(probed, on_1, (void **)&original_1));
        CHECK_EQ(*(volatile uint8_t *)probed, 0xcc);
        CHECK_EQ(probed(1), 100021);
        CHECK_EQ(uprobe_hits(fd), 2);
        CHECK_EQ(uprobe_hits(fd_return), 2);
        close(fd);
        close(fd_return);
        CHECK_EQ(*(volatile uint8_t *)probed, 0x55);
        CHECK_EQ(probed(1), 100021);

        /* Hooked first, probed later, and again without. */
        check_accepted(hook_one(probed_later, on_1, (void **)&original_1));
        CHECK_EQ(probed_later(1), 100031);
        fd_later = attach_uprobe(probed_later, false);
        CHECK(fd_later >= 0);
        CHECK_EQ(*(volatile uint8_t *)probed_later, 0xcc);
        CHECK_EQ(probed_later(1), 100031);
        CHECK_EQ(uprobe_hits(fd_later), 1);
        close(fd_later);
        CHECK_EQ(probed_later(2), 100032);
}

static void forbid_pwrite(void)
{
        struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwrite64, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {.len = 4, .filter = filter};

        CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* Where /proc/self/mem cannot be written, the mapping is changed and changed back. */
static void falls_back_to_exchange(void)
{
        struct memory_mapping m;
        int status;
        pid_t child = fork();

        CHECK(child >= 0);
        if (child == 0) {
                forbid_pwrite();
                check_accepted(hook_one(exchanged, on_1, (void **)&original_1));
                CHECK_EQ(exchanged(1), 100041);
                CHECK_EQ(memory_mapping_find((uintptr_t)exchanged, &m), 0);
                CHECK(m.executable && !m.writable);
                _exit(0);
        }
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
        CHECK_EQ(exchanged(1), 41);
}

int main(void)
{
        if (x86_open() < 0)
                test_skip("libZydis.so.4.0 is not installed");
        TEST(hooks_driver_prologue);
        TEST(hooks_other_shapes);
        TEST(hooks_recursion);
        TEST(hooks_compiled_code);
        TEST(refuses);
        TEST(refuses_missing);
        TEST(plan_checks_reach);
        TEST(plan_survives_noise);
        TEST(lives_with_uprobes);
        TEST(falls_back_to_exchange);
        return 0;
}
