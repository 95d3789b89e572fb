/* SPDX-License-Identifier: Apache-2.0 */
#include "probe_fixture.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void *symbol(void *library, const char *name)
{
        void *address = dlsym(library, name);

        if (!address) {
                fprintf(stderr, "%s: %s\n", name, dlerror());
                _exit(1);
        }
        return address;
}

void fake_load(const char *path, struct fake *ret_fake)
{
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

        if (!library) {
                fprintf(stderr, "%s\n", dlerror());
                _exit(1);
        }
#define FAKE_LOAD(name, parameters, effect) ret_fake->name = symbol(library, #name);
        FAKE_FUNCTIONS(FAKE_LOAD)
#undef FAKE_LOAD
        ret_fake->jump_to_launch = symbol(library, "cuMemsetD16_v2");
        ret_fake->result = symbol(library, "fake_result");
        ret_fake->handle = symbol(library, "fake_handle");
        ret_fake->work = symbol(library, "fake_work");
}

static void record_launch(void *data, const struct cpu_launch_event *e)
{
        struct recorder *r = data;

        if (r->puts_back && e->tgid == r->tgid && e->enter_ns != r->put_back_ns) {
                r->put_back_ns = e->enter_ns;
                cpu_probes_put_back(r->puts_back);
                return;
        }
        if (e->tgid == r->tgid && r->launch_count < EVENTS_MAX)
                r->launches[r->launch_count++] = *e;
}

static void record_operation(void *data, const struct cpu_operation_event *e)
{
        struct recorder *r = data;

        if (e->tgid == r->tgid && r->operation_count < EVENTS_MAX)
                r->operations[r->operation_count++] = *e;
}

static void record_handle(void *data, const struct cpu_handle_event *e)
{
        struct recorder *r = data;
        struct named_handle *h;

        if (e->tgid != r->tgid || r->handle_count == EVENTS_MAX)
                return;
        h = &r->handles[r->handle_count++];
        h->e = *e;
        CHECK(e->name_length < sizeof(h->name));
        CHECK_EQ(e->name[e->name_length], 0);
        memcpy(h->name, e->name, e->name_length + 1u);
}

static void record_process(void *data, const struct cpu_process_event *e)
{
        struct recorder *r = data;

        if ((e->tgid != r->tgid && e->parent_tgid != r->tgid) || r->process_count == 64)
                return;
        r->processes[r->process_count++] = *e;
}

static void record_gap(void *data, uint32_t tgid, const char *path)
{
        struct recorder *r = data;

        r->gaps += tgid == r->tgid;
}

static void record_library(void *data, const char *path, int error,
                           const struct cpu_probes_library *lib)
{
        struct recorder *r = data;

        CHECK((error == 0) == (lib != NULL));
        if (!r->library || strcmp(path, r->library) != 0)
                return;
        r->attached += error == 0;
        r->refused += error != 0;
        r->library_error = error;
}

const struct cpu_probes_ops recorder_ops = {
        .launch = record_launch,
        .operation = record_operation,
        .handle = record_handle,
        .process = record_process,
        .attach_gap = record_gap,
        .library = record_library,
};

void recorder_init(struct recorder *r)
{
        *r = (struct recorder){0};
        r->launches = calloc(EVENTS_MAX, sizeof(*r->launches));
        r->operations = calloc(EVENTS_MAX, sizeof(*r->operations));
        r->handles = calloc(EVENTS_MAX, sizeof(*r->handles));
        CHECK(r->launches && r->operations && r->handles);
}

void recorder_done(struct recorder *r)
{
        free(r->launches);
        free(r->operations);
        free(r->handles);
}

void recorder_reset(struct recorder *r, uint32_t tgid)
{
        r->tgid = tgid;
        r->launch_count = r->operation_count = r->handle_count = r->process_count = 0;
        r->gaps = r->attached = r->refused = 0;
        r->library_error = 0;
        r->puts_back = NULL;
        r->put_back_ns = 0;
}

