/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Assertions for the unit tests: plain programs, one main() that calls test
 * functions through TEST(). The first failed check prints where and what, and
 * ends the program with 1. test_skip() ends it with 77, which meson counts as
 * skipped.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(cond)                                                                                \
        do {                                                                                       \
                if (!(cond)) {                                                                     \
                        fprintf(stderr, "%s:%d: %s: check failed: %s\n", __FILE__, __LINE__,       \
                                __func__, #cond);                                                  \
                        exit(1);                                                                   \
                }                                                                                  \
        } while (0)

#define CHECK_EQ(a, b)                                                                             \
        do {                                                                                       \
                long long check_a_ = (long long)(a), check_b_ = (long long)(b);                    \
                if (check_a_ != check_b_) {                                                        \
                        fprintf(stderr, "%s:%d: %s: %s is %lld, %s is %lld\n", __FILE__, __LINE__, \
                                __func__, #a, check_a_, #b, check_b_);                             \
                        exit(1);                                                                   \
                }                                                                                  \
        } while (0)

#define CHECK_STR(a, b)                                                                            \
        do {                                                                                       \
                const char *check_a_ = (a), *check_b_ = (b);                                       \
                if (!check_a_ || !check_b_ || strcmp(check_a_, check_b_) != 0) {                   \
                        fprintf(stderr, "%s:%d: %s: \"%s\" is not \"%s\"\n", __FILE__, __LINE__,   \
                                __func__, check_a_ ? check_a_ : "(null)",                          \
                                check_b_ ? check_b_ : "(null)");                                   \
                        exit(1);                                                                   \
                }                                                                                  \
        } while (0)

#define TEST(f)                                                                                    \
        do {                                                                                       \
                f();                                                                               \
                printf("ok %s\n", #f);                                                             \
                fflush(stdout);                                                                    \
        } while (0)

static inline _Noreturn void test_skip(const char *why)
{
        printf("SKIP: %s\n", why);
        exit(77);
}

/* Deterministic pseudo-random numbers (splitmix64): the same seed, the same test. */
static inline uint64_t test_random(uint64_t *state)
{
        uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        return z ^ (z >> 31);
}
