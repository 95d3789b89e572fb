/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/uvm_trace.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "probe/uvm_symbols.h"

#define ARGUMENTS_IN_REGISTERS 6 /* before Linux 6.6 a trampoline hands on no others */

int uvm_trace_check(const struct uvm_symbol *s)
{
        if (!s->name[0])
                return -ENOENT;
        if (!s->exact)
                return -EILSEQ;
        if (!s->has_prototype)
                return -ENODATA;
        return s->unique ? 0 : -ENOTUNIQ;
}

static const char *sentence(int error)
{
        switch (error) {
        case -ENOENT:
                return "the module has none of the functions known";
        case -EILSEQ:
                return "no fentry: the compiler changed the function's arguments";
        case -ENODATA:
                return "no fentry: BTF of the module does not tell its arguments";
        case -ENOTUNIQ:
                return "no fentry: something else in the kernel has the same name";
        case -EPERM:
        case -EACCES:
                return "no fentry: the kernel does not permit it";
        case -UVM_TRACE_ENOTSUPP:
                return "no fentry: the kernel has none on functions of modules";
        default:
                return NULL;
        }
}

void uvm_trace_explain(const struct uvm_symbol *s, int error, char *buffer, size_t size)
{
        const char *text = sentence(error);

        if (error == -UVM_TRACE_ENOTSUPP && s->parameters > ARGUMENTS_IN_REGISTERS)
                snprintf(buffer, size, "no fentry: of %u arguments (Linux 6.6 has it up to 12)",
                         s->parameters);
        else if (text)
                snprintf(buffer, size, "%s", text);
        else
                snprintf(buffer, size, "no fentry: %s", strerror(-error));
}
