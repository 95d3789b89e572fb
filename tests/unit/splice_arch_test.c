/* SPDX-License-Identifier: Apache-2.0 */

/*
 * That the splicer knows of an architecture what its table says, and nothing else. The
 * architecture here is made up: sm_90 with the operations of opcodes shuffled, and other
 * numbers for whatever a table has a number for. Images and programs are translated into
 * it. What the splicer then makes of them has to be the translation of what it makes of
 * the originals, to the last bit: an opcode or an offset that some part of it knows by
 * itself is another one there. As fixtures do not have all instructions, the same is done
 * with random ones in them.
 *
 * More cubins of sm_90 than the fixtures can be named behind their directory.
 */
#include "agent/arch.h"
#include "agent/cubin.h"
#include "agent/image_state.h"
#include "agent/splice_probe.h"
#include "unit/test.h"
#include "unit/test_file.h"

#define MADE_SM       99
#define OPERATIONS    512   /* the low bits of an opcode, without the form */
#define OFFSET_FLIP   0x400 /* in constant bank 0 */
#define SPECIAL_FLIP  0x80
#define SM90_LOW_BITS (0xffULL << 16) /* of a branch's distance */
#define FIRST_ID      0x51ce0000u

static uint16_t operations[OPERATIONS]; /* of the made architecture, by that of sm_90 */
static struct arch made;

/* In place of the product's: sm_90, and the one that is made up. */
const struct arch *arch_find(uint32_t sm)
{
        return sm == arch_sm90.sm ? &arch_sm90 : sm == MADE_SM ? &made : NULL;
}

static uint64_t translate_opcode(uint64_t lo)
{
        return (lo & ~(uint64_t)(OPERATIONS - 1)) | operations[lo & (OPERATIONS - 1)];
}

static struct instr translate(struct instr i)
{
        const struct instr old = i;
        int64_t bytes;

        i.lo = translate_opcode(i.lo);
        if ((instr_form(&i) == INSTR_FORM_CONSTANT_B || instr_form(&i) == INSTR_FORM_CONSTANT_C) &&
            instr_constant_bank(&i) == 0)
                instr_set_constant_offset(&i, instr_constant_offset(&i) ^ OFFSET_FLIP);
        if (arch_role(&arch_sm90, &old) == ARCH_S2R || arch_role(&arch_sm90, &old) == ARCH_S2UR)
                i.hi ^= SPECIAL_FLIP << 8;
        if (arch_has(&arch_sm90, &old, ARCH_BRANCH_TARGET)) {
                CHECK(arch_relative_target(&arch_sm90, &old, &bytes));
                i.lo &= ~SM90_LOW_BITS;
                arch_set_relative_target(&made, &i, bytes);
        }
        return i;
}

static void shuffle_operations(void)
{
        uint64_t seed = 99;

        for (uint32_t k = 0; k < OPERATIONS; k++)
                operations[k] = (uint16_t)k;
        for (uint32_t k = OPERATIONS - 1; k > 0; k--) {
                uint32_t other = (uint32_t)(test_random(&seed) % (k + 1));
                uint16_t kept = operations[k];

                operations[k] = operations[other];
                operations[other] = kept;
        }
}

static void make_arch(void)
{
        struct instr *makes = (struct instr *)&made.makes;

        shuffle_operations();
        made = arch_sm90;
        made.sm = MADE_SM;
        made.branch_low_bits = 0;
        made.stack_pointer ^= OFFSET_FLIP;
        made.environment ^= OFFSET_FLIP;
        made.parameters ^= OFFSET_FLIP;
        made.grid.sm = MADE_SM;
        made.ctaid_x ^= SPECIAL_FLIP;
        made.ctaid_z ^= SPECIAL_FLIP;
        made.lanemask_le ^= SPECIAL_FLIP;
        made.lanemask_gt ^= SPECIAL_FLIP;
        made.lanemask_ge ^= SPECIAL_FLIP;
        for (uint32_t k = 0; k < INSTR_OPCODES; k++)
                made.ops[translate_opcode(k)] = arch_sm90.ops[k];
        for (size_t k = 0; k < sizeof(made.makes) / sizeof(*makes); k++)
                makes[k] = translate(makes[k]);
}

