/* SPDX-License-Identifier: Apache-2.0 */
#include "sm90.h"

/*
 * The table. Most opcodes are a 9-bit operation and a 3-bit operand form:
 *   1 registers only           4 immediate as the second operand
 *   2 immediate as the third   5 constant bank as the second
 *   3 constant bank as third   6 uniform register as the second, 7 as the third
 * so that arithmetic is listed by operation and expanded to its forms. Forms 6
 * and 7 have their uniform register in field B. For everything outside the
 * uniform datapath hi[27] says whether there is a uniform register at all.
 *
 * An operand may stand for several registers (a 64-bit address, the coordinates of
 * a bulk copy). All that count is that a register that is used is found: those of
 * a long operand are written before, by instructions that name them.
 */
#define URS    (SM90_UR_D | SM90_UR_A | SM90_UR_B | SM90_UR_C)
#define UR_DAC (SM90_UR_D | SM90_UR_A | SM90_UR_C)

/* clang-format off */
#define OP(code, nm, props) [code] = {.name = nm, .properties = SM90_KNOWN | (props)}
#define OP_UR(code, nm, props, fields, written, count)                                             \
        [code] = {.name = nm, .properties = SM90_KNOWN | (props), .ur = (fields),                  \
                  .ur_written = (written), .ur_count = (count)}

/* Arithmetic of fixed latency, all operand forms. */
#define ALU(base, nm)                                                                              \
        OP(0x200 | (base), nm, 0), OP(0x400 | (base), nm, 0), OP(0x600 | (base), nm, 0),           \
        OP(0x800 | (base), nm, 0), OP(0xa00 | (base), nm, 0),                                      \
        OP_UR(0xc00 | (base), nm, 0, SM90_UR_B, 0, 2),                                             \
        OP_UR(0xe00 | (base), nm, 0, SM90_UR_B, 0, 2)

#define LATE  (SM90_RESULT_LATE | SM90_SOURCE_LATE)
#define QUEUE (LATE | SM90_IN_ORDER)

/* Conversions and transcendental functions: a queue, so both ends are late. */
#define XU(base, nm)                                                                               \
        OP(0x200 | (base), nm, QUEUE), OP(0x800 | (base), nm, QUEUE),                              \
        OP(0xa00 | (base), nm, QUEUE), OP_UR(0xc00 | (base), nm, QUEUE, SM90_UR_B, 0, 2)

/* Uniform datapath: register form, immediate as third, as second, one UR source. */
#define UALU(base, nm)                                                                             \
        OP_UR(0x200 | (base), nm, SM90_UNIFORM, URS, SM90_UR_D, 2),                                \
        OP_UR(0x400 | (base), nm, SM90_UNIFORM, UR_DAC, SM90_UR_D, 2),                             \
        OP_UR(0x800 | (base), nm, SM90_UNIFORM, UR_DAC, SM90_UR_D, 2),                             \
        OP_UR(0xc00 | (base), nm, SM90_UNIFORM, URS, SM90_UR_D, 2)

#define PROBE_NO SM90_NOT_IN_PROBE

