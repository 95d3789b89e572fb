/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The agent in a process whose driver is a stub (agent_stub_driver.c) and whose
 * daemon is the test: every way a load, a driver or a daemon can be odd. Each
 * case is a child process that loads the stub, initialises it, and acts as an
 * application; the parent plays the daemon and looks at what it is told.
 *
 *     agent_stub_test AGENT.so STUB.so
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent_daemon.h"
#include "agent_stub_driver.h"
#include "device/device_abi.h"
#include "unit/test.h"

#define PTX                                                                                        \
        ".version 8.0\n.target sm_80\n.address_size 64\n.entry one { ret; }\n.entry two { ret; "   \
        "}\n"
#define BAD_PTX ".version 8.0\n.entry one { ret }\n"
#define INVALID 218

static const char *agent_path, *stub_path;

static struct {
        struct stub_state *state;
        int (*init)(unsigned);
        int (*module_load_data)(void **, const void *);
        int (*module_load_data_ex)(void **, const void *, unsigned, int *, void **);
        int (*module_load_fat_binary)(void **, const void *);
        int (*module_load)(void **, const char *);
        int (*library_load_data)(void **, const void *, int *, void **, unsigned, int *, void **,
                                 unsigned);
        int (*library_load_from_file)(void **, const char *, int *, void **, unsigned, int *,
                                      void **, unsigned);
        int (*primary_reset)(int);
        int (*primary_retain)(void **, int);
} cuda;

static void load_driver(void)
{
        void *library = dlopen(stub_path, RTLD_NOW);

        if (!library)
                fprintf(stderr, "%s\n", dlerror());
        CHECK(library);
        *(void **)&cuda.state = dlsym(library, "stub");
        *(void **)&cuda.init = dlsym(library, "cuInit");
        *(void **)&cuda.module_load_data = dlsym(library, "cuModuleLoadData");
        *(void **)&cuda.module_load_data_ex = dlsym(library, "cuModuleLoadDataEx");
        *(void **)&cuda.module_load_fat_binary = dlsym(library, "cuModuleLoadFatBinary");
        *(void **)&cuda.module_load = dlsym(library, "cuModuleLoad");
        *(void **)&cuda.library_load_data = dlsym(library, "cuLibraryLoadData");
        *(void **)&cuda.library_load_from_file = dlsym(library, "cuLibraryLoadFromFile");
        *(void **)&cuda.primary_reset = dlsym(library, "cuDevicePrimaryCtxReset_v2");
        *(void **)&cuda.primary_retain = dlsym(library, "cuDevicePrimaryCtxRetain");
        CHECK(cuda.primary_reset && cuda.primary_retain);
        CHECK(cuda.state && cuda.init && cuda.library_load_from_file);
}

/* Load PTX; true when the driver got the agent's text. */
static bool load_is_rewritten(const char *ptx)
{
        void *module = NULL;

        CHECK_EQ(cuda.module_load_data(&module, ptx), 0);
        CHECK(module);
        return strstr(cuda.state->image, "PROBE") != NULL;
}

static int count_directory(const char *path)
{
        DIR *d = opendir(path);
        int n = 0;

        while (d && readdir(d))
                n++;
        closedir(d);
        return n;
}

/* Threads, and the two names each directory has. One that was joined is listed for a moment yet. */
static void wait_for_tasks(int count)
{
        for (int i = 0; i < 2000 && count_directory("/proc/self/task") > count; i++)
                usleep(10000);
        CHECK_EQ(count_directory("/proc/self/task"), count);
}

static bool mapped(const char *name)
{
        char line[4096];
        FILE *f = fopen("/proc/self/maps", "re");
        bool found = false;

        while (fgets(line, sizeof(line), f))
                found |= strstr(line, name) != NULL;
        fclose(f);
        return found;
}

/* Programs small enough to recognise: one for entry, one for exit, a map of each placement. */
static struct {
        struct agent_blob head;
        struct agent_program programs[2];
        char texts[800];
} blob;

static void make_blob(void)
{
        size_t at = (size_t)(blob.texts - (char *)&blob);

        blob.head = (struct agent_blob){.magic = AGENT_BLOB_MAGIC, .count = 2};
        blob.head.maps[0] =
                (struct agent_map){.placement = GPUOBS_PLACE_HOST, .bytes = DEVICE_RING_BYTES};
        blob.head.maps[1] = (struct agent_map){.placement = GPUOBS_PLACE_DEVICE, .bytes = 1000};
        blob.programs[0] = (struct agent_program){
                .where = AGENT_PROGRAM_ENTRY, .text_offset = at, .text_bytes = 37, .name = "entry"};
        blob.programs[1] = (struct agent_program){.where = AGENT_PROGRAM_EXIT,
                                                  .text_offset = at + 37,
                                                  .text_bytes = 18,
                                                  .name = "exit"};
        memcpy(blob.texts, "{PROBE in @K@ @M0@ @M1@ @C1@ @Q1@@U@}{PROBE out @K@@U@}", 55);
}

