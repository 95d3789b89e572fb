/* SPDX-License-Identifier: Apache-2.0 */

/* Probes put into PTX text, and the fragments they are made from. */
#include <errno.h>
#include <stdbool.h>
#include <unistd.h>

#include "agent/fragment.h"
#include "agent/grid_check.h"
#include "agent/grid_layout.h"
#include "agent/ptx_inject.h"
#include "agent/ptx_lex.h"
#include "unit/test.h"

#define HEAD ".version 8.0\n.target sm_90\n.address_size 64\n"

/* A program for entries and one for exits. */
#define PROGRAMS(entry, exit)                                                                      \
        {                                                                                          \
                {.where = AGENT_PROGRAM_ENTRY, .label = "entry", .text = (entry)},                 \
                {                                                                                  \
                        .where = AGENT_PROGRAM_EXIT, .label = "exit", .text = (exit)               \
                }                                                                                  \
        }

static const struct probe_program programs[] = PROGRAMS("{ENTRY @U@ @K@}", "{EXIT @U@ @K@}");
static const struct ptx_probes probes = {.list = {.programs = programs, .count = 2}};

static struct ptx_result *inject(const char *text)
{
        struct ptx_result *r = NULL;
        const char *reason = NULL;
        int error = ptx_inject(text, strlen(text), &probes, 7, &r, &reason);

        if (error)
                fprintf(stderr, "%s\n", reason);
        CHECK_EQ(error, 0);
        CHECK_EQ(strlen(r->text), r->bytes);
        return r;
}

static bool is_in(const struct ptx_result *r, int program)
{
        return r->kernels[0].outcomes[program].in;
}

static unsigned count(const char *text, const char *what)
{
        unsigned n = 0;

        for (; (text = strstr(text, what)); text += strlen(what))
                n++;
        return n;
}

/* The text without the blanks that say nothing. */
static void check_text(const char *got, const char *want)
{
        for (;;) {
                while (*got == ' ' || *got == '\n')
                        got++;
                while (*want == ' ' || *want == '\n')
                        want++;
                if (*got != *want)
                        fprintf(stderr, "got  ...%.60s\nwant ...%.60s\n", got, want);
                CHECK_EQ(*got, *want);
                if (!*got)
                        return;
                got++;
                want++;
        }
}

static void entry_and_exit(void)
{
        struct ptx_result *r = inject(HEAD ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<3>;\n"
                                           "mov.u32 %r1, 1;\nret;\n}\n");

        check_text(r->text, HEAD ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<3>;\n"
                                 "{ENTRY 0 7} mov.u32 %r1, 1;\n{EXIT 1 7} ret;\n}\n");
        CHECK_EQ(r->kernel_count, 1);
        CHECK_STR(r->kernels[0].name, "k");
        CHECK_EQ(r->kernels[0].kernel_id, 7);
        CHECK(is_in(r, 0) && is_in(r, 1));
        ptx_result_free(r);
}

static void predicates(void)
{
        struct ptx_result *r =
                inject(HEAD ".entry k { .reg .pred %p1; @%p1 ret; @!%p1 exit; nop; }");

        check_text(r->text, HEAD ".entry k { .reg .pred %p1; {ENTRY 0 7}"
                                 "@!%p1 bra $gpuobs_over_1; {EXIT 1 7} ret; $gpuobs_over_1:"
                                 "@%p1 bra $gpuobs_over_2; {EXIT 2 7} exit; $gpuobs_over_2:"
                                 "nop; {EXIT 3 7} }");
        ptx_result_free(r);
}

static void ends_that_fall_off(void)
{
        struct ptx_result *r = inject(HEAD ".entry a {} .entry b { nop; } .entry c { ret.uni; }"
                                           ".entry d { L: bra L; } .entry e { trap; }"
                                           ".entry f { @p trap; } .entry g { ret; L: }");

        check_text(r->text, HEAD ".entry a { {ENTRY 0 7} {EXIT 1 7} }"
                                 ".entry b { {ENTRY 2 8} nop; {EXIT 3 8} }"
                                 ".entry c { {ENTRY 4 9} {EXIT 5 9} ret.uni; }"
                                 ".entry d { {ENTRY 6 10} L: bra L; }"
                                 ".entry e { {ENTRY 7 11} trap; }"
                                 ".entry f { {ENTRY 8 12} @p trap; {EXIT 9 12} }"
                                 ".entry g { {ENTRY 10 13} {EXIT 11 13} ret; L: {EXIT 12 13} }");
        CHECK_EQ(r->kernel_count, 7);
        ptx_result_free(r);
}

