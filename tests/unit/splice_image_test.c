/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Splices real cubins and follows every branch of what came out. Machine code
 * cannot be run here, so the test reads it, with a decoder of its own:
 *
 *  - an original instruction is unchanged but for the entry's branch, the EXITs
 *    and scoreboards given to instructions that had none;
 *  - every path from the entry comes back to the second instruction, through the
 *    displaced first one, or to a later one, through all before it, which could as
 *    well be executed twice; with every convergence barrier closed;
 *  - every EXIT leads, under its own predicates, to code that ends in an EXIT and
 *    names no uniform register that the kernel names;
 *  - tables (sizes, register counts, attributes, segments) agree with the code.
 */
#include <errno.h>

#include "agent/cubin.h"
#include "unit/splice_pair.h"
#include "unit/test.h"
#include "unit/test_file.h"

#define OPCODE_BRA   0x947
#define OPCODE_EXIT  0x94d
#define OPCODE_BSSY  0x945
#define OPCODE_BSYNC 0x941
#define OPCODE_NOP   0x918
#define FIRST_ID     0x51ce0000u

static const char *data_dir;

struct file {
        uint8_t *bytes;
        size_t size;
};

static struct file load(const char *name)
{
        char path[4096];
        struct file f;

        snprintf(path, sizeof(path), "%s/%s", data_dir, name);
        f.bytes = test_read_file(path, &f.size);
        return f;
}

static struct probe_code *load_probe(const char *name)
{
        struct file f = load(name);
        const char *why = "";
        struct probe_code *code = NULL;
        int r = probe_code_extract(f.bytes, f.size, &code, &why);

        if (r < 0)
                fprintf(stderr, "%s: %s\n", name, why);
        CHECK_EQ(r, 0);
        free(f.bytes);
        return code;
}

/* One kernel's code: n instructions of two words. */
struct code {
        const uint64_t *at;
        size_t n;
};

static uint32_t opcode(const uint64_t *i)
{
        return (uint32_t)(i[0] & 0xfff);
}

/* Index that a BRA at k jumps to. */
static int64_t branch_target(const uint64_t *i, size_t k)
{
        uint64_t v = (i[0] >> 16 & 0xff) | i[0] >> 34 << 8 | (i[1] & 0x3ffff) << 38;
        int64_t bytes = (int64_t)(v << 8) >> 8;

        bytes *= 4;
        CHECK_EQ(bytes % 16, 0);
        return (int64_t)k + 1 + bytes / 16;
}

/* The predicate, and the second one that EXIT and BRA have. */
static uint64_t predicates(const uint64_t *i)
{
        return (i[0] >> 12 & 0xf) | (i[1] >> 23 & 0xf) << 4;
}

static int is_always(const uint64_t *i)
{
        return predicates(i) == 0x77;
}

static size_t find_section(const struct cubin *c, const char *name)
{
        for (size_t i = 1; i < c->header.e_shnum; i++) {
                if (strcmp(cubin_section_name(c, i), name) == 0)
                        return i;
        }
        return 0;
}

static size_t kernel_section(const struct cubin *c, const char *prefix, const char *kernel)
{
        char name[512];

        snprintf(name, sizeof(name), "%s%s", prefix, kernel);
        return find_section(c, name);
}

static struct code kernel_code(const struct cubin *c, const char *kernel)
{
        size_t size;
        const uint8_t *bytes = cubin_section_bytes(c, kernel_section(c, ".text.", kernel), &size);

        CHECK(size && size % 16 == 0);
        return (struct code){(const uint64_t *)(const void *)bytes, size / 16};
}

/* Two instructions that differ at most in scoreboards that the first did not use. */
static int same_but_tracked(const uint64_t *before, const uint64_t *after)
{
        uint64_t result = before[1] >> 46 & 7, source = before[1] >> 49 & 7, mask = 0;

        if (before[0] != after[0])
                return 0;
        if (result == 7)
                mask |= 7ULL << 46;
        if (source == 7)
                mask |= 7ULL << 49;
        if ((before[1] ^ after[1]) & ~mask)
                return 0;
        return 1;
}

static int is_displaced(const uint64_t *first, const uint64_t *copy)
{
        const uint64_t waits = 0x3fULL << 52, reuse = 0xfULL << 58;
        uint64_t a[2] = {first[0], (first[1] | waits) & ~reuse}, b[2] = {copy[0], copy[1]};

        return same_but_tracked(a, b);
}

/* Instructions that compute from constants and before only, and wait for nothing. */
static int can_be_early(const uint64_t *i)
{
        static const uint16_t opcodes[] = {0x919, 0x9c3, 0x805, 0xb82, 0xab9, 0x802,
                                           0x882, 0x918, 0x224, 0x424, 0xc24};

        for (size_t k = 0; k < sizeof(opcodes) / sizeof(opcodes[0]); k++) {
                if (opcode(i) == opcodes[k])
                        return (i[0] >> 12 & 15) == 7 && !(i[1] >> 52 & 0x3f);
        }
        return 0;
}

/*
 * The way back at `at`, of those who do not go into the probe: S2UR, the kernel's
 * first n instructions, a comparison that waits for the S2UR and names the same
 * register, a branch, this branch.
 */
static void check_early(const struct code *code, const uint64_t *first, size_t at, size_t n)
{
        const uint64_t reuse = 0xfULL << 58, *test = code->at + 2 * (at - 2);
        const uint64_t *own = test - 2 * n, *ask = own - 2;

        CHECK_EQ(opcode(ask), 0x9c3);
        CHECK_EQ(opcode(test), 0xc0c);
        CHECK_EQ(ask[0] >> 16 & 63, test[0] >> 32 & 63);
        CHECK_EQ(test[1] >> 52 & 0x3f, 1ULL << (ask[1] >> 46 & 7));
        CHECK((ask[1] >> 46 & 7) < 6);
        for (size_t k = 0; k < n; k++) {
                uint64_t was[2] = {first[2 * k], first[2 * k + 1]};

                if (k == n - 1)
                        was[1] &= ~reuse;
                CHECK(same_but_tracked(was, own + 2 * k));
                CHECK(can_be_early(first + 2 * k));
                if (opcode(own + 2 * k) == 0xab9 || opcode(own + 2 * k) == 0x9c3)
                        CHECK((own[2 * k] >> 16 & 62) != (ask[0] >> 16 & 62));
        }
}

/* Follows all paths from `at`; seen[] holds 1 + open barriers where a path has been. */
struct walk {
        struct code code;
        size_t original; /* instructions; those appended are behind */
        const uint64_t *first;
        uint8_t *seen;
        size_t returns, exits;
        uint64_t uniform; /* registers named, by bit */
};