const struct sm90_op sm90_table[4096] = {
        /* moves and logic */
        ALU(0x02, "MOV"), ALU(0x07, "SEL"), ALU(0x08, "FSEL"), ALU(0x09, "FMNMX"),
        ALU(0x0a, "FSET"), ALU(0x0b, "FSETP"), ALU(0x0c, "ISETP"), ALU(0x0f, "VHMNMX"),
        ALU(0x10, "IADD3"), ALU(0x11, "LEA"), ALU(0x12, "LOP3"), ALU(0x13, "IABS"),
        ALU(0x16, "PRMT"), ALU(0x17, "IMNMX"), ALU(0x19, "SHF"), ALU(0x1a, "SGXT"),
        ALU(0x1b, "BMSK"), ALU(0x1c, "PLOP3"), ALU(0x20, "FMUL"), ALU(0x21, "FADD"),
        ALU(0x22, "FSWZADD"), ALU(0x23, "FFMA"), ALU(0x24, "IMAD"), ALU(0x25, "IMAD.WIDE"),
        ALU(0x26, "IDP"), ALU(0x27, "IMAD.HI"), ALU(0x28, "DMUL"), ALU(0x29, "DADD"),
        ALU(0x2a, "DSETP"), ALU(0x2b, "DFMA"), ALU(0x30, "HADD2"), ALU(0x31, "HFMA2"),
        ALU(0x32, "HMUL2"), ALU(0x33, "HSET2"), ALU(0x34, "HSETP2"), ALU(0x35, "HFMA2.MMA"),
        ALU(0x36, "VIADD"), ALU(0x37, "IMMA"), ALU(0x3c, "HMMA"), ALU(0x3d, "BMMA"),
        ALU(0x3e, "F2FP"), ALU(0x40, "HMNMX2"), ALU(0x43, "F2IP"),
        ALU(0x45, "I2FP"), ALU(0x46, "VIADDMNMX"), ALU(0x48, "VIMNMX"), OP(0x803, "P2R", 0),
        OP(0x804, "R2P", 0), OP(0x805, "CS2R", 0), OP(0x806, "VOTE", 0), OP(0x23a, "MOVM", QUEUE),
        OP(0x23f, "DMMA", QUEUE), XU(0x100, "FLO"), XU(0x101, "BREV"), XU(0x102, "FCHK"),
        XU(0x104, "F2F"), XU(0x105, "F2I"), XU(0x106, "I2F"), XU(0x107, "FRND"), XU(0x108, "MUFU"),
        XU(0x109, "POPC"), XU(0x110, "F2F.64"), XU(0x111, "F2I.64"), XU(0x112, "I2F.64"),
        XU(0x113, "FRND.64"),

        /* uniform datapath */
        UALU(0x87, "USEL"), UALU(0x8c, "UISETP"), UALU(0x90, "UIADD3"), UALU(0x91, "ULEA"),
        UALU(0x92, "ULOP3"), UALU(0x96, "UPRMT"), UALU(0x97, "UIADD3.64"), UALU(0x99, "USHF"),
        UALU(0x9a, "USGXT"), UALU(0x9b, "UBMSK"), UALU(0xa4, "UIMAD"), UALU(0xa5, "UIMAD.WIDE"),
        OP_UR(0x882, "UMOV", SM90_UNIFORM, SM90_UR_D, SM90_UR_D, 1),
        OP_UR(0xc82, "UMOV", SM90_UNIFORM, SM90_UR_D | SM90_UR_B, SM90_UR_D, 1),
        OP_UR(0x2bd, "UFLO", SM90_UNIFORM, SM90_UR_D | SM90_UR_B, SM90_UR_D, 1),
        OP_UR(0x2bf, "UPOPC", SM90_UNIFORM, SM90_UR_D | SM90_UR_B, SM90_UR_D, 1),
        OP_UR(0x2be, "UBREV", SM90_UNIFORM, SM90_UR_D | SM90_UR_B, SM90_UR_D, 1),
        OP_UR(0x883, "UP2UR", SM90_UNIFORM, SM90_UR_D | SM90_UR_A, SM90_UR_D, 1),
        OP_UR(0x884, "UR2UP", SM90_UNIFORM, SM90_UR_A, 0, 1),
        OP_UR(0x886, "VOTEU", SM90_UNIFORM, SM90_UR_D, SM90_UR_D, 1),
        OP_UR(0x82f, "ELECT", SM90_UNIFORM, SM90_UR_D, SM90_UR_D, 1),
        OP(0x89c, "UPLOP3", SM90_UNIFORM),
        OP_UR(0xab9, "ULDC", SM90_UNIFORM, SM90_UR_D, SM90_UR_D, 2),
        OP_UR(0xabb, "ULDC", SM90_UNIFORM, SM90_UR_D | SM90_UR_A, SM90_UR_D, 2),

        /* between the register files: the uniform register of these is not marked by hi[27] */
        OP_UR(0x2ca, "R2UR", SM90_UNIFORM, SM90_UR_D, SM90_UR_D, 1),
        OP_UR(0x3c4, "REDUX", SM90_UNIFORM | SM90_SOURCE_LATE, SM90_UR_D, SM90_UR_D, 1),
        OP_UR(0x9c3, "S2UR", SM90_UNIFORM, SM90_UR_D, SM90_UR_D, 2),

        /* special registers, votes, shuffles */
        OP(0x919, "S2R", SM90_RESULT_LATE), OP(0x389, "SHFL", QUEUE), OP(0x589, "SHFL", QUEUE),
        OP(0x989, "SHFL", QUEUE), OP(0xf89, "SHFL", QUEUE), OP(0x3a1, "MATCH", LATE),
        OP(0x3aa, "QSPC", LATE),

        /* memory. Loads have their uniform register in B, what carries data in C. */
        OP(0xb82, "LDC", LATE), OP(0x380, "LD", LATE), OP_UR(0x980, "LD", LATE, SM90_UR_B, 0, 2),
        OP(0x381, "LDG", LATE), OP_UR(0x981, "LDG", LATE, SM90_UR_B, 0, 2),
        OP_UR(0x983, "LDL", LATE | PROBE_NO, SM90_UR_B, 0, 2),
        OP_UR(0x984, "LDS", QUEUE | PROBE_NO, SM90_UR_B, 0, 2),
        OP_UR(0x83b, "LDSM", QUEUE | PROBE_NO, SM90_UR_B, 0, 2), OP(0x385, "ST", SM90_SOURCE_LATE),
        OP_UR(0x985, "ST", SM90_SOURCE_LATE, SM90_UR_C, 0, 2), OP(0x386, "STG", SM90_SOURCE_LATE),
        OP_UR(0x986, "STG", SM90_SOURCE_LATE, SM90_UR_C, 0, 2),
        OP(0x387, "STL", SM90_SOURCE_LATE | PROBE_NO),
        OP_UR(0x987, "STL", SM90_SOURCE_LATE | PROBE_NO, SM90_UR_C, 0, 2),
        OP(0x388, "STS", SM90_SOURCE_LATE | PROBE_NO),
        OP_UR(0x988, "STS", SM90_SOURCE_LATE | PROBE_NO, SM90_UR_C, 0, 2),
        OP_UR(0x844, "STSM", SM90_SOURCE_LATE | PROBE_NO, SM90_UR_B | SM90_UR_C, 0, 2),
        OP(0x38a, "ATOM", LATE), OP(0x38b, "ATOM", LATE),
        OP_UR(0x98a, "ATOM", LATE, SM90_UR_C, 0, 2), OP_UR(0x9a2, "ATOM", LATE, SM90_UR_C, 0, 2),
        OP(0x38c, "ATOMS", LATE | PROBE_NO), OP(0x38d, "ATOMS", LATE | PROBE_NO),
        OP_UR(0x98c, "ATOMS", LATE | PROBE_NO, SM90_UR_C, 0, 2),
        OP_UR(0xf8c, "ATOMS", LATE | PROBE_NO, SM90_UR_D | SM90_UR_C, 0, 2),
        OP(0x3a3, "ATOMG", LATE), OP(0x3a8, "ATOMG", LATE), OP(0x3a9, "ATOMG", LATE),
        OP_UR(0x9a3, "ATOMG", LATE, SM90_UR_C, 0, 2), OP_UR(0x9a8, "ATOMG", LATE, SM90_UR_C, 0, 2),
        OP_UR(0x98e, "REDG", SM90_SOURCE_LATE, SM90_UR_C, 0, 2),
        OP_UR(0x9a6, "REDG", SM90_SOURCE_LATE, SM90_UR_C, 0, 2),
        OP_UR(0x9a4, "LDGMC", LATE | PROBE_NO, SM90_UR_B | SM90_UR_C, 0, 2),
        OP_UR(0x9a5, "LDGMC", LATE | PROBE_NO, SM90_UR_B | SM90_UR_C, 0, 2),
        OP_UR(0xdae, "LDGSTS", SM90_SOURCE_LATE | PROBE_NO, SM90_UR_B | SM90_UR_C | SM90_UR_E, 0, 2),
        OP_UR(0xfae, "LDGSTS", SM90_SOURCE_LATE | PROBE_NO, SM90_UR_C | SM90_UR_E, 0, 2),
        OP_UR(0xdbd, "STAS", SM90_SOURCE_LATE | PROBE_NO, SM90_UR_B | SM90_UR_C, 0, 2),
        OP_UR(0xf60, "TEX", LATE | PROBE_NO, SM90_UR_C | SM90_UR_E, 0, 2),
        OP_UR(0xf63, "TLD4", LATE | PROBE_NO, SM90_UR_C | SM90_UR_E, 0, 2),
        OP_UR(0xf66, "TLD", LATE | PROBE_NO, SM90_UR_C | SM90_UR_E, 0, 2),
        OP_UR(0xf6c, "TXD", LATE | PROBE_NO, SM90_UR_C | SM90_UR_E, 0, 2),
        OP_UR(0xf6f, "TXQ", LATE | PROBE_NO, SM90_UR_C | SM90_UR_E, 0, 2),
        OP_UR(0xf99, "SULD", LATE | PROBE_NO, SM90_UR_C | SM90_UR_E, 0, 2),
        OP_UR(0xf9b, "SUST.P", SM90_SOURCE_LATE | PROBE_NO, SM90_UR_C | SM90_UR_E, 0, 2),
        OP_UR(0xf9d, "SUST", SM90_SOURCE_LATE | PROBE_NO, SM90_UR_C | SM90_UR_E, 0, 2),
        OP_UR(0xf9f, "SURED", SM90_SOURCE_LATE | PROBE_NO, SM90_UR_C | SM90_UR_E, 0, 2),
        OP(0x98f, "CCTL", SM90_SOURCE_LATE), OP(0x992, "MEMBAR", 0), OP(0x9ab, "ERRBAR", 0),
        OP(0x5ab, "CGAERRBAR", 0), OP(0x3c6, "FENCE", 0),
        OP(0x9af, "LDGDEPBAR", PROBE_NO), OP(0x91a, "DEPBAR", SM90_PECULIAR),
        OP(0x82d, "PREEXIT", PROBE_NO), OP(0x82e, "ACQBULK", PROBE_NO),

        /* bulk copies, asynchronous barriers, tensor cores */
        OP_UR(0x3b4, "UTMALDG", PROBE_NO | SM90_UNIFORM, SM90_UR_ALL, 0, 2),
        OP_UR(0x5b4, "UTMALDG", PROBE_NO | SM90_UNIFORM, SM90_UR_ALL, 0, 2),
        OP_UR(0x3b5, "UTMASTG", PROBE_NO | SM90_UNIFORM, SM90_UR_ALL, 0, 2),
        OP_UR(0x3b6, "UTMAREDG", PROBE_NO | SM90_UNIFORM, SM90_UR_ALL, 0, 2),
        OP_UR(0x5b8, "UTMAPF", PROBE_NO | SM90_UNIFORM, SM90_UR_ALL, 0, 2),
        OP_UR(0x3ba, "UBLKCP", PROBE_NO | SM90_UNIFORM, SM90_UR_ALL, 0, 2),
        OP_UR(0x3bb, "UBLKRED", PROBE_NO | SM90_UNIFORM, SM90_UR_ALL, 0, 2),
        OP_UR(0x3bc, "UBLKPF", PROBE_NO | SM90_UNIFORM, SM90_UR_ALL, 0, 2),
        OP(0x9b7, "UTMACMD", PROBE_NO),
        OP_UR(0x5a7, "SYNCS", LATE | PROBE_NO, SM90_UR_C, 0, 2),
        OP_UR(0x9a7, "SYNCS", LATE | PROBE_NO, SM90_UR_C, 0, 2),
        OP_UR(0x5b2, "SYNCS", PROBE_NO | SM90_UNIFORM, URS, SM90_UR_D, 2),
        OP_UR(0x9b0, "ARRIVES", SM90_SOURCE_LATE | PROBE_NO, SM90_UR_B | SM90_UR_C, 0, 2),
        OP_UR(0x9f0, "HGMMA", PROBE_NO | SM90_UNIFORM, SM90_UR_A, 0, 4),
        OP_UR(0xdf0, "HGMMA", PROBE_NO, SM90_UR_B, 0, 4),
        OP_UR(0x9f1, "IGMMA", PROBE_NO | SM90_UNIFORM, SM90_UR_A, 0, 4),
        OP_UR(0xdf1, "IGMMA", PROBE_NO, SM90_UR_B, 0, 4),
        OP_UR(0x9f3, "QGMMA", PROBE_NO | SM90_UNIFORM, SM90_UR_A, 0, 4),
        OP_UR(0xdf3, "QGMMA", PROBE_NO, SM90_UR_B, 0, 4), OP(0x9c5, "WARPGROUP", PROBE_NO),
        OP(0x9c7, "UCGABAR", PROBE_NO), OP(0xdc7, "UCGABAR", PROBE_NO),
        OP(0x9c8, "USETMAXREG", SM90_PECULIAR | PROBE_NO), OP(0x9c9, "USETSHMSZ", PROBE_NO),

        /* barriers of the block */
        OP(0x31d, "BAR", SM90_SOURCE_LATE | PROBE_NO),
        OP(0x51d, "BAR", SM90_SOURCE_LATE | PROBE_NO),
        OP(0x91d, "BAR", SM90_SOURCE_LATE | PROBE_NO), OP(0xb1d, "BAR", PROBE_NO),
        OP(0x31c, "B2R", SM90_RESULT_LATE | PROBE_NO),

        /* flow */
        OP(0x918, "NOP", 0), OP(0x946, "YIELD", 0), OP(0x95d, "NANOSLEEP", 0),
        OP(0x35d, "NANOSLEEP", SM90_SOURCE_LATE),
        OP_UR(0x947, "BRA", SM90_CONTROL, SM90_UR_A, 0, 2),
        OP_UR(0x547, "BRA.U", SM90_CONTROL, SM90_UR_ALL, 0, 2), OP(0x949, "BRX", SM90_CONTROL),
        OP(0x943, "CALL.ABS", SM90_CONTROL), OP(0x343, "CALL.ABS", SM90_CONTROL),
        OP(0x944, "CALL.REL", SM90_CONTROL), OP(0x344, "CALL.REL", SM90_CONTROL),
        OP(0x950, "RET", SM90_CONTROL),
        OP(0x94d, "EXIT", SM90_CONTROL), OP(0x94e, "LEPC", SM90_CONTROL),
        OP(0x95c, "BPT", SM90_CONTROL), OP(0x945, "BSSY", SM90_CONTROL),
        OP(0x941, "BSYNC", SM90_CONTROL), OP(0x942, "BREAK", SM90_CONTROL),
        OP(0x948, "WARPSYNC", SM90_CONTROL), OP(0x348, "WARPSYNC", SM90_CONTROL),
        OP(0x91b, "ENDCOLLECT", SM90_CONTROL), OP(0x355, "BMOV", SM90_PECULIAR | SM90_RESULT_LATE | PROBE_NO),
        OP(0x356, "BMOV", SM90_PECULIAR | SM90_SOURCE_LATE | PROBE_NO),
};
/* clang-format on */