struct image {
        uint8_t *bytes;
        size_t size;
};

static struct image load(const char *directory, const char *name)
{
        char path[4096];
        struct image f;

        snprintf(path, sizeof(path), "%s%s%s", directory, *directory ? "/" : "", name);
        f.bytes = test_read_file(path, &f.size);
        return f;
}

static void translate_code(uint8_t *code, size_t size)
{
        for (size_t k = 0; k < size / INSTR_BYTES; k++)
                instr_store(code, k, translate(instr_load(code, k)));
}

/* Where parameters begin. */
static void translate_attributes(uint8_t *info, size_t size)
{
        struct cubin_attribute a;
        size_t offset = 0;

        while (cubin_next_attribute(info, size, &offset, &a) > 0)
                if (a.id == CUBIN_PARAM_CBANK && a.data && a.value == 8)
                        info[a.data - info + 5] ^= OFFSET_FLIP >> 8;
}

static struct image translate_image(const uint8_t *bytes, size_t size)
{
        struct image t = {malloc(size), size};
        Elf64_Ehdr *h = (Elf64_Ehdr *)t.bytes;
        struct cubin c;

        CHECK(t.bytes);
        memcpy(t.bytes, bytes, size);
        CHECK_EQ(cubin_open(bytes, size, &c, NULL), 0);
        CHECK_EQ(c.sm, arch_sm90.sm);
        for (size_t i = 1; i < c.header.e_shnum; i++) {
                const Elf64_Shdr *s = &c.sections[i];

                if (s->sh_flags & SHF_EXECINSTR)
                        translate_code(t.bytes + s->sh_offset, s->sh_size);
                else if (s->sh_type == CUBIN_INFO_TYPE)
                        translate_attributes(t.bytes + s->sh_offset, s->sh_size);
        }
        if (c.registers_in_section) /* the older ABI */
                h->e_flags = (h->e_flags & ~0xffu) | MADE_SM;
        else
                h->e_flags = (h->e_flags & ~0xff00u) | MADE_SM << 8;
        cubin_done(&c);
        return t;
}

enum { PROGRAMS = 6, PLACES = 9, RANDOM_IMAGES = 1000, RANDOM_PROGRAMS = 4000 };

static const char *const program_names[PROGRAMS] = {"entry", "exit", "lanes",
                                                    "mem",   "hash", "vote"};

/* The fixtures' programs, for one architecture. */
struct programs {
        struct probe_code *code[PROGRAMS];
};

static struct programs originals, translated;

/* NULL: it cannot serve. */
static struct probe_code *extract(const struct image *f, const char **ret_why)
{
        struct probe_code *code = NULL;

        *ret_why = NULL;
        return probe_code_extract(f->bytes, f->size, &code, ret_why) == 0 ? code : NULL;
}

static void check_sequence(const struct probe_sequence *a, const struct probe_sequence *b)
{
        CHECK_EQ(a->count, b->count);
        for (uint32_t k = 0; k < a->count; k++) {
                struct instr want = translate(instr_load(a->code, k)), got = instr_load(b->code, k);

                CHECK(want.lo == got.lo && want.hi == got.hi);
        }
        CHECK_EQ(a->asks_first, b->asks_first);
        CHECK_EQ(a->id_count, b->id_count);
        CHECK_EQ(a->return_count, b->return_count);
}

/* Take a program out of an image, and out of the same in the other architecture. */
static bool extract_both(const struct image *f, struct probe_code **ret_original,
                         struct probe_code **ret_translated)
{
        struct image t = translate_image(f->bytes, f->size);
        const char *why, *translated_why;
        struct probe_code *a = extract(f, &why), *b = extract(&t, &translated_why);

