/* SPDX-License-Identifier: Apache-2.0 */
#include "api/glob.h"

#include <stddef.h>

/* One set at "[": whether c is in it, and where the pattern goes on; NULL when it has no end. */
static const char *match_set(const char *p, unsigned char c, bool *ret_in)
{
        bool invert = *++p == '^', in = false;

        p += invert;
        for (bool first = true; *p && (*p != ']' || first); first = false) {
                unsigned char low = (unsigned char)*p++, high = low;

                if (p[0] == '-' && p[1] && p[1] != ']') {
                        high = (unsigned char)p[1];
                        p += 2;
                }
                in = in || (c >= low && c <= high);
        }
        *ret_in = in != invert;
        return *p ? p + 1 : NULL;
}

/* Match one pattern element against c; where the pattern goes on, NULL when it does not match. */
static const char *match_one(const char *p, char c)
{
        bool in;

        if (*p == '?')
                return p + 1;
        if (*p != '[')
                return *p == c ? p + 1 : NULL;
        p = match_set(p, (unsigned char)c, &in);
        return in ? p : NULL;
}

/* On a mismatch only the last star has to give way: what earlier ones took can stay. */
bool glob_match(const char *pattern, const char *text)
{
        const char *after_star = NULL, *star_text = NULL, *next;

        while (*text) {
                if (*pattern == '*') {
                        after_star = ++pattern;
                        star_text = text;
                        continue;
                }
                next = *pattern ? match_one(pattern, *text) : NULL;
                if (next) {
                        pattern = next;
                        text++;
                } else if (after_star) {
                        pattern = after_star;
                        text = ++star_text;
                } else {
                        return false;
                }
        }
        while (*pattern == '*')
                pattern++;
        return !*pattern;
}