/* Nothing of this may be taken for an instruction or a brace. */
static void things_that_look_like_code(void)
{
        struct ptx_result *r = inject(
                "// .entry x { ret; }\n" HEAD "/* .entry y { ret; } */\n"
                ".file 1 \"a { ret; }.cu\"\n"
                ".global .align 4 .b8 s[4] = {1, 2, 125, 0};\n"
                ".section .debug_str { .b8 1\n.b8 2 }\n"
                ".extern .func (.param .b32 r) vprintf(.param .b64 f);\n"
                ".entry k(.param .align 8 .b8 q[16]) .maxntid 32, 1, 1\n{\n"
                ".loc 1 2 3, function_name $L, inlined_at 1 3 4\n"
                ".shared .align 4 .b8 sh[16];\n"
                "// ret;\nmov.u32 %ret, 1; ret_label: exit_label: /* ret; */ returned.x %a;\n"
                "call.uni (r), vprintf, (a);\n.pragma \"ret;\";\nret /* ; */ ;\n}\n");

        CHECK_EQ(r->kernel_count, 1);
        CHECK_EQ(count(r->text, "{ENTRY"), 1);
        CHECK_EQ(count(r->text, "{EXIT"), 1);
        CHECK(strstr(r->text, "sh[16];") < strstr(r->text, "{ENTRY"));
        CHECK(strstr(r->text, "{EXIT") < strstr(r->text, "ret /* ; */ ;"));
        ptx_result_free(r);
}

static void nested_scopes(void)
{
        struct ptx_result *r = inject(
                HEAD ".entry k { { // callseq\n .reg .b32 t; call f, (t); @p ret; { exit; } } "
                     "ld.v2.u32 {a, b}, [c]; ret; }");

        CHECK_EQ(count(r->text, "{EXIT"), 3);
        CHECK(strstr(r->text, "{ENTRY") < strstr(r->text, "callseq"));
        ptx_result_free(r);
}

static void device_functions(void)
{
        struct ptx_result *r = inject(HEAD ".func f { ret; } .func g(.param .u32 a);"
                                           ".entry k { call f; ret; }");

        CHECK_EQ(count(r->text, "{EXIT"), 1);
        CHECK(is_in(r, 1));
        ptx_result_free(r);

        r = inject(HEAD ".func f { @p exit; ret; } .entry k { call f; ret; }");
        CHECK_EQ(count(r->text, "{EXIT"), 0);
        CHECK_EQ(count(r->text, "{ENTRY"), 1);
        CHECK(is_in(r, 0) && !is_in(r, 1) && r->kernels[0].outcomes[1].refusal);
        ptx_result_free(r);
}

static void check_refused(const char *text, int error)
{
        struct ptx_result *r = NULL;
        const char *reason = NULL;

        CHECK_EQ(ptx_inject(text, strlen(text), &probes, 1, &r, &reason), error);
        CHECK(!r && reason && *reason);
}

static void refuses(void)
{
        check_refused(".version 8.0\n.address_size 32\n.entry k { ret; }", -ENOTSUP);
        check_refused(".entry k { ret; ", -EINVAL);
        check_refused(".entry k { ret }", -EINVAL);
        check_refused(".entry k ", -EINVAL);
        check_refused(".entry k { @p exit: bra L; }", -EINVAL);
        check_refused(".entry { ret; }", -EINVAL);
        check_refused(".entry k { @ ret; }", -EINVAL);
        check_refused(".entry k { @p ; }", -EINVAL);
        check_refused(".entry k { ( ; }", -EINVAL);
        check_refused("} .entry k { ret; }", -EINVAL);
        check_refused("/* .entry k { ret; }", -EINVAL);
        check_refused(".file 1 \"x", -EINVAL);
        check_refused(".global .b8 x[2] = {1, 2;", -EINVAL);
}

static void only_one_probe(void)
{
        const char *text = HEAD ".entry k { nop; ret; }";
        static const struct probe_program exit_only[] = {
                {.where = AGENT_PROGRAM_EXIT, .text = "{X}"}};
        struct ptx_probes only = {.list = {.programs = exit_only, .count = 1}};
        struct ptx_result *r;

        CHECK_EQ(ptx_inject(text, strlen(text), &only, 1, &r, NULL), 0);
        check_text(r->text, HEAD ".entry k { nop; {X} ret; }");
        CHECK(r->kernels[0].outcomes[0].in);
        ptx_result_free(r);
}

