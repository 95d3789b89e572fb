/* SPDX-License-Identifier: Apache-2.0 */
#include "programs.h"

#include <errno.h>
#include <fnmatch.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "api/agent_server.h"
#include "attachment.h"
#include "daemon.h"
#include "device/duplicate.h"
#include "device/program.h"
#include "masters.h"
#include "util/config.h"
#include "util/log.h"
#include "util/macro.h"
#include "util/time.h"

#define RULES_MAX 16

/* Whom an object is meant for. */
struct rule {
        bool all;
        uint32_t pid;  /* 0: any */
        char comm[32]; /* glob; "": any */
};

struct registered {
        struct registered *prev, *next;
        uint64_t id;
        char name[64];
        struct device_object *object;
        struct masters *masters;
        int blob_fd;
        uint64_t blob_bytes;
        uint64_t loaded_ns;
        char kernels[AGENT_GLOB_MAX];
        struct rule rules[RULES_MAX];
        size_t rule_count;
};

struct programs {
        struct registered *objects;
        size_t count;
        uint64_t last_id;
};

struct programs *programs_new(void)
{
        return calloc(1, sizeof(struct programs));
}

static struct registered *registered_free(struct registered *r)
{
        if (!r)
                return NULL;
        masters_free(r->masters);
        device_object_free(r->object);
        closep(&r->blob_fd);
        free(r);
        return NULL;
}

struct programs *programs_free(struct programs *p)
{
        struct registered *r, *next;

        if (!p)
                return NULL;
        DL_FOREACH_SAFE(p->objects, r, next)
        registered_free(r);
        free(p);
        return NULL;
}

static struct registered *find(const struct gpuobsd *d, const char *name)
{
        struct registered *r;

        DL_FOREACH(d->programs->objects, r)
        if (strcmp(r->name, name) == 0)
                return r;
        return NULL;
}

/* ---- whom they are for ---- */

static bool rule_matches(const struct rule *rule, const struct observed *o)
{
        if (rule->pid)
                return rule->pid == o->info.pid;
        return rule->all || fnmatch(rule->comm, o->info.comm, 0) == 0;
}

static bool is_meant(const struct registered *r, const struct observed *o)
{
        for (size_t i = 0; i < r->rule_count; i++)
                if (rule_matches(&r->rules[i], o))
                        return true;
        return false;
}

/* ---- agents ---- */

static int attach(struct registered *r, struct observed *o)
{
        const struct attach_what what = {.id = r->id,
                                         .object = r->object,
                                         .blob_fd = r->blob_fd,
                                         .blob_bytes = r->blob_bytes,
                                         .kernels = r->kernels};

        return attachment_begin(o, &what);
}

/* An agent that does not read does not get them; it is found out at its next answer. */
static void send_rules(struct gpuobsd *d, struct observed *o)
{
        struct agent_rules m = {0};

        snprintf(m.text, sizeof(m.text), "%s", d->config->probe_rules);
        (void)agent_send(o->agent, AGENT_RULES, &m, sizeof(m), NULL, 0);
}

uint32_t programs_count_for(const struct gpuobsd *d, const struct observed *o)
{
        const struct registered *r;
        uint32_t n = d->config->probe_rules[0] != 0;

        DL_FOREACH(d->programs->objects, r)
        n += is_meant(r, o);
        return n;
}

void programs_welcomed(struct gpuobsd *d, struct observed *o)
{
        struct registered *r;

        if (d->config->probe_rules[0])
                send_rules(d, o);
        DL_FOREACH(d->programs->objects, r)
        if (is_meant(r, o))
                (void)attach(r, o);
}

void programs_rules_changed(struct gpuobsd *d)
{
        struct observed *o, *next;

        HASH_ITER (by_pid, d->observed.by_pid, o, next)
                if (o->agent)
                        send_rules(d, o);
}

void programs_agent_gone(struct gpuobsd *d, struct observed *o)
{
        struct registered *r;

        attachments_done(o);
        DL_FOREACH(d->programs->objects, r)
        masters_forget(r->masters, o);
}

void programs_tick(struct gpuobsd *d)
{
        struct observed *o, *next;
        uint64_t now = now_ns();

        HASH_ITER (by_pid, d->observed.by_pid, o, next) {
                struct registered *r;

                attachments_tick(o, now);
                DL_FOREACH(d->programs->objects, r)
                masters_sync(d, r->masters, o, now);
        }
}

