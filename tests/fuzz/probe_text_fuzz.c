/* SPDX-License-Identifier: Apache-2.0 */
/* The linker's cache and files of /proc (devices, kallsyms, maps, stat), of any contents. */
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "probe/ld_cache.h"
#include "probe/proc_devices.h"
#include "probe/proc_maps.h"
#include "probe/process_info.h"
#include "probe/uvm_symbols.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile size_t seen;

static void found(void *data, const char *path)
{
        seen += strlen(path);
}

static void parse_text(const uint8_t *data, size_t size)
{
        struct proc_mapping mapping;
        char comm[16], *text = malloc(size + 1);
        uint64_t ticks;

        if (!text)
                return;
        memcpy(text, data, size);
        text[size] = '\0';
        if (process_parse_stat(text, comm, &ticks) == 0)
                seen += strlen(comm);
        if (proc_maps_parse_line(text, "libcuda.so", &mapping))
                seen += strlen(mapping.path);
        seen += proc_devices_parse(text, "nvidia-uvm");
        free(text);
}

static void parse_symbols(uint8_t *text, size_t size)
{
        FILE *f = size ? fmemopen(text, size, "r") : NULL;
        struct uvm_symbols symbols;

        if (!f)
                return;
        uvm_symbols_find(f, NULL, &symbols);
        for (int i = 0; i < UVM_POINT_COUNT; i++)
                seen += strlen(symbols.points[i].name);
        fclose(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        /* Exactly as long as it is, so that a read beyond is seen. */
        uint8_t *exact = malloc(size ? size : 1);

        if (!exact)
                return 0;
        memcpy(exact, data, size);
        ld_cache_search(exact, size, "libcuda.so", found, NULL);
        parse_symbols(exact, size);
        free(exact);
        parse_text(data, size);
        return 0;
}
