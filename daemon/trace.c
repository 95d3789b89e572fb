/* SPDX-License-Identifier: Apache-2.0 */
#include "trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "util/time.h"

#define BUFFER_BYTES (1u << 20)

struct trace {
        FILE *file;
};

int trace_new(const char *path, struct trace **ret_trace)
{
        struct trace *t = calloc(1, sizeof(*t));
        int r;

        if (!t)
                return -ENOMEM;
        t->file = fopen(path, "we");
        if (!t->file) {
                r = -errno;
                free(t);
                return r;
        }
        setvbuf(t->file, NULL, _IOFBF, BUFFER_BYTES);
        fwrite(TRACE_MAGIC, 1, sizeof(TRACE_MAGIC) - 1, t->file);
        *ret_trace = t;
        return 0;
}

struct trace *trace_free(struct trace *t)
{
        if (!t)
                return NULL;
        fclose(t->file);
        free(t);
        return NULL;
}

void trace_write(struct trace *t, enum trace_kind kind, uint64_t process_key, const void *a,
                 size_t a_size, const void *b, size_t b_size)
{
        struct trace_head h;

        if (!t)
                return;
        h = (struct trace_head){
                .kind = kind,
                .size = (uint32_t)(a_size + b_size),
                .process_key = process_key,
                .at_ns = now_ns(),
        };
        fwrite(&h, sizeof(h), 1, t->file);
        if (a_size)
                fwrite(a, a_size, 1, t->file);
        if (b_size)
                fwrite(b, b_size, 1, t->file);
}