struct masters *programs_masters(struct gpuobsd *d, uint64_t id)
{
        struct registered *r;

        DL_FOREACH(d->programs->objects, r)
        if (r->id == id)
                return r->masters;
        return NULL;
}

/* ---- what there is ---- */

static int each_own(struct gpuobsd *d, int (*row)(void *row_data, const struct api_probe *p),
                    void *row_data)
{
        struct api_probe own = {.name = "launch",
                                .object = d->device_object,
                                .builtin = true,
                                .loaded_ns = d->started_ns,
                                .all = true};

        return d->device_object ? row(row_data, &own) : 0;
}

void programs_each(struct gpuobsd *d, int (*row)(void *row_data, const struct api_probe *p),
                   void *row_data)
{
        const struct registered *r;

        if (each_own(d, row, row_data))
                return;
        DL_FOREACH(d->programs->objects, r)
        {
                struct api_probe p = {.id = r->id,
                                      .name = r->name,
                                      .object = r->object,
                                      .loaded_ns = r->loaded_ns,
                                      .kernels = r->kernels[0] ? r->kernels : NULL};

                for (size_t i = 0; i < r->rule_count; i++) {
                        p.all |= r->rules[i].all;
                        if (r->rules[i].comm[0])
                                p.comm = r->rules[i].comm;
                }
                if (row(row_data, &p))
                        return;
        }
}

void programs_attachments(struct gpuobsd *d, uint64_t id,
                          int (*row)(void *row_data, const struct api_attachment *a),
                          void *row_data)
{
        const struct observed *o, *next;

        HASH_ITER (by_pid, d->observed.by_pid, o, next) {
                struct api_attachment a = {.process = &o->info};

                if (attachment_describe(o, id, &a) && row(row_data, &a))
                        return;
        }
}

/* ---- coming and going ---- */

static int refuse(char *error, size_t error_size, int code, const char *sentence)
{
        snprintf(error, error_size, "%s", sentence);
        return code;
}

static bool is_name(const char *name)
{
        size_t n = strlen(name);

        return n > 0 && n < sizeof(((struct registered *)0)->name) &&
               strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") ==
                       n;
}

static int compile(struct registered *r, const void *object, size_t size, char *error,
                   size_t error_size)
{
        int e = device_object_load(object, size, NULL, error, error_size, &r->object);

        if (e == 0)
                e = device_object_blob(r->object, &r->blob_fd, &r->blob_bytes);
        if (e < 0 && !error[0])
                snprintf(error, error_size, "%s", strerror(-e));
        return e;
}

int programs_load(struct gpuobsd *d, const char *name, const void *object, size_t size, char *error,
                  size_t error_size)
{
        struct programs *p = d->programs;
        struct registered *r;
        int e;

        if (!is_name(name))
                return refuse(error, error_size, -EINVAL,
                              "a name has 1 to 63 letters, digits, _, . or -");
        if (find(d, name) || strcmp(name, "launch") == 0)
                return refuse(error, error_size, -EEXIST,
                              "there are programs of this name: unload them first");
        if (p->count == PROGRAMS_MAX)
                return refuse(error, error_size, -ENOBUFS, "as many programs as there may be");
        r = calloc(1, sizeof(*r));
        if (!r)
                return refuse(error, error_size, -ENOMEM, "out of memory");
        *r = (struct registered){.blob_fd = -1, .loaded_ns = now_ns()};
        snprintf(r->name, sizeof(r->name), "%s", name);
        error[0] = '\0';
        e = compile(r, object, size, error, error_size);
        r->id = ++p->last_id;
        if (e == 0) {
                e = masters_new(r->object, r->id, &r->masters);
                if (e < 0)
                        snprintf(error, error_size, "a map that is there twice: %s",
                                 e == -E2BIG ? "more than 32 KiB of settings" : strerror(-e));
        }
        if (e < 0) {
                registered_free(r);
                return e;
        }
        DL_APPEND(p->objects, r);
        p->count++;
        return 0;
}

static void detach_all(struct gpuobsd *d, const struct registered *r)
{
        struct observed *o, *next;

        HASH_ITER (by_pid, d->observed.by_pid, o, next)
                (void)attachment_end(o, r->id);
}