/* The same with fragments that can be compiled. */
static void make_real_blob(void)
{
        static const char fragment[] =
                "{ .reg .b64 %a<4>; .reg .b32 %b<5>; .reg .pred %p<2>; mov.u32 %b1, %ctaid.x; "
                "setp.ne.u32 %p1, %b1, 0; @%p1 bra E@U@; mov.u32 %b2, %tid.x; "
                "setp.ne.u32 %p1, %b2, 0; @%p1 bra E@U@; cvt.u64.u32 %a3, %b2; "
                "mov.u64 %a1, @M0@; or.b64 %a1, %a1, %a3; mov.u64 %a2, %globaltimer; "
                "@C0@ %b3, @C1@; @Q0@ %b4, @Q1@; shl.b32 %b3, %b3, 16; or.b32 %b4, %b4, %b3; "
                "mov.u32 %b3, @K@; xor.b32 %b3, %b3, %b4; cvt.u64.u32 %a3, %b3; "
                "st.global.v2.u64 [%a1], {%a2, %a3}; "
                "E@U@: }";
        size_t size = sizeof(fragment) - 1;

        make_blob();
        for (int i = 0; i < 2; i++) {
                blob.programs[i].text_offset = (size_t)(blob.texts - (char *)&blob);
                blob.programs[i].text_bytes = size;
        }
        memcpy(blob.texts, fragment, size);
}

struct scenario {
        const char *name;
        enum fake_mood mood;
        uint64_t clock_devices;
        bool no_daemon;
        void (*application)(void);            /* in the child */
        void (*daemon)(struct fake_daemon *); /* afterwards, in the parent */
};

static int run_child(const struct scenario *s, const char *socket_path)
{
        setenv("CUDA_INJECTION64_PATH", agent_path, 1);
        setenv(AGENT_SOCKET_ENV, socket_path, 1);
        load_driver();
        s->application();
        return 0;
}

static void run(const struct scenario *s)
{
        struct fake_daemon d = {.mood = s->mood,
                                .clock_devices = s->clock_devices,
                                .blob = &blob,
                                .blob_bytes = sizeof(blob)};
        int status;
        pid_t child;

        fake_daemon_open(&d);
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
                close(d.listener);
                exit(run_child(s, s->no_daemon ? "/nonexistent/agent.sock" : d.path));
        }
        if (!s->no_daemon)
                fake_daemon_serve(&d, 60, NULL);
        CHECK_EQ(waitpid(child, &status, 0), child);
        if (status)
                fprintf(stderr, "in %s\n", s->name);
        CHECK_EQ(status, 0);
        if (s->daemon)
                s->daemon(&d);
        fake_daemon_close(&d);
        printf("ok %s\n", s->name);
        fflush(stdout);
}

/* A plain module of PTX. */
static void load_ptx(void)
{
        char range[64];

        CHECK_EQ(cuda.init(0), 0);
        CHECK(load_is_rewritten(PTX));
        CHECK(strstr(cuda.state->image, "{PROBE in 1 0x6f0000000000 0x7100000000 0 0"));
        CHECK(strstr(cuda.state->image, "{PROBE in 2 "));
        CHECK(strstr(cuda.state->image, "{PROBE out 2"));
        CHECK_EQ(cuda.state->loads, 1);
        CHECK_EQ(cuda.state->registered, 1);
        CHECK_EQ(cuda.state->mapped, 1);
        CHECK_EQ(cuda.state->access_count, 1);
        CHECK(cuda.state->memset_bytes >= 1000);
        snprintf(range, sizeof(range), "%llx-%llx rw-s", DEVICE_RING_ADDRESS,
                 DEVICE_RING_ADDRESS + DEVICE_RING_BYTES);
        CHECK(mapped(range));
        CHECK(load_is_rewritten(PTX));
        CHECK(strstr(cuda.state->image, "{PROBE in 3 "));
        CHECK_EQ(cuda.state->registered, 1);
}

static void told_of_ptx(struct fake_daemon *d)
{
        const struct agent_image *first = fake_daemon_message(d, AGENT_IMAGE, 0);
        const struct agent_image *second = fake_daemon_message(d, AGENT_IMAGE, 1);
        struct fake_kernel k;

        CHECK_EQ(d->hello.driver_version, 13000);
        CHECK_EQ(d->hello.device_count, 1);
        CHECK_EQ(d->hello.sm, 80);
        CHECK_EQ(d->hello.device_uuids[0][3], 0x40);
        CHECK(first && second && !fake_daemon_message(d, AGENT_IMAGE, 2));
        CHECK_EQ(first->header.length, sizeof(*first));
        CHECK_EQ(first->image_id, 1);
        CHECK_EQ(second->image_id, 2);
        CHECK_EQ(first->status, AGENT_IMAGE_REWRITTEN);
        CHECK_EQ(first->kernel_count, 2);
        CHECK_EQ(first->is_ptx, 1);
        CHECK_EQ(first->is_library, 0);
        CHECK_EQ(first->bytes, strlen(PTX));
        CHECK(first->handle && second->handle && first->handle != second->handle);
        CHECK_STR(first->reason, "");
        CHECK(fake_daemon_kernel(d, 0, &k));
        CHECK_STR(k.name, "one");
        CHECK_EQ(k.image_id, 1);
        CHECK_EQ(k.head.kernel_id, 1);
        CHECK_EQ(k.head.entry, AGENT_PROBE_PTX);
        CHECK_EQ(k.head.exit, AGENT_PROBE_PTX);
        CHECK_STR(k.reason, "");
        CHECK(fake_daemon_kernel(d, 3, &k));
        CHECK_STR(k.name, "two");
        CHECK_EQ(k.head.kernel_id, 4);
        CHECK(!fake_daemon_kernel(d, 4, &k));
        CHECK_EQ(fake_daemon_count(d, AGENT_NOTE), 1);
        CHECK_STR(((const struct agent_note *)fake_daemon_message(d, AGENT_NOTE, 0))->text,
                  "GPU records do not tell context and stream: not known for this architecture");
        CHECK_EQ(fake_daemon_count(d, AGENT_CLOCK), 0);
}

static void architecture(int sm)
{
        for (int d = 0; d < 8; d++)
                cuda.state->sm[d] = sm;
}

