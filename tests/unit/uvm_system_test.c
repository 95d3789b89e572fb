/* SPDX-License-Identifier: Apache-2.0 */

/* Descriptors of the UVM device are found by its number, whatever the file is called there. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "driver/uvm_system.h"
#include "unit/test.h"

/* The device of this namespace alone: that of /dev/full, which nothing else has open. */
static void make_devices(void)
{
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("devices", "/dev", "tmpfs", 0, NULL) < 0 ||
            mknod("/dev/nvidia-uvm", S_IFCHR | 0600, makedev(1, 7)) < 0)
                test_skip("mounts and device files need root");
        CHECK(mkdir("/dev/elsewhere", 0700) == 0);
        CHECK(mknod("/dev/elsewhere/device", S_IFCHR | 0600, makedev(1, 7)) == 0);
        CHECK(mknod("/dev/elsewhere/nvidia-uvm", S_IFCHR | 0600, makedev(1, 5)) == 0);
}

static void test_descriptors(void)
{
        int as_usual = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
        int renamed = open("/dev/elsewhere/device", O_RDWR | O_CLOEXEC);
        int other = open("/dev/elsewhere/nvidia-uvm", O_RDWR | O_CLOEXEC);
        int found[8];

        CHECK(as_usual >= 0 && renamed > as_usual && other >= 0);
        CHECK_EQ(uvm_system_default.is_uvm(renamed), 1);
        CHECK_EQ(uvm_system_default.is_uvm(other), 0);
        /* Its file may be gone, too. */
        CHECK_EQ(unlink("/dev/elsewhere/device"), 0);
        CHECK_EQ(uvm_system_default.list_fds(getpid(), found, 8), 2);
        CHECK_EQ(found[0], as_usual);
        CHECK_EQ(found[1], renamed);
        CHECK_EQ(uvm_system_default.list_fds(getpid(), found, 1), 1);
        CHECK(uvm_system_default.list_fds(0x3fffffff, found, 8) == -ENOENT);
        close(as_usual);
        close(renamed);
        close(other);
}

int main(void)
{
        make_devices();
        TEST(test_descriptors);
        return 0;
}