#define STACK_POINTER  1    /* R1 */
#define STACK_CONSTANT 0x28 /* c[0x0][0x28] */

bool sm90_loads_stack_pointer(const struct sm90_instr *i)
{
        return sm90_opcode(i) == SM90_LDC && (i->lo >> 16 & 0xff) == STACK_POINTER &&
               (i->lo >> 24 & 0xff) == SM90_R_ZERO && sm90_constant_bank(i) == 0 &&
               sm90_constant_offset(i) == STACK_CONSTANT;
}

static unsigned ur_shift(uint8_t field)
{
        switch (field) {
        case SM90_UR_D:
                return 16;
        case SM90_UR_A:
                return 24;
        case SM90_UR_B:
                return 32;
        case SM90_UR_E:
                return 40;
        default:
                return 0; /* C, in hi */
        }
}

uint32_t sm90_ur_get(const struct sm90_instr *i, uint8_t field)
{
        return (uint32_t)((field == SM90_UR_C ? i->hi : i->lo) >> ur_shift(field)) & 63;
}

void sm90_ur_set(struct sm90_instr *i, uint8_t field, uint32_t ur)
{
        uint64_t *word = field == SM90_UR_C ? &i->hi : &i->lo;

        *word = (*word & ~(63ULL << ur_shift(field))) | ((uint64_t)ur << ur_shift(field));
}