/* Several programs at one place: in their order, asking once which lanes came together. */
static void several_programs(void)
{
        static const struct probe_program four[] = {
                {.where = AGENT_PROGRAM_EXIT, .text = "{A activemask.b32 %z; @U@}"},
                {.where = AGENT_PROGRAM_ENTRY, .text = "{E activemask.b32 %z; @U@}"},
                {.where = AGENT_PROGRAM_EXIT, .text = "{B activemask.b32 %z; @U@}"},
                {.where = AGENT_PROGRAM_EXIT, .text = "{C}", .kernels = "other*"}};
        const struct ptx_probes several = {.list = {.programs = four, .count = 4}};
        static const struct {
                const char *head, *ask, *alone;
        } cases[] = {{".version 8.0\n.target sm_90\n", "activemask.b32 %gpuobs_lanes_1;",
                      "activemask.b32 %z;"},
                     {".version 5.0\n.target sm_50\n", "vote.ballot.b32 %gpuobs_lanes_1, 1;",
                      "vote.ballot.b32 %z, 1;"}};

        for (size_t i = 0; i < 2; i++) {
                char text[256], want[1024];
                struct ptx_result *r;

                snprintf(text, sizeof(text), "%s.entry k { ret; }", cases[i].head);
                snprintf(want, sizeof(want),
                         "%s.entry k { {E %s 0} { .reg .b32 %%gpuobs_lanes_1; %s "
                         "{A mov.b32 %%z, %%gpuobs_lanes_1; 1} "
                         "{B mov.b32 %%z, %%gpuobs_lanes_1; 2} } ret; }",
                         cases[i].head, cases[i].alone, cases[i].ask);
                CHECK_EQ(ptx_inject(text, strlen(text), &several, 1, &r, NULL), 0);
                check_text(r->text, want);
                CHECK_EQ(r->in_count, 3);
                CHECK(!r->kernels[0].outcomes[3].wanted);
                ptx_result_free(r);
        }
}

static void tokens(void)
{
        const char *text = "a::b c: %r1.x \"q\\\"\" \n@!p";
        struct ptx_lexer l = {.text = text, .size = strlen(text)};
        struct ptx_token t = ptx_next(&l);

        CHECK(t.kind == PTX_WORD && t.new_line && ptx_is(&l, &t, "a::b"));
        t = ptx_next(&l);
        CHECK(t.kind == PTX_WORD && !t.new_line && ptx_is(&l, &t, "c"));
        t = ptx_next(&l);
        CHECK(t.kind == PTX_PUNCTUATION);
        t = ptx_next(&l);
        CHECK(ptx_is(&l, &t, "%r1.x") && ptx_starts(&l, &t, "%r1"));
        t = ptx_next(&l);
        CHECK(t.kind == PTX_STRING && t.size == 5);
        t = ptx_next(&l);
        CHECK(ptx_is(&l, &t, "@") && t.new_line);
        ptx_next(&l);
        ptx_next(&l);
        CHECK_EQ(ptx_next(&l).kind, PTX_END);
        CHECK_EQ(ptx_next(&l).kind, PTX_END);
}

struct test_blob {
        struct agent_blob head;
        struct agent_program programs[3];
        char texts[64];
};

static struct test_blob make_blob(void)
{
        struct test_blob b = {.head = {.magic = AGENT_BLOB_MAGIC, .count = 3}};
        size_t at = offsetof(struct test_blob, texts);

        b.head.maps[0] = (struct agent_map){.placement = 1, .bytes = 4096};
        b.programs[0] = (struct agent_program){
                .where = AGENT_PROGRAM_ENTRY, .text_offset = at, .text_bytes = 12};
        b.programs[1] = (struct agent_program){
                .where = AGENT_PROGRAM_EXIT, .text_offset = at + 12, .text_bytes = 8};
        b.programs[2] = (struct agent_program){.where = AGENT_PROGRAM_ENTRY,
                                               .text_offset = at + 20,
                                               .text_bytes = 7,
                                               .name = "third"};
        memcpy(b.texts, "{L@U@:@M0@ }{@K@ %p}{M@U@:}", 27);
        return b;
}

