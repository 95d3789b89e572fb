/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The table of sm_90 against instructions whose meaning is known: words as
 * the vendor's assembler wrote them, beside what its disassembler calls them or what the PTX
 * says that they come from.
 */
#include "agent/encode.h"
#include "agent/splice_scan.h"
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
        i = encode_break(&arch_sm90, 2); /* BREAK B2 */
        CHECK(i.lo == 0x0000000000027942 && i.hi == 0x000fea0003800000);
        i = encode_warpsync(&arch_sm90, 0); /* WARPSYNC.ALL */
        CHECK(i.lo == 0x0000000000007948 && i.hi == 0x000fea0003800000);
        i = encode_nop(&arch_sm90);
        CHECK(i.lo == 0x0000000000007918 && i.hi == 0x000fc00000000000);
        i = encode_mov(&arch_sm90, 5, 0x12345678);
        CHECK(i.lo == 0x1234567800057802 && (i.hi & 0xffffffff) == 0xf00);
        i = encode_umov(&arch_sm90, 5, 0x12345678);
        CHECK(i.lo == 0x1234567800057882 && (i.hi & 0xffffffff) == 0);
        CHECK_EQ(instr_result_scoreboard(&i), INSTR_NO_SCOREBOARD);
        CHECK_EQ(instr_source_scoreboard(&i), INSTR_NO_SCOREBOARD);
}

