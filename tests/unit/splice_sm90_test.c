/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The table of sm_90 against instructions whose meaning is known: words as
 * the vendor's assembler wrote them, beside what its disassembler calls them.
 */
#include "agent/encode.h"
#include "agent/track.h"
#include "unit/test.h"

static void test_encodings(void)
{
        struct instr i;

        i = encode_bra(&arch_sm90, 0); /* to itself: how every kernel ends */
        CHECK(i.lo == 0xfffffffc00fc7947 && (i.hi & 0x3ffff) == 0x3ffff);
        i = encode_bra(&arch_sm90, 0x480);
        CHECK(i.lo == 0x00000004001c7947 && i.hi == 0x000fea0003800000);
        i = encode_bssy(&arch_sm90, 3, 0x240); /* BSSY B3, .+0x240 */
        CHECK(i.lo == 0x0000023000037945 && i.hi == 0x000fe20003800000);
        i = encode_bsync(&arch_sm90, 3, 0);
        CHECK(i.lo == 0x0000000000037941 && i.hi == 0x000fea0003800000);
        i = encode_bsync(&arch_sm90, 0, INSTR_WAIT_ALL);
        CHECK(i.hi == 0x03ffea0003800000);
        i = encode_nop(&arch_sm90);
        CHECK(i.lo == 0x0000000000007918 && i.hi == 0x000fc00000000000);
        i = encode_mov(&arch_sm90, 5, 0x12345678);
        CHECK(i.lo == 0x1234567800057802 && (i.hi & 0xffffffff) == 0xf00);
        i = encode_umov(&arch_sm90, 5, 0x12345678);
        CHECK(i.lo == 0x1234567800057882 && (i.hi & 0xffffffff) == 0);
        CHECK_EQ(instr_result_scoreboard(&i), INSTR_NO_SCOREBOARD);
        CHECK_EQ(instr_source_scoreboard(&i), INSTR_NO_SCOREBOARD);
}

static void test_relative_targets(void)
{
        static const struct {
                uint64_t lo, hi;
                int64_t at, target;
        } known[] = {
                {0x0000000000300947, 0x000fea0003800000, 0x160, 0x230}, /* @P0 BRA */
                {0xfffffffc00d09947, 0x000fea000383ffff, 0x280, 0x1d0}, /* @!P1 BRA */
                {0xfffffffc00fc7947, 0x000fc0000383ffff, 0x2e0, 0x2e0}, /* BRA */
                {0x000000b000007945, 0x000fe40003800000, 0x160, 0x220}, /* BSSY B0 */
                {0x0000000000307944, 0x002fea0003c00000, 0x1a0, 0x270}, /* CALL.REL.NOINC */
        };
        int64_t bytes;

        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
                struct instr i = {known[k].lo, known[k].hi};

                CHECK(arch_relative_target(&arch_sm90, &i, &bytes));
                CHECK_EQ(bytes, known[k].target - known[k].at);
                arch_set_relative_target(&arch_sm90, &i, 0x12340);
                CHECK(arch_relative_target(&arch_sm90, &i, &bytes));
                CHECK_EQ(bytes, 0x12340);
                arch_set_relative_target(&arch_sm90, &i, known[k].target - known[k].at);
                CHECK(i.lo == known[k].lo && i.hi == known[k].hi);
        }
        CHECK(!arch_relative_target(
                &arch_sm90, &(struct instr){0x00000a00ff017b82, 0x000fe20000000800}, &bytes));
}

static void test_far_branches(void)
{
        uint64_t seed = 7;

        for (int k = 0; k < 10000; k++) {
                int64_t to = ((int64_t)test_random(&seed) >> (10 + test_random(&seed) % 40)) * 16;
                int64_t got;
                struct instr i = encode_bra(&arch_sm90, to);

                CHECK(arch_relative_target(&arch_sm90, &i, &got));
                CHECK_EQ(got, to);
        }
}

static void test_exits(void)
{
        struct instr plain = {0x000000000000194d, 0x024fea0003800000}; /* @P1 EXIT */
        struct instr both = {0x000000000000894d, 0x000fea0000800000};  /* @!P0 EXIT P1 */
        struct instr odd = {0x000000000000794d, 0x000fea0003800100};
        struct instr b;

        CHECK(instr_exit_is_plain(&plain) && instr_exit_is_plain(&both));
        CHECK(!instr_exit_is_plain(&odd));
        b = encode_exit_to_branch(&arch_sm90, &plain, 0x10);
        CHECK(b.lo == 0x1947 && b.hi == plain.hi);
        b = encode_exit_to_branch(&arch_sm90, &both, 0x10);
        CHECK(b.lo == 0x8947 && b.hi == both.hi);
        plain.hi = 0x024fe20003800000; /* one cycle behind it: too few for a branch */
        b = encode_exit_to_branch(&arch_sm90, &plain, 0x10);
        CHECK(b.lo == 0x1947 && b.hi == 0x024fea0003800000);
}

