/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include <Zydis/Zydis.h>

#include "x86.h"

static struct {
        void *library;
        __typeof__(&ZydisDecoderInit) decoder_init;
        __typeof__(&ZydisDecoderDecodeFull) decode_full;
        __typeof__(&ZydisCalcAbsoluteAddress) absolute_address;
        ZydisDecoder decoder;
} zydis;

int x86_open(void)
{
        __typeof__(&ZydisGetVersion) get_version;
        void *library;

        if (zydis.library)
                return 0;
        /* Beside this library (its RUNPATH) Zydis would not find its own dependency. */
        dlopen("libZycore.so.1.4", RTLD_NOW | RTLD_LOCAL);
        library = dlopen("libZydis.so.4.0", RTLD_NOW | RTLD_LOCAL);
        if (!library)
                return -ENOENT;
        get_version = (__typeof__(get_version))dlsym(library, "ZydisGetVersion");
        zydis.decoder_init = (__typeof__(zydis.decoder_init))dlsym(library, "ZydisDecoderInit");
        zydis.decode_full = (__typeof__(zydis.decode_full))dlsym(library, "ZydisDecoderDecodeFull");
        zydis.absolute_address =
                (__typeof__(zydis.absolute_address))dlsym(library, "ZydisCalcAbsoluteAddress");
        if (!get_version || !zydis.decoder_init || !zydis.decode_full || !zydis.absolute_address ||
            ZYDIS_VERSION_MAJOR(get_version()) != 4 || ZYDIS_VERSION_MINOR(get_version()) != 0 ||
            !ZYAN_SUCCESS(zydis.decoder_init(&zydis.decoder, ZYDIS_MACHINE_MODE_LONG_64,
                                             ZYDIS_STACK_WIDTH_64))) {
                dlclose(library);
                return -ENOTSUP;
        }
        zydis.library = library;
        return 0;
}

static enum x86_flow flow_of(const ZydisDecodedInstruction *insn, bool relative)
{
        switch (insn->meta.category) {
        case ZYDIS_CATEGORY_RET:
        case ZYDIS_CATEGORY_INTERRUPT:
                return X86_ENDS;
        case ZYDIS_CATEGORY_COND_BR:
        case ZYDIS_CATEGORY_UNCOND_BR:
                return relative ? X86_BRANCH : X86_INDIRECT;
        case ZYDIS_CATEGORY_CALL:
                return relative ? X86_CALL : X86_FALLS_THROUGH;
        default:
                break;
        }
        switch (insn->mnemonic) {
        case ZYDIS_MNEMONIC_UD0:
        case ZYDIS_MNEMONIC_UD1:
        case ZYDIS_MNEMONIC_UD2:
        case ZYDIS_MNEMONIC_HLT:
                return X86_ENDS;
        default:
                return X86_FALLS_THROUGH;
        }
}

static int pushed_register(const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *operands)
{
        if (insn->mnemonic != ZYDIS_MNEMONIC_PUSH || insn->operand_count_visible != 1 ||
            operands[0].type != ZYDIS_OPERAND_TYPE_REGISTER || insn->length > 2)
                return -1;
        if (operands[0].reg.value < ZYDIS_REGISTER_RAX ||
            operands[0].reg.value > ZYDIS_REGISTER_R15)
                return -1;
        return (int)(operands[0].reg.value - ZYDIS_REGISTER_RAX);
}

static void find_relative(const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *operands,
                          uintptr_t address, struct x86_instruction *i)
{
        ZyanU64 target;

        for (int k = 0; k < insn->operand_count_visible; k++) {
                const ZydisDecodedOperand *op = &operands[k];

                if (op->type == ZYDIS_OPERAND_TYPE_MEMORY &&
                    (op->mem.base == ZYDIS_REGISTER_RIP || op->mem.base == ZYDIS_REGISTER_EIP)) {
                        i->field_offset = insn->raw.disp.offset;
                        i->field_bytes = insn->raw.disp.size / 8u;
                } else if (op->type == ZYDIS_OPERAND_TYPE_IMMEDIATE && op->imm.is_relative) {
                        i->field_offset = insn->raw.imm[0].offset;
                        i->field_bytes = insn->raw.imm[0].size / 8u;
                } else {
                        continue;
                }
                i->relative = true;
                if (ZYAN_SUCCESS(zydis.absolute_address(insn, op, address, &target)))
                        i->target = (uintptr_t)target;
        }
}

int x86_decode(const uint8_t *code, size_t size, uintptr_t address,
               struct x86_instruction *ret_instruction)
{
        ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
        struct x86_instruction i = {.push_register = -1};
        ZydisDecodedInstruction insn;
        bool branch_relative;

        if (!ZYAN_SUCCESS(zydis.decode_full(&zydis.decoder, code, size, &insn, operands)))
                return -EINVAL;
        i.length = insn.length;
        find_relative(&insn, operands, address, &i);
        branch_relative = insn.operand_count_visible > 0 &&
                          operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
                          operands[0].imm.is_relative;
        i.flow = flow_of(&insn, branch_relative);
        i.conditional = insn.meta.category == ZYDIS_CATEGORY_COND_BR;
        i.nop = insn.mnemonic == ZYDIS_MNEMONIC_NOP || insn.mnemonic == ZYDIS_MNEMONIC_ENDBR64;
        i.push_register = pushed_register(&insn, operands);
        *ret_instruction = i;
        return 0;
}