/* Until what they compute is there, and no fewer than the assembler lets pass behind a branch. */
static void test_stalls(void)
{
        const struct arch *a = &arch_sm90;
        const struct {
                struct instr instr;
                uint32_t stall;
        } made[] = {
                {encode_bra(a, 0), 5},
                {encode_bsync(a, 0, 0), 5},
                {encode_break(a, 0), 5},
                {encode_warpsync(a, 0), 5},
                {encode_wait(a, 0), 15},
                {encode_mov(a, 5, 1), 15},
                {encode_umov(a, 5, 1), 15},
                {encode_vote_lanes(a, 5), 15},
                {encode_load_predicates(a, 5), 15},
                {encode_save_predicates(a, 5), 6},
                {encode_mov_register(a, 5, 6), 6},
                {encode_add(a, 5, 6, 1), 6},
                {encode_add_low(a, 5, 6, 1), 6},
                {encode_add_high(a, 5, 6, 1), 6},
                {encode_add_uniform(a, 5, 6, 7), 6},
        };

        for (size_t k = 0; k < sizeof(made) / sizeof(made[0]); k++)
                CHECK_EQ(instr_stall(&made[k].instr), made[k].stall);
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
                {0x0000000000007948, 0x000fea0003800000, 0x100, 0x110}, /* WARPSYNC.ALL */
                {0x000000000f087348, 0x000fea0003c00000, 0x100, 0x130}, /* WARPSYNC.COLLECTIVE */
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

/* What a program at accesses waits for, as it keeps the predicates. */
static void test_late_predicates(void)
{
        const uint64_t none = 7ULL << 17;
        static const struct instr always[] = {
                {0x0000000300007302, 0x008ee20000000000}, /* FCHK P0, R0, R3 */
                {0x0000000006ff73aa, 0x004e220000000100}, /* QSPC.E.S P0, RZ, [R6] */
                {0x000000000015731c, 0x000e2800000e4000}, /* B2R.RESULT R21 */
                {0x0000e003020085a7, 0x000ee4000800007f}, /* SYNCS.PHASECHK P0 */
        };
        static const struct instr if_written[] = {
                {0x0000000c0d0e7389, 0x00006400000c000b}, /* SHFL.IDX P6, R14, R13, R12, R11 */
                {0x00001f0a020e7589, 0x020e6200000e0000}, /* SHFL.IDX PT, R14, R2, R10, 0x1f */
                {0x0420000002037989, 0x020e6200000000ff}, /* SHFL.UP P0, R3, R2, 0x1, RZ */
                {0x03e01f0000037f89, 0x004e2400000e0000}, /* SHFL.IDX PT, R3, R0, 0x1f, 0x1f */
                {0x00000000021073a1, 0x000e640000000000}, /* MATCH.ALL P0, R16, R2 */
                {0x000004070807098a, 0x000ea200081ee1c4}, /* ATOM.E.ADD PT, R7 */
                {0x00000c020c0389a8, 0x00016200081ee1c6}, /* ATOMG.E.ADD PT, R3 */
                {0x00001c020c0373a9, 0x020ea200001ee103}, /* ATOMG.E.CAS PT, R3 */
        };
        static const struct instr never[] = {
                {0x000004060c037981, 0x001ea8000c1e1900}, /* LDG.E R3 */
                {0x0000000000027919, 0x000e620000002100}, /* S2R R2, SR_TID.X */
                {0x0000000300127308, 0x004eb00000001000}, /* MUFU.RCP R18, R3 */
                {0xffffffff0000780c, 0x000fe20003f02070}, /* ISETP, of fixed latency */
        };

        for (size_t k = 0; k < sizeof(always) / sizeof(always[0]); k++)
                CHECK(arch_predicate_late(&arch_sm90, &always[k]));
        for (size_t k = 0; k < sizeof(if_written) / sizeof(if_written[0]); k++) {
                struct instr i = if_written[k];

                CHECK_EQ(arch_predicate_late(&arch_sm90, &i), (i.hi & none) != none);
                i.hi |= none;
                CHECK(!arch_predicate_late(&arch_sm90, &i));
                i.hi &= ~none;
                CHECK(arch_predicate_late(&arch_sm90, &i));
        }
        for (size_t k = 0; k < sizeof(never) / sizeof(never[0]); k++)
                CHECK(!arch_predicate_late(&arch_sm90, &never[k]));
}

/* Which scoreboard tells of such a predicate, and where one has to be added. */
static void test_who_tells_of_predicates(void)
{
        static const struct {
                struct instr i;
                uint32_t board;
                bool missing;
        } cases[] = {
                {{0x0000000300007302, 0x008ee20000000000}, 3, false}, /* FCHK P0, R0, R3 */
                {{0x0000000006007302, 0x000fe20000020000}, 7, true},  /* FCHK P1, R6, R0 */
                {{0x0a00000048337989, 0x0003e8000004000a}, 7, true},  /* SHFL.DOWN P2, R51 */
                {{0x0a00000048337989, 0x0003e800000e000a}, 7, false}, /* SHFL.DOWN PT, R51 */
                {{0x0000001020ff79a2, 0x0003e2000816e1d8}, 1, false}, /* ATOM.E.ADD P3, RZ */
                {{0x0000001020ff79a2, 0x000fe2000816e1d8}, 7, true},
                {{0x0000000006ff73aa, 0x004e220000000100}, 0, false}, /* QSPC.E.S P0, RZ */
                {{0x000000ff0cff79a7, 0x0001e2000810003f}, 7, false}, /* SYNCS.ARRIVE RZ */
        };
        struct instr code[sizeof(cases) / sizeof(cases[0])];
        size_t n = sizeof(cases) / sizeof(cases[0]);
        bool missing;

        for (size_t k = 0; k < n; k++) {
                CHECK_EQ(track_predicate(&arch_sm90, &cases[k].i, &missing), cases[k].board);
                CHECK_EQ(missing, cases[k].missing);
                code[k] = cases[k].i;
        }
        track_predicates(&arch_sm90, (uint8_t *)code, n, 5);
        for (size_t k = 0; k < n; k++) {
                CHECK_EQ(track_predicate(&arch_sm90, &code[k], &missing),
                         cases[k].missing ? 5 : cases[k].board);
                CHECK(!missing);
                CHECK(code[k].lo == cases[k].i.lo);
                CHECK((code[k].hi == cases[k].i.hi) == !cases[k].missing);
        }
}

/* Properties, some that a row has and some that it has not. */
static void test_properties(void)
{
        const uint32_t late = ARCH_RESULT_LATE | ARCH_SOURCE_LATE, twice = ARCH_REPEATABLE,
                       same = ARCH_UNIFORM | ARCH_SAME_FOR_ALL, one = ARCH_PREDICATE,
                       two = ARCH_PREDICATE | ARCH_SECOND_PREDICATE, number = ARCH_ADDS_NUMBER,
                       to_number = ARCH_UR_TO_NUMBER, no_d = ARCH_NO_DESTINATION,
                       together = ARCH_TOGETHER, brief = ARCH_BRIEF;
        const struct {
                uint64_t lo, hi;
                uint32_t has, has_not;
        } known[] = {
                {0x0000000000027919, 0x000e620000002100, twice, 0},            /* S2R */
                {0x00000000000579c3, 0x000e220000008800, twice, 0},            /* S2UR */
                {0x0000000000080805, 0x000fc8000001ff00, twice, late},         /* CS2R */
                {0x00008400ff0c7b82, 0x000e220000000a00, twice | late, 0},     /* LDC.64 */
                {0x0000820000067ab9, 0x000fe20000000a00, twice | same, 0},     /* ULDC.64 */
                {0x0000000000147802, 0x000fe20000000f00, twice, number},       /* MOV */
                {0xffffffff00047882, 0x000fe20000000000, twice | same, 0},     /* UMOV */
                {0x0000000500067c82, 0x000fc60008000000, same, twice},         /* UMOV UR */
                {0x0000000208037224, 0x000fca00078e0203, twice | one, number}, /* IMAD */
                {0x00000001ff0c7424, 0x000fce00078e00ff, twice | one | number, 0},
                {0x0000002800007c24, 0x000fc8000f8e02ff, twice | one | to_number, 0},
                {0x00000004ff0c7e24, 0x001fe2000f8e00ff, to_number, twice},     /* IMAD, UR third */
                {0x0000000700137c02, 0x000fe40008000f00, to_number, twice},     /* MOV UR */
                {0x0000000606007c0c, 0x040fe4000bf66070, to_number, twice},     /* ISETP UR */
                {0x000000051e1d7c10, 0x000fc8000fffe0ff, to_number, twice},     /* IADD3 UR */
                {0x0000002803047c25, 0x000fc8000f8e0004, 0, to_number | twice}, /* IMAD.WIDE UR */
                {0x00000000ff0b7435, 0x000fe200000001ff, number, twice},        /* HFMA2.MMA */
                {0x0000000504047290, 0x000fe2000fffe03f, same | two, twice},    /* UIADD3 */
                {0x0000088005057890, 0x000fe2000fffe03f, same | two, twice},
                {0x0000000506067291, 0x000fc8000f8ff83f, same | one, twice}, /* ULEA */
                {0x000000043f047292, 0x000fe2000f8e333f, same | one, twice}, /* ULOP3 */
                {0x0000000f04047892, 0x000fe2000f80c03f, same | one, twice},
                {0x0000000504047299, 0x000fc8000800063f, same, twice}, /* USHF */
                {0x0000000126267899, 0x000fe40008001206, same, twice},
                {0x00000007050472a5, 0x000fc6000f8e0004, same | one, twice}, /* UIMAD.WIDE */
                {0x00000000020472ca, 0x000fe200000e0000, ARCH_UNIFORM,
                 same ^ ARCH_UNIFORM}, /* R2UR */
                {0x00000000070473c4, 0x000e22000000c000, ARCH_UNIFORM | together | brief,
                 same ^ ARCH_UNIFORM}, /* REDUX */
                {0x0000000000007806, 0x000fe400038e0100, together, ARCH_UNIFORM | brief}, /* VOTE */
                {0x0000000000057886, 0x000fe200038e0100, ARCH_UNIFORM | together,
                 (same ^ ARCH_UNIFORM) | brief},                                       /* VOTEU */
                {0x000002009a004385, 0x0003e80000100b0a, no_d, ARCH_RESULT_LATE},      /* ST */
                {0x0000081310007986, 0x0011d8000c101906, no_d, ARCH_RESULT_LATE},      /* STG */
                {0x0000280401007387, 0x0103e80000100a00, no_d | ARCH_NOT_IN_PROBE, 0}, /* STL */
                {0x0000001904000388, 0x0001e20000000800, no_d | ARCH_NOT_IN_PROBE, 0}, /* STS */
                {0x000004060c037981, 0x001ea8000c1e1900, late, no_d | ARCH_IN_ORDER},  /* LDG */
                {0x0420000002037989, 0x020e6200000000ff, late | ARCH_IN_ORDER | together,
                 twice}, /* SHFL */
        };

        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
                uint32_t found = arch_sm90.ops[known[k].lo & 0xfff].properties;

                if ((found & known[k].has) != known[k].has || (found & known[k].has_not))
                        printf("case %zu: %05x\n", k, found);
                CHECK_EQ(found & known[k].has, known[k].has);
                CHECK_EQ(found & known[k].has_not, 0);
        }
}