static struct registered *find_or_refuse(struct gpuobsd *d, const char *name, char *error,
                                         size_t error_size)
{
        struct registered *r = find(d, name);

        if (!r)
                snprintf(error, error_size,
                         strcmp(name, "launch") ? "there are no programs of this name"
                                                : "these are the daemon's own (device_program in "
                                                  "gpuobsd.conf): they stay");
        return r;
}

int programs_unload(struct gpuobsd *d, const char *name, char *error, size_t error_size)
{
        struct registered *r = find_or_refuse(d, name, error, error_size);

        if (!r)
                return -ENOENT;
        detach_all(d, r);
        DL_DELETE(d->programs->objects, r);
        d->programs->count--;
        registered_free(r);
        return 0;
}

static bool same_rule(const struct rule *a, const struct rule *b)
{
        return a->all == b->all && a->pid == b->pid && strcmp(a->comm, b->comm) == 0;
}

static int add_rule(struct registered *r, const struct api_target *t, char *error,
                    size_t error_size)
{
        struct rule rule = {.all = t->all, .pid = t->pid};

        if (t->comm && strlen(t->comm) >= sizeof(rule.comm))
                return refuse(error, error_size, -EINVAL, "process: too long a glob");
        if (!t->all && !t->pid && !t->comm)
                return refuse(error, error_size, -EINVAL, "which processes? pid, process or all");
        if (t->comm)
                snprintf(rule.comm, sizeof(rule.comm), "%s", t->comm);
        for (size_t i = 0; i < r->rule_count; i++)
                if (same_rule(&r->rules[i], &rule))
                        return 0;
        if (r->rule_count == RULES_MAX)
                return refuse(error, error_size, -ENOBUFS,
                              "attached to as many kinds of process as there may be");
        r->rules[r->rule_count++] = rule;
        return 0;
}

int programs_attach(struct gpuobsd *d, const char *name, const struct api_target *target,
                    char *error, size_t error_size)
{
        struct registered *r = find_or_refuse(d, name, error, error_size);
        struct observed *o, *next;
        int e;

        if (!r)
                return -ENOENT;
        if (target->pid) {
                o = observed_find(&d->observed, (pid_t)target->pid);
                if (!o || !o->agent)
                        return refuse(error, error_size, -ESRCH,
                                      "this process has no agent: run it with gpuobsctl run, or "
                                      "bring one in with gpuobsctl attach");
        }
        if (target->kernels && strlen(target->kernels) >= sizeof(r->kernels))
                return refuse(error, error_size, -EINVAL, "kernels: too long a glob");
        e = add_rule(r, target, error, error_size);
        if (e < 0)
                return e;
        if (target->kernels)
                snprintf(r->kernels, sizeof(r->kernels), "%s", target->kernels);
        HASH_ITER (by_pid, d->observed.by_pid, o, next)
                if (o->agent && is_meant(r, o))
                        (void)attach(r, o);
        return 0;
}

/* Without a target from all, now and later; else from one process, while it runs. */
int programs_detach(struct gpuobsd *d, const char *name, const struct api_target *target,
                    char *error, size_t error_size)
{
        struct registered *r = find_or_refuse(d, name, error, error_size);
        struct observed *o;

        if (!r)
                return -ENOENT;
        if (!target->pid) {
                r->rule_count = 0;
                detach_all(d, r);
                return 0;
        }
        o = observed_find(&d->observed, (pid_t)target->pid);
        if (!o || attachment_end(o, r->id) < 0)
                return refuse(error, error_size, -ESRCH, "not attached to this process");
        for (size_t i = 0; i < r->rule_count;)
                if (r->rules[i].pid == target->pid)
                        r->rules[i] = r->rules[--r->rule_count];
                else
                        i++;
        return 0;
}

/* ---- maps ---- */

/* The process a request means: the one named, or the only one the object is attached to. */
static struct observed *find_process(struct gpuobsd *d, uint64_t id, uint32_t pid, char *error,
                                     size_t error_size)
{
        struct observed *o, *next, *found = NULL;

        HASH_ITER (by_pid, d->observed.by_pid, o, next) {
                if ((pid && o->info.pid != pid) || !attachment_is_active(o, id))
                        continue;
                if (found) {
                        snprintf(error, error_size,
                                 "attached to several processes: say which one (pid)");
                        return NULL;
                }
                found = o;
        }
        if (!found)
                snprintf(error, error_size, "not attached to %s process", pid ? "this" : "any");
        return found;
}

