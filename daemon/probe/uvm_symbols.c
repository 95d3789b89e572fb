/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/uvm_symbols.h"

#include <bpf/btf.h>
#include <string.h>

#include "util/macro.h"

#define CANDIDATES_MAX 4

struct wanted {
        uint8_t role;
        uint8_t by_pointer;
        const char *type; /* the name of a struct, or of a typedef on the way to it */
};

struct candidate {
        const char *function;
        struct wanted wanted[5];
};

/* clang-format off */
#define GPU_PARENT {UVM_ROLE_GPU, 1, "uvm_parent_gpu_struct"}
#define GPU_PLAIN  {UVM_ROLE_GPU, 1, "uvm_gpu_struct"}
#define FAULTS     {UVM_ROLE_FAULTS, 1, "uvm_fault_service_batch_context_struct"}
#define BLOCK      {UVM_ROLE_BLOCK, 1, "uvm_va_block_struct"}
#define PROCESSOR  {UVM_ROLE_PROCESSOR, 0, "uvm_processor_id_t"}
#define REGION     {UVM_ROLE_REGION, 0, "uvm_va_block_region_t"}
#define HINT       {UVM_ROLE_HINT, 1, "uvm_perf_prefetch_hint_t"}
#define CHUNK      {UVM_ROLE_CHUNK, 1, "uvm_gpu_root_chunk_struct"}
#define ASKER      {UVM_ROLE_ASKER, 0, "uvm_pmm_context_t"}
#define CAUSE      {UVM_ROLE_CAUSE, 0, "uvm_make_resident_cause_t"}

static const struct candidate candidates[UVM_POINT_COUNT][CANDIDATES_MAX] = {
        [UVM_POINT_BATCH] = {
                {"service_fault_batch", {GPU_PARENT, GPU_PLAIN, FAULTS}},
                {"uvm_parent_gpu_service_replayable_faults", {GPU_PARENT}}, /* several batches */
                {"uvm_gpu_service_replayable_faults", {GPU_PLAIN}},
        },
        [UVM_POINT_PREFETCH] = {
                {"uvm_perf_prefetch_get_hint_va_block", {BLOCK, PROCESSOR, REGION, HINT}},
                {"uvm_perf_prefetch_get_hint", {BLOCK, PROCESSOR, REGION, HINT}}, /* until 530 */
        },
        [UVM_POINT_PICK] = {
                {"evict_root_chunk", {CHUNK, ASKER}},
                {"pick_and_evict_root_chunk", {ASKER}},
                {"pick_root_chunk_to_evict", {{0}}},
                {"pick_and_evict_root_chunk_retry", {ASKER}},
        },
        [UVM_POINT_EVICT] = {
                {"uvm_va_block_evict_chunks", {BLOCK, GPU_PLAIN}},
        },
        [UVM_POINT_MOVE] = {
                {"uvm_va_block_make_resident_copy", {BLOCK, PROCESSOR, REGION, CAUSE}},
                {"uvm_va_block_make_resident", {BLOCK, PROCESSOR, REGION, CAUSE}},
                {"block_copy_resident_pages", {BLOCK, PROCESSOR, REGION}},
                {"uvm_va_block_migrate_locked", {BLOCK, PROCESSOR, REGION}}, /* asked for only */
        },
};

struct value {
        const char *name;
        uint8_t ours;
};