const struct cpu_process_event *recorder_process(const struct recorder *r,
                                                 enum cpu_process_what what)
{
        size_t i = 0;

        CHECK(recorder_processes(r, what) > 0);
        while (r->processes[i].what != what)
                i++;
        return &r->processes[i];
}

size_t recorder_processes(const struct recorder *r, enum cpu_process_what what)
{
        size_t i, n = 0;

        for (i = 0; i < r->process_count; i++)
                n += r->processes[i].what == what;
        return n;
}

const struct named_handle *recorder_handle(const struct recorder *r, enum cpu_handle_kind kind,
                                           size_t i)
{
        size_t k;

        for (k = 0; k < r->handle_count; k++)
                if (r->handles[k].e.kind == kind && i-- == 0)
                        return &r->handles[k];
        return NULL;
}

struct child child_start(void (*run)(void *data), void *data)
{
        struct child c;
        int go[2];
        char byte;

        fflush(stdout);
        CHECK(pipe2(go, O_CLOEXEC) == 0);
        c.pid = fork();
        CHECK(c.pid >= 0);
        if (c.pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nobody behind */
                close(go[1]);
                if (read(go[0], &byte, 1) != 1)
                        _exit(2);
                run(data);
                _exit(0);
        }
        close(go[0]);
        c.go = go[1];
        return c;
}

void child_go(struct child *c)
{
        CHECK(write(c->go, "", 1) == 1);
}

void child_finish(struct child *c, struct cpu_probes *p)
{
        int status;
        pid_t r;

        while ((r = waitpid(c->pid, &status, WNOHANG)) == 0) {
                CHECK(!p || cpu_probes_poll(p, 1000) >= 0);
                usleep(1000);
        }
        CHECK_EQ(r, c->pid);
        close(c->go);
        CHECK(WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), 0);
        while (p && cpu_probes_poll(p, 1000) == 1000)
                ;
}

void child_run(struct cpu_probes *p, struct recorder *r, void (*run)(void *data), void *data)
{
        struct child c = child_start(run, data);

        recorder_reset(r, (uint32_t)c.pid);
        child_go(&c);
        child_finish(&c, p);
        cpu_probes_process_gone(p, (uint32_t)c.pid);
}

char *library_copy(const char *original)
{
        char directory[] = "/tmp/gpuobs-probe-test-XXXXXX";
        struct stat st;
        int from, to;
        char *path;

        CHECK(mkdtemp(directory));
        CHECK(asprintf(&path, "%s/libcuda.so.1", directory) > 0);
        from = open(original, O_RDONLY | O_CLOEXEC);
        to = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
        CHECK(from >= 0 && to >= 0 && fstat(from, &st) == 0);
        CHECK_EQ(sendfile(to, from, NULL, (size_t)st.st_size), st.st_size);
        close(from);
        close(to);
        return path;
}

void library_remove(char *path)
{
        unlink(path);
        *strrchr(path, '/') = '\0';
        rmdir(path);
        free(path);
}

void skip_without_bpf(void)
{
        struct cpu_probes_options options = {.only_listed = true};
        static const struct cpu_probes_ops ops;
        struct cpu_probes *p = NULL;
        int r;

        if (geteuid() != 0)
                test_skip("needs root to load eBPF programs");
        r = cpu_probes_new(&options, &ops, NULL, &p);
        if (r == -EPERM)
                test_skip("not allowed to load eBPF programs here");
        CHECK_EQ(r, 0);
        cpu_probes_free(p);
}

struct cpu_probes *probes_on(const char *library, enum cpu_probes_how how, size_t ring_bytes,
                             struct recorder *r)
{
        const char *const libraries[] = {library, NULL};
        struct cpu_probes_options options = {
                .ring_bytes = ring_bytes,
                .libraries = libraries,
                .only_listed = true,
                .how = how,
        };
        struct cpu_probes *p = NULL;

        CHECK_EQ(cpu_probes_new(&options, &recorder_ops, r, &p), 0);
        CHECK_EQ(cpu_probes_library_count(p), 1);
        return p;
}
