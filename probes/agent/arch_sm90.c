/* SPDX-License-Identifier: Apache-2.0 */

/*
 * sm_90. Most opcodes are a 9-bit operation and a 3-bit form of the operands
 * (enum instr_form), so that arithmetic is listed by operation and expanded to its forms.
 * Forms 6 and 7 have their uniform register in field B. For everything outside the
 * uniform datapath hi[27] says whether there is a uniform register at all.
 *
 * An operand may stand for several registers (a 64-bit address, the coordinates of
 * a bulk copy). All that count is that a register that is used is found: those of
 * a long operand are written before, by instructions that name them.
 *
 * General registers are told of the instructions that probes are made of. In all forms but
 * that with registers only, the second or third operand is no register, and what is left of
 * the two stands in C, where the operation has a third.
 *
 * Accesses are told where the address is that of a thread: learnt from what ptxas makes of
 * each form of PTX and from the code of cuBLAS. A form that was not seen there is not
 * understood, and not guessed.
 */
#include "../device/device_abi.h"
#include "arch.h"

#define UR_D INSTR_UR_D
#define UR_A INSTR_UR_A
#define UR_B INSTR_UR_B
#define UR_C INSTR_UR_C
#define UR_E INSTR_UR_E

/* General registers. */
#define FIXED 0 /* not known: cannot be moved */
#define NO_R  ARCH_MOVABLE
#define R_D   (ARCH_MOVABLE | ARCH_R_D)
#define R_A   (ARCH_MOVABLE | ARCH_R_A)
#define R_B   (ARCH_MOVABLE | ARCH_R_B)
#define R_DA  (R_D | R_A)
#define R_DB  (R_D | R_B)
#define R_AB  (R_A | R_B)
#define R_DAB (R_D | R_AB)
#define R_ALL (R_DAB | ARCH_R_C)

/* Properties. */
#define LATE  (ARCH_RESULT_LATE | ARCH_SOURCE_LATE)
#define QUEUE (LATE | ARCH_IN_ORDER)
#define NO    ARCH_NOT_IN_PROBE
#define READS ARCH_SOURCE_LATE
#define P_IF  ARCH_PREDICATE_LATE_IF
#define FLOW  ARCH_CONTROL
#define TWICE ARCH_REPEATABLE
#define JOINT ARCH_TOGETHER

/* Control bits: no scoreboards, and so many stall cycles. */
#define CONTROL(stall) (0x000fc00000000000ULL | (uint64_t)(stall) << INSTR_STALL_SHIFT)
#define NO_YIELD       (1ULL << 45)

/* Until the result of one that writes a register can be read, and one that writes predicates. */
#define STALL_REGISTER  6
#define STALL_PREDICATE 15
#define STALL_BRANCH    5
#define STALL_BSSY      1

#define ALL_PREDICATES (0x7fULL << 32)
#define FLOW_HI        0x3800000ULL  /* the second predicate: true */
#define MOV_LANES      0xf00ULL      /* all four bytes */
#define VOTE_LANES     0x38e0100ULL  /* .ANY, of the predicate that is always true */
#define ADD_HI         0x07ffe0ffULL /* no carries, the third operand is RZ */
#define ADD_LOW_HI     0x07f1e0ffULL /* carry to P0 */
#define ADD_HIGH_HI    0x007fe4ffULL /* carry from P0 */

#define PARAMETERS 0x210
#define DESCRIPTOR 0x38 /* address of the launch's descriptor, 64 bits */

/* Names are for those who read the table. */
#define OP(code, name, props, ...) [code] = {.properties = ARCH_KNOWN | (props), ##__VA_ARGS__}
#define UR(fields, written, count) .ur = (fields), .ur_written = (written), .ur_count = (count)
#define ROLE(r)                    .role = ARCH_##r
#define MOVES(fields)              .registers = (fields)