static const struct value causes[] = {
        {"UVM_MAKE_RESIDENT_CAUSE_REPLAYABLE_FAULT", UVM_CAUSE_FAULT},
        {"UVM_MAKE_RESIDENT_CAUSE_NON_REPLAYABLE_FAULT", UVM_CAUSE_FATAL_FAULT},
        {"UVM_MAKE_RESIDENT_CAUSE_ACCESS_COUNTER", UVM_CAUSE_ACCESS_COUNTER},
        {"UVM_MAKE_RESIDENT_CAUSE_PREFETCH", UVM_CAUSE_PREFETCH},
        {"UVM_MAKE_RESIDENT_CAUSE_EVICTION", UVM_CAUSE_EVICTION},
        {"UVM_MAKE_RESIDENT_CAUSE_API_TOOLS", UVM_CAUSE_TOOLS},
        {"UVM_MAKE_RESIDENT_CAUSE_API_MIGRATE", UVM_CAUSE_MIGRATE},
        {"UVM_MAKE_RESIDENT_CAUSE_API_SET_RANGE_GROUP", UVM_CAUSE_RANGE_GROUP},
        {"UVM_MAKE_RESIDENT_CAUSE_API_HINT", UVM_CAUSE_HINT},
        {0},
};
static const struct value askers[] = {
        {"PMM_CONTEXT_DEFAULT", UVM_CAUSE_ALLOCATION},
        {"PMM_CONTEXT_PMA_EVICTION", UVM_CAUSE_PHYSICAL_ALLOCATION},
        {0},
};
static const struct value chunk_states[] = {
        {"UVM_PMM_GPU_CHUNK_STATE_FREE", UVM_CHUNK_FREE},
        {"UVM_PMM_GPU_CHUNK_STATE_IS_SPLIT", UVM_CHUNK_SPLIT},
        {"UVM_PMM_GPU_CHUNK_STATE_TEMP_PINNED", UVM_CHUNK_PINNED},
        {"UVM_PMM_GPU_CHUNK_STATE_ALLOCATED", UVM_CHUNK_ALLOCATED},
        {0},
};
/* clang-format on */

/* ---- symbols ---- */

struct search {
        struct uvm_symbols *found;
        int ranks[UVM_POINT_COUNT]; /* of what was found */
        /* How often a candidate's name is there, of whatever kind and wherever. */
        unsigned counts[UVM_POINT_COUNT][CANDIDATES_MAX];
};

/* Whether a symbol is the function: itself, or what the compiler made of it. */
static bool is_function(const char *symbol, const char *function, bool *ret_exact)
{
        size_t n = strlen(function);

        if (strncmp(symbol, function, n) != 0 || (symbol[n] && symbol[n] != '.'))
                return false;
        /* The part that is seldom run is no function of its own. */
        if (strstr(symbol + n, ".cold"))
                return false;
        *ret_exact = !symbol[n];
        return true;
}

/* The rank of the symbol among the candidates of a point, the lowest being the best; -1 none. */
static int rank_of(const char *symbol, unsigned point, bool *ret_exact)
{
        for (int i = 0; i < CANDIDATES_MAX && candidates[point][i].function; i++)
                if (is_function(symbol, candidates[point][i].function, ret_exact))
                        return 2 * i + !*ret_exact;
        return -1;
}

static void offer(struct search *search, const char *symbol)
{
        for (unsigned point = 0; point < UVM_POINT_COUNT; point++) {
                struct uvm_symbol *s = &search->found->points[point];
                bool exact;
                int rank = rank_of(symbol, point, &exact);

                if (rank < 0 || rank >= search->ranks[point])
                        continue;
                search->ranks[point] = rank;
                s->exact = exact;
                snprintf(s->name, sizeof(s->name), "%s", symbol);
        }
}

static void count_name(struct search *search, const char *line)
{
        const char *name = strchr(line, ' ');
        size_t n;

        if (!name || strlen(name) < sizeof(" t "))
                return;
        name += sizeof(" t ") - 1;
        n = strcspn(name, "\t\n");
        for (unsigned point = 0; point < UVM_POINT_COUNT; point++)
                for (int i = 0; i < CANDIDATES_MAX && candidates[point][i].function; i++) {
                        const char *function = candidates[point][i].function;

                        search->counts[point][i] += name[0] == function[0] &&
                                                    strlen(function) == n &&
                                                    memcmp(name, function, n) == 0;
                }
}