/* What the driver tells a grid is used once the GPU has said that it is where it should be. */
static void words_of_the_driver(void)
{
        architecture(90);
        CHECK_EQ(cuda.init(0), 0);
        CHECK(load_is_rewritten(".version 8.0\n.target sm_80\n.address_size 64\n"
                                ".entry one(.param .u64 p) { ret; }\n.entry two { ret; }\n"));
        CHECK(strstr(cuda.state->image, " 0x7100000000 %envreg6 [p+-472]"));
        CHECK(strstr(cuda.state->image, " 0x7100000000 %envreg6 0"));
        CHECK_EQ(cuda.state->launches, 20);
        CHECK(load_is_rewritten(PTX));
        CHECK_EQ(cuda.state->launches, 20); /* once per process */
}

static void told_words(struct fake_daemon *d, const char *note)
{
        static const char head[] = "GPU records do not tell context and stream: ";
        const struct agent_note *n;
        unsigned found = 0;

        CHECK_EQ(fake_daemon_count(d, AGENT_HANDLE), 1);
        for (size_t i = 0; (n = fake_daemon_message(d, AGENT_NOTE, i)); i++) {
                if (strncmp(n->text, head, strlen(head)) != 0)
                        continue;
                CHECK_STR(n->text + strlen(head), note ? note : "nothing");
                found++;
        }
        CHECK_EQ(found, note ? 1 : 0);
}

static void told_of_words(struct fake_daemon *d)
{
        told_words(d, NULL);
}

/* A GPU that others keep busy: not waited for long, and nothing is taken for granted. */
static void silent_gpu(void)
{
        struct timespec a, b;

        architecture(90);
        cuda.state->gpu_silent = 1;
        CHECK_EQ(cuda.init(0), 0);
        clock_gettime(CLOCK_MONOTONIC, &a);
        CHECK(load_is_rewritten(PTX));
        clock_gettime(CLOCK_MONOTONIC, &b);
        CHECK(b.tv_sec - a.tv_sec <= 5);
        CHECK(strstr(cuda.state->image, "{PROBE in 1 0x6f0000000000 0x7100000000 0 0"));
}

static void told_of_silent_gpu(struct fake_daemon *d)
{
        told_words(d, "the GPU did not answer in time");
}

/* Without a daemon: not a byte, descriptor, thread or library more. */
static void without_daemon(void)
{
        uint8_t before[16];
        int fds = count_directory("/proc/self/fd");

        memcpy(before, (void *)(uintptr_t)cuda.module_load_data, sizeof(before));
        CHECK_EQ(cuda.init(0), 0);
        CHECK_EQ(memcmp(before, (void *)(uintptr_t)cuda.module_load_data, sizeof(before)), 0);
        CHECK_EQ(count_directory("/proc/self/fd"), fds);
        CHECK_EQ(count_directory("/proc/self/task"), 3);
        CHECK(!mapped("libZydis"));
        CHECK(mapped("gpuobs-agent"));
        CHECK(!load_is_rewritten(PTX));
        CHECK(getenv("CUDA_INJECTION64_PATH"));
}

static void every_function(void)
{
        int jit_options[2] = {1, 2}, library_options[2] = {0, 1};
        void *jit_values[2] = {(void *)10, (void *)20}, *library_values[2] = {NULL, (void *)1};
        char name[] = "/tmp/gpuobs-image-XXXXXX";
        int fd = mkstemp(name);
        void *h = NULL;

        CHECK_EQ(write(fd, PTX, strlen(PTX)), (ssize_t)strlen(PTX));
        CHECK_EQ(cuda.init(0), 0);
        CHECK_EQ(cuda.module_load_data_ex(&h, PTX, 2, jit_options, jit_values), 0);
        CHECK(strstr(cuda.state->image, "PROBE"));
        CHECK_EQ(cuda.state->last_jit_count, 2);
        CHECK_EQ((uintptr_t)jit_values[0], 11); /* results of the driver come through */
        CHECK_EQ(cuda.module_load_fat_binary(&h, PTX), 0);
        CHECK(strstr(cuda.state->image, "PROBE"));
        CHECK_EQ(cuda.module_load(&h, name), 0);
        CHECK(strstr(cuda.state->image, "PROBE"));
        /* PTX of a library is compiled first: what the linker made is loaded. */
        CHECK_EQ(cuda.library_load_data(&h, PTX, NULL, NULL, 0, library_options, library_values, 2),
                 0);
        CHECK_EQ(cuda.state->linked, 1);
        CHECK_EQ(cuda.state->image_bytes, 0);
        CHECK_EQ(cuda.state->last_library_count, 1);
        CHECK_EQ(cuda.state->last_library_options[0], 0);
        CHECK_EQ(cuda.library_load_from_file(&h, name, NULL, NULL, 0, NULL, NULL, 0), 0);
        CHECK_EQ(cuda.state->linked, 2);
        CHECK_EQ(cuda.state->loads, 5);
        /* A file that is not there is the driver's affair. */
        CHECK_EQ(cuda.module_load(&h, "/nonexistent"), 0);
        CHECK(!strstr(cuda.state->image, "PROBE"));
        unlink(name);
}

static void told_of_every_function(struct fake_daemon *d)
{
        const struct agent_image *image;

        for (size_t i = 0; i < 5; i++) {
                image = fake_daemon_message(d, AGENT_IMAGE, i);
                CHECK(image);
                CHECK_EQ(image->status, AGENT_IMAGE_REWRITTEN);
                CHECK_EQ(image->is_library, i >= 3);
        }
        CHECK(!fake_daemon_message(d, AGENT_IMAGE, 5));
}

