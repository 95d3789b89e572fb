/* SPDX-License-Identifier: Apache-2.0 */
#include "store/glob.h"

#include <stddef.h>
#include <stdint.h>

/* The character at *s, which moves behind it. A byte that begins no valid sequence is itself. */
static uint32_t next_character(const char **s)
{
        const unsigned char *p = (const unsigned char *)*s;
        uint32_t c = *p++;
        int more = c >= 0xf0 && c < 0xf8   ? 3
                   : c >= 0xe0 && c < 0xf0 ? 2
                   : c >= 0xc2 && c < 0xe0 ? 1
                                           : 0;
        uint32_t value = more == 3 ? c & 0x07 : more == 2 ? c & 0x0f : c & 0x1f;

        for (int i = 0; i < more; i++) {
                if ((p[i] & 0xc0) != 0x80) {
                        ++*s;
                        return c;
                }
                value = value << 6 | (p[i] & 0x3f);
        }
        *s += 1 + more;
        return more ? value : c;
}

/* *pattern is behind "[" and moves behind "]". False also for a set without an end. */
static bool set_matches(const char **pattern, uint32_t c)
{
        bool inverted = **pattern == '^', found = false;
        const char *p = *pattern + inverted;

        do {
                uint32_t low, high;

                if (*p == '\0')
                        return false;
                low = high = next_character(&p);
                if (p[0] == '-' && p[1] != ']' && p[1] != '\0') {
                        p++;
                        high = next_character(&p);
                }
                found |= c >= low && c <= high;
        } while (*p != ']');
        *pattern = p + 1;
        return found != inverted;
}

/* One character of text against the pattern's next element, which is not a star. */
static bool element_matches(const char **pattern, uint32_t c)
{
        uint32_t p;

        if (**pattern == '\0')
                return false;
        p = next_character(pattern);
        if (p == '?')
                return true;
        return p == '[' ? set_matches(pattern, c) : p == c;
}

/* Only the last star ever needs to be tried again: what was before it matched the shortest text. */
bool glob_matches(const char *pattern, const char *text)
{
        const char *after_star = NULL, *resume = NULL;

        for (;;) {
                if (*pattern == '*') {
                        after_star = ++pattern;
                        resume = text;
                        continue;
                }
                if (*text == '\0')
                        break;
                if (element_matches(&pattern, next_character(&text)))
                        continue;
                if (!after_star)
                        return false;
                next_character(&resume);
                text = resume;
                pattern = after_star;
        }
        return *pattern == '\0';
}