/* Lines "address type symbol\t[module]". */
static void find_symbols(struct search *search, FILE *kallsyms)
{
        char line[512], symbol[UVM_SYMBOL_MAX], module[64], type;

        while (fgets(line, sizeof(line), kallsyms)) {
                count_name(search, line);
                if (!strstr(line, "[" UVM_MODULE "]") ||
                    sscanf(line, "%*s %c %95s [%63[^]]]", &type, symbol, module) != 3)
                        continue;
                if ((type == 't' || type == 'T') && strcmp(module, UVM_MODULE) == 0)
                        offer(search, symbol);
        }
}

/* ---- arguments ---- */

static bool has_name(const struct btf *btf, const struct btf_type *t, const char *name)
{
        return strcmp(btf__name_by_offset(btf, t->name_off), name) == 0;
}

/* Whether a parameter is of the type, or points to one. */
static bool is_type(const struct btf *btf, uint32_t id, bool by_pointer, const char *name)
{
        bool pointer = false;

        for (int depth = 0; depth < 16; depth++) {
                const struct btf_type *t = btf__type_by_id(btf, id);

                if (!t)
                        return false;
                if ((btf_is_typedef(t) || btf_is_composite(t)) && has_name(btf, t, name))
                        return pointer == by_pointer;
                if (btf_is_ptr(t)) {
                        if (pointer)
                                return false;
                        pointer = true;
                } else if (!btf_is_mod(t) && !btf_is_typedef(t)) {
                        return false;
                }
                id = t->type;
        }
        return false;
}

/* A struct that is returned in memory takes the place of the first argument. */
static bool returns_struct(const struct btf *btf, const struct btf_type *proto)
{
        const struct btf_type *t = btf__type_by_id(btf, proto->type);

        while (t && (btf_is_mod(t) || btf_is_typedef(t)))
                t = btf__type_by_id(btf, t->type);
        return t && btf_is_composite(t);
}

static const struct btf_type *prototype_of(const struct btf *btf, const char *function)
{
        int id = btf__find_by_name_kind(btf, function, BTF_KIND_FUNC);
        const struct btf_type *f = id > 0 ? btf__type_by_id(btf, (uint32_t)id) : NULL;
        const struct btf_type *proto = f ? btf__type_by_id(btf, f->type) : NULL;

        return proto && btf_is_func_proto(proto) && !returns_struct(btf, proto) ? proto : NULL;
}

static void find_argument(const struct btf *btf, const struct btf_type *proto,
                          const struct wanted *w, struct uvm_symbol *symbol)
{
        const struct btf_param *parameters = btf_params(proto);

        if (symbol->arguments[w->role] != UVM_ARGUMENT_NONE)
                return;
        for (uint32_t i = 0; i < btf_vlen(proto) && i < UVM_ARGUMENTS_MAX; i++) {
                if (!is_type(btf, parameters[i].type, w->by_pointer, w->type))
                        continue;
                symbol->arguments[w->role] = (uint8_t)i;
                symbol->has_arguments = true;
                if (w->role == UVM_ROLE_GPU)
                        symbol->gpu_type = strcmp(w->type, "uvm_gpu_struct") == 0 ? UVM_GPU_PLAIN
                                                                                  : UVM_GPU_PARENT;
                return;
        }
}

static void find_arguments(const struct btf *btf, unsigned point, int rank,
                           struct uvm_symbol *symbol)
{
        const struct candidate *c = &candidates[point][rank / 2];
        const struct btf_type *proto = prototype_of(btf, c->function);

        if (!proto)
                return;
        symbol->has_prototype = true;
        symbol->parameters = (uint8_t)(btf_vlen(proto) < UINT8_MAX ? btf_vlen(proto) : UINT8_MAX);
        for (size_t i = 0; i < ARRAY_SIZE(c->wanted) && c->wanted[i].type; i++)
                find_argument(btf, proto, &c->wanted[i], symbol);
}

/* ---- enums ---- */

static void take_value(const struct value *values, const char *name, int64_t number,
                       uint8_t ret_ours[UVM_ENUM_MAX])
{
        for (; values->name; values++)
                if (strcmp(values->name, name) == 0 && number >= 0 && number < UVM_ENUM_MAX)
                        ret_ours[number] = values->ours;
}