#define ALWAYS 0x7000u /* predicate field of lo */

/* Control halves as the assembler writes them. */
#define STALL_SHIFT  41
#define BRANCH_STALL 5ULL
#define BRANCH_HI    0x000fea0003800000ULL
#define BSSY_HI      0x000fe20003800000ULL
#define NOP_HI       0x000fc00000000000ULL
/* No scoreboards, 15 stall cycles: longer than any dependence on a move lasts. */
#define MOVE_CONTROL 0x000fde0000000000ULL
#define MOV_LANES    0xf00ULL /* all four bytes */
#define MOV_HI       (MOVE_CONTROL | MOV_LANES)
#define VOTE_LANES   0x38e0100ULL     /* .ANY, of the predicate that is always true */
#define OPERANDS_HI  0x1ffffffffffULL /* below the control bits */

static bool is_branch_format(uint32_t opcode)
{
        return opcode == SM90_BRA || opcode == 0x547 || opcode == SM90_CALL_REL ||
               opcode == SM90_WARPSYNC || opcode == SM90_WARPSYNC_REG;
}

/* The 56-bit offset of a branch, in units of four bytes. */
static int64_t branch_offset(const struct sm90_instr *i)
{
        uint64_t v = ((i->lo >> 16) & 0xff) | (i->lo >> 34) << 8 | (i->hi & 0x3ffff) << 38;

        return (int64_t)(v << 8) >> 8;
}