static void walk_entry(struct walk *w, size_t k, unsigned open)
{
        for (;; k++) {
                const uint64_t *i = w->code.at + 2 * k;
                int64_t target;

                CHECK(k >= w->original && k < w->code.n);
                if (w->seen[k]) {
                        CHECK_EQ(w->seen[k], open + 1);
                        return;
                }
                w->seen[k] = (uint8_t)(open + 1);
                switch (opcode(i)) {
                case OPCODE_EXIT:
                        CHECK(!"an entry probe ends the thread");
                        break;
                case OPCODE_BSSY:
                        open++;
                        target = (int64_t)k + 1 + (int64_t)(int32_t)(i[0] >> 32) / 16;
                        CHECK(target > (int64_t)k && target <= (int64_t)w->code.n);
                        /* Ends right behind the BSYNC of the same barrier. */
                        CHECK_EQ(opcode(w->code.at + 2 * (target - 1)), OPCODE_BSYNC);
                        CHECK_EQ(w->code.at[2 * (target - 1)] >> 16 & 0xf, i[0] >> 16 & 0xf);
                        break;
                case OPCODE_BSYNC:
                        CHECK(open > 0);
                        open--;
                        CHECK_EQ(i[1] >> 52 & 0x3f, 0x3f);
                        break;
                case OPCODE_BRA:
                        target = branch_target(i, k);
                        if (target < (int64_t)w->original) { /* back into the kernel */
                                CHECK(is_always(i));
                                CHECK_EQ(open, 0);
                                if (k > 1 && is_displaced(w->first, i - 2))
                                        CHECK_EQ(target, 1);
                                else
                                        check_early(&w->code, w->first, k, (size_t)target);
                                w->returns++;
                                return;
                        }
                        CHECK(target >= (int64_t)w->original);
                        if (is_always(i)) {
                                k = (size_t)target - 1;
                                continue;
                        }
                        walk_entry(w, (size_t)target, open);
                        break;
                default:
                        break;
                }
        }
}

static void walk_exit(struct walk *w, size_t k)
{
        for (;; k++) {
                const uint64_t *i = w->code.at + 2 * k;
                int64_t target;

                CHECK(k >= w->original && k < w->code.n);
                if (w->seen[k])
                        return;
                w->seen[k] = 1;
                CHECK(opcode(i) != OPCODE_BSSY && opcode(i) != OPCODE_BSYNC);
                if (opcode(i) == OPCODE_EXIT) {
                        w->exits++;
                        if (is_always(i))
                                return;
                } else if (opcode(i) == OPCODE_BRA) {
                        target = branch_target(i, k);
                        CHECK(target >= (int64_t)w->original);
                        if (is_always(i)) {
                                k = (size_t)target - 1;
                                continue;
                        }
                        walk_exit(w, (size_t)target);
                }
        }
}

/*
 * Uniform registers an exit probe of ours names: it loads constants (0xab9, 0x9c3),
 * computes (operations 0x80..0xbf of the uniform datapath), reads them in form 6 or
 * 7 of an operation or as the descriptor of a memory access.
 */
static uint64_t uniform_of_probe(const struct code *c, const struct walk *w)
{
        uint64_t mask = 0;

        for (size_t k = w->original; k < c->n; k++) {
                uint64_t lo = c->at[2 * k], hi = c->at[2 * k + 1];
                uint32_t op = (uint32_t)(lo & 0xfff), form = op >> 9;

                if (!w->seen[k])
                        continue;
                if (op == 0xab9 || op == 0x9c3)
                        mask |= 3ULL << (lo >> 16 & 63);
                else if (op == 0x882)
                        mask |= 1ULL << (lo >> 16 & 63);
                else if (op == 0x98e || op == 0x9a8 || op == 0x986)
                        mask |= 3ULL << (hi & 63);
                else if (op == 0x981)
                        mask |= 3ULL << (lo >> 32 & 63);
                else if ((op & 0x1ff) >= 0x80 && (op & 0x1ff) < 0xc0)
                        mask |= 1ULL << (lo >> 16 & 63) | 1ULL << (lo >> 24 & 63);
                else if (form == 6 || form == 7)
                        mask |= 1ULL << (lo >> 32 & 63);
        }
        return mask & ~(1ULL << 63);
}

/* A register, and the one behind it where it can be the first of an aligned pair. */
static uint64_t pair_at(uint64_t field)
{
        return (field & 1 ? 1ULL : 3ULL) << (field & 63);
}

/* All uniform registers a kernel may name by any reading of its fields. */
static uint64_t uniform_of_kernel(const struct code *c)
{
        uint64_t mask = 0;

        for (size_t k = 0; k < c->n; k++) {
                uint64_t lo = c->at[2 * k], hi = c->at[2 * k + 1];
                uint32_t op = (uint32_t)(lo & 0xfff), form = op >> 9;

                if (op == OPCODE_NOP || op == OPCODE_BRA || op == OPCODE_EXIT)
                        continue;
                if (op == 0xab9 || op == 0x9c3 || op == 0x2ca || op == 0x882)
                        mask |= pair_at(lo >> 16);
                else if ((form == 6 || form == 7) && (hi >> 27 & 1))
                        mask |= pair_at(lo >> 32);
                else if (op == 0x986 || op == 0x98e || op == 0x9a8)
                        mask |= pair_at(hi);
                else if ((op == 0x981 || op == 0x984) && (hi >> 27 & 1))
                        mask |= pair_at(lo >> 32);
                else if (op == 0x291 || op == 0xc82 || op == 0x290)
                        mask |= pair_at(lo >> 16) | pair_at(lo >> 24) | pair_at(lo >> 32);
        }
        return mask & ~(1ULL << 63);
}

static void check_original_part(const struct code *before, const struct code *after,
                                const struct splice_kernel *k)
{
        for (size_t i = 0; i < before->n; i++) {
                const uint64_t *a = before->at + 2 * i, *b = after->at + 2 * i;

                if (i == 0 && !splice_refusal(k, PAIR_ENTRY)) {
                        CHECK_EQ(opcode(b), OPCODE_BRA);
                        CHECK(is_always(b));
                } else if (opcode(a) == OPCODE_EXIT && !splice_refusal(k, PAIR_EXIT)) {
                        CHECK_EQ(opcode(b), OPCODE_BRA);
                        CHECK_EQ(predicates(a), predicates(b));
                        CHECK_EQ(a[1] >> 45, b[1] >> 45); /* scoreboards, waits */
                        CHECK((b[1] >> 41 & 0xf) >= 5);
                        CHECK(branch_target(b, i) >= (int64_t)before->n);
                } else if (!splice_refusal(k, PAIR_EXIT)) {
                        CHECK(same_but_tracked(a, b));
                } else {
                        CHECK(a[0] == b[0] && a[1] == b[1]);
                }
        }
}

static size_t count_id(const struct walk *w, uint32_t id)
{
        size_t n = 0;

        for (size_t k = w->original; k < w->code.n; k++)
                n += w->seen[k] && w->code.at[2 * k] >> 32 == id;
        return n;
}

/* The list that the image being looked at was spliced with. */
static const struct probe_list *list;

static size_t count_in(const struct splice_kernel *k, uint32_t where)
{
        size_t n = 0;

        for (size_t i = 0; i < list->count; i++)
                n += list->programs[i].where == where && k->outcomes[i].in;
        return n;
}

static void check_entry(const struct code *before, const struct code *after,
                        const struct splice_kernel *k)
{
        struct walk w = {.code = *after, .original = before->n, .first = before->at};

        w.seen = calloc(after->n, 1);
        walk_entry(&w, (size_t)branch_target(after->at, 0), 0);
        CHECK(w.returns >= 1);
        CHECK_EQ(count_id(&w, k->kernel_id), count_in(k, AGENT_PROGRAM_ENTRY));
        free(w.seen);
}