static void blobs(void)
{
        const struct fragment_values first = {.label = "42",
                                              .kernel = "%kid",
                                              .context = FRAGMENT_LOAD_ZERO,
                                              .queue = FRAGMENT_LOAD_ZERO};
        const struct fragment_values second = {.label = "1",
                                               .kernel = "9",
                                               .context = FRAGMENT_LOAD_ZERO,
                                               .queue = {"ld.param.u32", "[x+-4]"},
                                               .lanes = "%am",
                                               .loosen = true};
        uint64_t addresses[AGENT_MAP_MAX] = {0xabc000};
        struct test_blob b = make_blob(), bad;
        struct programs p;
        struct text t = {0};
        char *bound;

        CHECK_EQ(programs_parse(&b, sizeof(b), &p), 0);
        CHECK_EQ(p.count, 3);
        CHECK_STR(p.at[0].text, "{L@U@:@M0@ }");
        CHECK_STR(p.at[1].text, "{@K@ %p}");
        CHECK_EQ(p.at[1].where, AGENT_PROGRAM_EXIT);
        CHECK_STR(p.at[2].name, "third");
        CHECK_EQ(p.maps[0].bytes, 4096);
        CHECK_EQ(fragment_bind(p.at[0].text, addresses, &bound), 0);
        CHECK_STR(bound, "{L@U@:0xabc000 }");
        fragment_expand(&t, bound, &first);
        fragment_expand(&t, "@K@@!%p bra @C0@ %c, @C1@; @Q0@ %q, @Q1@; @C2@@Q@", &second);
        CHECK_STR(t.bytes, "{L42:0xabc000 }9@!%p bra mov.u32 %c, 0; ld.param.u32 %q, "
                           "[x+-4]; @C2@@Q@");
        text_done(&t);
        free(bound);
        CHECK_EQ(fragment_bind("@M1@", addresses, &bound), -EINVAL);
        CHECK_EQ(fragment_bind("@X@", addresses, &bound), -EINVAL);
        CHECK_EQ(fragment_bind("@C2@", addresses, &bound), -EINVAL);
        CHECK_EQ(fragment_bind("@Q@", addresses, &bound), -EINVAL);
        CHECK_EQ(fragment_bind("@C0@ r, @C1@; @Q0@ r, @Q1@;", addresses, &bound), 0);
        CHECK_STR(bound, "@C0@ r, @C1@; @Q0@ r, @Q1@;");
        free(bound);
        CHECK_EQ(fragment_bind("{@O@or.b32 a, a, z;\n}", addresses, &bound), 0);
        fragment_expand(&t, bound, &first);
        fragment_expand(&t, bound, &second);
        CHECK_STR(t.bytes, "{//or.b32 a, a, z;\n}{or.b32 a, a, z;\n}");
        text_done(&t);
        free(bound);
        CHECK_EQ(fragment_bind("@M9@", addresses, &bound), -EINVAL);
        programs_done(&p);

        for (size_t n = 0; n < offsetof(struct test_blob, texts) + 27; n++)
                CHECK_EQ(programs_parse(&b, n, &p), -EINVAL);
        bad = b;
        bad.head.magic++;
        CHECK_EQ(programs_parse(&bad, sizeof(bad), &p), -EINVAL);
        bad = b;
        bad.head.count = AGENT_PROGRAMS_MAX + 1;
        CHECK_EQ(programs_parse(&bad, sizeof(bad), &p), -EINVAL);
        bad = b;
        bad.head.maps[2].initial_bytes = 8; /* of a map of 0 bytes */
        CHECK_EQ(programs_parse(&bad, sizeof(bad), &p), -EINVAL);
        bad = b;
        bad.head.maps[0].initial_bytes = 8;
        bad.head.maps[0].initial_offset = sizeof(bad) - 7;
        CHECK_EQ(programs_parse(&bad, sizeof(bad), &p), -EINVAL);
        bad = b;
        memset(bad.programs[1].name, 'n', sizeof(bad.programs[1].name));
        CHECK_EQ(programs_parse(&bad, sizeof(bad), &p), -EINVAL);
        bad = b;
        bad.programs[1].where = 5;
        CHECK_EQ(programs_parse(&bad, sizeof(bad), &p), -EINVAL);
        bad = b;
        bad.programs[1].text_bytes = UINT64_MAX;
        CHECK_EQ(programs_parse(&bad, sizeof(bad), &p), -EINVAL);
        bad = b;
        bad.programs[1].text_offset = UINT64_MAX;
        CHECK_EQ(programs_parse(&bad, sizeof(bad), &p), -EINVAL);
        bad = b;
        bad.texts[13] = '\0';
        CHECK_EQ(programs_parse(&bad, sizeof(bad), &p), -EINVAL);
}