bool sm90_relative_target(const struct sm90_instr *i, int64_t *ret_bytes)
{
        uint32_t opcode = sm90_opcode(i);

        if (is_branch_format(opcode)) {
                *ret_bytes = branch_offset(i) * 4 + SM90_INSTR_BYTES;
                return true;
        }
        if (opcode == SM90_BSSY) {
                *ret_bytes = (int64_t)(int32_t)(i->lo >> 32) + SM90_INSTR_BYTES;
                return true;
        }
        return false;
}

void sm90_set_relative_target(struct sm90_instr *i, int64_t bytes)
{
        int64_t from_next = bytes - SM90_INSTR_BYTES;
        uint64_t v = (uint64_t)(from_next / 4) & ((1ULL << 56) - 1);

        if (sm90_opcode(i) == SM90_BSSY) {
                i->lo = (i->lo & 0xffffffff) | (uint64_t)(uint32_t)from_next << 32;
                return;
        }
        i->lo = (i->lo & 0x3ff00ffffULL) | (v & 0xff) << 16 | v >> 8 << 34;
        i->hi = (i->hi & ~0x3ffffULL) | v >> 38;
}

/* hi[25:23] is a second predicate, hi[26] negates it; a branch has the same in the same place. */
bool sm90_exit_is_plain(const struct sm90_instr *i)
{
        const uint64_t second_predicate = 0xfULL << 23;

        return i->lo >> 16 == 0 && ((i->hi & ((1ULL << 41) - 1)) & ~second_predicate) == 0;
}