#define R(n) (1ULL << (n))

static void test_uniform_registers(void)
{
        static const struct {
                uint64_t lo, hi, named; /* at least these */
                uint64_t not_named;
        } known[] = {
                /* LDG.E R16, desc or offset UR12 */
                {0x0000000c0a102981, 0x000ee8000c1e0d20, R(12) | R(13), R(10) | R(16)},
                /* LDG.E R8, [R12] */
                {0x000000000c081381, 0x0004e200001e0d20, 0, R(0) | R(8) | R(12)},
                /* STG.E [R80+UR12], R32 */
                {0x0000002050004986, 0x0005e8000c100d0c, R(12), R(32) | R(16)},
                /* STS.U16 [R14+UR7+0x7806], R7; data register 7 is not UR7 in another case: */
                {0x007806070e007988, 0x0005e80008000407, R(7), R(14)},
                {0x0000004be4e20988, 0x0005e80008000407, R(7), R(11)},
                /* IADD3 with a UR, IMAD with the third operand */
                {0x000000051e1d7c10, 0x000fc8000fffe0ff, R(5), R(30) | R(29)},
                {0x0000000aff137e24, 0x000fe4000f8e00ff, R(10), R(19)},
                /* IADD3 of registers only */
                {0x000000051e1d7210, 0x000fc80007ffe0ff, 0, R(5) | R(29) | R(30)},
                /* ULDC.64 UR8; ULDC UR19, c[0x0][UR10+0x230] */
                {0x0000820000087ab9, 0x000fe20000000a00, R(8) | R(9), 0},
                {0x00008c000a137abb, 0x000fc80008000400, R(19) | R(10), 0},
                /* UIMAD.WIDE.U32 UR6, UR6, 0x1, URZ: the immediate is none */
                {0x00000001060678a5, 0x000fc8000f8e003f, R(6) | R(7), R(1)},
                /* UIADD3 UR4, UR7, UR4, URZ */
                {0x0000000407047290, 0x000fe4000fffe03f, R(4) | R(7), 0},
                /* R2UR UR4, R2; S2UR UR5; VOTEU.ANY UR5; REDUX.OR UR4, R7 */
                {0x00000000020472ca, 0x000fe200000e0000, R(4), 0},
                {0x00000000000579c3, 0x000e220000008800, R(5), 0},
                {0x0000000000057886, 0x000fe200038e0100, R(5), 0},
                {0x00000000070473c4, 0x000ea20000004000, R(4), 0},
                /* HGMMA R24, gdesc[UR24]: two descriptors, four registers */
                {0x41e00000181879f0, 0x000fe20008000818, R(24) | R(25) | R(26) | R(27), 0},
                /* UTMALDG.4D.MULTICAST [UR16], [UR58], UR39, desc[UR48] */
                {0x000030103a0073b4, 0x0007e40008019827, R(16) | R(58) | R(39) | R(48), 0},
                /* SYNCS.PHASECHK P0, [R2+URZ+0xe0], R3: data register 3 is no UR */
                {0x0000e003020085a7, 0x000ee4000800007f, 0, R(3) | R(2)},
                /* LDGSTS.E [R118+0x880], [R120+UR56] */
                {0x0088000078767fae, 0x0005e20009120d78, R(56), 0},
                /* TLD.LZ RZ, R54, R58, UR4 */
                {0x000004ff3a367f66, 0x00116200089e01ff, R(4), 0},
                /* TEX.LL R7, R6, R12, UR4; SULD R10, [R2], UR6; SUST [R2], R10, UR6 */
                {0x2000040c06077f60, 0x000fe200099e08ff, R(4), 0},
                {0x10000600020a7f99, 0x000f6600081ea900, R(6), R(2)},
                {0x7000060a02007f9d, 0x000fe2000810a900, R(6), R(10)},
                /* UTMAREDG [UR8], [UR4]; UBLKRED [UR4], [UR8], UR5 */
                {0x00000004080073b6, 0x0003e40008008000, R(4) | R(8), R(6)},
                {0x00000008040073bb, 0x0003d80008000405, R(4) | R(5) | R(8), R(12)},
                /* ATOMG with desc[UR4] */
                {0x0000800b020579a8, 0x000ea400081ee1c4, R(4), R(11)},
        };

        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
                struct instr i = {known[k].lo, known[k].hi};
                uint64_t mask = arch_ur_mask(&arch_sm90, &i);

                CHECK(arch_op(&arch_sm90, &i) != NULL);
                if ((mask & known[k].named) != known[k].named || (mask & known[k].not_named))
                        printf("case %zu: %016" PRIx64 "\n", k, mask);
                CHECK((mask & known[k].named) == known[k].named);
                CHECK((mask & known[k].not_named) == 0);
        }
}