static void refusing_driver(void)
{
        int jit_options[1] = {1};
        void *jit_values[1] = {(void *)10}, *h;

        cuda.state->refuse_rewritten = INVALID;
        CHECK_EQ(cuda.init(0), 0);
        CHECK(!load_is_rewritten(PTX));
        CHECK_STR(cuda.state->image, PTX);
        CHECK_EQ(cuda.state->loads, 2);
        /* The second try starts from the values the application gave. */
        CHECK_EQ(cuda.module_load_data_ex(&h, PTX, 1, jit_options, jit_values), 0);
        CHECK_EQ((uintptr_t)jit_values[0], 11);
        cuda.state->refuse_link = INVALID;
        CHECK_EQ(cuda.library_load_data(&h, PTX, NULL, NULL, 0, NULL, NULL, 0), 0);
        CHECK_STR(cuda.state->image, PTX);
        /* What the driver does not take at all is not reported. */
        cuda.state->refuse_all = INVALID;
        CHECK_EQ(cuda.module_load_data(&h, PTX), INVALID);
        CHECK_EQ(cuda.library_load_data(&h, PTX, NULL, NULL, 0, NULL, NULL, 0), INVALID);
}

static void told_of_refusals(struct fake_daemon *d)
{
        const struct agent_image *image = fake_daemon_message(d, AGENT_IMAGE, 0);
        struct fake_kernel k;

        CHECK_EQ(fake_daemon_count(d, AGENT_IMAGE), 3);
        CHECK_EQ(image->status, AGENT_IMAGE_ORIGINAL);
        CHECK(strstr(image->reason, "the driver refused"));
        CHECK(image->handle);
        CHECK(fake_daemon_kernel(d, 0, &k));
        CHECK_EQ(k.head.entry, AGENT_PROBE_NONE);
        CHECK_EQ(k.head.exit, AGENT_PROBE_NONE);
        CHECK(strstr(k.reason, "the driver refused"));
        image = fake_daemon_message(d, AGENT_IMAGE, 2);
        CHECK(strstr(image->reason, "linker"));
}

