/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Cubins: each input is spliced as an image, with probes that came from the
 * corpus, and also taken for a probe. Whatever the splicer makes of an image must
 * be an image it can read again.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/cubin.h"
#include "unit/splice_pair.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct probe_code *load_probe(const char *name)
{
        static uint8_t bytes[65536];
        struct probe_code *code = NULL;
        char path[4096];
        size_t size;
        FILE *f;

        snprintf(path, sizeof(path), "%s/%s", FUZZ_PROBES, name);
        f = fopen(path, "rb");
        if (!f)
                abort();
        size = fread(bytes, 1, sizeof(bytes), f);
        fclose(f);
        if (probe_code_extract(bytes, size, &code, NULL) < 0)
                abort();
        return code;
}

static void splice(const uint8_t *data, size_t size, const struct splice_pair *probes)
{
        struct splice_result *r;
        struct cubin c;

        if (splice_pair_image(data, size, probes, 1, &r, NULL) < 0)
                return;
        if (cubin_open(r->image, r->image_bytes, &c, NULL) < 0)
                abort();
        cubin_done(&c);
        splice_result_free(r);
}

/* Two programs at accesses, beside the others. */
static void splice_accesses(const uint8_t *data, size_t size, const struct probe_code *mem)
{
        const struct probe_program programs[] = {
                {.where = AGENT_PROGRAM_MEM, .label = "one", .code = mem},
                {.where = AGENT_PROGRAM_EXIT, .label = "exit", .code = mem},
                {.where = AGENT_PROGRAM_MEM, .label = "two", .code = mem},
        };
        struct splice_result *r;
        struct cubin c;

        if (splice_image(data, size, &(struct probe_list){.programs = programs, .count = 3}, 1, &r,
                         NULL) < 0)
                return;
        if (cubin_open(r->image, r->image_bytes, &c, NULL) < 0)
                abort();
        cubin_done(&c);
        splice_result_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static struct splice_pair known;
        static struct probe_code *mem;
        struct probe_code *code;
        struct splice_pair made;

        if (!known.programs[PAIR_ENTRY].code)
                known = splice_pair(load_probe("entry.cubin"), load_probe("exit.cubin"));
        if (!mem)
                mem = load_probe("mem.cubin");
        splice(data, size, &known);
        splice_accesses(data, size, mem);
        if (probe_code_extract(data, size, &code, NULL) == 0) {
                made = splice_pair(code, code);
                splice(data, size, &made);
                splice_accesses(data, size, code);
                probe_code_free(code);
        }
        return 0;
}
