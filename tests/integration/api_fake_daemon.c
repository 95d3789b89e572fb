/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The API over the made-up daemon of tests/unit/api_fixture.c at the socket
 * given as argument, publishing launches, until standard input ends. For the
 * tests of programs that talk to the daemon. With an object of device programs.
 */
#include <poll.h>
#include <unistd.h>

#include "unit/api_fixture.h"
#include "unit/test.h"

int main(int argc, char **argv)
{
        struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
        struct fixture f;

        CHECK_EQ(argc, 3);
        fixture_init(&f);
        snprintf(f.path, sizeof(f.path), "%s", argv[1]);
        if (!fixture_load_object(&f, argv[2]))
                test_skip("eBPF programs cannot be verified here");
        fixture_start(&f);
        printf("ready\n");
        fflush(stdout);
        while (poll(&in, 1, 20) == 0)
                fixture_publish(&f, 10, 10);
        fixture_stop(&f);
        return 0;
}