static void check_exit(const struct code *before, const struct code *after,
                       const struct splice_kernel *k)
{
        struct walk w = {.code = *after, .original = before->n, .first = before->at};
        size_t exits = 0;
        int64_t to = -1;

        w.seen = calloc(after->n, 1);
        for (size_t i = 0; i < before->n; i++) {
                if (opcode(before->at + 2 * i) != OPCODE_EXIT)
                        continue;
                if (to < 0)
                        to = branch_target(after->at + 2 * i, i);
                CHECK_EQ(branch_target(after->at + 2 * i, i), to);
                exits++;
        }
        CHECK_EQ(k->exits, exits);
        CHECK(exits > 0);
        CHECK_EQ(after->at[2 * to + 1] >> 52 & 0x3f, 0x3f); /* waits for everything */
        walk_exit(&w, (size_t)to);
        CHECK(w.exits >= 1);
        CHECK_EQ(count_id(&w, k->kernel_id), count_in(k, AGENT_PROGRAM_EXIT));
        CHECK_EQ(uniform_of_probe(after, &w) & uniform_of_kernel(before), 0);
        free(w.seen);
}

static uint32_t regcount(const struct cubin *c, const char *kernel)
{
        struct cubin_attribute a;
        size_t size, offset = 0;
        const uint8_t *bytes = cubin_section_bytes(c, find_section(c, ".nv.info"), &size);

        while (cubin_next_attribute(bytes, size, &offset, &a) == 1) {
                uint32_t v[2];
                Elf64_Sym s;

                if (a.id != CUBIN_REGCOUNT)
                        continue;
                memcpy(v, a.data, 8);
                cubin_symbol(c, v[0], &s);
                if (strcmp(cubin_symbol_name(c, &s), kernel) == 0)
                        return v[1];
        }
        CHECK(!"no register count");
        return 0;
}

static void check_tables(const struct cubin *before, const struct cubin *after,
                         const struct splice_kernel *k, const struct code *code)
{
        size_t text = kernel_section(after, ".text.", k->name);
        Elf64_Sym s;

        CHECK_EQ(regcount(before, k->name), k->registers_before);
        CHECK_EQ(regcount(after, k->name), k->registers_after);
        CHECK(k->registers_after >= k->registers_before);
        if (before->registers_in_section && before->sections[text].sh_info >> 24)
                CHECK_EQ(after->sections[text].sh_info >> 24, k->registers_after);
        CHECK_EQ(after->sections[text].sh_info & 0xffffff,
                 before->sections[text].sh_info & 0xffffff);
        for (size_t i = 0; i < after->symbol_count; i++) {
                cubin_symbol(after, i, &s);
                if (strcmp(cubin_symbol_name(after, &s), k->name) == 0 &&
                    (s.st_other & CUBIN_KERNEL_FLAG))
                        CHECK_EQ(s.st_size, code->n * 16);
        }
        CHECK_EQ(code->n % 8, 0);
}

/* The offsets in EIATTR_EXIT_INSTR_OFFSETS are those of the EXITs that can be reached. */
static void check_exit_attribute(const struct cubin *c, const struct splice_kernel *k,
                                 const struct code *code, size_t original)
{
        size_t info = kernel_section(c, ".nv.info.", k->name), size, offset = 0, found = 0;
        const uint8_t *bytes = cubin_section_bytes(c, info, &size);
        struct cubin_attribute a;
        int r;

        while ((r = cubin_next_attribute(bytes, size, &offset, &a)) == 1) {
                if (a.id != CUBIN_EXIT_OFFSETS)
                        continue;
                for (size_t i = 0; i < a.value / 4; i++) {
                        uint32_t at;

                        memcpy(&at, a.data + 4 * i, 4);
                        CHECK_EQ(at % 16, 0);
                        CHECK(at / 16 < code->n);
                        CHECK_EQ(opcode(code->at + at / 16 * 2), OPCODE_EXIT);
                        if (!splice_refusal(k, PAIR_EXIT))
                                CHECK(at / 16 >= original);
                        found++;
                }
        }
        CHECK_EQ(r, 0);
        for (size_t i = 0; i < code->n; i++)
                found -= opcode(code->at + 2 * i) == OPCODE_EXIT;
        CHECK_EQ(found, 0);
}

/* Bytes of a kernel's list attribute; 0 it has none. */
static size_t list_bytes(const struct cubin *c, const char *kernel, uint8_t id)
{
        size_t info = kernel_section(c, ".nv.info.", kernel), size, offset = 0, found = 0;
        const uint8_t *bytes = cubin_section_bytes(c, info, &size);
        struct cubin_attribute a;

        while (cubin_next_attribute(bytes, size, &offset, &a) == 1)
                found += a.id == id ? a.value : 0;
        return found;
}

/* Instructions for groups of lanes have a register each for the group, or nobody knows of any. */
static void check_groups(const struct cubin *before, const struct cubin *after,
                         const struct splice_kernel *k)
{
        size_t listed = list_bytes(before, k->name, CUBIN_COOP_GROUP_OFFSETS);
        size_t offsets = list_bytes(after, k->name, CUBIN_COOP_GROUP_OFFSETS);
        size_t registers = list_bytes(after, k->name, CUBIN_COOP_GROUP_REGIDS);

        CHECK(offsets >= listed);
        if (listed && !list_bytes(before, k->name, CUBIN_COOP_GROUP_REGIDS))
                CHECK_EQ(registers, 0);
        else
                CHECK_EQ(registers, offsets);
}

static int is_kernel_part(const struct splice_result *r, const char *section)
{
        for (size_t k = 0; k < r->kernel_count; k++) {
                if (strncmp(section, ".text.", 6) == 0 &&
                    strcmp(section + 6, r->kernels[k].name) == 0)
                        return 1;
                if (strncmp(section, ".nv.info.", 9) == 0 &&
                    strcmp(section + 9, r->kernels[k].name) == 0)
                        return 1;
        }
        return strcmp(section, ".nv.info") == 0 || strcmp(section, ".symtab") == 0;
}

/* Sections keep order, contents, alignment; segments cover the same sections as before. */
static void check_layout(const struct cubin *before, const struct cubin *after,
                         const struct splice_result *r)
{
        CHECK_EQ(before->header.e_shnum, after->header.e_shnum);
        for (size_t i = 1; i < after->header.e_shnum; i++) {
                const Elf64_Shdr *a = &before->sections[i], *b = &after->sections[i];
                size_t n, m;
                const uint8_t *x = cubin_section_bytes(before, i, &n);
                const uint8_t *y = cubin_section_bytes(after, i, &m);

                CHECK_EQ(a->sh_type, b->sh_type);
                CHECK_EQ(a->sh_link, b->sh_link);
                if (b->sh_addralign > 1 && a->sh_offset % a->sh_addralign == 0)
                        CHECK_EQ(b->sh_offset % b->sh_addralign, 0);
                if (!is_kernel_part(r, cubin_section_name(after, i))) {
                        CHECK_EQ(n, m);
                        CHECK(memcmp(x, y, n) == 0);
                }
        }
        for (size_t p = 0; p < after->header.e_phnum; p++) {
                Elf64_Phdr a, b;

                memcpy(&a, before->bytes + before->header.e_phoff + p * sizeof(a), sizeof(a));
                memcpy(&b, after->bytes + after->header.e_phoff + p * sizeof(b), sizeof(b));
                CHECK_EQ(b.p_memsz - b.p_filesz, a.p_memsz - a.p_filesz);
                for (size_t i = 1; i < after->header.e_shnum; i++) {
                        const Elf64_Shdr *s = &before->sections[i], *t = &after->sections[i];

                        if (s->sh_type == SHT_NOBITS || !s->sh_size)
                                continue;
                        CHECK_EQ(s->sh_offset >= a.p_offset &&
                                         s->sh_offset + s->sh_size <= a.p_offset + a.p_filesz,
                                 t->sh_offset >= b.p_offset &&
                                         t->sh_offset + t->sh_size <= b.p_offset + b.p_filesz);
                }
        }
}