        CHECK(why == translated_why && !a == !b);
        free(t.bytes);
        if (!a)
                return false;
        check_sequence(&a->entry, &b->entry);
        check_sequence(&a->exit, &b->exit);
        CHECK(a->exit_refusal == b->exit_refusal);
        CHECK_EQ(a->registers, b->registers);
        CHECK_EQ(a->ur_slots, b->ur_slots);
        CHECK_EQ(a->exit_asks_lanes, b->exit_asks_lanes);
        CHECK_EQ(a->exit_votes, b->exit_votes);
        CHECK_EQ(a->exit_barriers, b->exit_barriers);
        *ret_original = a;
        *ret_translated = b;
        return true;
}

static void load_programs(const char *directory)
{
        for (int k = 0; k < PROGRAMS; k++) {
                char name[64];
                struct image f;

                snprintf(name, sizeof(name), "%s.cubin", program_names[k]);
                f = load(directory, name);
                CHECK(extract_both(&f, &originals.code[k], &translated.code[k]));
                free(f.bytes);
        }
}

/* NULL: refused as a whole. */
static struct splice_result *splice(const struct image *f, const struct programs *p,
                                    const char **ret_why)
{
        static const struct {
                int program;
                uint32_t where;
        } order[PLACES] = {
                {0, AGENT_PROGRAM_ENTRY}, {1, AGENT_PROGRAM_EXIT}, {3, AGENT_PROGRAM_MEM},
                {2, AGENT_PROGRAM_EXIT},  {2, AGENT_PROGRAM_MEM},  {1, AGENT_PROGRAM_EXIT},
                {5, AGENT_PROGRAM_MEM},   {4, AGENT_PROGRAM_EXIT}, {4, AGENT_PROGRAM_ENTRY}};
        struct probe_program programs[PLACES];
        const struct probe_list list = {.programs = programs, .count = PLACES};
        struct splice_result *r = NULL;

        for (size_t k = 0; k < PLACES; k++)
                programs[k] = (struct probe_program){
                        .where = order[k].where,
                        .label = program_names[order[k].program],
                        .code = p->code[order[k].program],
                };
        *ret_why = NULL;
        return splice_image(f->bytes, f->size, &list, FIRST_ID, &r, ret_why) == 0 ? r : NULL;
}

static size_t kernels, put_in;

static void check_outcomes(const struct splice_result *a, const struct splice_result *b)
{
        CHECK_EQ(a->kernel_count, b->kernel_count);
        CHECK_EQ(a->in_count, b->in_count);
        for (size_t k = 0; k < a->kernel_count; k++) {
                const struct splice_kernel *p = &a->kernels[k], *q = &b->kernels[k];

                CHECK_EQ(p->exits, q->exits);
                CHECK_EQ(p->accesses, q->accesses);
                CHECK_EQ(p->other_accesses, q->other_accesses);
                CHECK_EQ(p->registers_after, q->registers_after);
                for (int n = 0; n < PLACES; n++)
                        CHECK(p->outcomes[n].refusal == q->outcomes[n].refusal);
        }
        kernels += a->kernel_count;
        put_in += a->in_count;
}

/* Which kernels may run from a copy. */
static void check_state(const struct image *f, const struct image *t, const struct splice_result *r)
{
        struct image_state *a = image_state_new(), *b = image_state_new();

        CHECK(a && b);
        CHECK_EQ(image_state_add_cubin(a, f->bytes, f->size), 0);
        CHECK_EQ(image_state_add_cubin(b, t->bytes, t->size), 0);
        for (size_t k = 0; k < r->kernel_count; k++) {
                const char *p = image_state_refusal(a, r->kernels[k].name),
                           *q = image_state_refusal(b, r->kernels[k].name);

                CHECK(!p == !q && (!p || strcmp(p, q) == 0));
        }
        image_state_free(a);
        image_state_free(b);
}

static void check_spliced(const char *name, const struct splice_result *r,
                          const struct splice_result *got)
{
        struct image want = translate_image(r->image, r->image_bytes);

        check_outcomes(r, got);
        CHECK_EQ(got->image_bytes, want.size);
        if (memcmp(got->image, want.bytes, want.size) != 0)
                fprintf(stderr, "%s is another image in another architecture\n", name);
        CHECK(memcmp(got->image, want.bytes, want.size) == 0);
        free(want.bytes);
}

