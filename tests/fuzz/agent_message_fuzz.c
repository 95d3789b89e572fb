/* SPDX-License-Identifier: Apache-2.0 */

/* Packets of an agent, as the daemon checks them: any bytes are taken or refused. */
#include "api/agent_server.h"
#include "unit/test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long sum; /* reads every byte that is handed out */

static int on_hello(void *data, struct agent *a, pid_t pid, uid_t uid, const struct agent_hello *h,
                    struct agent_offer *ret_offer, char *reason, size_t reason_size)
{
        return 0;
}

static void on_image(void *data, struct agent *a, const struct agent_image *image)
{
        sum += strlen(image->reason);
}

static void on_kernel(void *data, struct agent *a, uint32_t image_id, const struct agent_kernel *k,
                      const char *name, const char *reason)
{
        for (uint16_t i = 0; i < k->name_bytes; i++)
                sum += (unsigned char)name[i];
        for (uint16_t i = 0; i < k->reason_bytes; i++)
                sum += (unsigned char)reason[i];
}

static void on_clock(void *data, struct agent *a, const struct agent_clock *c)
{
        sum += c->gpu_ns;
}

static void on_handle(void *data, struct agent *a, uint64_t func)
{
        sum += func;
}

static void on_function(void *data, struct agent *a, uint64_t func, uint64_t image,
                        const char *name, size_t name_length)
{
        sum += func + image;
        for (size_t i = 0; i < name_length; i++)
                sum += (unsigned char)name[i];
}

static void on_text(void *data, struct agent *a, uint32_t kind, const char *text)
{
        sum += strlen(text);
}

static void on_error(void *data, struct agent *a, const char *what)
{
        sum += strlen(what);
}

static void on_gone(void *data, struct agent *a)
{
}

static void on_attached(void *data, struct agent *a, const struct agent_attached *m)
{
        sum += m->id + strlen(m->reason);
}

static void on_detached(void *data, struct agent *a, const struct agent_detached *m)
{
        sum += m->id;
}

static void on_map_done(void *data, struct agent *a, const struct agent_map_done *m)
{
        sum += m->request;
}

static const struct agent_server_ops ops = {
        .hello = on_hello,
        .image = on_image,
        .kernel = on_kernel,
        .clock = on_clock,
        .handle = on_handle,
        .function = on_function,
        .bye = on_gone,
        .note = on_text,
        .attached = on_attached,
        .detached = on_detached,
        .map_done = on_map_done,
        .protocol_error = on_error,
        .gone = on_gone,
        .wake = on_gone,
};

/* What passes can be used to index the devices. */
static void read_hello(const uint8_t *data, size_t size)
{
        struct agent_hello hello = {0};

        if (agent_hello_read(data, size, &hello) < 0)
                return;
        for (uint32_t i = 0; i < hello.device_count; i++)
                sum += hello.device_uuids[i][15];
        sum += hello.device_uuids[hello.device][0];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct agent_header h = {0};

        read_hello(data, size);
        agent_message(&ops, NULL, NULL, data, size);
        if (size < sizeof(h) || size > AGENT_PACKET_MAX)
                return 0;
        /* Again with a sound header, so that mutations get past it. */
        uint8_t *copy = malloc(size);

        CHECK(copy);
        memcpy(copy, data, size);
        h = (struct agent_header){(uint16_t)(data[0] % (AGENT_WAKE + 1)), AGENT_ABI_VERSION,
                                  (uint32_t)size};
        memcpy(copy, &h, sizeof(h));
        agent_message(&ops, NULL, NULL, copy, size);
        free(copy);
        return 0;
}