static uint8_t pairs(uint64_t lo, uint64_t hi)
{
        return arch_op(&arch_sm90, &(struct instr){lo, hi})->ur_pairs;
}

static void test_pairs(void)
{
        CHECK_EQ(pairs(0x0000000412127e29, 0x008fce0008000000), INSTR_UR_B); /* DADD, UR4 */
        CHECK_EQ(pairs(0x0000000cff007e2a, 0x000fe2000bf0d000), INSTR_UR_B); /* DSETP, UR12 */
        CHECK_EQ(pairs(0x000000060b047e25, 0x014fc8000f8e0008), INSTR_UR_B); /* IMAD.WIDE + UR6 */
        CHECK_EQ(pairs(0x0000002803047c25, 0x000fc8000f8e0004), 0);          /* IMAD.WIDE * UR40 */
        CHECK_EQ(pairs(0x00000004ff0c7e24, 0x001fe2000f8e00ff), 0);          /* IMAD + UR4 */
        CHECK_EQ(pairs(0x00000007050472a5, 0x000fc6000f8e0004), INSTR_UR_D | INSTR_UR_C);
        CHECK_EQ(pairs(0x00000001060678a5, 0x000fc8000f8e003f), INSTR_UR_D | INSTR_UR_C);
}

/* As a pass over code finds them: also outside of what changes the flow. */
static void test_barriers(void)
{
        static const struct {
                struct instr instr;
                uint32_t barrier;
        } known[] = {
                {{0x0000070000087945, 0x000fe20003800000}, 8}, /* BSSY B8 */
                {{0x0000000000087941, 0x000fea0003800000}, 8}, /* BSYNC B8 */
                {{0x0000000000068942, 0x000fea0003800000}, 6}, /* @!P0 BREAK B6 */
                {{0x00000000081a7355, 0x001e2a0000100000}, 8}, /* BMOV.32.CLEAR R26, B8 */
                {{0x0000001806007356, 0x0001ea0000000000}, 6}, /* BMOV.32 B6, R24 */
        };

        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
                struct code_marks marks = {0};
                struct scan s;

                CHECK_EQ(scan_code(&arch_sm90, (const uint8_t *)&known[k].instr, 1, &marks, &s), 0);
                CHECK(s.barriers_used >> known[k].barrier & 1);
                marks_done(&marks);
        }
}