static void check_bytes(const char *name, const struct image *f)
{
        struct image t = translate_image(f->bytes, f->size);
        const char *why, *translated_why;
        struct splice_result *r = splice(f, &originals, &why),
                             *got = splice(&t, &translated, &translated_why);

        CHECK(why == translated_why && !r == !got);
        if (r) {
                check_spliced(name, r, got);
                check_state(f, &t, r);
        }
        splice_result_free(r);
        splice_result_free(got);
        free(t.bytes);
}

static void check_image(const char *directory, const char *name)
{
        struct image f = load(directory, name);

        check_bytes(name, &f);
        free(f.bytes);
}

/* An instruction that is known, often one looked for, with operands that some other has. */
static struct instr random_instr(uint64_t *seed, const uint8_t *code, size_t count)
{
        struct instr i = instr_load(code, test_random(seed) % count);
        bool looked_for = test_random(seed) % 2;
        const struct arch_op *op;

        do {
                i.lo = (i.lo & ~(uint64_t)(INSTR_OPCODES - 1)) | test_random(seed) % INSTR_OPCODES;
                op = arch_op(&arch_sm90, &i);
                /* the distance of such stands where they have uniform registers, too */
        } while (!op || (looked_for && !op->role) ||
                 ((op->properties & ARCH_BRANCH_TARGET) && (op->ur & INSTR_UR_D)));
        if (test_random(seed) % 2)
                i.hi ^= test_random(seed) & 0x0380080000ff3fffULL;
        if (arch_has(&arch_sm90, &i, ARCH_BRANCH_TARGET)) {
                int64_t far = (int64_t)(test_random(seed) % 256) - 128;

                arch_set_relative_target(&arch_sm90, &i,
                                         (test_random(seed) % 2 ? far : 1) * INSTR_BYTES);
        }
        return i;
}

/* Put some into each piece of code. */
static void scatter(struct image *f, uint32_t one_of, uint64_t *seed)
{
        struct cubin c;

        CHECK_EQ(cubin_open(f->bytes, f->size, &c, NULL), 0);
        for (size_t s = 1; s < c.header.e_shnum; s++) {
                uint8_t *code = f->bytes + c.sections[s].sh_offset;
                size_t count = c.sections[s].sh_size / INSTR_BYTES;

                for (size_t k = 0; (c.sections[s].sh_flags & SHF_EXECINSTR) && k < count; k++)
                        if (test_random(seed) % one_of == 0)
                                instr_store(code, k, random_instr(seed, code, count));
        }
        cubin_done(&c);
}

static void check_random_images(const char *directory, const char *name)
{
        uint64_t seed = 1;

        for (uint32_t n = 0; n < RANDOM_IMAGES; n++) {
                struct image f = load(directory, name);

                scatter(&f, 10 + n % 200, &seed);
                check_bytes(name, &f);
                free(f.bytes);
        }
}

/* Programs, of which many cannot serve any more. */
static void check_random_programs(const char *directory)
{
        uint64_t seed = 2;
        size_t good = 0;

        for (uint32_t n = 0; n < RANDOM_PROGRAMS; n++) {
                struct probe_code *a, *b;
                struct image f;
                char name[64];

                snprintf(name, sizeof(name), "%s.cubin", program_names[n % PROGRAMS]);
                f = load(directory, name);
                scatter(&f, 30, &seed);
                if (extract_both(&f, &a, &b)) {
                        good++;
                        probe_code_free(a);
                        probe_code_free(b);
                }
                free(f.bytes);
        }
        CHECK(good > RANDOM_PROGRAMS / 10);
        printf("ok %zu of %d random programs can serve\n", good, RANDOM_PROGRAMS);
}

/* Programs refused as too many registers would be needed. */
static size_t count_too_big(const struct image *t)
{
        const char *why;
        struct splice_result *r = splice(t, &translated, &why);
        size_t n = 0;

        CHECK(r);
        for (size_t k = 0; k < r->kernel_count; k++)
                for (int p = 0; p < PLACES; p++)
                        n += r->kernels[k].outcomes[p].refusal &&
                             strcmp(r->kernels[k].outcomes[p].refusal,
                                    "the probe's registers would make its largest block too big") ==
                                     0;
        splice_result_free(r);
        return n;
}