static void check_kernel(const struct cubin *before, const struct cubin *after,
                         const struct splice_kernel *k)
{
        struct code a = kernel_code(before, k->name), b = kernel_code(after, k->name);

        CHECK(b.n >= a.n);
        check_original_part(&a, &b, k);
        if (!splice_refusal(k, PAIR_ENTRY))
                check_entry(&a, &b, k);
        if (!splice_refusal(k, PAIR_EXIT))
                check_exit(&a, &b, k);
        if (splice_refusal(k, PAIR_ENTRY) && splice_refusal(k, PAIR_EXIT))
                CHECK_EQ(a.n, b.n);
        check_tables(before, after, k, &b);
        check_exit_attribute(after, k, &b, a.n);
        check_groups(before, after, k);
}

static struct splice_result *splice_list_and_check(const struct file *f,
                                                   const struct probe_list *probes)
{
        struct splice_result *r = NULL;
        struct cubin before, after;
        const char *why = "";
        int e = splice_image(f->bytes, f->size, probes, FIRST_ID, &r, &why);

        list = probes;
        if (e < 0)
                fprintf(stderr, "%s\n", why);
        CHECK_EQ(e, 0);
        CHECK_EQ(cubin_open(f->bytes, f->size, &before, NULL), 0);
        CHECK_EQ(cubin_open(r->image, r->image_bytes, &after, NULL), 0);
        CHECK(r->kernel_count > 0);
        for (size_t k = 0; k < r->kernel_count; k++) {
                CHECK_EQ(r->kernels[k].kernel_id, FIRST_ID + k);
                check_kernel(&before, &after, &r->kernels[k]);
        }
        check_layout(&before, &after, r);
        cubin_done(&before);
        cubin_done(&after);
        return r;
}

static struct splice_result *splice_and_check(const struct file *f, const struct splice_pair *pair)
{
        const struct probe_list both = {.programs = pair->programs, .count = 2};

        return splice_list_and_check(f, &both);
}

static struct splice_pair probes;

static const struct splice_kernel *find_kernel(const struct splice_result *r, const char *name)
{
        for (size_t k = 0; k < r->kernel_count; k++) {
                if (strcmp(r->kernels[k].name, name) == 0)
                        return &r->kernels[k];
        }
        CHECK(!"no such kernel");
        return NULL;
}

static void test_entry_and_exit(void)
{
        struct file f = load("kernels.cubin");
        struct splice_result *r = splice_and_check(&f, &probes);

        CHECK_EQ(r->kernel_count, 13);
        CHECK_EQ(splice_count(r, PAIR_ENTRY), 13);
        CHECK_EQ(splice_count(r, PAIR_EXIT), 12);
        CHECK_STR(splice_refusal(find_kernel(r, "calls_printf"), PAIR_EXIT),
                  "it may call code outside the image");
        CHECK(find_kernel(r, "divergent_exits")->exits >= 3);
        CHECK_EQ(find_kernel(r, "many_registers")->registers_after, 255);
        splice_result_free(r);
        free(f.bytes);
}

/* VOTE.ANY of the predicate that is always true, and moves from a register. */
static size_t count_code(const struct code *code, uint32_t op, uint64_t source)
{
        size_t n = 0;

        for (size_t k = 0; k < code->n; k++)
                n += opcode(code->at + 2 * k) == op && code->at[2 * k] >> 32 == source;
        return n;
}

/*
 * Several programs at one place. The lanes of a warp are asked for once, before the
 * first of them, into a register that no program names.
 */
static void test_chains(void)
{
        struct probe_code *lanes = load_probe("lanes.cubin");
        const struct probe_program *in = &probes.programs[PAIR_ENTRY],
                                   *out = &probes.programs[PAIR_EXIT];
        struct probe_program programs[] = {
                *in,
                *out,
                *in,
                *out,
                {.where = AGENT_PROGRAM_EXIT, .label = "lanes", .code = lanes},
                {.where = AGENT_PROGRAM_ENTRY, .label = "lanes", .code = lanes, .kernels = "em*"}};
        const struct probe_list six = {.programs = programs, .count = 6};
        struct file f = load("kernels.cubin");
        struct splice_result *r = splice_list_and_check(&f, &six);
        struct cubin before, after;

        CHECK_EQ(cubin_open(f.bytes, f.size, &before, NULL), 0);
        CHECK_EQ(cubin_open(r->image, r->image_bytes, &after, NULL), 0);
        for (size_t k = 0; k < r->kernel_count; k++) {
                const struct splice_kernel *kernel = &r->kernels[k];
                struct code code = kernel_code(&after, kernel->name);
                struct code old = kernel_code(&before, kernel->name);
                uint32_t registers = regcount(&after, kernel->name);
                bool is_empty = strcmp(kernel->name, "empty") == 0;

                CHECK_EQ(kernel->outcomes[5].wanted, is_empty);
                CHECK_EQ(count_in(kernel, AGENT_PROGRAM_ENTRY), is_empty ? 3 : 2);
                if (!kernel->outcomes[4].in)
                        continue;
                CHECK_EQ(count_in(kernel, AGENT_PROGRAM_EXIT), 3);
                CHECK(registers > probe_code_registers(lanes));
                /* At empty's entry the same program asks by itself. */
                CHECK_EQ(count_code(&code, 0x806, 0) - count_code(&old, 0x806, 0), 1 + is_empty);
                /* The last two of the count are the hardware's: naming them is illegal. */
                if (is_empty)
                        CHECK_EQ(count_code(&code, 0x202, registers - 3), 1);
        }
        CHECK_EQ(splice_count(r, 4), 12);
        cubin_done(&before);
        cubin_done(&after);
        splice_result_free(r);
        probe_code_free(lanes);
        free(f.bytes);
}

/* More than there is room for at one place. */
static void test_long_chain(void)
{
        struct probe_program programs[SPLICE_CHAIN_MAX + 2];
        const struct probe_list many = {.programs = programs, .count = SPLICE_CHAIN_MAX + 2};
        struct file f = load("kernels.cubin");
        struct splice_result *r;

        for (size_t i = 0; i < many.count; i++)
                programs[i] = probes.programs[i == PAIR_EXIT ? PAIR_EXIT : PAIR_ENTRY];
        r = splice_list_and_check(&f, &many);
        CHECK(!find_kernel(r, "empty")->outcomes[SPLICE_CHAIN_MAX].refusal);
        CHECK_STR(find_kernel(r, "empty")->outcomes[SPLICE_CHAIN_MAX + 1].refusal,
                  "too many programs at its entry");
        splice_result_free(r);
        free(f.bytes);
}

/* Whether kernels of an image launch kernels is told by what they call. */
static void test_launches_kernels(void)
{
        static const struct {
                const char *name;
                bool launches;
        } rows[] = {{"nest.cubin", true}, {"kernels.cubin", false}, {"state.cubin", false}};

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                struct file f = load(rows[i].name);
                struct cubin c;

                CHECK_EQ(cubin_open(f.bytes, f.size, &c, NULL), 0);
                CHECK_EQ(cubin_launches(&c), rows[i].launches);
                cubin_done(&c);
                free(f.bytes);
        }
}

static void test_older_abi(void)
{
        struct file f = load("kernels_abi7.cubin");
        struct splice_result *r = splice_and_check(&f, &probes);

        CHECK_EQ(r->kernel_count, 3);
        CHECK_EQ(splice_count(r, PAIR_ENTRY), 3);
        CHECK_EQ(splice_count(r, PAIR_EXIT), 3);
        splice_result_free(r);
        free(f.bytes);
}