/* An instruction nobody knows may name anything. */
static void test_unknown(void)
{
        struct instr i = {0x0000303a1a107fff, 0x000fe40000000005};

        CHECK(arch_op(&arch_sm90, &i) == NULL);
        CHECK((arch_ur_mask(&arch_sm90, &i) & (R(16) | R(26) | R(58) | R(48) | R(5))) ==
              (R(16) | R(26) | R(58) | R(48) | R(5)));
        CHECK_EQ(track_untracked(&arch_sm90, &i), 0);
}

static void test_untracked(void)
{
        static const struct {
                uint64_t lo, hi;
                uint32_t need;
        } known[] = {
                {0x0000000502007986, 0x000fe2000c101904, TRACK_SOURCE}, /* STG */
                {0x0000000502007986, 0x0001e2000c101904, 0},            /* reads: SB0 */
                {0x0000000402007981, 0x000ea4000c1e1900, 0},            /* LDG, SB2 */
                {0x0000000402007981, 0x000fe4000c1e1900, TRACK_RESULT}, /* LDG, none */
                {0x00000a00ff017b82, 0x000fe20000000800, 0}, /* LDC R1: the stack pointer */
                {0x00000a00ff027b82, 0x000fe20000000800, TRACK_RESULT}, /* LDC R2 */
                {0x0000000407057c24, 0x001fca000f8e0206, 0},            /* IMAD */
                {0x00000000ff00738c, 0x000fe20000000000, TRACK_RESULT}, /* ATOMS R0 */
                {0x00000000ffff738c, 0x000fe20000000000, TRACK_SOURCE}, /* ATOMS RZ */
        };

        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
                struct instr i = {known[k].lo, known[k].hi};

                CHECK_EQ(track_untracked(&arch_sm90, &i), known[k].need);
        }
}

/* Stores: a, b tracked by none, c by SB1. Waiting for c is waiting for a and b. */
static void test_track_all(void)
{
        struct instr code[] = {
                {0x0000000502007986, 0x000fe2000c101904}, /* a */
                {0x0000000602007986, 0x000fe2000c101904}, /* b */
                {0x0000000702007986, 0x0003e2000c101904}, /* c, SB1 */
                {0x0000000000007918, 0x005fc00000000000}, /* NOP, waits for SB0 and SB2 */
                {0x0000000000100947, 0x000fea0003800000}, /* @P0 BRA */
                {0x0000000802007986, 0x000fe2000c101904}, /* d: nothing behind it tells */
                {0x000000000000794d, 0x000fea0003800000}, /* EXIT */
        };
        const size_t n = sizeof(code) / sizeof(code[0]);
        const uint32_t marks[] = {0, 1, 4, 5, 6};
        struct instr trusting[7], strict[7], marked[7];

        memcpy(trusting, code, sizeof(code));
        CHECK_EQ(track_all(&arch_sm90, (uint8_t *)trusting, n, true), 1);
        CHECK(memcmp(trusting, code, 5 * sizeof(code[0])) == 0);
        /* SB1: the first of those that nobody waits for. */
        CHECK_EQ(instr_source_scoreboard(&trusting[5]), 1);
        CHECK_EQ(track_all(&arch_sm90, (uint8_t *)trusting, n, true), 0);

        memcpy(strict, code, sizeof(code));
        CHECK_EQ(track_all(&arch_sm90, (uint8_t *)strict, n, false), 3);
        for (size_t k = 0; k < n; k++)
                CHECK_EQ(track_untracked(&arch_sm90, &strict[k]), 0);

        /* The same from a list of what matters. */
        memcpy(marked, code, sizeof(code));
        CHECK_EQ(track_marked(&arch_sm90, (uint8_t *)marked, n, marks,
                              sizeof(marks) / sizeof(marks[0]), 1),
                 1);
        CHECK(memcmp(marked, trusting, sizeof(code)) == 0);

        /* A tracked one that may not be issued tells nothing; b then speaks for a. */
        code[2].lo = (code[2].lo & ~0xf000ULL) | 0x2000;
        CHECK_EQ(track_all(&arch_sm90, (uint8_t *)code, n, true), 2);
        CHECK(track_untracked(&arch_sm90, &code[0]) && !track_untracked(&arch_sm90, &code[1]));
}

int main(void)
{
        TEST(test_encodings);
        TEST(test_relative_targets);
        TEST(test_far_branches);
        TEST(test_exits);
        TEST(test_uniform_registers);
        TEST(test_unknown);
        TEST(test_untracked);
        TEST(test_track_all);
        return 0;
}