/* What a request is about; its process is looked for only where a map is in each of them. */
struct place {
        struct registered *object;
        struct attach_map map;
};

static int find_place(struct gpuobsd *d, const struct api_map_request *request,
                      struct place *ret_place, char *error, size_t error_size)
{
        struct registered *r = find_or_refuse(d, request->probe, error, error_size);
        int map;

        if (!r)
                return -ENOENT;
        map = device_object_find_map(r->object, request->map);
        if (map < 0)
                return refuse(error, error_size, -ENOENT, "there is no such map");
        *ret_place = (struct place){.object = r,
                                    .map = {.id = r->id,
                                            .number = (uint32_t)map,
                                            .info = device_object_map(r->object, (size_t)map)}};
        return 0;
}

static int read_master(struct duplicate *master, const struct device_map_info *info,
                       api_map_done *done, void *done_data)
{
        struct api_map_reading reading = {
                .settled = true, .before_ns = now_ns(), .after_ns = now_ns()};
        int e;

        if (info->type == BPF_MAP_TYPE_HASH) {
                e = duplicate_read_hash(master, &reading.heap);
                if (e < 0)
                        return e;
                reading.bytes = reading.heap;
                reading.size = info->bytes;
        } else {
                reading.bytes = duplicate_element(master, 0);
                reading.size = duplicate_bytes(master);
        }
        done(done_data, 0, &reading);
        free(reading.heap);
        return 0;
}

/* Of a request that the agent could not be sent. */
static int unasked(int e, char *error, size_t error_size)
{
        if (e < 0)
                snprintf(error, error_size, "the agent cannot be asked: %s", strerror(-e));
        return e;
}

int programs_read_map(struct gpuobsd *d, const struct api_map_request *request, api_map_done *done,
                      void *done_data, uint32_t *ret_pid, char *error, size_t error_size)
{
        struct place at;
        struct duplicate *master;
        struct observed *o;
        int e = find_place(d, request, &at, error, error_size);

        *ret_pid = 0;
        if (e < 0)
                return e;
        master = masters_map(at.object->masters, at.map.number);
        if (master) {
                e = read_master(master, at.map.info, done, done_data);
                if (e < 0)
                        snprintf(error, error_size, "the master cannot be read: %s", strerror(-e));
                return e;
        }
        o = find_process(d, at.map.id, request->pid, error, error_size);
        if (!o)
                return -ESRCH;
        *ret_pid = o->info.pid;
        return unasked(attachment_read(o, &at.map, done, done_data), error, error_size);
}

static int write_master(const struct place *at, const struct api_map_request *request,
                        uint64_t offset, const void *bytes, size_t size)
{
        struct duplicate *master = masters_map(at->object->masters, at->map.number);

        if (at->map.info->type == BPF_MAP_TYPE_HASH)
                return request->deletes ? duplicate_delete_hash(master, request->key)
                                        : duplicate_update_hash(master, request->key, bytes);
        memcpy((char *)duplicate_element(master, 0) + offset, bytes, size);
        masters_changed(at->object->masters, at->map.number);
        return 0;
}

int programs_write_map(struct gpuobsd *d, const struct api_map_request *request, uint64_t offset,
                       const void *bytes, size_t size, api_map_done *done, void *done_data,
                       char *error, size_t error_size)
{
        struct place at;
        struct duplicate *master;
        struct observed *o;
        int e = find_place(d, request, &at, error, error_size);

        if (e < 0)
                return e;
        master = masters_map(at.object->masters, at.map.number);
        if (master) {
                e = write_master(&at, request, offset, bytes, size);
                if (e < 0)
                        return refuse(error, error_size, e,
                                      "the master has no such element (any more)");
                done(done_data, 0, NULL);
                return 0;
        }
        o = find_process(d, at.map.id, request->pid, error, error_size);
        if (!o)
                return -ESRCH;
        return unasked(attachment_write(o, &at.map, offset, bytes, size, done, done_data), error,
                       error_size);
}