/* Loads (LDC, ULDC) of a 32-bit word of constant bank 0. */
static unsigned count_loads(const struct code *code, uint64_t offset)
{
        unsigned n = 0;

        for (size_t k = 0; k < code->n; k++) {
                const uint64_t *i = &code->at[2 * k];

                n += (opcode(i) == 0xb82 || opcode(i) == 0xab9) && i[0] >> 54 == 0 &&
                     (i[0] >> 40 & 0x3fff) * 4 == offset && (i[1] >> 9 & 7) == 4;
        }
        return n;
}

/* The probes' stand-ins for what has no register became what they stand for. */
static void test_words_of_the_driver(void)
{
        struct file f = load("kernels.cubin");
        struct splice_result *r = splice_and_check(&f, &probes);
        struct cubin before, after;

        CHECK_EQ(cubin_open(f.bytes, f.size, &before, NULL), 0);
        CHECK_EQ(cubin_open(r->image, r->image_bytes, &after, NULL), 0);
        for (size_t k = 0; k < r->kernel_count; k++) {
                struct code old = kernel_code(&before, r->kernels[k].name);
                struct code code = kernel_code(&after, r->kernels[k].name);
                unsigned probed = !splice_refusal(&r->kernels[k], PAIR_ENTRY) +
                                  !splice_refusal(&r->kernels[k], PAIR_EXIT);

                CHECK_EQ(count_loads(&old, 0x38) + count_loads(&old, 0x58), 0);
                CHECK_EQ(count_loads(&code, 0x38), probed);
                CHECK_EQ(count_loads(&code, 0x58), probed);
                CHECK_EQ(count_loads(&code, 0xac) + count_loads(&code, 0xbc), 0);
        }
        cubin_done(&before);
        cubin_done(&after);
        splice_result_free(r);
        free(f.bytes);
}

static void test_one_probe_only(void)
{
        struct splice_pair only_entry = splice_pair(probes.programs[PAIR_ENTRY].code, NULL);
        struct splice_pair only_exit = splice_pair(NULL, probes.programs[PAIR_EXIT].code);
        struct file f = load("kernels.cubin");
        struct splice_result *r = splice_and_check(&f, &only_entry);

        CHECK_EQ(splice_count(r, PAIR_ENTRY), 13);
        CHECK_EQ(splice_count(r, PAIR_EXIT), 0);
        splice_result_free(r);
        r = splice_and_check(&f, &only_exit);
        CHECK_EQ(splice_count(r, PAIR_ENTRY), 0);
        CHECK_EQ(splice_count(r, PAIR_EXIT), 12);
        splice_result_free(r);
        free(f.bytes);
}

static void test_no_probe_changes_nothing(void)
{
        static const char *const names[] = {"kernels.cubin", "kernels_abi7.cubin"};
        struct splice_pair none = splice_pair(NULL, NULL);

        for (size_t n = 0; n < 2; n++) {
                struct file f = load(names[n]);
                struct splice_result *r = splice_and_check(&f, &none);

                CHECK_EQ(r->image_bytes, f.size);
                CHECK(memcmp(r->image, f.bytes, f.size) == 0);
                splice_result_free(r);
                free(f.bytes);
        }
}

/* How many of a spliced kernel's instructions most blocks execute in the entry sequence. */
static int64_t early_of(const struct cubin *c, const char *kernel)
{
        struct code code = kernel_code(c, kernel);
        size_t k = (size_t)branch_target(code.at, 0);

        while (opcode(code.at + 2 * k) != OPCODE_BRA || !is_always(code.at + 2 * k))
                k++;
        return branch_target(code.at + 2 * k, k);
}

/* The block's index sends whole warps back without a barrier in between. */
static void test_warps_leave_early(void)
{
        struct file f = load("kernels.cubin");
        struct splice_result *r = splice_and_check(&f, &probes);
        struct cubin c;
        struct code code;
        size_t k, n = 0;

        CHECK_EQ(cubin_open(r->image, r->image_bytes, &c, NULL), 0);
        code = kernel_code(&c, "empty");
        k = (size_t)branch_target(code.at, 0);
        /* Taken branches are not followed: this is the way of all blocks but the first. */
        while (opcode(code.at + 2 * k) != OPCODE_BRA || !is_always(code.at + 2 * k)) {
                CHECK(opcode(code.at + 2 * k) != OPCODE_BSSY);
                k++;
                n++;
        }
        /* The question, the test, the branch, and what the kernel does anyway. */
        CHECK_EQ(n, 3 + branch_target(code.at + 2 * k, k));
        CHECK_EQ(early_of(&c, "shared_barrier"), 7);
        CHECK_EQ(early_of(&c, "divergent_exits"), 4);
        CHECK_EQ(early_of(&c, "many_registers"), 2);
        cubin_done(&c);
        splice_result_free(r);
        free(f.bytes);
}

/* Make the image's one table of relocations that is not empty one of shared_barrier's code. */
static void relocate(struct file *f, uint64_t offset)
{
        struct cubin c;
        Elf64_Shdr *sections;
        size_t table, text;
        uint8_t *entries;

        CHECK_EQ(cubin_open(f->bytes, f->size, &c, NULL), 0);
        table = find_section(&c, ".rela.debug_frame");
        text = kernel_section(&c, ".text.", "shared_barrier");
        CHECK(table && text);
        sections = (Elf64_Shdr *)(void *)(f->bytes + c.header.e_shoff);
        sections[table].sh_info = (uint32_t)text;
        sections[table].sh_size = sizeof(Elf64_Rela);
        entries = f->bytes + sections[table].sh_offset;
        memcpy(entries, &offset, sizeof(offset));
        cubin_done(&c);
}

/* Make its first listed EXIT one at another place. */
static void list_instruction(struct file *f, uint64_t offset)
{
        struct cubin_attribute a;
        struct cubin c;
        size_t size, at = 0;
        const uint8_t *info;

        CHECK_EQ(cubin_open(f->bytes, f->size, &c, NULL), 0);
        info = cubin_section_bytes(&c, kernel_section(&c, ".nv.info.", "shared_barrier"), &size);
        while (cubin_next_attribute(info, size, &at, &a) > 0) {
                if (a.id == CUBIN_EXIT_OFFSETS)
                        memcpy(f->bytes + (a.data - f->bytes), &offset, 4);
        }
        cubin_done(&c);
}

static int64_t early_after(void change(struct file *f, uint64_t offset), uint64_t offset)
{
        struct file f = load("kernels.cubin");
        struct splice_result *r;
        struct cubin c;
        int64_t early;

        change(&f, offset);
        CHECK_EQ(splice_pair_image(f.bytes, f.size, &probes, 1, &r, NULL), 0);
        CHECK_EQ(cubin_open(r->image, r->image_bytes, &c, NULL), 0);
        early = early_of(&c, "shared_barrier");
        cubin_done(&c);
        splice_result_free(r);
        free(f.bytes);
        return early;
}

/* An instruction that the driver edits or knows the place of is not executed elsewhere. */
static void test_what_has_a_place_stays(void)
{
        CHECK_EQ(early_after(relocate, 5 * 16), 5);
        CHECK_EQ(early_after(relocate, 6 * 16 + 4), 6);
        CHECK_EQ(early_after(relocate, 9 * 16), 7);
        CHECK_EQ(early_after(list_instruction, 3 * 16), 3);
        CHECK_EQ(early_after(list_instruction, 8 * 16), 7);
}

/*
 * Kernels that must be refused. Each case changes one kernel of the image; all
 * others must come out as if nothing had been.
 */
