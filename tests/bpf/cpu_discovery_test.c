/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding copies of the library: mapped while the probes run, before they came,
 * deleted, in another mount namespace, and files that only bear the name.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "probe_fixture.h"
#include "util/time.h"

#define LAUNCHES 10

static const char *original;
static struct cpu_probes *probes;
static struct recorder seen;
static struct fake fake; /* in the child */

/* Steps between the test and the child: each waits for the other. */
static int to_child[2], to_test[2];

static void pipes_open(void)
{
        CHECK(pipe2(to_child, O_CLOEXEC) == 0 && pipe2(to_test, O_CLOEXEC) == 0);
}

static void pipes_close(void)
{
        close(to_child[0]);
        close(to_child[1]);
        close(to_test[0]);
        close(to_test[1]);
}

static void say(int fd)
{
        CHECK(write(fd, "", 1) == 1);
}

static void hear(int fd)
{
        char byte;

        CHECK(read(fd, &byte, 1) == 1);
}

static void launch_some(void)
{
        int i;

        for (i = 0; i < LAUNCHES; i++)
                fake.cuLaunchKernel(1, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL);
}

static void load_then_launch(void *data)
{
        fake_load(data, &fake);
        say(to_test[1]);
        hear(to_child[0]);
        launch_some();
}

static void load_and_delete_then_launch(void *data)
{
        fake_load(data, &fake);
        CHECK(unlink(data) == 0);
        say(to_test[1]);
        hear(to_child[0]);
        launch_some();
}

static void load_and_launch(void *data)
{
        fake_load(data, &fake);
        launch_some();
}

static void probes_start(void)
{
        struct cpu_probes_options options = {0};

        CHECK_EQ(cpu_probes_new(&options, &recorder_ops, &seen, &probes), 0);
        CHECK(cpu_probes_sees_mappings(probes));
}

static void poll_until(const uint32_t *count)
{
        struct pollfd wait = {.fd = cpu_probes_fd(probes), .events = POLLIN};
        uint64_t until = now_ns() + 60 * NSEC_PER_SEC;

        /* A mapping wakes at once; it may not be there yet when we look first. */
        CHECK_EQ(poll(&wait, 1, 60000), 1);
        while (*count == 0 && now_ns() < until) {
                CHECK(cpu_probes_poll(probes, 1000) >= 0);
                usleep(1000);
        }
        CHECK(*count > 0);
}

/* Other programs on the machine may use CUDA meanwhile: only ours is looked at. */
static bool is_attached(const char *path)
{
        const struct cpu_probes_library *lib;
        size_t i;

        for (i = 0; (lib = cpu_probes_library(probes, i)); i++)
                if (strcmp(lib->path, path) == 0)
                        return true;
        return false;
}

static struct child start(void (*run)(void *data), char *path)
{
        struct child c;

        pipes_open();
        c = child_start(run, path);
        recorder_reset(&seen, (uint32_t)c.pid);
        seen.library = path;
        return c;
}

static void finish(struct child *c)
{
        child_finish(c, probes);
        cpu_probes_process_gone(probes, seen.tgid);
        pipes_close();
}

static void test_mapped_while_probes_run(void)
{
        char *path = library_copy(original);
        struct child c = start(load_then_launch, path);
        struct stat st;

        child_go(&c);
        poll_until(&seen.attached);
        CHECK_EQ(seen.gaps, 1); /* what it did until then went unseen */
        hear(to_test[0]);
        say(to_child[1]);
        finish(&c);
        CHECK_EQ(seen.launch_count, LAUNCHES);
        CHECK_EQ(stat(path, &st), 0);
        CHECK(recorder_processes(&seen, CPU_PROCESS_LIBRARY) >= 1);
        CHECK_EQ(seen.processes[0].inode, st.st_ino);

        /* The next one with that copy is seen from its first call. */
        c = start(load_and_launch, path);
        child_go(&c);
        finish(&c);
        CHECK_EQ(seen.launch_count, LAUNCHES);
        CHECK_EQ(seen.attached, 0);
        CHECK_EQ(seen.gaps, 0);

        /* It can be reached from here, so a scan leaves the probes on. */
        CHECK_EQ(cpu_probes_scan(probes), 0);
        c = start(load_and_launch, path);
        child_go(&c);
        finish(&c);
        CHECK_EQ(seen.launch_count, LAUNCHES);
        library_remove(path);
}