/* The text a kernel with this list of parameters gets for the two loads, in an old text as well. */
static void check_loads(const char *list, const struct grid_layout *layout, const char *want)
{
        static const char *const heads[] = {HEAD,
                                            ".version 5.0\n.target sm_50\n.address_size 64\n"};
        static const struct probe_program loading[] = {
                {.where = AGENT_PROGRAM_ENTRY, .text = "@C0@ a, @C1@; @Q0@ b, @Q1@;"}};
        const struct ptx_probes loads = {.list = {.programs = loading, .count = 1},
                                         .layout = layout};

        for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
                char text[512], expected[512];
                struct ptx_result *r;

                snprintf(text, sizeof(text), "%s.entry k%s {\nret; }\n", heads[i], list);
                snprintf(expected, sizeof(expected), "%s.entry k%s {\n%s\n\nret; }\n", heads[i],
                         list, want);
                CHECK_EQ(ptx_inject(text, strlen(text), &loads, 1, &r, NULL), 0);
                check_text(r->text, expected);
                ptx_result_free(r);
        }
}

/* What the driver tells a grid lies below its parameters: reached through the first of them. */
static void words_of_the_driver(void)
{
        static const struct {
                const char *list, *name;
        } lists[] = {
                {"(.param .u64 p)", "p"},
                {"(.param .u64 first, .param .u64 second)", "first"},
                {" ( .param .align 16 .b8 $by_value[ 4000 ] )", "$by_value"},
                {"(.param .u64 .ptr .global .align 8 _Z1kPi_param_0,\n.param .u32 n)",
                 "_Z1kPi_param_0"},
                {"(/* ( .param .u32 no */ .param .f32 yes) .maxntid 32", "yes"},
        };
        const struct grid_layout *sm_90 = grid_layout_find(90);
        char want[128];

        CHECK(sm_90 && !grid_layout_find(80) && !grid_layout_find(0));
        for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
                snprintf(want, sizeof(want), "mov.u32 a, %%envreg6; ld.param.u32 b, [%s+-472];",
                         lists[i].name);
                check_loads(lists[i].list, sm_90, want);
                check_loads(lists[i].list, NULL, "mov.u32 a, 0; mov.u32 b, 0;");
        }
        check_loads("", sm_90, "mov.u32 a, %envreg6; mov.u32 b, 0;");
        check_loads("()", sm_90, "mov.u32 a, %envreg6; mov.u32 b, 0;");
        check_loads(" .maxntid 32, 1, 1", sm_90, "mov.u32 a, %envreg6; mov.u32 b, 0;");
}

#define GRIDS 20

/* What twenty grids on two streams of context 3 read, where all is as it should be. */
static void read_words(struct grid_words words[GRIDS])
{
        for (uint32_t i = 0; i < GRIDS; i++)
                words[i] = (struct grid_words){.gridid = 100 + i,
                                               .context = 3,
                                               .queue = 0xfffe4000 + (i % 2) * 0x4000 +
                                                        (i / 2 + 5) % 8 * 0x800};
}

static enum grid_verdict judge(const struct grid_words words[GRIDS])
{
        const char *reason = NULL;
        enum grid_verdict verdict = grid_judge(words, GRIDS, &reason);

        CHECK_EQ(verdict == GRID_AS_EXPECTED || verdict == GRID_SHARED, reason == NULL);
        return verdict;
}

static void judges_what_grids_read(void)
{
        struct grid_words words[GRIDS];

        read_words(words);
        CHECK_EQ(judge(words), GRID_AS_EXPECTED);
        for (int i = 0; i < GRIDS; i++) {
                read_words(words);
                words[i].context = 0;
                CHECK_EQ(judge(words), GRID_OTHERWISE);
                words[i].context = 4;
                CHECK_EQ(judge(words), GRID_OTHERWISE);
                read_words(words);
                words[i].queue ^= 0x800;
                CHECK_EQ(judge(words), GRID_OTHERWISE);
                read_words(words);
                words[i].queue ^= 0x10000;
                CHECK_EQ(judge(words), GRID_OTHERWISE);
                read_words(words);
                words[i].queue = 0;
                CHECK_EQ(judge(words), GRID_OTHERWISE);
        }
        /* one place for both streams; a number no context has; ids that do not grow */
        for (int i = 0; i < GRIDS; i++)
                words[i].queue = 0x4000 + (uint32_t)(i / 2) % 8 * 0x800;
        CHECK_EQ(judge(words), GRID_OTHERWISE);
        read_words(words);
        for (int i = 0; i < GRIDS; i++)
                words[i].context = 0x10000;
        CHECK_EQ(judge(words), GRID_OTHERWISE);
        read_words(words);
        words[7].gridid = words[6].gridid;
        CHECK_EQ(judge(words), GRID_OTHERWISE);
        memset(words, 0, sizeof(words));
        CHECK_EQ(judge(words), GRID_OTHERWISE);
}