/* Special registers and words of constant bank 0, of what the assembler makes of their names. */
static void test_numbers(void)
{
        const struct arch *a = &arch_sm90;
        const struct {
                uint64_t lo, hi;
                uint8_t special;
        } known[] = {
                {0x0000000000047919, 0x000e620000002500, a->ctaid_x}, /* %ctaid.x */
                {0x0000000000067919, 0x000e220000002700, a->ctaid_z},
                {0x0000000000077919, 0x000e220000003c00, a->lanemask_ge},
                {0x0000000000087919, 0x000e220000003b00, a->lanemask_gt},
                {0x0000000000097919, 0x000e220000003a00, a->lanemask_le},
        };
        const struct instr first = {0x00001000ff0e9b82, 0x000e220000000800}, /* %envreg0 */
                last = {0x00002f00ff0f7b82, 0x000f220000000800},             /* %envreg31 */
                parameter = {0x00008400ff0c7b82, 0x000e220000000a00};

        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
                struct instr i = {known[k].lo, known[k].hi};

                CHECK_EQ(instr_special(&i), known[k].special);
                CHECK_EQ(arch_role(a, &i), ARCH_S2R);
        }
        CHECK_EQ(arch_role(a, &first), ARCH_LDC);
        CHECK_EQ(instr_constant_offset(&first), a->environment);
        CHECK_EQ(instr_constant_offset(&last), a->environment + 4 * 31);
        CHECK_EQ(instr_constant_offset(&parameter), a->parameters);
}

int main(void)
{
        TEST(test_encodings);
        TEST(test_stalls);
        TEST(test_late_predicates);
        TEST(test_who_tells_of_predicates);
        TEST(test_properties);
        TEST(test_pairs);
        TEST(test_barriers);
        TEST(test_numbers);
        TEST(test_relative_targets);
        TEST(test_far_branches);
        TEST(test_exits);
        TEST(test_uniform_registers);
        TEST(test_unknown);
        TEST(test_untracked);
        TEST(test_track_all);
        return 0;
}