/* Of an enum that has a name only by its typedef. */
static void find_values(const struct btf *btf, const char *type, const struct value *values,
                        uint8_t ret_ours[UVM_ENUM_MAX])
{
        int id = btf__find_by_name_kind(btf, type, BTF_KIND_TYPEDEF);
        const struct btf_type *t = id > 0 ? btf__type_by_id(btf, (uint32_t)id) : NULL;
        const struct btf_enum *e;

        t = t ? btf__type_by_id(btf, t->type) : NULL;
        if (!t || !btf_is_enum(t))
                return;
        e = btf_enum(t);
        for (uint32_t i = 0; i < btf_vlen(t); i++)
                take_value(values, btf__name_by_offset(btf, e[i].name_off), e[i].val, ret_ours);
}

enum uvm_cause uvm_symbols_cause(const struct uvm_symbols *s, const struct uvm_probe_event *e)
{
        const uint8_t *numbers = e->point == UVM_POINT_PICK ? s->askers : s->causes;

        return e->has & UVM_PROBE_HAS_CAUSE && e->cause < UVM_ENUM_MAX ? numbers[e->cause]
                                                                       : UVM_CAUSE_NONE;
}

enum uvm_chunk_state uvm_symbols_state(const struct uvm_symbols *s, const struct uvm_probe_event *e)
{
        return e->has & UVM_PROBE_HAS_CHUNK && e->state < UVM_ENUM_MAX ? s->chunk_states[e->state]
                                                                       : UVM_CHUNK_UNKNOWN;
}

/* ---- all ---- */

void uvm_symbols_find(FILE *kallsyms, const struct btf *btf, struct uvm_symbols *ret_symbols)
{
        struct uvm_symbols s = {0};
        struct search search = {.found = &s};

        for (unsigned i = 0; i < UVM_POINT_COUNT; i++) {
                search.ranks[i] = 2 * CANDIDATES_MAX;
                memset(s.points[i].arguments, UVM_ARGUMENT_NONE, sizeof(s.points[i].arguments));
        }
        find_symbols(&search, kallsyms);
        for (unsigned i = 0; i < UVM_POINT_COUNT; i++) {
                if (!s.points[i].name[0] || !s.points[i].exact)
                        continue;
                s.points[i].unique = search.counts[i][search.ranks[i] / 2] == 1;
                if (btf)
                        find_arguments(btf, i, search.ranks[i], &s.points[i]);
        }
        if (btf) {
                find_values(btf, "uvm_make_resident_cause_t", causes, s.causes);
                find_values(btf, "uvm_pmm_context_t", askers, s.askers);
                find_values(btf, "uvm_pmm_gpu_chunk_state_t", chunk_states, s.chunk_states);
        }
        *ret_symbols = s;
}

/* The kernel makes a value type of this name for each struct_ops that a module registers. */
unsigned uvm_symbols_struct_ops(const struct btf *btf, char *buffer, size_t size)
{
        static const char prefix[] = "bpf_struct_ops_";
        static const char *const known[] = {"gpu_mem_ops", "gpu_sched_ops"};
        const struct btf *base = btf__base_btf(btf);
        unsigned found = 0;
        size_t used = 0;

        buffer[0] = '\0';
        for (uint32_t id = base ? btf__type_cnt(base) : 1; id < btf__type_cnt(btf); id++) {
                const struct btf_type *t = btf__type_by_id(btf, id);
                const char *name = btf_is_struct(t) ? btf__name_by_offset(btf, t->name_off) : "";
                bool is_ops = strncmp(name, prefix, sizeof(prefix) - 1) == 0;

                for (size_t i = 0; i < ARRAY_SIZE(known); i++)
                        is_ops = is_ops || strcmp(name, known[i]) == 0;
                if (!is_ops)
                        continue;
                if (used < size)
                        used += (size_t)snprintf(buffer + used, size - used, "%s%s",
                                                 found ? ", " : "", name);
                found++;
        }
        return found;
}