/* Other threads of the process may launch meanwhile. */
static void judges_ids_others_took(void)
{
        struct grid_words words[GRIDS];

        read_words(words);
        for (int i = 10; i < GRIDS; i++)
                words[i].gridid += 5;
        CHECK_EQ(judge(words), GRID_SHARED);
        for (uint64_t i = 0; i < GRIDS; i++)
                words[i].gridid = 100 + 2 * i;
        CHECK_EQ(judge(words), GRID_UNCLEAR);
}

/* Where NVIDIA's assembler is installed, it must take what we make of every construct. */
static void assembler_agrees(void)
{
        static const char fragment[] =
                "{ .reg .b64 %rd<3>; .reg .b32 %r<3>; .reg .pred %p<2>; mov.u32 %r1, %ctaid.x; "
                "setp.ne.u32 %p1, %r1, 0; @%p1 bra L_@U@; mov.u64 %rd1, 0x6f0000000000; "
                "mov.u64 %rd2, %globaltimer; st.global.u64 [%rd1], %rd2; mov.u32 %r2, @K@; "
                "st.global.u32 [%rd1+8], %r2; @C0@ %r2, @C1@; st.global.u32 [%rd1+12], %r2; "
                "@Q0@ %r2, @Q1@; st.global.u32 [%rd1+16], %r2; L_@U@: }";
        static const char text[] = HEAD
                ".func f { ret; } .entry a {} .entry b { membar.cta; } .entry c { ret.uni; }\n"
                ".entry d(.param .u64 p) .maxntid 32, 1, 1 { .reg .pred %p<3>; .reg .b32 %r<3>; "
                "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 5; @%p1 ret; @!%p1 exit; "
                "{ .reg .b32 q; mov.u32 q, 1; @%p1 ret; } call f; }\n";
        static const struct probe_program both[] = PROGRAMS(fragment, fragment);
        struct ptx_probes real = {.list = {.programs = both, .count = 2},
                                  .layout = grid_layout_find(90)};
        char name[] = "/tmp/gpuobs-ptx-XXXXXX", command[256];
        struct ptx_result *r;
        int fd;

        if (system("command -v ptxas >/dev/null 2>&1") != 0) {
                printf("   not checked: ptxas is not in the path\n");
                return;
        }
        CHECK_EQ(ptx_inject(text, strlen(text), &real, 1, &r, NULL), 0);
        fd = mkstemp(name);
        CHECK(fd >= 0);
        CHECK_EQ(write(fd, r->text, r->bytes), (ssize_t)r->bytes);
        close(fd);
        snprintf(command, sizeof(command), "ptxas -arch=sm_90 %s -o /dev/null", name);
        CHECK_EQ(system(command), 0);
        unlink(name);
        ptx_result_free(r);
}

