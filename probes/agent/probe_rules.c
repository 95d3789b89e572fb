/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "probe_rules.h"

static bool parse_word(const char *word, struct probe_rule *ret_rule)
{
        static const char image[] = "image:", kernel[] = "kernel:";
        struct probe_rule r = {.exclude = word[0] == '-'};

        if (word[0] != '-' && word[0] != '+')
                return false;
        r.of_image = strncmp(word + 1, image, sizeof(image) - 1) == 0;
        if (r.of_image)
                r.glob = word + sizeof(image);
        else if (strncmp(word + 1, kernel, sizeof(kernel) - 1) == 0)
                r.glob = word + sizeof(kernel);
        if (!r.glob || !r.glob[0])
                return false;
        *ret_rule = r;
        return true;
}

void probe_rules_parse(const char *text, struct probe_rules *ret_rules)
{
        char *state = NULL;

        ret_rules->count = 0;
        snprintf(ret_rules->text, sizeof(ret_rules->text), "%s", text);
        for (char *word = strtok_r(ret_rules->text, " \t", &state);
             word && ret_rules->count < PROBE_RULES_MAX; word = strtok_r(NULL, " \t", &state))
                if (parse_word(word, &ret_rules->rules[ret_rules->count]))
                        ret_rules->count++;
}