struct sm90_instr sm90_exit_to_branch(const struct sm90_instr *exit, int64_t bytes)
{
        struct sm90_instr i = {(exit->lo & 0xf000) | SM90_BRA, exit->hi};

        /* The assembler lets fewer cycles pass behind an EXIT than behind any BRA. */
        if ((i.hi >> STALL_SHIFT & 0xf) < BRANCH_STALL)
                i.hi = (i.hi & ~(0xfULL << STALL_SHIFT)) | BRANCH_STALL << STALL_SHIFT;
        sm90_set_relative_target(&i, bytes);
        return i;
}

struct sm90_instr sm90_bra(int64_t bytes)
{
        struct sm90_instr i = {ALWAYS | SM90_BRA, BRANCH_HI};

        sm90_set_relative_target(&i, bytes);
        return i;
}

struct sm90_instr sm90_bssy(uint32_t barrier, int64_t bytes)
{
        struct sm90_instr i = {ALWAYS | SM90_BSSY | barrier << 16, BSSY_HI};

        sm90_set_relative_target(&i, bytes);
        return i;
}

struct sm90_instr sm90_bsync(uint32_t barrier, uint32_t waits)
{
        struct sm90_instr i = {ALWAYS | SM90_BSYNC | barrier << 16, BRANCH_HI};