struct change {
        const char *kernel;
        size_t instr;
        uint64_t lo, hi; /* what to put there */
        const char *entry_refusal, *exit_refusal;
};

static void apply(struct file *f, const struct change *change)
{
        struct cubin c;
        size_t text;
        uint64_t *at;

        CHECK_EQ(cubin_open(f->bytes, f->size, &c, NULL), 0);
        text = kernel_section(&c, ".text.", change->kernel);
        CHECK(text);
        at = (uint64_t *)(void *)(f->bytes + c.sections[text].sh_offset + change->instr * 16);
        at[0] = change->lo;
        at[1] = change->hi;
        cubin_done(&c);
}

static void same_string(const char *is, const char *wanted)
{
        if (!wanted)
                CHECK(!is);
        else
                CHECK_STR(is, wanted);
}

static void test_refused_kernels(void)
{
        static const struct change changes[] = {
                /* BRA as the first instruction, to the third */
                {"module_data", 0, 0x0000000000047947, 0x000fea0003800000,
                 "its first instruction is control flow", NULL},
                /* an opcode that nobody knows first */
                {"module_data", 0, 0x0000000000007fff, 0x000fe20000000000,
                 "its first instruction is not known", "it has an unknown instruction"},
                /* an opcode that nobody knows later */
                {"module_data", 3, 0x0000000000007fff, 0x000fe20000000000, NULL,
                 "it has an unknown instruction"},
                /* BRA from the third instruction to the first */
                {"module_data", 2, 0xfffffffc00f47947, 0x000fea000383ffff,
                 "it jumps to its first instruction", NULL},
                /* EXIT with a bit that is not one of its predicates */
                {"module_data", 4, 0x000000000000794d, 0x000fea0003800040, NULL,
                 "it has an EXIT with modifiers"},
                /* USETMAXREG.DEALLOC to 24 and 8 registers */
                {"many_registers", 4, 0x00000018000079c8, 0x000fe400080e0500, NULL, NULL},
                {"many_registers", 4, 0x00000008000079c8, 0x000fe400080e0500, NULL,
                 "it gives away registers the probe needs"},
        };

        for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
                struct file f = load("kernels.cubin");
                const struct splice_kernel *k;
                struct splice_result *r;

                apply(&f, &changes[i]);
                CHECK_EQ(splice_pair_image(f.bytes, f.size, &probes, FIRST_ID, &r, NULL), 0);
                k = find_kernel(r, changes[i].kernel);
                same_string(splice_refusal(k, PAIR_ENTRY), changes[i].entry_refusal);
                same_string(splice_refusal(k, PAIR_EXIT), changes[i].exit_refusal);
                CHECK_EQ(splice_count(r, PAIR_ENTRY), 13 - (splice_refusal(k, PAIR_ENTRY) != NULL));
                CHECK_EQ(splice_count(r, PAIR_EXIT), 12 - (splice_refusal(k, PAIR_EXIT) != NULL));
                splice_result_free(r);
                free(f.bytes);
        }
}

/* As if it had shared memory in the form it has before linking, more than there are bytes. */
static int splice_shared_memory(const struct file *f, const char **ret_why)
{
        struct file more = {malloc(f->size), f->size};
        struct splice_result *r;
        Elf64_Shdr *shared;
        struct cubin c;
        int e;

        CHECK(more.bytes);
        memcpy(more.bytes, f->bytes, f->size);
        CHECK_EQ(cubin_open(more.bytes, more.size, &c, NULL), 0);
        shared = (Elf64_Shdr *)(void *)(more.bytes + c.header.e_shoff) +
                 find_section(&c, ".nv.shared.shared_barrier");
        CHECK_EQ(shared->sh_type, SHT_NOBITS);
        shared->sh_type = CUBIN_SHARED_TYPE;
        shared->sh_size = 2 * f->size;
        cubin_done(&c);
        e = splice_pair_image(more.bytes, more.size, &probes, 1, &r, ret_why);
        free(more.bytes);
        return e;
}

static void test_refused_images(void)
{
        struct file f = load("kernels.cubin");
        struct splice_result *r;
        const char *why;
        Elf64_Ehdr *h = (void *)f.bytes;
        Elf64_Ehdr saved = *h;

        h->e_type = ET_REL;
        CHECK_EQ(splice_pair_image(f.bytes, f.size, &probes, 1, &r, &why), -ENOTSUP);
        CHECK_STR(why, "machine code that is not linked yet");
        CHECK_EQ(splice_shared_memory(&f, &why), -ENOTSUP);
        CHECK_STR(why, "machine code that is not linked yet");
        *h = saved;
        h->e_flags = (h->e_flags & ~0xff00u) | 100 << 8;
        CHECK_EQ(splice_pair_image(f.bytes, f.size, &probes, 1, &r, &why), -ENOTSUP);
        CHECK_STR(why, "no instruction table for its architecture");
        *h = saved;
        h->e_ident[EI_ABIVERSION] = 9;
        CHECK_EQ(splice_pair_image(f.bytes, f.size, &probes, 1, &r, &why), -ENOTSUP);
        *h = saved;
        CHECK_EQ(splice_pair_image(f.bytes, f.size / 2, &probes, 1, &r, &why), -EINVAL);
        CHECK_EQ(splice_pair_image(f.bytes, 10, &probes, 1, &r, &why), -EINVAL);
        free(f.bytes);
}

/* Code of the only kernel of a probe's cubin. */
static uint64_t *probe_text(const struct file *f, size_t *ret_count)
{
        struct code code;
        struct cubin c;

        CHECK_EQ(cubin_open(f->bytes, f->size, &c, NULL), 0);
        code = kernel_code(&c, "gpuobs_probe_entry");
        cubin_done(&c);
        *ret_count = code.n;
        return (uint64_t *)(uintptr_t)code.at;
}

static void test_refused_probes(void)
{
        static const struct {
                uint64_t lo, hi;
                const char *why;
        } bad[] = {
                {0x0000000002007343, 0x001fea0003c00000, /* CALL.ABS R2 */
                 "the probe calls or jumps in a way that cannot be moved"},
                {0x0000000000007b1d, 0x000fec0000010000, /* BAR.SYNC 0 */
                 "the probe uses the stack, shared memory or a block-wide operation"},
                {0x0000080a01007387, 0x000fe20000100800, /* STL [R1+8], R10 */
                 "the probe uses the stack, shared memory or a block-wide operation"},
                {0x0000000000007fff, 0x000fe20000000000, "the probe has an unknown instruction"},
                {0x00008400ff027b82, 0x000e220000000a00, /* LDC.64 R2, c[0x0][0x210] */
                 "the probe reads kernel parameters"},
                {0x00c00000ff027b82, 0x000e220000000a00, /* LDC.64 R2, c[0x3][0x0] */
                 "the probe reads a constant bank of its own"},
                {0x00002f00ff027b82, 0x000e220000000a00, /* LDC.64 R2, c[0x0][0xbc] */
                 "the probe uses the kernel id in a way that cannot be patched"},
                {0x00002a00ff027b82, 0x000e220000000a00, /* LDC.64 R2, c[0x0][0xa8] */
                 "the probe uses the launch's descriptor in a way that cannot be patched"},
                {0x00002b0002027a25, 0x000fe200078e0002, /* IMAD.WIDE R2, R2, c[0x0][0xac], R2 */
                 "the probe uses the launch's descriptor in a way that cannot be patched"},
                {0x00002f0000027b06, 0x000e640000201400, /* I2F.U32 R2, c[0x0][0xbc] */
                 "the probe uses the kernel id in a way that cannot be patched"},
                {0x00000e0004047abb, 0x000fe20008000800, /* ULDC UR4, c[0x0][UR4+0x38] */
                 "the probe reads constants by index"},
                {0x0000010000007947, 0x000fea0003800000, /* BRA far out */
                 "the probe jumps out of itself"},
        };

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                struct file f = load("entry.cubin");
                struct probe_code *code = NULL;
                const char *why = NULL;
                size_t n;
                uint64_t *text = probe_text(&f, &n);

                text[2 * 4] = bad[i].lo;
                text[2 * 4 + 1] = bad[i].hi;
                CHECK_EQ(probe_code_extract(f.bytes, f.size, &code, &why), -EINVAL);
                CHECK_STR(why, bad[i].why);
                free(f.bytes);
        }
}