/* Images nobody understands go to the driver as they are. */
static void odd_images(void)
{
        char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        static const uint8_t container[16] = {0x50, 0xed, 0x55, 0xba, 1,    0,    16,   0,
                                              0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f};
        static const uint8_t elf[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
        struct {
                uint32_t magic, version;
                const void *container, *objects;
        } wrapper = {0x466243b1u, 1, (void *)0x10, NULL};
        void *h;

        munmap(page + 4096, 4096);
        CHECK_EQ(cuda.init(0), 0);
        CHECK(!load_is_rewritten(BAD_PTX));
        CHECK(!load_is_rewritten(""));
        CHECK(!load_is_rewritten("no image at all"));
        CHECK_EQ(cuda.module_load_data(&h, NULL), 0);
        CHECK_EQ(cuda.module_load_data(&h, elf), 0);
        CHECK(cuda.state->image_address == elf);
        CHECK_EQ(cuda.module_load_fat_binary(&h, container), 0);
        CHECK(cuda.state->image_address == container);
        CHECK_EQ(cuda.module_load_fat_binary(&h, &wrapper), 0);
        /* Headers that promise more than there is, at the end of what is mapped. */
        memcpy(page + 4096 - 16, container, 16);
        CHECK_EQ(cuda.module_load_fat_binary(&h, page + 4096 - 16), 0);
        memcpy(page + 4096 - 64, elf, 64);
        page[4096 - 64 + 0x3c] = 50; /* e_shnum */
        page[4096 - 64 + 0x3a] = 64; /* e_shentsize */
        page[4096 - 64 + 0x28] = 64; /* e_shoff */
        CHECK_EQ(cuda.module_load_data(&h, page + 4096 - 64), 0);
        /* And a good one afterwards. */
        CHECK(load_is_rewritten(PTX));
}

static void told_of_odd_images(struct fake_daemon *d)
{
        size_t count = fake_daemon_count(d, AGENT_IMAGE);
        const struct agent_image *image;

        CHECK_EQ(count, 9); /* NULL is not reported */
        for (size_t i = 0; i < count; i++) {
                image = fake_daemon_message(d, AGENT_IMAGE, i);
                CHECK_EQ(image->status,
                         i + 1 < count ? AGENT_IMAGE_ORIGINAL : AGENT_IMAGE_REWRITTEN);
                CHECK_EQ(i + 1 < count, image->reason[0] != '\0');
        }
        image = fake_daemon_message(d, AGENT_IMAGE, 0);
        CHECK(strstr(image->reason, "ret or exit with operands"));
}

static void nested_loads(void)
{
        cuda.state->nested_load = 1;
        CHECK_EQ(cuda.init(0), 0);
        CHECK(load_is_rewritten(PTX));
        CHECK_EQ(cuda.state->nested_loads, 1);
}

static void told_once(struct fake_daemon *d)
{
        CHECK_EQ(fake_daemon_count(d, AGENT_IMAGE), 1);
}

/* Situations in which no image can be rewritten. */
static void original_only(void)
{
        void *h;

        CHECK_EQ(cuda.init(0), 0);
        CHECK(!load_is_rewritten(PTX));
        CHECK_EQ(cuda.library_load_data(&h, PTX, NULL, NULL, 0, NULL, NULL, 0), 0);
        CHECK_STR(cuda.state->image, PTX);
        CHECK_EQ(cuda.state->loads, 2);
        wait_for_tasks(3);
}

static void told_reason(struct fake_daemon *d, const char *reason)
{
        const struct agent_image *image;

        CHECK_EQ(fake_daemon_count(d, AGENT_IMAGE), 2);
        image = fake_daemon_message(d, AGENT_IMAGE, 1);
        CHECK_EQ(image->status, AGENT_IMAGE_ORIGINAL);
        CHECK_STR(image->reason, reason);
}

static void two_gpus(void)
{
        cuda.state->device_count = 2;
        original_only();
}

static void told_of_two_gpus(struct fake_daemon *d)
{
        const struct agent_note *note = fake_daemon_message(d, AGENT_NOTE, 0);

        told_reason(d, "several GPUs without peer access");
        CHECK(note);
        CHECK_EQ(note->kind, AGENT_NOTE_REFUSED);
}

static void different_gpus(void)
{
        cuda.state->device_count = 2;
        cuda.state->peers = 1;
        cuda.state->sm[1] = 90;
        original_only();
}

static void told_of_different_gpus(struct fake_daemon *d)
{
        told_reason(d, "GPUs of different architectures");
}

static void eight_peers(void)
{
        cuda.state->device_count = 8;
        cuda.state->peers = 1;
        CHECK_EQ(cuda.init(0), 0);
        CHECK(load_is_rewritten(PTX));
        CHECK_EQ(cuda.state->access_count, 8);
        CHECK_EQ(cuda.state->allocated, 0);
}

/* A process that uses another GPU than the first says which. */
static void third_of_eight(void)
{
        cuda.state->device_count = 8;
        cuda.state->peers = 1;
        cuda.state->current_device = 2;
        CHECK_EQ(cuda.init(0), 0);
        CHECK(load_is_rewritten(PTX));
}

static void told_of_the_third(struct fake_daemon *d)
{
        CHECK_EQ(d->hello.device_count, 8);
        CHECK_EQ(d->hello.device, 2);
        for (int i = 0; i < 8; i++)
                CHECK_EQ(d->hello.device_uuids[i][3], 0x40 + i);
        CHECK_EQ(d->hello.device_uuids[8][3], 0);
}

static void no_virtual_memory(void)
{
        cuda.state->has_vmm = 0;
        CHECK_EQ(cuda.init(0), 0);
        CHECK(load_is_rewritten(PTX));
        CHECK(strstr(cuda.state->image, "0x7000000000"));
        CHECK_EQ(cuda.state->allocated, 1);
}

static void created_context(void)
{
        CHECK_EQ(cuda.init(0), 0);
        cuda.state->current_is_created = 1;
        CHECK(load_is_rewritten(PTX));
        cuda.state->current_is_created = 0;
        CHECK(load_is_rewritten(PTX));
}

static void told_of_created_context(struct fake_daemon *d)
{
        CHECK_EQ(fake_daemon_count(d, AGENT_IMAGE), 2);
        for (int i = 0; i < 2; i++) {
                const struct agent_image *image = fake_daemon_message(d, AGENT_IMAGE, i);

                CHECK_EQ(image->status, AGENT_IMAGE_REWRITTEN);
        }
}

static void no_context(void)
{
        void *h;

        cuda.state->no_current = 1;
        CHECK_EQ(cuda.init(0), 0);
        CHECK_EQ(cuda.library_load_data(&h, PTX, NULL, NULL, 0, NULL, NULL, 0), 0);
        CHECK_EQ(cuda.state->linked, 1);
}

static void shifted_host(void)
{
        cuda.state->shift_host = 1;
        original_only();
}

static void told_of_shifted_host(struct fake_daemon *d)
{
        told_reason(d, "the GPU sees the shared map at another address");
}

static void taken_address(void)
{
        CHECK(mmap((void *)0x6e0000000000, 4096, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED);
        original_only();
}

static void told_of_taken_address(struct fake_daemon *d)
{
        told_reason(d, "the shared map's address is taken");
}

static void told_of_bad_blob(struct fake_daemon *d)
{
        told_reason(d, "the daemon's programs cannot be read");
}

static void told_nothing(struct fake_daemon *d)
{
        CHECK_EQ(d->message_count, 0);
}

/* An answer that never comes must not hold the application up for long, and only once. */
static void silent_daemon(void)
{
        struct timespec a, b;

        CHECK_EQ(cuda.init(0), 0);
        clock_gettime(CLOCK_MONOTONIC, &a);
        CHECK(!load_is_rewritten(PTX));
        CHECK(!load_is_rewritten(PTX));
        clock_gettime(CLOCK_MONOTONIC, &b);
        CHECK(b.tv_sec - a.tv_sec <= 5);
}

static void daemon_that_leaves(void)
{
        CHECK_EQ(cuda.init(0), 0);
        CHECK(load_is_rewritten(PTX));
        for (int i = 0; i < 2000 && load_is_rewritten(PTX); i++)
                usleep(10000);
        CHECK(!load_is_rewritten(PTX));
}

/* The child of a fork has no CUDA, sends nothing, and does not hold the connection. */
static void fork_after_load(void)
{
        int fds[2], status;
        pid_t child;
        char c;

        CHECK_EQ(cuda.init(0), 0);
        CHECK(load_is_rewritten(PTX));
        CHECK_EQ(pipe(fds), 0);
        child = fork();
        if (child == 0) {
                CHECK(!load_is_rewritten(PTX));
                CHECK(!mapped("6f0000000000-"));
                CHECK_EQ(write(fds[1], "x", 1), 1);
                /* Lives on after its parent: the daemon must see the parent's end all the same. */
                setsid();
                sleep(2);
                _exit(0);
        }
        CHECK_EQ(read(fds[0], &c, 1), 1);
        CHECK_EQ(waitpid(child, &status, WNOHANG), 0);
        CHECK(load_is_rewritten(PTX));
}

static void told_by_parent_only(struct fake_daemon *d)
{
        CHECK_EQ(fake_daemon_count(d, AGENT_IMAGE), 2);
}

/* Only standard descriptors and the one that lists them are there after exec. */
static void exec_after_load(void)
{
        CHECK_EQ(close_range(3, ~0u, 0), 0);
        CHECK_EQ(cuda.init(0), 0);
        CHECK(load_is_rewritten(PTX));
        execlp("sh", "sh", "-c",
               "test -n \"$CUDA_INJECTION64_PATH\" && test $(ls /proc/self/fd | wc -l) -le 4",
               (char *)NULL);
        _exit(99);
}

/* Descriptors the application sees are those it would have had. */
static void descriptor_numbers(void)
{
        int before = dup(0), after;

        close(before);
        CHECK_EQ(cuda.init(0), 0);
        CHECK(load_is_rewritten(PTX));
        after = dup(0);
        CHECK_EQ(before, after);
        CHECK_EQ(fcntl(500, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

/* An application that closes everything and gets the agent's number for its own file. */
static void descriptor_taken_over(void)
{
        char name[] = "/tmp/gpuobs-own-XXXXXX";
        int fd = mkstemp(name);
        struct stat st;

        CHECK_EQ(cuda.init(0), 0);
        CHECK(load_is_rewritten(PTX));
        CHECK_EQ(dup2(fd, 500), 500);
        CHECK(!load_is_rewritten(PTX));
        CHECK_EQ(fstat(fd, &st), 0);
        CHECK_EQ(st.st_size, 0);
        CHECK(fcntl(500, F_GETFD) >= 0);
        unlink(name);
}

/* As nobody, without the right to look at map_files: the file's path has to do. */
static void become_nobody(int dumpable)
{
        if (getuid() == 0)
                CHECK_EQ(setuid(65534), 0);
        CHECK_EQ(prctl(PR_SET_DUMPABLE, dumpable, 0, 0, 0), 0);
}

static void unprivileged(void)
{
        become_nobody(1);
        CHECK_EQ(cuda.init(0), 0);
        if (access(agent_path, R_OK) == 0)
                CHECK(load_is_rewritten(PTX));
}

/* A process whose memory is closed even to itself: nothing is hooked, and that is said. */
static void not_dumpable(void)
{
        bool may_read;

        become_nobody(0);
        may_read = access("/proc/self/maps", R_OK) == 0 && fopen("/proc/self/maps", "re");
        CHECK_EQ(cuda.init(0), 0);
        if (!may_read)
                CHECK(!load_is_rewritten(PTX));
}

/* The driver's file is gone: a package was upgraded, or a container's layer went away. */
static void use_deleted_copy(void)
{
        char path[] = "/tmp/gpuobs-stub-XXXXXX", command[PATH_MAX + 64];
        int fd = mkstemp(path);

        close(fd);
        snprintf(command, sizeof(command), "cat '%s' >'%s'", stub_path, path);
        CHECK_EQ(system(command), 0);
        stub_path = path;
        load_driver();
        unlink(path);
}

static void deleted_driver(void)
{
        use_deleted_copy();
        CHECK_EQ(cuda.init(0), 0);
        CHECK(load_is_rewritten(PTX));
}

static void deleted_driver_unprivileged(void)
{
        use_deleted_copy();
        unprivileged();
}

/* Machine code, as the assembler makes it. */
static void *make_cubin(const char *arch)
{
        static char cubin[1 << 16];
        FILE *f;

        setenv("ARCH", arch, 1);
        f = popen("f=$(mktemp) && cat >$f.ptx <<'EOF' && ptxas -arch=$ARCH $f.ptx -o $f && cat $f; "
                  "rm -f $f $f.ptx\n"
                  ".version 8.0\n.target sm_80\n.address_size 64\n"
                  ".visible .entry work(.param .u64 p)\n{\n.reg .b64 %rd<4>;\n.reg .b32 %r<4>;\n"
                  ".reg .pred %p<2>;\nmov.u32 %r1, %tid.x;\nsetp.gt.u32 %p1, %r1, 7;\n"
                  "@%p1 ret;\nld.param.u64 %rd1, [p];\nmul.wide.u32 %rd2, %r1, 4;\n"
                  "add.s64 %rd3, %rd1, %rd2;\nst.global.u32 [%rd3], %r1;\nret;\n}\nEOF\n",
                  "re");
        CHECK(f && fread(cubin, 1, sizeof(cubin), f) > 64);
        pclose(f);
        return cubin;
}

static void machine_code(void)
{
        void *cubin = make_cubin("sm_90"), *h;

        architecture(90);
        cuda.state->use_ptxas = 1;
        CHECK_EQ(cuda.init(0), 0);
        CHECK_EQ(cuda.module_load_data(&h, cubin), 0);
        CHECK_EQ(cuda.state->linked, 2); /* the probes, once */
        CHECK(cuda.state->image_is_cubin && cuda.state->image_address != cubin);
        /* The first library's image is tried as a module before it is trusted. */
        CHECK_EQ(cuda.library_load_data(&h, cubin, NULL, NULL, 0, NULL, NULL, 0), 0);
        CHECK_EQ(cuda.state->loads, 3);
        CHECK_EQ(cuda.library_load_data(&h, cubin, NULL, NULL, 0, NULL, NULL, 0), 0);
        CHECK_EQ(cuda.state->loads, 4);
        CHECK(cuda.state->image_is_cubin && cuda.state->image_address != cubin);
        CHECK_EQ(cuda.state->linked, 2);
}

static void told_of_machine_code(struct fake_daemon *d)
{
        const struct agent_image *image;
        struct fake_kernel k;

        CHECK_EQ(fake_daemon_count(d, AGENT_NOTE), 0);
        for (size_t i = 0; i < 3; i++) {
                image = fake_daemon_message(d, AGENT_IMAGE, i);
                CHECK(image);
                CHECK_STR(image->reason, "");
                CHECK_EQ(image->status, AGENT_IMAGE_REWRITTEN);
                CHECK_EQ(image->is_ptx, 0);
                CHECK(fake_daemon_kernel(d, i, &k));
                CHECK_STR(k.name, "work");
                CHECK_EQ(k.head.entry, AGENT_PROBE_SASS);
                CHECK_EQ(k.head.exit, AGENT_PROBE_SASS);
                CHECK_EQ(k.head.kernel_id, i + 1);
        }
}

/* An architecture whose machine code is left alone; its PTX is not. */
static void machine_code_without_table(void)
{
        void *cubin = make_cubin("sm_80"), *h;

        architecture(80);
        cuda.state->use_ptxas = 1;
        CHECK_EQ(cuda.init(0), 0);
        CHECK_EQ(cuda.module_load_data(&h, PTX), 0);
        CHECK(strcmp(cuda.state->image, PTX) != 0);
        CHECK_EQ(cuda.module_load_data(&h, cubin), 0);
        CHECK(cuda.state->image_address == cubin);
        CHECK_EQ(cuda.state->linked, 0);
}

static void told_of_no_table(struct fake_daemon *d)
{
        const struct agent_image *image = fake_daemon_message(d, AGENT_IMAGE, 0);

        told_reason(d, "machine code: no instruction table for sm_80");
        CHECK(image);
        CHECK_EQ(image->status, AGENT_IMAGE_REWRITTEN);
        CHECK_EQ(image->is_ptx, 1);
}

static void *load_many(void *unused)
{
        void *h;

        for (int i = 0; i < 25; i++)
                CHECK_EQ(cuda.module_load_data(&h, PTX), 0);
        return NULL;
}

static void threads(void)
{
        pthread_t t[4];

        CHECK_EQ(cuda.init(0), 0);
        for (int i = 0; i < 4; i++)
                CHECK_EQ(pthread_create(&t[i], NULL, load_many, NULL), 0);
        for (int i = 0; i < 4; i++)
                pthread_join(t[i], NULL);
}

/* Every id once, although the driver's answers interleave. */
static void told_by_threads(struct fake_daemon *d)
{
        bool images[101] = {false}, kernels[201] = {false};
        const struct agent_image *image;
        struct fake_kernel k;

        CHECK_EQ(fake_daemon_count(d, AGENT_IMAGE), 100);
        for (size_t i = 0; (image = fake_daemon_message(d, AGENT_IMAGE, i)); i++) {
                CHECK(image->image_id >= 1 && image->image_id <= 100 && !images[image->image_id]);
                images[image->image_id] = true;
        }
        for (size_t i = 0; fake_daemon_kernel(d, i, &k); i++) {
                CHECK(k.head.kernel_id >= 1 && k.head.kernel_id <= 200);
                CHECK(!kernels[k.head.kernel_id]);
                kernels[k.head.kernel_id] = true;
        }
        for (size_t i = 1; i <= 200; i++)
                CHECK(kernels[i]);
}

/* What a thread of the agent's does is done by and by. */
static void wait_until(const int *count, int least)
{
        int tries = 0;

        while (__atomic_load_n(count, __ATOMIC_RELAXED) < least && ++tries < 2000)
                usleep(10000);
        CHECK(__atomic_load_n(count, __ATOMIC_RELAXED) >= least);
}

static void clock_thread(void)
{
        sigset_t blocked;
        char path[64], line[256];
        unsigned long long mask = 0;
        struct dirent *e;
        DIR *tasks;
        FILE *f;

        CHECK_EQ(cuda.init(0), 0);
        CHECK_EQ(count_directory("/proc/self/task"), 3);
        CHECK(load_is_rewritten(PTX));
        CHECK_EQ(count_directory("/proc/self/task"), 5);
        tasks = opendir("/proc/self/task");
        while ((e = readdir(tasks))) {
                if (atoi(e->d_name) == 0 || atoi(e->d_name) == getpid())
                        continue;
                snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", e->d_name);
                f = fopen(path, "re");
                while (fgets(line, sizeof(line), f))
                        sscanf(line, "SigBlk: %llx", &mask);
                fclose(f);
        }
        closedir(tasks);
        CHECK_EQ(mask & 0x7ffbfeff, 0x7ffbfeff); /* all that can be blocked, up to 31 */
        pthread_sigmask(SIG_SETMASK, NULL, &blocked);
        CHECK(!sigismember(&blocked, SIGINT));
        wait_until(&cuda.state->launches, 16); /* three rounds have been told of */
        /* exit() must end the thread without delay or crash. */
}

/* The ring is registered again in the context that follows, and the clock goes on. */
static void device_reset(void)
{
        int launches;
        void *h;

        CHECK_EQ(cuda.init(0), 0);
        CHECK_EQ(cuda.primary_retain(&h, 0), 0);
        CHECK_EQ(cuda.primary_reset(0), 0);
        CHECK_EQ(cuda.state->registered, 0);
        CHECK(load_is_rewritten(PTX));
        wait_until(&cuda.state->registered, 2); /* the ring, the clock's page */
        wait_until(&cuda.state->launches, 1);
        CHECK_EQ(cuda.primary_reset(0), 0);
        CHECK_EQ(cuda.state->resets, 2);
        wait_for_tasks(4); /* the one that hears the daemon goes on */
        launches = cuda.state->launches;
        CHECK(launches > 0);
        CHECK_EQ(cuda.state->registered, 2);
        CHECK_EQ(cuda.primary_retain(&h, 0), 0);
        CHECK_EQ(cuda.primary_retain(&h, 0), 0);
        wait_until(&cuda.state->registered, 4);
        wait_until(&cuda.state->launches, launches + 1);
        CHECK(load_is_rewritten(PTX));
        CHECK_EQ(cuda.state->mapped, 1);
}

static void told_of_two_clocks(struct fake_daemon *d)
{
        CHECK_EQ(fake_daemon_count(d, AGENT_HANDLE), 2);
        CHECK_EQ(fake_daemon_count(d, AGENT_IMAGE), 2);
        CHECK_EQ(fake_daemon_count(d, AGENT_NOTE), 1); /* as in told_of_ptx() */
}

static void told_the_time(struct fake_daemon *d)
{
        const struct agent_handle *handle = fake_daemon_message(d, AGENT_HANDLE, 0);
        const struct agent_clock *clock;
        size_t n = fake_daemon_count(d, AGENT_CLOCK);

        CHECK(handle && handle->func);
        CHECK(n >= 3);
        for (size_t i = 0; i < n; i++) {
                clock = fake_daemon_message(d, AGENT_CLOCK, i);
                CHECK_EQ(clock->header.length, sizeof(*clock));
                CHECK_EQ(clock->device, 0);
                CHECK(clock->raw_before_ns + 123456789 <= clock->gpu_ns);
                CHECK(clock->gpu_ns <= clock->raw_after_ns + 123456789);
        }
}

static const struct scenario scenarios[] = {
        {"load_ptx", .application = load_ptx, .daemon = told_of_ptx},
        {"words_of_the_driver", .application = words_of_the_driver, .daemon = told_of_words},
        {"silent_gpu", .application = silent_gpu, .daemon = told_of_silent_gpu},
        {"without_daemon", .no_daemon = true, .application = without_daemon},
        {"every_function", .application = every_function, .daemon = told_of_every_function},
        {"refusing_driver", .application = refusing_driver, .daemon = told_of_refusals},
        {"odd_images", .application = odd_images, .daemon = told_of_odd_images},
        {"nested_loads", .application = nested_loads, .daemon = told_once},
        {"two_gpus", .application = two_gpus, .daemon = told_of_two_gpus},
        {"different_gpus", .application = different_gpus, .daemon = told_of_different_gpus},
        {"eight_peers", .application = eight_peers, .daemon = told_once},
        {"third_of_eight", .application = third_of_eight, .daemon = told_of_the_third},
        {"no_virtual_memory", .application = no_virtual_memory, .daemon = told_once},
        {"created_context", .application = created_context, .daemon = told_of_created_context},
        {"no_context", .application = no_context, .daemon = told_once},
        {"shifted_host", .application = shifted_host, .daemon = told_of_shifted_host},
        {"taken_address", FAKE_BAD_ADDRESS, .application = taken_address,
         .daemon = told_of_taken_address},
        {"bad_blob", FAKE_BAD_BLOB, .application = original_only, .daemon = told_of_bad_blob},
        {"refusing_daemon", FAKE_REFUSES, .application = original_only, .daemon = told_nothing},
        {"babbling_daemon", FAKE_BABBLES, .application = original_only, .daemon = told_nothing},
        {"truncating_daemon", FAKE_TRUNCATES, .application = original_only, .daemon = told_nothing},
        {"daemon_without_fds", FAKE_NO_FDS, .application = original_only, .daemon = told_nothing},
        {"daemon_that_hangs_up", FAKE_HANGS_UP, .application = original_only},
        {"silent_daemon", FAKE_SILENT, .application = silent_daemon, .daemon = told_nothing},
        {"daemon_that_leaves", FAKE_LEAVES, .application = daemon_that_leaves},
        {"fork_after_load", .application = fork_after_load, .daemon = told_by_parent_only},
        {"exec_after_load", .application = exec_after_load, .daemon = told_once},
        {"descriptor_numbers", .application = descriptor_numbers},
        {"descriptor_taken_over", .application = descriptor_taken_over, .daemon = told_once},
        {"unprivileged", .application = unprivileged},
        {"not_dumpable", .application = not_dumpable},
        {"deleted_driver", .application = deleted_driver, .daemon = told_once},
        {"deleted_driver_unprivileged", .application = deleted_driver_unprivileged},
        {"threads", .application = threads, .daemon = told_by_threads},
        {"clock_thread", .clock_devices = 1, .application = clock_thread, .daemon = told_the_time},
        {"device_reset", .clock_devices = 1, .application = device_reset,
         .daemon = told_of_two_clocks},
};

static const struct scenario with_assembler[] = {
        {"machine_code", .application = machine_code, .daemon = told_of_machine_code},
        {"machine_code_without_table", .application = machine_code_without_table,
         .daemon = told_of_no_table},
};

int main(int argc, char **argv)
{
        CHECK(argc >= 3);
        agent_path = argv[1];
        stub_path = argv[2];
        make_blob();
        for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
                if (argc == 3 || strcmp(argv[3], scenarios[i].name) == 0)
                        run(&scenarios[i]);
        if (system("command -v ptxas >/dev/null 2>&1") != 0) {
                printf("   not checked: machine code, ptxas is not in the path\n");
                return 0;
        }
        make_real_blob();
        for (size_t i = 0; i < sizeof(with_assembler) / sizeof(with_assembler[0]); i++)
                run(&with_assembler[i]);
        return 0;
}
