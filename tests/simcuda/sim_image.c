/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Code images. The simulated device has no machine code: of a fatbin it takes
 * the PTX for the highest architecture it is allowed to run, and refuses an image
 * that only has cubins, as a driver does for a device of another kind.
 */
#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "sim.h"

#define WRAPPER_MAGIC   0x466243b1u
#define CONTAINER_MAGIC 0xba55ed50u
#define ELF_MAGIC       0x464c457fu
#define KIND_PTX        1
#define FLAG_LZ4        0x2000
#define FLAG_ZSTD       0x8000
#define MAX_TEXT_BYTES  (256ULL << 20)

struct wrapper {
        uint32_t magic;
        uint32_t version;
        const void *container;
        const void *unused;
};

struct container {
        uint32_t magic;
        uint16_t version;
        uint16_t header_bytes;
        uint64_t bytes; /* after the header */
};

struct entry {
        uint16_t kind;
        uint16_t version;
        uint32_t header_bytes;
        uint64_t payload_bytes;    /* with padding */
        uint32_t compressed_bytes; /* 0: not compressed */
        uint32_t reserved;
        uint16_t minor, major;
        uint32_t arch;
        uint32_t name_offset, name_bytes;
        uint64_t flags;
        uint64_t reserved2;
        uint64_t uncompressed_bytes;
};
_Static_assert(sizeof(struct entry) == 64, "fatbin entry");

static CUresult copy_text(const void *from, size_t bytes, char **ret_text, size_t *ret_bytes)
{
        char *text = malloc(bytes + 1);

        if (!text)
                return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(text, from, bytes);
        text[bytes] = '\0';
        *ret_text = text;
        *ret_bytes = bytes;
        return CUDA_SUCCESS;
}

static bool decompress(const struct entry *e, const void *payload, size_t bytes, char *text)
{
        if (e->flags & FLAG_ZSTD)
                return ZSTD_decompress(text, e->uncompressed_bytes, payload, bytes) ==
                       e->uncompressed_bytes;
        return bytes <= INT32_MAX &&
               LZ4_decompress_safe(payload, text, (int)bytes, (int)e->uncompressed_bytes) ==
                       (int)e->uncompressed_bytes;
}

static CUresult entry_text(const struct entry *e, char **ret_text, size_t *ret_bytes)
{
        const uint8_t *payload = (const uint8_t *)e + e->header_bytes;
        size_t bytes = e->compressed_bytes ? e->compressed_bytes : e->payload_bytes;
        char *text;

        if (bytes > e->payload_bytes)
                return CUDA_ERROR_INVALID_IMAGE;
        if (!(e->flags & (FLAG_LZ4 | FLAG_ZSTD)))
                return copy_text(payload, bytes, ret_text, ret_bytes);
        if (e->uncompressed_bytes == 0 || e->uncompressed_bytes > MAX_TEXT_BYTES)
                return CUDA_ERROR_INVALID_IMAGE;
        text = malloc(e->uncompressed_bytes + 1);
        if (!text)
                return CUDA_ERROR_OUT_OF_MEMORY;
        if (!decompress(e, payload, bytes, text)) {
                free(text);
                return CUDA_ERROR_INVALID_IMAGE;
        }
        text[e->uncompressed_bytes] = '\0';
        *ret_text = text;
        *ret_bytes = e->uncompressed_bytes;
        return CUDA_SUCCESS;
}

/* The best PTX entry of a container; *ret_entry NULL when there is none. */
static CUresult find_ptx(const struct container *c, const struct entry **ret_entry)
{
        const uint8_t *at = (const uint8_t *)c + c->header_bytes, *end = at + c->bytes;
        const struct entry *best = NULL;

        if (c->header_bytes < sizeof(*c))
                return CUDA_ERROR_INVALID_IMAGE;
        while (at < end) {
                const struct entry *e = (const struct entry *)at;
                uint64_t left = (uint64_t)(end - at);

                if (left < sizeof(*e) || e->header_bytes < sizeof(*e) || e->header_bytes > left ||
                    e->payload_bytes > left - e->header_bytes)
                        return CUDA_ERROR_INVALID_IMAGE;
                if (e->kind == KIND_PTX && e->arch <= SIM_SM && (!best || e->arch > best->arch))
                        best = e;
                at += e->header_bytes + e->payload_bytes;
        }
        *ret_entry = best;
        return CUDA_SUCCESS;
}

static CUresult container_ptx(const struct container *c, char **ret_text, size_t *ret_bytes)
{
        const struct entry *e;
        CUresult r = find_ptx(c, &e);

        if (r)
                return r;
        return e ? entry_text(e, ret_text, ret_bytes) : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult sim_image_ptx(const void *image, char **ret_text, size_t *ret_bytes)
{
        const struct wrapper *wrapper = image;
        uint8_t first;
        uint32_t magic;

        if (!image)
                return CUDA_ERROR_INVALID_VALUE;
        memcpy(&first, image, 1);
        if (first == (WRAPPER_MAGIC & 0xff) || first == (CONTAINER_MAGIC & 0xff) ||
            first == (ELF_MAGIC & 0xff)) {
                memcpy(&magic, image, sizeof(magic));
                if (magic == ELF_MAGIC)
                        return CUDA_ERROR_NO_BINARY_FOR_GPU;
                if (magic == CONTAINER_MAGIC)
                        return container_ptx(image, ret_text, ret_bytes);
                if (magic != WRAPPER_MAGIC || !wrapper->container)
                        return CUDA_ERROR_INVALID_IMAGE;
                memcpy(&magic, wrapper->container, sizeof(magic));
                if (magic != CONTAINER_MAGIC)
                        return CUDA_ERROR_INVALID_IMAGE;
                return container_ptx(wrapper->container, ret_text, ret_bytes);
        }
        if (first != '.' && first != '/' && first != '\n' && first != '\r' && first != ' ' &&
            first != '\t')
                return CUDA_ERROR_INVALID_IMAGE;
        return copy_text(image, strlen(image), ret_text, ret_bytes);
}
