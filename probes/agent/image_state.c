/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grow.h"
#include "image_state.h"

#define REASON_BYTES 160
#define NAME_SHOWN   80

struct call {
        int from, to;
};

struct function {
        char *name;
        char *reason; /* NULL: nothing it reaches forbids a copy */
};

struct image_state {
        struct function *functions;
        size_t function_count;
        struct call *calls;
        size_t call_count;
        int *buckets; /* by name: function number plus 1, chained by open addressing */
        size_t bucket_count;
        const char *refused; /* all of them */
        bool spread;         /* reasons have gone along the calls */
};

struct image_state *image_state_new(void)
{
        return calloc(1, sizeof(struct image_state));
}

struct image_state *image_state_free(struct image_state *s)
{
        if (!s)
                return NULL;
        for (size_t i = 0; i < s->function_count; i++) {
                free(s->functions[i].name);
                free(s->functions[i].reason);
        }
        free(s->functions);
        free(s->calls);
        free(s->buckets);
        free(s);
        return NULL;
}

static size_t hash(const char *name, size_t length)
{
        size_t h = 14695981039346656037ull;

        for (size_t i = 0; i < length; i++)
                h = (h ^ (unsigned char)name[i]) * 1099511628211ull;
        return h;
}

/* The bucket the name is in, or the free one it would go to. */
static size_t find(const struct image_state *s, const char *name, size_t length)
{
        size_t at = hash(name, length) & (s->bucket_count - 1);

        for (;; at = (at + 1) & (s->bucket_count - 1)) {
                const char *found;

                if (!s->buckets[at])
                        return at;
                found = s->functions[s->buckets[at] - 1].name;
                if (strncmp(found, name, length) == 0 && !found[length])
                        return at;
        }
}

/* At most half of the buckets are used. */
static bool grow_buckets(struct image_state *s)
{
        size_t count = s->bucket_count ? 2 * s->bucket_count : 64;
        int *buckets = calloc(count, sizeof(*buckets));

        if (!buckets)
                return false;
        free(s->buckets);
        s->buckets = buckets;
        s->bucket_count = count;
        for (size_t i = 0; i < s->function_count; i++)
                buckets[find(s, s->functions[i].name, strlen(s->functions[i].name))] = (int)i + 1;
        return true;
}

int image_state_function(struct image_state *s, const char *name, size_t length)
{
        struct function *f;
        size_t at;

        if (s->function_count >= s->bucket_count / 2 && !grow_buckets(s))
                return -ENOMEM;
        at = find(s, name, length);
        if (s->buckets[at])
                return s->buckets[at] - 1;
        if (!grow((void **)&s->functions, s->function_count, sizeof(*s->functions)))
                return -ENOMEM;
        f = &s->functions[s->function_count];
        *f = (struct function){.name = strndup(name, length)};
        if (!f->name)
                return -ENOMEM;
        s->buckets[at] = (int)++s->function_count;
        return (int)s->function_count - 1;
}

int image_state_calls(struct image_state *s, int function, int other)
{
        if (function == other)
                return 0;
        if (!grow((void **)&s->calls, s->call_count, sizeof(*s->calls)))
                return -ENOMEM;
        s->calls[s->call_count++] = (struct call){function, other};
        return 0;
}

int image_state_reaches(struct image_state *s, int function, const char *format, ...)
{
        struct function *f = &s->functions[function];
        char reason[REASON_BYTES];
        va_list args;

        if (f->reason)
                return 0;
        va_start(args, format);
        vsnprintf(reason, sizeof(reason), format, args);
        va_end(args);
        f->reason = strdup(reason);
        return f->reason ? 0 : -ENOMEM;
}

void image_state_refuse_all(struct image_state *s, const char *reason)
{
        s->refused = reason;
}

static bool starts_with(const char *name, size_t length, const char *prefix)
{
        size_t n = strlen(prefix);

        return length >= n && memcmp(name, prefix, n) == 0;
}

bool image_state_is_literal(const char *name, size_t length)
{
        static const char *const prefixes[] = {
                "$str",       /* text, as of printf and assert */
                "__unnamed_", /* names of functions, for assert */
                "__cudart_",  /* tables of the mathematical functions */
        };

        for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
                if (starts_with(name, length, prefixes[i]))
                        return true;
        return false;
}

bool image_state_is_builtin(const char *name, size_t length)
{
        static const char *const names[] = {"vprintf", "malloc", "free", "__assertfail"};

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                if (strlen(names[i]) == length && memcmp(name, names[i], length) == 0)
                        return true;
        return false;
}

/* Against the direction of the calls, until nothing changes. */
static bool spread(struct image_state *s)
{
        bool changed = true;

        while (changed) {
                changed = false;
                for (size_t i = 0; i < s->call_count; i++) {
                        struct function *from = &s->functions[s->calls[i].from];
                        const struct function *to = &s->functions[s->calls[i].to];
                        char reason[REASON_BYTES];

                        if (from->reason || !to->reason)
                                continue;
                        if (starts_with(to->reason, strlen(to->reason), "through "))
                                snprintf(reason, sizeof(reason), "%s", to->reason);
                        else
                                snprintf(reason, sizeof(reason), "through %.*s: %s", NAME_SHOWN / 2,
                                         to->name, to->reason);
                        from->reason = strdup(reason);
                        if (!from->reason)
                                return false;
                        changed = true;
                }
        }
        return true;
}

const char *image_state_refusal(struct image_state *s, const char *kernel)
{
        size_t at;

        if (s->refused)
                return s->refused;
        if (!s->spread && !spread(s))
                return "out of memory";
        s->spread = true;
        at = s->bucket_count ? find(s, kernel, strlen(kernel)) : 0;
        if (!s->bucket_count || !s->buckets[at])
                return "the image has no kernel of that name";
        return s->functions[s->buckets[at] - 1].reason;
}