static void test_deleted_file(void)
{
        char *path = library_copy(original);
        struct child c = start(load_and_delete_then_launch, path);

        child_go(&c);
        hear(to_test[0]); /* it is deleted before we hear of it */
        poll_until(&seen.attached);
        say(to_child[1]);
        finish(&c);
        CHECK_EQ(seen.launch_count, LAUNCHES);
        CHECK(is_attached(path));
        CHECK_EQ(cpu_probes_scan(probes), 0);
        CHECK(!is_attached(path)); /* nobody can come by it any more */
        library_remove(path);
}

static void load_in_own_mounts(void *data)
{
        char command[256], directory[128];

        snprintf(directory, sizeof(directory), "%s", (char *)data);
        *strrchr(directory, '/') = '\0';
        CHECK(unshare(CLONE_NEWNS) == 0);
        CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
        CHECK(mount("tmpfs", directory, "tmpfs", 0, NULL) == 0);
        snprintf(command, sizeof(command), "cp '%s' '%s'", original, (char *)data);
        CHECK(system(command) == 0);
        load_then_launch(data);
}

static void test_other_mount_namespace(void)
{
        char *path = library_copy(original);
        struct child c = start(load_in_own_mounts, path);

        CHECK(unlink(path) == 0); /* only the child has a file of that name */
        child_go(&c);
        poll_until(&seen.attached);
        hear(to_test[0]);
        say(to_child[1]);
        finish(&c);
        CHECK_EQ(seen.launch_count, LAUNCHES);
        CHECK(is_attached(path));
        CHECK_EQ(cpu_probes_scan(probes), 0);
        CHECK(!is_attached(path));
        library_remove(path);
}

/* Mapped executable, and its name begins like the library's. */
static void map_text(void *data)
{
        int fd = open(data, O_RDONLY | O_CLOEXEC);

        CHECK(fd >= 0);
        CHECK(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) != MAP_FAILED);
        say(to_test[1]);
        hear(to_child[0]);
}

static void refuse(const char *content, int expected_error)
{
        char *path = library_copy(original);
        struct child c = start(map_text, path);
        FILE *file = fopen(path, "w");

        CHECK(file && fputs(content, file) >= 0 && fclose(file) == 0);
        child_go(&c);
        poll_until(&seen.refused);
        CHECK_EQ(seen.library_error, expected_error);
        CHECK(!is_attached(path));
        hear(to_test[0]);
        say(to_child[1]);
        finish(&c);
        library_remove(path);
}

static void test_not_a_library(void)
{
        refuse("#!/bin/sh\n", -ENOEXEC);
        refuse("\177ELF\2\1\1", -ENOEXEC);
}

static void test_mapped_before_probes(void)
{
        char *path = library_copy(original);
        struct child c = start(load_then_launch, path);

        probes = cpu_probes_free(probes);
        child_go(&c);
        hear(to_test[0]);
        probes_start();
        CHECK_EQ(seen.attached, 1);
        CHECK_EQ(seen.gaps, 1);
        say(to_child[1]);
        finish(&c);
        CHECK_EQ(seen.launch_count, LAUNCHES);
        library_remove(path);
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        original = argv[1];
        skip_without_bpf();
        recorder_init(&seen);
        probes_start();
        TEST(test_mapped_while_probes_run);
        TEST(test_deleted_file);
        TEST(test_other_mount_namespace);
        TEST(test_not_a_library);
        TEST(test_mapped_before_probes);
        cpu_probes_free(probes);
        recorder_done(&seen);
        return 0;
}