/* A value that differs between lanes in a uniform register: no exit, but entries. */
static void test_probe_for_entries_only(void)
{
        struct file f = load("exit.cubin"), image = load("kernels.cubin");
        struct splice_pair both;
        struct splice_result *r;
        struct probe_code *code;
        size_t n;
        uint64_t *text = probe_text(&f, &n);

        text[2 * 8] = 0x0000000000057886; /* VOTEU.ANY UR5, UPT, PT */
        text[2 * 8 + 1] = 0x000fe200038e0100;
        CHECK_EQ(probe_code_extract(f.bytes, f.size, &code, NULL), 0);
        both = splice_pair(code, code);
        CHECK_EQ(splice_pair_image(image.bytes, image.size, &both, FIRST_ID, &r, NULL), 0);
        CHECK_EQ(splice_count(r, PAIR_ENTRY), 13);
        CHECK_EQ(splice_count(r, PAIR_EXIT), 0);
        CHECK_STR(splice_refusal(&r->kernels[0], PAIR_EXIT),
                  "the probe's uniform registers depend on the lane");
        splice_result_free(r);
        probe_code_free(code);
        free(f.bytes);
        free(image.bytes);
}

/* Number of the first instruction of a probe that has this opcode. */
static size_t find_opcode(const uint64_t *text, size_t n, uint32_t op)
{
        for (size_t k = 0; k < n; k++)
                if (opcode(text + 2 * k) == op)
                        return k;
        CHECK(!"no such instruction");
        return 0;
}

static const char *exit_refusal(const struct file *f)
{
        struct probe_code *code = NULL;
        const char *why;

        CHECK_EQ(probe_code_extract(f->bytes, f->size, &code, NULL), 0);
        why = probe_code_exit_refusal(code);
        probe_code_free(code);
        return why;
}

/* In a loop, what was the same before may be in a uniform register, but not what counts. */
static void test_uniform_registers_in_loops(void)
{
        struct file f = load("hash.cubin");
        size_t n, at;
        uint64_t *text = probe_text(&f, &n), ur;

        CHECK(!exit_refusal(&f));
        ur = text[2 * find_opcode(text, n, 0xab9)] >> 16 & 63;   /* ULDC, before the loops */
        at = find_opcode(text, n, 0x946);                        /* YIELD, in one */
        text[2 * at] = 0xffffffff00007890 | ur << 16 | ur << 24; /* UIADD3 URn, URn, -1 */
        text[2 * at + 1] = 0x000fe2000fffe03f;
        CHECK_STR(exit_refusal(&f), "the probe's uniform registers depend on the lane");
        free(f.bytes);
}

/* What the warp has added up is to be used before others can have their turn. */
static void test_sums_are_brief(void)
{
        struct file f = load("vote.cubin");
        size_t n, sum, read;
        uint64_t *text = probe_text(&f, &n);

        CHECK(!exit_refusal(&f));
        sum = find_opcode(text, n, 0x3c4);
        read = find_opcode(text, n, 0xe24); /* IMAD.U32 Rn, RZ, RZ, URn */
        CHECK(sum + 1 < read);
        text[2 * (sum + 1)] = 0x7946; /* YIELD, which is left out */
        text[2 * (sum + 1) + 1] = 0x000fea0003800000;
        CHECK(!exit_refusal(&f));
        text[2 * (sum + 1)] = 0x7941 | 5 << 16; /* BSYNC; the place that its BSSY means stays */
        CHECK_STR(exit_refusal(&f), "the probe's uniform registers depend on the lane");
        free(f.bytes);
}

/* Lanes that do not meet where BSSY says: which barrier could be left out is not known. */
static void test_probe_that_meets_elsewhere(void)
{
        struct file f = load("hash.cubin");
        size_t n;
        uint64_t *text = probe_text(&f, &n);

        text[2 * find_opcode(text, n, 0x945)] += 0x10ULL << 32;
        CHECK_STR(exit_refusal(&f), "the probe's lanes meet in an unknown way");
        free(f.bytes);
}

/* Waiting for the lanes of the warp: for nobody, as long as all that came are together. */
static void test_waits_for_lanes(void)
{
        struct file f = load("mem.cubin");
        size_t n, vote;
        uint64_t *text = probe_text(&f, &n);

        vote = find_opcode(text, n, 0x806);        /* in front of all flow */
        text[2 * (vote + 1)] = 0x0000000000007348; /* WARPSYNC.EXCLUSIVE R0 */
        text[2 * (vote + 1) + 1] = 0x000fe20003a00000;
        CHECK(!exit_refusal(&f));
        text[2 * (vote - 1)] = 0x0000000000007941; /* BSYNC B0 */
        text[2 * (vote - 1) + 1] = 0x000fea0003800000;
        CHECK_STR(exit_refusal(&f), "the probe waits for other lanes");
        free(f.bytes);
}

/* A kernel that uses all convergence barriers has none for lanes that have to meet. */
static void test_no_barrier_left(void)
{
        struct file vote = load("vote.cubin"), image = load("kernels.cubin");
        struct probe_code *code = NULL;
        struct splice_pair both;
        struct splice_result *r;
        struct cubin c;
        uint64_t *kernel;
        size_t n = 0;

        CHECK_EQ(probe_code_extract(vote.bytes, vote.size, &code, NULL), 0);
        both = splice_pair(code, code);
        CHECK_EQ(cubin_open(image.bytes, image.size, &c, NULL), 0);
        kernel = (uint64_t *)(uintptr_t)kernel_code(&c, "many_registers").at;
        for (size_t k = 1; n < 14; k++) {            /* BREAKs that never leave */
                if (opcode(kernel + 2 * k) != 0x223) /* FFMA */
                        continue;
                kernel[2 * k] = 0xf942 | n++ << 16;
                kernel[2 * k + 1] = 0x000fea0003800000;
        }
        CHECK_EQ(splice_pair_image(image.bytes, image.size, &both, FIRST_ID, &r, NULL), 0);
        CHECK_STR(splice_refusal(find_kernel(r, "many_registers"), PAIR_EXIT),
                  "it leaves no convergence barrier free");
        CHECK(!splice_refusal(find_kernel(r, "divergent_exits"), PAIR_EXIT));
        splice_result_free(r);
        probe_code_free(code);
        cubin_done(&c);
        free(vote.bytes);
        free(image.bytes);
}

/* The probe of entry.cubin as if it needed that many registers. */
static struct probe_code *probe_with_registers(uint32_t registers)
{
        struct file f = load("entry.cubin");
        struct probe_code *code = NULL;
        struct cubin_attribute a;
        struct cubin c;
        size_t size, offset = 0, section;
        const uint8_t *info;