/* A probe in a text of an old PTX says the same in older words; the text's head stays. */
static void old_dialects(void)
{
        static const char entry[] = "{// red.global.gpu.add\natom.global.gpu.add.u64 %a, [%b], 1; "
                                    "activemask.b32 %m;\n"
                                    "ld.relaxed.gpu.global.u64 %a, [%b];}";
        static const char exit_[] =
                "{red.global.gpu.add.u32 [%b], 1; ld.relaxed.sys.global.u32 %a, [%b]; "
                "atom.global.sys.add.u32 %a, [%b], 1;}";
        static const struct probe_program both[] = PROGRAMS(entry, exit_);
        static const struct ptx_probes scoped = {.list = {.programs = both, .count = 2}};
        static const struct {
                const char *head, *entry, *exit;
        } cases[] = {
                {".version 5.0\n.target sm_50\n",
                 "{// red.global.add\natom.global.add.u64 %a, [%b], 1; vote.ballot.b32 %m, 1;\n"
                 "ld.volatile.global.u64 %a, [%b];}",
                 "{red.global.add.u32 [%b], 1; ld.volatile.global.u32 %a, [%b]; "
                 "atom.global.sys.add.u32 %a, [%b], 1;}"},
                {".version 6.0\n.target sm_61, debug\n",
                 "{// red.global.gpu.add\natom.global.gpu.add.u64 %a, [%b], 1; "
                 "vote.ballot.b32 %m, 1;\nld.volatile.global.u64 %a, [%b];}",
                 "{red.global.gpu.add.u32 [%b], 1; ld.volatile.global.u32 %a, [%b]; "
                 "atom.global.sys.add.u32 %a, [%b], 1;}"},
                {".version 7.0\n.target sm_70\n", NULL, NULL},
                {".version 10.3\n.target sm_90a\n", NULL, NULL},
                {"", NULL, NULL},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct ptx_result *r = NULL;
                char text[512], want[2048];

                snprintf(text, sizeof(text), "%s.entry k { ret; }", cases[i].head);
                snprintf(want, sizeof(want), "%s.entry k { %s %s ret; }", cases[i].head,
                         cases[i].entry ?: entry, cases[i].exit ?: exit_);
                CHECK_EQ(ptx_inject(text, strlen(text), &scoped, 1, &r, NULL), 0);
                check_text(r->text, want);
                ptx_result_free(r);
        }
}

/* Which instructions are accesses of memory, and where the fragment goes. */
static void accesses(void)
{
        static const struct probe_program mem[] = {
                {.where = AGENT_PROGRAM_MEM, .text = "{M @A@ @S@}"}};
        static const struct ptx_probes only = {.list = {.programs = mem, .count = 1}};
        static const struct {
                const char *text;      /* of the body */
                int size, kind, space; /* 0: no place for a fragment */
                bool other;
        } cases[] = {
                {"ld.global.b8 %r1, [%rd1];", 1, 1, 2, false},
                {"ld.global.L1::no_allocate.L2::128B.v2.f64 {a, b}, [%rd1];", 16, 1, 2, false},
                {"ld.acquire.sys.global.f16 h, [%rd1+6];", 2, 1, 2, false},
                {"ld.v8.b32 {a, b}, [%rd1];", 32, 1, 1, false},
                {"ldu.global.u32 %r1, [%rd1];", 4, 1, 2, false},
                {"ld.const.b64 x, [table+0x10];", 8, 1, 5, false},
                {"ld.shared::cluster.u32 %r1, [%r2];", 4, 1, 3, false},
                {"st.local.v4.b16 [%rd1+8], {a, b, c, d};", 8, 2, 4, false},
                {"st.weak.shared::cta.s8 [tile], a;", 1, 2, 3, false},
                {"atom.global.acq_rel.gpu.cas.b128 d, [%rd1], b, c;", 16, 3, 2, false},
                {"red.relaxed.gpu.global.add.noftz.bf16x2 [%rd1], a;", 4, 3, 2, false},
                {"atom.global.v4.f32.add d, [%rd1], a;", 16, 3, 2, false},
                {"cp.async.cg.shared.global.L2::128B [%r1], [%rd1+16], 16;", 16, 1, 2, false},
                {"cp.async.ca.shared.global [%r1], [%rd1], 8, 4;", 8, 1, 2, false},
                {"cp.async.cg.shared.global [%r1 + 0], [%rd1 + 0], 0x10, %r2;", 16, 1, 2, false},
                {"cp.async.ca.shared.global [%r1], [%rd1], 8x;", 0, 0, 0, true},
                {"cp.async.ca.shared.global [%r1], [%rd1], %r2;", 0, 0, 0, true},
                {"cp.async.commit_group;", 0, 0, 0, false},
                {"cp.async.bulk.commit_group;", 0, 0, 0, false},
                {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [a], [b], 16, "
                 "[c];",
                 0, 0, 0, true},
                {"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {a, b, c, d}, [%r1];", 0, 0, 0, true},
                {"tex.2d.v4.f32.s32 {a, b, c, d}, [t, {x, y}];", 0, 0, 0, true},
                {"red.async.relaxed.cluster.global.inc.u32 [a], b, [c];", 0, 0, 0, true},
                {"multimem.red.relaxed.sys.global.add.u32 [%rd1], a;", 0, 0, 0, true},
                {"ld.global.u32 %r1, [table+4+4];", 0, 0, 0, true},
                {"ld.global.u32 %r1, [%f1];", 0, 0, 0, true},
                {"ld.param.u32 %r1, [p];", 0, 0, 0, false},
                {"ld.param::entry.u32 %r1, [p];", 0, 0, 0, false},
                {"prefetch.global.L2 [%rd1];", 0, 0, 0, false},
                {"mov.u32 %r1, ld;", 0, 0, 0, false},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                char text[512], want[64];
                struct ptx_result *r = NULL;

                snprintf(text, sizeof(text),
                         ".entry k { .reg .b64 %%rd<3>; .reg .u32 %%r<3>, %%s; .reg .f64 %%f<2>; "
                         "%s }",
                         cases[i].text);
                CHECK_EQ(ptx_inject(text, strlen(text), &only, 1, &r, NULL), 0);
                CHECK(r->kernels[0].accesses_known);
                CHECK_EQ(r->kernels[0].accesses, cases[i].size ? 1 : 0);
                CHECK_EQ(r->kernels[0].other_accesses, cases[i].other);
                CHECK_EQ(!r->kernels[0].outcomes[0].refusal, !cases[i].other);
                snprintf(want, sizeof(want), "{M %%gpuobs_address %d}",
                         cases[i].size | cases[i].kind << 8 | cases[i].space << 16);
                CHECK_EQ(strstr(r->text, want) != NULL, cases[i].size != 0);
                ptx_result_free(r);
        }
}