#define ACCESS(k, s, sz, of, un, alone)                                                            \
        .access = {GPUOBS_ACCESS_##k,  GPUOBS_SPACE_##s, ACCESS_SIZE_##sz,                         \
                   ACCESS_OFFSET_##of, ACCESS_UR_##un,   ACCESS_OFFSET_##alone}
/* Memory without an address for each thread, or a form that has not been understood. */
#define OTHER .access = {.kind = ACCESS_NOT_UNDERSTOOD}

/* One form of an operation; with registers only, with a uniform register, any other. */
#define ALU_R(base, name, regs, props, ...)                                                        \
        OP(0x200 | (base), name, props, MOVES(regs), ##__VA_ARGS__)
#define ALU_U(form, base, name, regs, props, ...)                                                  \
        OP((form) << 9 | (base), name, props, MOVES((regs) & ~ARCH_R_B), UR(UR_B, 0, 2),           \
           ##__VA_ARGS__)
#define ALU_X(form, base, name, regs, props, ...)                                                  \
        OP((form) << 9 | (base), name, props, MOVES((regs) & ~ARCH_R_B), ##__VA_ARGS__)

/* Arithmetic of fixed latency, all forms of operands. */
#define ALU(base, name, regs)                                                                      \
        ALU_R(base, name, regs, 0), ALU_X(2, base, name, regs, 0), ALU_X(3, base, name, regs, 0),  \
                ALU_X(4, base, name, regs, 0), ALU_X(5, base, name, regs, 0),                      \
                ALU_U(6, base, name, regs, 0), ALU_U(7, base, name, regs, 0)

/* On doubles: an operand is a pair of registers. */
#define ALU_64(base, name)                                                                         \
        ALU_R(base, name, FIXED, 0), ALU_X(2, base, name, FIXED, 0),                               \
                ALU_X(3, base, name, FIXED, 0), ALU_X(4, base, name, FIXED, 0),                    \
                ALU_X(5, base, name, FIXED, 0), ALU_U(6, base, name, FIXED, 0, .ur_pairs = UR_B),  \
                ALU_U(7, base, name, FIXED, 0, .ur_pairs = UR_B)

/* Conversions and transcendental functions: a queue, so both ends are late. */
#define XU(base, name, regs, props)                                                                \
        ALU_R(base, name, regs, QUEUE | (props)), ALU_X(4, base, name, regs, QUEUE | (props)),     \
                ALU_X(5, base, name, regs, QUEUE | (props)),                                       \
                ALU_U(6, base, name, regs, QUEUE | (props))

/* Uniform datapath: register form, immediate as third, as second, one UR source. */
#define UALU_AS(base, name, props, ...)                                                            \
        OP(0x200 | (base), name, ARCH_UNIFORM | (props), UR(UR_D | UR_A | UR_B | UR_C, UR_D, 2),   \
           ##__VA_ARGS__),                                                                         \
                OP(0x400 | (base), name, ARCH_UNIFORM, UR(UR_D | UR_A | UR_C, UR_D, 2)),           \
                OP(0x800 | (base), name, ARCH_UNIFORM | (props), UR(UR_D | UR_A | UR_C, UR_D, 2),  \
                   ##__VA_ARGS__),                                                                 \
                OP(0xc00 | (base), name, ARCH_UNIFORM, UR(UR_D | UR_A | UR_B | UR_C, UR_D, 2))
#define UALU(base, name) UALU_AS(base, name, 0)
/* The same for all lanes, by its forms with registers and with an immediate as second. */
#define UALU_SAME(base, name, props, pairs)                                                        \
        UALU_AS(base, name, ARCH_SAME_FOR_ALL | (props), MOVES(NO_R), .ur_pairs = (pairs))

#define ONE_P ARCH_PREDICATE
#define TWO_P (ARCH_PREDICATE | ARCH_SECOND_PREDICATE)
#define TO_NR ARCH_UR_TO_NUMBER

const struct arch arch_sm90 = {
        .sm = 90,
        .makes = {.bra = {0x7947, CONTROL(STALL_BRANCH) | NO_YIELD | FLOW_HI},
                  .bssy = {0x7945, CONTROL(STALL_BSSY) | NO_YIELD | FLOW_HI},
                  .bsync = {0x7941, CONTROL(STALL_BRANCH) | NO_YIELD | FLOW_HI},
                  .brk = {0x7942, CONTROL(STALL_BRANCH) | NO_YIELD | FLOW_HI},
                  .warpsync = {0x7948, CONTROL(STALL_BRANCH) | NO_YIELD | FLOW_HI},
                  .nop = {0x7918, CONTROL(0)},
                  .wait = {0x7918, CONTROL(STALL_PREDICATE)},
                  .mov_number = {0x7802, CONTROL(STALL_PREDICATE) | MOV_LANES},
                  .umov_number = {0x7882, CONTROL(STALL_PREDICATE)},
                  .mov_register = {0x7202, CONTROL(STALL_REGISTER) | MOV_LANES},
                  .vote_lanes = {0x7806, CONTROL(STALL_PREDICATE) | VOTE_LANES},
                  .add = {0x7810, CONTROL(STALL_REGISTER) | ADD_HI},
                  .add_low = {0x7810, CONTROL(STALL_REGISTER) | ADD_LOW_HI},
                  .add_high = {0x7810, CONTROL(STALL_REGISTER) | ADD_HIGH_HI},
                  .add_uniform = {0x7c10, CONTROL(STALL_REGISTER) | ADD_HI | INSTR_UR_PRESENT},
                  .save_predicates = {ALL_PREDICATES | 0x7803 | (uint64_t)INSTR_R_ZERO << 24,
                                      CONTROL(STALL_REGISTER)},
                  .load_predicates = {ALL_PREDICATES | 0x7804, CONTROL(STALL_PREDICATE)}},
        .branch_low_bits = 8,
        .waitable_after = 2,
        .stack_pointer = 0x28,
        .environment = 0x40,
        .parameters = PARAMETERS,
        .grid = {.sm = 90, .context = "%envreg6", .queue_offset = DESCRIPTOR - PARAMETERS},
        .ctaid_x = 0x25,
        .ctaid_z = 0x27,
        .lanemask_le = 0x3a,
        .lanemask_gt = 0x3b,
        .lanemask_ge = 0x3c,
        .register_unit = 8,
        .registers_kept = 2,
        .block_registers = 65536,
        /* clang-format off */
        .ops = {
        /* moves and logic */
        ALU_R(0x02, "MOV", R_DB, 0), ALU_X(2, 0x02, "MOV", R_DB, 0), ALU_X(3, 0x02, "MOV", R_DB, 0),
        ALU_X(4, 0x02, "MOV", R_DB, TWICE, ROLE(MOV_NUMBER)), ALU_X(5, 0x02, "MOV", R_DB, 0),
        ALU_U(6, 0x02, "MOV", R_DB, TO_NR), ALU_U(7, 0x02, "MOV", R_DB, TO_NR),
        ALU_R(0x0c, "ISETP", R_AB, 0, ROLE(ISETP)), ALU_X(2, 0x0c, "ISETP", R_AB, 0),
        ALU_X(3, 0x0c, "ISETP", R_AB, 0), ALU_X(4, 0x0c, "ISETP", R_AB, 0, ROLE(ISETP)),
        ALU_X(5, 0x0c, "ISETP", R_AB, 0), ALU_U(6, 0x0c, "ISETP", R_AB, TO_NR, ROLE(ISETP)),
        ALU_U(7, 0x0c, "ISETP", R_AB, TO_NR),
        ALU_R(0x10, "IADD3", R_ALL, 0), ALU_X(2, 0x10, "IADD3", R_ALL, 0),
        ALU_X(3, 0x10, "IADD3", R_ALL, 0), ALU_X(4, 0x10, "IADD3", R_ALL, 0),
        ALU_X(5, 0x10, "IADD3", R_ALL, 0), ALU_U(6, 0x10, "IADD3", R_ALL, TO_NR),
        ALU_U(7, 0x10, "IADD3", R_ALL, TO_NR),
        ALU_R(0x12, "LOP3", R_ALL, 0, ROLE(LOP3)), ALU_X(2, 0x12, "LOP3", R_ALL, 0),
        ALU_X(3, 0x12, "LOP3", R_ALL, 0), ALU_X(4, 0x12, "LOP3", R_ALL, 0, ROLE(LOP3)),
        ALU_X(5, 0x12, "LOP3", R_ALL, 0), ALU_U(6, 0x12, "LOP3", R_ALL, TO_NR, ROLE(LOP3)),
        ALU_U(7, 0x12, "LOP3", R_ALL, TO_NR),
        ALU_R(0x24, "IMAD", R_ALL, TWICE | ONE_P),
        ALU_X(2, 0x24, "IMAD", R_ALL, TWICE | ONE_P | ARCH_ADDS_NUMBER),
        ALU_X(3, 0x24, "IMAD", R_ALL, 0), ALU_X(4, 0x24, "IMAD", R_ALL, 0),
        ALU_X(5, 0x24, "IMAD", R_ALL, 0), ALU_U(6, 0x24, "IMAD", R_ALL, TWICE | ONE_P | TO_NR),
        ALU_U(7, 0x24, "IMAD", R_ALL, TO_NR),
        ALU_R(0x25, "IMAD.WIDE", R_ALL, 0), ALU_X(2, 0x25, "IMAD.WIDE", R_ALL, 0),
        ALU_X(3, 0x25, "IMAD.WIDE", R_ALL, 0), ALU_X(4, 0x25, "IMAD.WIDE", R_ALL, 0),
        ALU_X(5, 0x25, "IMAD.WIDE", R_ALL, 0), ALU_U(6, 0x25, "IMAD.WIDE", R_ALL, 0),
        ALU_U(7, 0x25, "IMAD.WIDE", R_ALL, 0, .ur_pairs = UR_B),
        ALU_R(0x31, "HFMA2", FIXED, 0), ALU_X(2, 0x31, "HFMA2", FIXED, ARCH_ADDS_NUMBER),
        ALU_X(3, 0x31, "HFMA2", FIXED, 0), ALU_X(4, 0x31, "HFMA2", FIXED, 0),
        ALU_X(5, 0x31, "HFMA2", FIXED, 0), ALU_U(6, 0x31, "HFMA2", FIXED, 0),
        ALU_U(7, 0x31, "HFMA2", FIXED, 0),
        /* the driver's compiler moves constants with it */
        ALU_R(0x35, "HFMA2.MMA", R_ALL, 0), ALU_X(2, 0x35, "HFMA2.MMA", R_ALL, ARCH_ADDS_NUMBER),
        ALU_X(3, 0x35, "HFMA2.MMA", R_ALL, 0), ALU_X(4, 0x35, "HFMA2.MMA", R_ALL, 0),
        ALU_X(5, 0x35, "HFMA2.MMA", R_ALL, 0), ALU_U(6, 0x35, "HFMA2.MMA", R_ALL, 0),
        ALU_U(7, 0x35, "HFMA2.MMA", R_ALL, 0),
        ALU_R(0x1c, "PLOP3", FIXED, 0), ALU_X(2, 0x1c, "PLOP3", FIXED, 0),
        ALU_X(3, 0x1c, "PLOP3", FIXED, 0), ALU_X(4, 0x1c, "PLOP3", NO_R, 0),
        ALU_X(5, 0x1c, "PLOP3", FIXED, 0), ALU_U(6, 0x1c, "PLOP3", FIXED, 0),
        ALU_U(7, 0x1c, "PLOP3", FIXED, 0),
        ALU(0x07, "SEL", R_DAB), ALU(0x08, "FSEL", R_DAB), ALU(0x09, "FMNMX", FIXED),
        ALU(0x0a, "FSET", FIXED), ALU(0x0b, "FSETP", FIXED), ALU(0x0f, "VHMNMX", FIXED),
        ALU(0x11, "LEA", R_ALL), ALU(0x13, "IABS", R_DB), ALU(0x16, "PRMT", R_ALL),
        ALU(0x17, "IMNMX", R_DAB), ALU(0x19, "SHF", R_ALL), ALU(0x1a, "SGXT", R_DAB),
        ALU(0x1b, "BMSK", R_DAB), ALU(0x20, "FMUL", FIXED), ALU(0x21, "FADD", FIXED),
        ALU(0x22, "FSWZADD", FIXED), ALU(0x23, "FFMA", FIXED), ALU(0x26, "IDP", FIXED),
        ALU(0x27, "IMAD.HI", R_ALL), ALU_64(0x28, "DMUL"), ALU_64(0x29, "DADD"),
        ALU_64(0x2a, "DSETP"), ALU_64(0x2b, "DFMA"), ALU(0x30, "HADD2", FIXED),
        ALU(0x32, "HMUL2", FIXED), ALU(0x33, "HSET2", FIXED), ALU(0x34, "HSETP2", FIXED),
        ALU(0x36, "VIADD", R_DAB), ALU(0x37, "IMMA", FIXED), ALU(0x3c, "HMMA", FIXED),
        ALU(0x3d, "BMMA", FIXED), ALU(0x3e, "F2FP", FIXED), ALU(0x40, "HMNMX2", FIXED),
        ALU(0x43, "F2IP", FIXED), ALU(0x45, "I2FP", FIXED), ALU(0x46, "VIADDMNMX", FIXED),
        ALU(0x48, "VIMNMX", R_DAB), OP(0x803, "P2R", 0, MOVES(R_DA)), OP(0x804, "R2P", 0, MOVES(R_A)),
        OP(0x805, "CS2R", TWICE, MOVES(R_D)), OP(0x806, "VOTE", JOINT, MOVES(R_D), ROLE(VOTE)),
        OP(0x23a, "MOVM", QUEUE), OP(0x23f, "DMMA", QUEUE), XU(0x100, "FLO", R_DB, 0),
        XU(0x101, "BREV", R_DB, 0), XU(0x102, "FCHK", FIXED, ARCH_PREDICATE_LATE),
        XU(0x104, "F2F", FIXED, 0), XU(0x105, "F2I", R_DB, 0), XU(0x106, "I2F", R_DB, 0),
        XU(0x107, "FRND", FIXED, 0), XU(0x108, "MUFU", R_DB, 0), XU(0x109, "POPC", R_DB, 0),
        XU(0x110, "F2F.64", FIXED, 0), XU(0x111, "F2I.64", FIXED, 0), XU(0x112, "I2F.64", FIXED, 0),
        XU(0x113, "FRND.64", FIXED, 0),

        /* uniform datapath */
        UALU(0x87, "USEL"), UALU(0x8c, "UISETP"), UALU_SAME(0x90, "UIADD3", TWO_P, 0),
        UALU_SAME(0x91, "ULEA", ONE_P, 0), UALU_SAME(0x92, "ULOP3", ONE_P, 0), UALU(0x96, "UPRMT"),
        UALU(0x97, "UIADD3.64"), UALU_SAME(0x99, "USHF", 0, 0), UALU(0x9a, "USGXT"),
        UALU(0x9b, "UBMSK"), UALU_SAME(0xa4, "UIMAD", ONE_P, 0),
        UALU_SAME(0xa5, "UIMAD.WIDE", ONE_P, UR_D | UR_C), /* result and addend */
        OP(0x882, "UMOV", ARCH_UNIFORM | ARCH_SAME_FOR_ALL | TWICE, UR(UR_D, UR_D, 1), MOVES(NO_R)),
        OP(0xc82, "UMOV", ARCH_UNIFORM | ARCH_SAME_FOR_ALL, UR(UR_D | UR_B, UR_D, 1), MOVES(NO_R)),
        OP(0x2bd, "UFLO", ARCH_UNIFORM, UR(UR_D | UR_B, UR_D, 1)),
        OP(0x2bf, "UPOPC", ARCH_UNIFORM, UR(UR_D | UR_B, UR_D, 1)),
        OP(0x2be, "UBREV", ARCH_UNIFORM, UR(UR_D | UR_B, UR_D, 1)),
        OP(0x883, "UP2UR", ARCH_UNIFORM, UR(UR_D | UR_A, UR_D, 1)),
        OP(0x884, "UR2UP", ARCH_UNIFORM, UR(UR_A, 0, 1)),
        OP(0x886, "VOTEU", ARCH_UNIFORM | JOINT, UR(UR_D, UR_D, 1)),
        OP(0x82f, "ELECT", ARCH_UNIFORM | JOINT, UR(UR_D, UR_D, 1)),
        OP(0x89c, "UPLOP3", ARCH_UNIFORM),
        OP(0xab9, "ULDC", ARCH_UNIFORM | ARCH_SAME_FOR_ALL | TWICE, UR(UR_D, UR_D, 2), MOVES(NO_R),
           ROLE(ULDC)),
        OP(0xabb, "ULDC", ARCH_UNIFORM, UR(UR_D | UR_A, UR_D, 2), ROLE(ULDC_INDEXED)),

        /* between the register files: the uniform register of these is not marked by hi[27] */
        OP(0x2ca, "R2UR", ARCH_UNIFORM, UR(UR_D, UR_D, 1)),
        OP(0x3c4, "REDUX", ARCH_UNIFORM | ARCH_BRIEF | READS | JOINT, UR(UR_D, UR_D, 1), MOVES(R_A)),
        OP(0x9c3, "S2UR", ARCH_UNIFORM | TWICE, UR(UR_D, UR_D, 2), MOVES(NO_R), ROLE(S2UR)),

        /* special registers, votes, shuffles */
        OP(0x919, "S2R", ARCH_RESULT_LATE | TWICE, MOVES(R_D), ROLE(S2R)),
        OP(0x389, "SHFL", QUEUE | P_IF | JOINT), OP(0x589, "SHFL", QUEUE | P_IF | JOINT),
        OP(0x989, "SHFL", QUEUE | P_IF | JOINT), OP(0xf89, "SHFL", QUEUE | P_IF | JOINT),
        OP(0x3a1, "MATCH", LATE | P_IF | JOINT, MOVES(R_DA)), OP(0x3aa, "QSPC", LATE | ARCH_PREDICATE_LATE),

        /* memory. Loads have their uniform register in B, what carries data in C. */
        OP(0xb82, "LDC", LATE | TWICE, MOVES(R_D), ROLE(LDC)),
        OP(0x380, "LD", LATE, OTHER),
        OP(0x980, "LD", LATE, UR(UR_B, 0, 2), MOVES(R_DA), ACCESS(LOAD, GENERIC, PLAIN, 24, DESC_B, 32)),
        OP(0x381, "LDG", LATE, ACCESS(LOAD, GLOBAL, PLAIN, 24, NEVER, 24)),
        OP(0x981, "LDG", LATE, UR(UR_B, 0, 2), MOVES(R_DA), ACCESS(LOAD, GLOBAL, PLAIN, 24, DESC_B, 24)),
        OP(0x983, "LDL", LATE | NO, UR(UR_B, 0, 2), ACCESS(LOAD, LOCAL, PLAIN, 24, ADDED_B, 24)),
        OP(0x984, "LDS", QUEUE | NO, UR(UR_B, 0, 2), ACCESS(LOAD, SHARED, PLAIN, 24, ADDED_B, 24)),
        OP(0x83b, "LDSM", QUEUE | NO, UR(UR_B, 0, 2), OTHER),
        OP(0x385, "ST", READS | ARCH_NO_DESTINATION, ACCESS(STORE, GENERIC, PLAIN, 32, NEVER, 32)),
        OP(0x985, "ST", READS, UR(UR_C, 0, 2), MOVES(R_AB), ACCESS(STORE, GENERIC, PLAIN, 24, DESC_C, 24)),
        OP(0x386, "STG", READS, ACCESS(STORE, GLOBAL, PLAIN, 24, NEVER, 24)),
        OP(0x986, "STG", READS | ARCH_NO_DESTINATION, UR(UR_C, 0, 2), MOVES(R_AB),
           ACCESS(STORE, GLOBAL, PLAIN, 24, DESC_C, 24)),
        OP(0x387, "STL", READS | NO | ARCH_NO_DESTINATION, ACCESS(STORE, LOCAL, PLAIN, 24, NEVER, 24)),
        OP(0x987, "STL", READS | NO, UR(UR_C, 0, 2), ACCESS(STORE, LOCAL, PLAIN, 24, ADDED_C, 24)),
        OP(0x388, "STS", READS | NO | ARCH_NO_DESTINATION, ACCESS(STORE, SHARED, PLAIN, 24, NEVER, 24)),
        OP(0x988, "STS", READS | NO, UR(UR_C, 0, 2), ACCESS(STORE, SHARED, PLAIN, 24, ADDED_C, 24)),
        OP(0x844, "STSM", READS | NO, UR(UR_B | UR_C, 0, 2), OTHER),
        OP(0x38a, "ATOM", LATE | P_IF, ACCESS(ATOMIC, GENERIC, INTEGER, 24, NEVER, 24)),
        OP(0x38b, "ATOM.CAS", LATE | P_IF, ACCESS(ATOMIC, GENERIC, COMPARE, 24, NEVER, 24)),
        OP(0x98a, "ATOM", LATE | P_IF, UR(UR_C, 0, 2), ACCESS(ATOMIC, GENERIC, INTEGER, 24, DESC_ATOM, 24)),
        OP(0x9a2, "ATOM", LATE | P_IF, UR(UR_C, 0, 2), ACCESS(ATOMIC, GENERIC, FLOAT, 24, DESC_ATOM, 24)),
        OP(0x38c, "ATOMS", LATE | NO, ACCESS(ATOMIC, SHARED, INTEGER, 24, NEVER, 24)),
        OP(0x38d, "ATOMS.CAS", LATE | NO, ACCESS(ATOMIC, SHARED, COMPARE, 24, NEVER, 24)),
        OP(0x98c, "ATOMS", LATE | NO, UR(UR_C, 0, 2), ACCESS(ATOMIC, SHARED, INTEGER, 24, ADDED_C, 24)),
        OP(0xf8c, "ATOMS.POPC", LATE | NO, UR(UR_D | UR_C, 0, 2), ACCESS(ATOMIC, SHARED, WORD, 24, ADDED_C, 24)),
        OP(0x3a3, "ATOMG", LATE | P_IF, ACCESS(ATOMIC, GLOBAL, FLOAT, 24, NEVER, 24)),
        OP(0x3a8, "ATOMG", LATE | P_IF, OTHER),
        OP(0x3a9, "ATOMG.CAS", LATE | P_IF, MOVES(R_ALL), ACCESS(ATOMIC, GLOBAL, COMPARE, 24, NEVER, 24)),
        OP(0x9a3, "ATOMG", LATE | P_IF, UR(UR_C, 0, 2), MOVES(R_DAB),
           ACCESS(ATOMIC, GLOBAL, FLOAT, 24, DESC_ATOM, 24)),
        OP(0x9a8, "ATOMG", LATE | P_IF, UR(UR_C, 0, 2), MOVES(R_DAB),
           ACCESS(ATOMIC, GLOBAL, INTEGER, 24, DESC_ATOM, 24)),
        OP(0x98e, "REDG", READS, UR(UR_C, 0, 2), MOVES(R_AB), ACCESS(ATOMIC, GLOBAL, INTEGER, 24, DESC_RED, 24)),
        OP(0x9a6, "REDG", READS, UR(UR_C, 0, 2), MOVES(R_AB), ACCESS(ATOMIC, GLOBAL, FLOAT, 24, DESC_RED, 24)),
        OP(0x9a4, "LDGMC", LATE | NO, UR(UR_B | UR_C, 0, 2), OTHER),
        OP(0x9a5, "LDGMC", LATE | NO, UR(UR_B | UR_C, 0, 2), OTHER),
        OP(0xdae, "LDGSTS", READS | NO, UR(UR_B | UR_C | UR_E, 0, 2), OTHER),
        OP(0xfae, "LDGSTS", READS | NO, UR(UR_C | UR_E, 0, 2), ACCESS(LOAD, GLOBAL, PLAIN, 12, COPY_C, 12)),
        OP(0xdbd, "STAS", READS | NO, UR(UR_B | UR_C, 0, 2), OTHER),
        OP(0xf60, "TEX", LATE | NO, UR(UR_C | UR_E, 0, 2), OTHER),
        OP(0xf63, "TLD4", LATE | NO, UR(UR_C | UR_E, 0, 2), OTHER),
        OP(0xf66, "TLD", LATE | NO, UR(UR_C | UR_E, 0, 2), OTHER),
        OP(0xf6c, "TXD", LATE | NO, UR(UR_C | UR_E, 0, 2), OTHER),
        OP(0xf6f, "TXQ", LATE | NO, UR(UR_C | UR_E, 0, 2)),
        OP(0xf99, "SULD", LATE | NO, UR(UR_C | UR_E, 0, 2), OTHER),
        OP(0xf9b, "SUST.P", READS | NO, UR(UR_C | UR_E, 0, 2), OTHER),
        OP(0xf9d, "SUST", READS | NO, UR(UR_C | UR_E, 0, 2), OTHER),
        OP(0xf9f, "SURED", READS | NO, UR(UR_C | UR_E, 0, 2), OTHER),
        OP(0x98f, "CCTL", READS), OP(0x992, "MEMBAR", 0), OP(0x9ab, "ERRBAR", 0),
        OP(0x5ab, "CGAERRBAR", 0), OP(0x3c6, "FENCE", 0),
        OP(0x9af, "LDGDEPBAR", NO), OP(0x91a, "DEPBAR", ARCH_PECULIAR, ROLE(DEPBAR)),
        OP(0x82d, "PREEXIT", NO), OP(0x82e, "ACQBULK", NO),

        /* bulk copies, asynchronous barriers, tensor cores */
        OP(0x3b4, "UTMALDG", NO | ARCH_UNIFORM, UR(INSTR_UR_ALL, 0, 2), OTHER),
        OP(0x5b4, "UTMALDG", NO | ARCH_UNIFORM, UR(INSTR_UR_ALL, 0, 2), OTHER),
        OP(0x3b5, "UTMASTG", NO | ARCH_UNIFORM, UR(INSTR_UR_ALL, 0, 2), OTHER),
        OP(0x3b6, "UTMAREDG", NO | ARCH_UNIFORM, UR(INSTR_UR_ALL, 0, 2), OTHER),
        OP(0x5b8, "UTMAPF", NO | ARCH_UNIFORM, UR(INSTR_UR_ALL, 0, 2)),
        OP(0x3ba, "UBLKCP", NO | ARCH_UNIFORM, UR(INSTR_UR_ALL, 0, 2), OTHER),
        OP(0x3bb, "UBLKRED", NO | ARCH_UNIFORM, UR(INSTR_UR_ALL, 0, 2), OTHER),
        OP(0x3bc, "UBLKPF", NO | ARCH_UNIFORM, UR(INSTR_UR_ALL, 0, 2)),
        OP(0x9b7, "UTMACMD", NO, OTHER),
        OP(0x5a7, "SYNCS", LATE | NO | ARCH_PREDICATE_LATE, UR(UR_C, 0, 2)),
        OP(0x9a7, "SYNCS", LATE | NO | ARCH_PREDICATE_LATE, UR(UR_C, 0, 2)),
        OP(0x5b2, "SYNCS", NO | ARCH_UNIFORM, UR(UR_D | UR_A | UR_B | UR_C, UR_D, 2)),
        OP(0x9b0, "ARRIVES", READS | NO, UR(UR_B | UR_C, 0, 2)),
        OP(0x9f0, "HGMMA", NO | ARCH_UNIFORM, UR(UR_A, 0, 4), OTHER),
        OP(0xdf0, "HGMMA", NO, UR(UR_B, 0, 4), OTHER),
        OP(0x9f1, "IGMMA", NO | ARCH_UNIFORM, UR(UR_A, 0, 4), OTHER),
        OP(0xdf1, "IGMMA", NO, UR(UR_B, 0, 4), OTHER),
        OP(0x9f3, "QGMMA", NO | ARCH_UNIFORM, UR(UR_A, 0, 4), OTHER),
        OP(0xdf3, "QGMMA", NO, UR(UR_B, 0, 4), OTHER), OP(0x9c5, "WARPGROUP", NO),
        OP(0x9c7, "UCGABAR", NO), OP(0xdc7, "UCGABAR", NO),
        OP(0x9c8, "USETMAXREG", ARCH_PECULIAR | NO, ROLE(USETMAXREG)), OP(0x9c9, "USETSHMSZ", NO),

        /* barriers of the block */
        OP(0x31d, "BAR", READS | NO), OP(0x51d, "BAR", READS | NO), OP(0x91d, "BAR", READS | NO),
        OP(0xb1d, "BAR", NO), OP(0x31c, "B2R", ARCH_RESULT_LATE | NO | ARCH_PREDICATE_LATE),

        /* flow */
        OP(0x918, "NOP", TWICE, MOVES(NO_R), ROLE(NOP)), OP(0x946, "YIELD", 0, MOVES(NO_R), ROLE(YIELD)),
        OP(0x95d, "NANOSLEEP", 0, ROLE(YIELD)), OP(0x35d, "NANOSLEEP", READS, ROLE(YIELD)),
        OP(0x947, "BRA", FLOW | ARCH_BRANCH_TARGET, UR(UR_A, 0, 2), MOVES(NO_R), ROLE(BRA)),
        OP(0x547, "BRA.U", FLOW | ARCH_BRANCH_TARGET, UR(INSTR_UR_ALL, 0, 2)),
        OP(0x949, "BRX", FLOW, ROLE(BRX)),
        OP(0x943, "CALL.ABS", FLOW, ROLE(CALL_ABSOLUTE)), OP(0x343, "CALL.ABS", FLOW, ROLE(CALL_REGISTER)),
        OP(0x944, "CALL.REL", FLOW | ARCH_BRANCH_TARGET, ROLE(CALL_RELATIVE)),
        OP(0x344, "CALL.REL", FLOW, ROLE(CALL_REGISTER)), OP(0x950, "RET", FLOW),
        OP(0x94d, "EXIT", FLOW, MOVES(NO_R), ROLE(EXIT)), OP(0x94e, "LEPC", FLOW), OP(0x95c, "BPT", FLOW),
        OP(0x945, "BSSY", FLOW | ARCH_BARRIER_D, MOVES(NO_R), ROLE(BSSY)),
        OP(0x941, "BSYNC", FLOW | ARCH_BARRIER_D, MOVES(NO_R), ROLE(BSYNC)),
        OP(0x942, "BREAK", FLOW | ARCH_BARRIER_D, MOVES(NO_R), ROLE(BREAK)),
        OP(0x948, "WARPSYNC", FLOW | ARCH_BRANCH_TARGET, ROLE(WARPSYNC)),
        OP(0x348, "WARPSYNC", FLOW | ARCH_BRANCH_TARGET, ROLE(WARPSYNC)),
        OP(0x91b, "ENDCOLLECT", FLOW, ROLE(ENDCOLLECT)),
        /* in one of these fields, the other holds a general register */
        OP(0x355, "BMOV", ARCH_RESULT_LATE | NO | ARCH_BARRIER_D | ARCH_BARRIER_A),
        OP(0x356, "BMOV", READS | NO | ARCH_BARRIER_D | ARCH_BARRIER_A),
        },
        /* clang-format on */
};