        CHECK_EQ(cubin_open(f.bytes, f.size, &c, NULL), 0);
        section = find_section(&c, ".nv.info");
        info = cubin_section_bytes(&c, section, &size);
        while (cubin_next_attribute(info, size, &offset, &a) == 1) {
                if (a.id == CUBIN_REGCOUNT)
                        memcpy(f.bytes + c.sections[section].sh_offset + a.offset + 8, &registers,
                               4);
        }
        CHECK_EQ(probe_code_extract(f.bytes, f.size, &code, NULL), 0);
        CHECK_EQ(probe_code_registers(code), registers);
        cubin_done(&c);
        free(f.bytes);
        return code;
}

/* Compile a kernel for another number of registers, as far as its attributes say. */
static void set_register_bound(struct file *f, const char *kernel, uint16_t bound)
{
        struct cubin_attribute a;
        size_t size, at = 0, set = 0;
        const uint8_t *info;
        struct cubin c;

        CHECK_EQ(cubin_open(f->bytes, f->size, &c, NULL), 0);
        info = cubin_section_bytes(&c, kernel_section(&c, ".nv.info.", kernel), &size);
        while (cubin_next_attribute(info, size, &at, &a) > 0) {
                if (a.id != CUBIN_MAXREG_COUNT)
                        continue;
                memcpy(f->bytes + (info - f->bytes) + a.offset + 2, &bound, sizeof(bound));
                set++;
        }
        CHECK_EQ(set, 1);
        cubin_done(&c);
}

/*
 * As many blocks as a kernel's bounds ask for at a time must go on fitting a multiprocessor.
 * 32 registers are not too many for any number.
 */
static void test_register_bounds(void)
{
        static const struct {
                uint16_t bound;
                uint32_t registers;
                int in;
        } cases[] = {{255, 64, 1}, {40, 40, 1}, {40, 41, 0}, {36, 40, 0}, {36, 36, 1},
                     {32, 33, 0},  {24, 32, 1}, {24, 33, 0}, {16, 32, 1}, {0, 64, 1}};

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct probe_code *code = probe_with_registers(cases[i].registers);
                struct splice_pair both = splice_pair(code, NULL);
                struct file f = load("kernels.cubin");
                struct splice_result *r;

                set_register_bound(&f, "shared_barrier", cases[i].bound);
                r = splice_and_check(&f, &both);
                same_string(splice_refusal(find_kernel(r, "shared_barrier"), PAIR_ENTRY),
                            cases[i].in ? NULL
                                        : "its launch bounds leave fewer registers than the probe "
                                          "needs");
                CHECK(!splice_refusal(find_kernel(r, "empty"), PAIR_ENTRY));
                splice_result_free(r);
                probe_code_free(code);
                free(f.bytes);
        }
}

/* A kernel must stay launchable with the largest block it allows, and two with bounds for two. */
static void test_register_limits(void)
{
        static const struct {
                uint32_t registers;
                int plain, two_of_1024, bounds_256; /* is the entry probed? */
        } cases[] = {{32, 1, 1, 1}, {33, 1, 0, 1}, {64, 1, 0, 1}, {65, 0, 0, 1}, {255, 0, 0, 1}};

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct probe_code *code = probe_with_registers(cases[i].registers);
                struct splice_pair big = splice_pair(code, NULL);
                struct file f = load("kernels.cubin");
                struct splice_result *r = splice_and_check(&f, &big);

                CHECK_EQ(!splice_refusal(find_kernel(r, "empty"), PAIR_ENTRY), cases[i].plain);
                CHECK_EQ(!splice_refusal(find_kernel(r, "launch_bounds"), PAIR_ENTRY),
                         cases[i].two_of_1024);
                CHECK_EQ(!splice_refusal(find_kernel(r, "many_registers"), PAIR_ENTRY),
                         cases[i].bounds_256);
                if (!cases[i].plain)
                        CHECK_STR(splice_refusal(find_kernel(r, "empty"), PAIR_ENTRY),
                                  "the probe's registers would make its largest block too big");
                splice_result_free(r);
                probe_code_free(code);
                free(f.bytes);
        }
}

/* Some compilers of the older ABI give the register count in the section, too. */
static void test_registers_in_section(void)
{
        struct file f = load("kernels_abi7.cubin");
        struct cubin c;
        struct splice_result *r;

        CHECK_EQ(cubin_open(f.bytes, f.size, &c, NULL), 0);
        for (size_t i = 1; i < c.header.e_shnum; i++) {
                const char *name = cubin_section_name(&c, i);

                if (strncmp(name, ".text.", 6) == 0) {
                        uint32_t info = c.sections[i].sh_info | regcount(&c, name + 6) << 24;

                        memcpy(f.bytes + c.header.e_shoff + i * sizeof(Elf64_Shdr) +
                                       offsetof(Elf64_Shdr, sh_info),
                               &info, sizeof(info));
                }
        }
        cubin_done(&c);
        r = splice_and_check(&f, &probes); /* compares with the attribute */
        CHECK(r->kernels[0].registers_after > r->kernels[0].registers_before);
        splice_result_free(r);
        free(f.bytes);
}

/* A store right before the end reads its registers late: a scoreboard must say when. */
static void test_stores_are_tracked(void)
{
        struct file f = load("kernels.cubin");
        struct splice_result *r = splice_and_check(&f, &probes);
        struct cubin before, after;
        size_t changed = 0;

        CHECK_EQ(cubin_open(f.bytes, f.size, &before, NULL), 0);
        CHECK_EQ(cubin_open(r->image, r->image_bytes, &after, NULL), 0);
        for (size_t k = 0; k < r->kernel_count; k++) {
                struct code a = kernel_code(&before, r->kernels[k].name);
                struct code b = kernel_code(&after, r->kernels[k].name);

                if (splice_refusal(&r->kernels[k], PAIR_EXIT))
                        continue;
                for (size_t i = 0; i < a.n; i++) {
                        if ((a.at[2 * i] & 0xfff) != 0x986) /* STG */
                                continue;
                        CHECK((b.at[2 * i + 1] >> 49 & 7) != 7);
                        changed += (a.at[2 * i + 1] >> 49 & 7) == 7;
                }
        }
        CHECK(changed > 0);
        cubin_done(&before);
        cubin_done(&after);
        splice_result_free(r);
        free(f.bytes);
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        data_dir = argv[1];
        probes = splice_pair(load_probe("entry.cubin"), load_probe("exit.cubin"));
        TEST(test_entry_and_exit);
        TEST(test_chains);
        TEST(test_long_chain);
        TEST(test_launches_kernels);
        TEST(test_older_abi);
        TEST(test_words_of_the_driver);
        TEST(test_one_probe_only);
        TEST(test_no_probe_changes_nothing);
        TEST(test_warps_leave_early);
        TEST(test_what_has_a_place_stays);
        TEST(test_refused_kernels);
        TEST(test_refused_images);
        TEST(test_refused_probes);
        TEST(test_probe_for_entries_only);
        TEST(test_uniform_registers_in_loops);
        TEST(test_sums_are_brief);
        TEST(test_probe_that_meets_elsewhere);
        TEST(test_waits_for_lanes);
        TEST(test_no_barrier_left);
        TEST(test_stores_are_tracked);
        TEST(test_registers_in_section);
        TEST(test_register_bounds);
        TEST(test_register_limits);
        probe_code_free((struct probe_code *)probes.programs[PAIR_ENTRY].code);
        probe_code_free((struct probe_code *)probes.programs[PAIR_EXIT].code);
        return 0;
}