        sm90_add_waits(&i, waits);
        return i;
}

struct sm90_instr sm90_nop(void)
{
        return (struct sm90_instr){ALWAYS | SM90_NOP, NOP_HI};
}

struct sm90_instr sm90_nop_like(const struct sm90_instr *i)
{
        const uint64_t control = 0x1fULL << 41 | 0x3fULL << 52; /* stall, yield, waits */
        struct sm90_instr nop = sm90_nop();

        nop.hi = (nop.hi & ~control) | (i->hi & control);
        return nop;
}

struct sm90_instr sm90_mov(uint32_t reg, uint32_t value)
{
        return (struct sm90_instr){ALWAYS | SM90_MOV_IMM | reg << 16 | (uint64_t)value << 32,
                                   MOV_HI};
}

struct sm90_instr sm90_umov(uint32_t ur, uint32_t value)
{
        return (struct sm90_instr){ALWAYS | SM90_UMOV_IMM | ur << 16 | (uint64_t)value << 32,
                                   MOVE_CONTROL};
}

struct sm90_instr sm90_vote_lanes(uint32_t reg)
{
        return (struct sm90_instr){ALWAYS | SM90_VOTE | reg << 16, MOVE_CONTROL | VOTE_LANES};
}

bool sm90_votes(const struct sm90_instr *i)
{
        return sm90_opcode(i) == SM90_VOTE;
}

bool sm90_votes_lanes(const struct sm90_instr *i)
{
        return sm90_votes(i) && !(i->lo >> 24) && (i->hi & OPERANDS_HI) == VOTE_LANES;
}

struct sm90_instr sm90_move_like(const struct sm90_instr *i, uint32_t source)
{
        return (struct sm90_instr){(i->lo & 0xfff000) | SM90_MOV | (uint64_t)source << 32,
                                   (i->hi & ~OPERANDS_HI) | MOV_LANES};
}

/* Until the result of one that writes a register can be read, and one that writes predicates. */
#define STALL_REGISTER  6ULL
#define STALL_PREDICATE 15ULL
#define CONTROL(stall)  (0x000fc00000000000ULL | (stall) << STALL_SHIFT)
#define ADD_HI          0x07ffe0ffULL /* no carries, the third operand is RZ */