/* The address is taken with the width that its register has there, under the predicate. */
static void addresses(void)
{
        static const struct probe_program mem[] = {{.where = AGENT_PROGRAM_MEM, .text = "{M}"}};
        static const struct ptx_probes only = {.list = {.programs = mem, .count = 1}};
        static const char text[] = ".entry k { .reg .b64 %a; .reg .b32 %b<12>; .reg .pred p;\n"
                                   "@!p ld.shared.u32 %b1, [%b11+-4];\n"
                                   "{ .reg .b32 %a; ld.u32 %b1, [%a]; }\n"
                                   "ld.u32 %b1, [%a+8]; ret; }";
        static const char *const want[] = {
                "@p bra $gpuobs_over_0;{.reg .b64 %gpuobs_address;.reg .b32 %gpuobs_address_low;"
                "mov.u32 %gpuobs_address_low, %b11;add.s32 %gpuobs_address_low, "
                "%gpuobs_address_low, -4;cvt.u64.u32 %gpuobs_address, "
                "%gpuobs_address_low;\n{M}\n}\n"
                "$gpuobs_over_0:\n@!p ld.shared.u32 %b1, [%b11+-4];",
                "mov.u32 %gpuobs_address_low, %a;cvt.u64.u32 %gpuobs_address, %gpuobs_address_low;",
                "mov.u64 %gpuobs_address, %a;add.s64 %gpuobs_address, %gpuobs_address, 8;",
        };
        struct ptx_result *r = NULL;

        CHECK_EQ(ptx_inject(text, strlen(text), &only, 1, &r, NULL), 0);
        CHECK_EQ(r->kernels[0].accesses, 3);
        for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
                CHECK(strstr(r->text, want[i]));
        ptx_result_free(r);
}

/* Accesses of device functions have no kernel; what has no probe is said. */
static void accesses_in_functions(void)
{
        static const struct probe_program mem[] = {{.where = AGENT_PROGRAM_MEM, .text = "{M}"}};
        static const struct ptx_probes only = {.list = {.programs = mem, .count = 1}};
        static const char text[] = ".func f { st.global.u32 [%rd1], %r1; ret; } .entry k { ret; }";
        struct ptx_result *r = NULL;

        CHECK_EQ(ptx_inject(text, strlen(text), &only, 1, &r, NULL), 0);
        check_text(r->text, text);
        CHECK_STR(r->kernels[0].outcomes[0].refusal,
                  "a device function of the image accesses memory");
        ptx_result_free(r);
}

int main(void)
{
        TEST(tokens);
        TEST(entry_and_exit);
        TEST(predicates);
        TEST(old_dialects);
        TEST(accesses);
        TEST(addresses);
        TEST(accesses_in_functions);
        TEST(ends_that_fall_off);
        TEST(things_that_look_like_code);
        TEST(nested_scopes);
        TEST(device_functions);
        TEST(refuses);
        TEST(only_one_probe);
        TEST(several_programs);
        TEST(blobs);
        TEST(words_of_the_driver);
        TEST(judges_what_grids_read);
        TEST(judges_ids_others_took);
        TEST(assembler_agrees);
        return 0;
}