/* The code differs in nothing but the register that keeps the lanes: it is lower by so many. */
static void check_lanes(const struct splice_result *r, const struct splice_result *lower, int by)
{
        struct cubin c;
        size_t votes = 0;

        CHECK_EQ(r->image_bytes, lower->image_bytes);
        CHECK_EQ(cubin_open(r->image, r->image_bytes, &c, NULL), 0);
        for (size_t s = 1; s < c.header.e_shnum; s++) {
                const Elf64_Shdr *section = &c.sections[s];

                if (!(section->sh_flags & SHF_EXECINSTR))
                        continue;
                for (size_t k = 0; k < section->sh_size / INSTR_BYTES; k++) {
                        struct instr a = instr_load(r->image + section->sh_offset, k),
                                     b = instr_load(lower->image + section->sh_offset, k);

                        if (a.lo == b.lo)
                                continue;
                        votes += arch_votes(&made, &a);
                        CHECK_EQ(arch_votes(&made, &a)
                                         ? instr_register_d(&a) - instr_register_d(&b)
                                         : instr_register_b(&a) - instr_register_b(&b),
                                 by);
                }
        }
        CHECK(votes);
        cubin_done(&c);
}

/* How registers are given out is in no instruction, so that translation leaves it as it is. */
static void check_registers(const char *directory)
{
        struct image f = load(directory, "kernels.cubin"), t = translate_image(f.bytes, f.size);
        size_t too_big = count_too_big(&t);
        struct splice_result *r, *lower;
        const char *why;

        made.block_registers /= 2;
        CHECK(count_too_big(&t) > too_big);
        made.block_registers = arch_sm90.block_registers;
        made.register_unit *= 16;
        CHECK(count_too_big(&t) > too_big);
        made.register_unit = arch_sm90.register_unit;
        r = splice(&t, &translated, &why);
        made.registers_kept += 3;
        lower = splice(&t, &translated, &why);
        made.registers_kept = arch_sm90.registers_kept;
        CHECK(r && lower);
        check_lanes(r, lower, 3);
        splice_result_free(r);
        splice_result_free(lower);
        free(f.bytes);
        free(t.bytes);
}

/* A table is for its architecture alone: what is compiled for another stays out. */
static void check_strangers(const char *directory)
{
        struct image f = load(directory, "kernels.cubin"), t = translate_image(f.bytes, f.size);
        const struct programs *programs[] = {&translated, &originals};
        const struct image *images[] = {&f, &t};

        for (int n = 0; n < 2; n++) {
                const char *why;
                struct splice_result *r = splice(images[n], programs[n], &why);

                CHECK(r);
                CHECK_EQ(r->in_count, 0);
                CHECK_STR(r->kernels[0].outcomes->refusal,
                          "the program is compiled for another architecture");
                CHECK(r->image_bytes == images[n]->size &&
                      memcmp(r->image, images[n]->bytes, images[n]->size) == 0);
                splice_result_free(r);
        }
        free(f.bytes);
        free(t.bytes);
}

int main(int argc, char **argv)
{
        static const char *const fixtures[] = {"kernels.cubin", "kernels_abi7.cubin",
                                               "state.cubin"};

        CHECK(argc >= 2);
        make_arch();
        load_programs(argv[1]);
        for (size_t k = 0; k < sizeof(fixtures) / sizeof(fixtures[0]); k++)
                check_image(argv[1], fixtures[k]);
        CHECK(put_in > 50);
        check_random_images(argv[1], "kernels.cubin");
        check_random_images(argv[1], "state.cubin");
        check_random_programs(argv[1]);
        check_registers(argv[1]);
        check_strangers(argv[1]);
        for (int k = 2; k < argc; k++)
                check_image("", argv[k]);
        printf("ok %zu kernels, %zu programs in them\n", kernels, put_in);
        for (int k = 0; k < PROGRAMS; k++) {
                probe_code_free(originals.code[k]);
                probe_code_free(translated.code[k]);
        }
        return 0;
}