static struct sm90_instr add_immediate(uint32_t reg, uint32_t a, int32_t value, uint64_t hi)
{
        return (struct sm90_instr){0x7810ULL | reg << 16 | (uint64_t)a << 24 |
                                           (uint64_t)(uint32_t)value << 32,
                                   CONTROL(STALL_REGISTER) | hi};
}

struct sm90_instr sm90_mov_register(uint32_t reg, uint32_t from)
{
        return (struct sm90_instr){0x7202ULL | reg << 16 | (uint64_t)from << 32,
                                   CONTROL(STALL_REGISTER) | 0xf00};
}

struct sm90_instr sm90_add(uint32_t reg, uint32_t a, int32_t value)
{
        return add_immediate(reg, a, value, ADD_HI);
}

struct sm90_instr sm90_add_low(uint32_t reg, uint32_t a, int32_t value)
{
        return add_immediate(reg, a, value, 0x07f1e0ff); /* carry to P0 */
}

/* The upper half of the value is its sign. */
struct sm90_instr sm90_add_high(uint32_t reg, uint32_t a, int32_t value)
{
        return add_immediate(reg, a, value < 0 ? -1 : 0, 0x007fe4ff); /* carry from P0 */
}

struct sm90_instr sm90_add_uniform(uint32_t reg, uint32_t a, uint32_t ur)
{
        return (struct sm90_instr){0x7c10ULL | reg << 16 | (uint64_t)a << 24 | (uint64_t)ur << 32,
                                   CONTROL(STALL_REGISTER) | ADD_HI | SM90_UR_PRESENT};
}

#define ALL_PREDICATES (0x7fULL << 32)

struct sm90_instr sm90_save_predicates(uint32_t reg)
{
        return (struct sm90_instr){ALL_PREDICATES | 0x7803 | reg << 16 |
                                           (uint64_t)SM90_R_ZERO << 24,
                                   CONTROL(STALL_REGISTER)};
}

struct sm90_instr sm90_load_predicates(uint32_t reg)
{
        return (struct sm90_instr){ALL_PREDICATES | 0x7804 | (uint64_t)reg << 24,
                                   CONTROL(STALL_PREDICATE)};
}

struct sm90_instr sm90_wait(uint32_t scoreboards)
{
        struct sm90_instr i = {ALWAYS | SM90_NOP, CONTROL(STALL_PREDICATE)};

        sm90_add_waits(&i, scoreboards);
        return i;
}

uint32_t sm90_barriers(const struct sm90_instr *i)
{
        switch (sm90_opcode(i)) {
        case SM90_BSSY:
        case SM90_BSYNC:
        case SM90_BREAK:
                return 1u << (i->lo >> 16 & 0xf);
        case SM90_BMOV_OUT:
        case SM90_BMOV_IN: /* in one of these fields, the other holds a general register */
                return 1u << (i->lo >> 16 & 0xf) | 1u << (i->lo >> 24 & 0xf);
        default:
                return 0;
        }
}

bool sm90_predicate_late(const struct sm90_instr *i)
{
        switch (sm90_opcode(i)) {
        case 0x302: /* FCHK */
        case 0x902:
        case 0xb02:
        case 0xd02:
        case 0x3aa: /* QSPC */
        case 0x5a7: /* SYNCS */
        case 0x9a7:
        case 0x31c: /* B2R */
                return true;
        case 0x389: /* SHFL; hi[19:17] is the predicate */
        case 0x589:
        case 0x989:
        case 0xf89:
        case 0x3a1: /* MATCH */
        case 0x38a: /* ATOM */
        case 0x38b:
        case 0x98a:
        case 0x9a2:
        case 0x3a3: /* ATOMG */
        case 0x3a8:
        case 0x3a9:
        case 0x9a3:
        case 0x9a8:
                return (i->hi >> 17 & 7) != 7;
        default:
                return false;
        }
}
