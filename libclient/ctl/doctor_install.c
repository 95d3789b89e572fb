/* SPDX-License-Identifier: Apache-2.0 */

/* Whether gpuobsd is installed whole, and whether the caller may use it. */
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "doctor.h"

#define OK      GPUOBS_CHECK_STATE_OK
#define OFF     GPUOBS_CHECK_STATE_OFF
#define LIMITED GPUOBS_CHECK_STATE_LIMITED

#define SETTINGS         "/etc/gpuobsd/gpuobsd.conf"
#define DATABASE         "/var/lib/gpuobsd/launches.db"
#define DECODER          "libZydis.so.4.0"
#define GROUP            "gpuobs"
#define AGENT_SOCKET     "/run/gpuobsd/agent.sock"
#define FREE_BYTES_SCANT (1ULL << 30)

/* ---- the agent ---- */

/* Programs of all users load it: each directory on the way must let them through. */
static bool everybody_reads(const struct doctor *d, const char *path)
{
        char full[PATH_MAX];
        struct stat st;
        size_t root = strlen(d->root);

        if (stat(doctor_path(d, path, full), &st) < 0 || !(st.st_mode & S_IROTH))
                return false;
        for (char *slash = strrchr(full, '/'); slash && slash > full + root;
             slash = strrchr(full, '/')) {
                *slash = '\0';
                if (stat(full, &st) < 0 || !(st.st_mode & S_IXOTH))
                        return false;
        }
        return true;
}

static bool has_decoder(const struct doctor *d)
{
        char path[PATH_MAX];
        const char *slash = strrchr(GPUOBS_AGENT_PATH, '/');

        if (doctor_find_library(d, DECODER, path, sizeof(path)))
                return true;
        snprintf(path, sizeof(path), "%.*s/" DECODER, (int)(slash - GPUOBS_AGENT_PATH),
                 GPUOBS_AGENT_PATH);
        return doctor_exists(d, path);
}

static void check_agent(struct doctor *d)
{
        if (!doctor_exists(d, GPUOBS_AGENT_PATH))
                doctor_add(d, "agent", LIMITED, "Install gpuobsd whole.",
                           GPUOBS_AGENT_PATH " is missing: no times of the GPU");
        else if (!everybody_reads(d, GPUOBS_AGENT_PATH))
                doctor_add(d, "agent", LIMITED,
                           "Give everybody read permission on it, and search permission on the "
                           "directories above it.",
                           GPUOBS_AGENT_PATH " cannot be read by everybody: programs of other "
                                             "users have no agent");
        else if (!has_decoder(d))
                doctor_add(d, "agent", LIMITED, "Install " DECODER " (Debian: libzydis4.0).",
                           "it is in place, but not " DECODER ", without which it leaves programs "
                           "alone");
        else
                doctor_add(d, "agent", OK, NULL, GPUOBS_AGENT_PATH);
}

static bool says_injection(const struct doctor *d, const char *path, void *data)
{
        char text[4096];

        doctor_read(d, path, text, sizeof(text));
        *(bool *)data = strstr(text, "CUDA_INJECTION64_PATH=");
        return !*(bool *)data;
}

static void check_injection(struct doctor *d)
{
        const char *set = d->root[0] ? NULL : getenv("CUDA_INJECTION64_PATH");
        bool for_sessions = false;

        doctor_glob(d, "/etc/environment.d/*.conf", says_injection, &for_sessions);
        if (set && strcmp(set, GPUOBS_AGENT_PATH) != 0)
                doctor_add(d, "injection", LIMITED,
                           "Unset it, or start the program with gpuobsctl run.",
                           "CUDA_INJECTION64_PATH names another library here, %s: programs have "
                           "no agent",
                           set);
        else if (for_sessions || set)
                doctor_add(d, "injection", OK, NULL,
                           for_sessions ? "programs of all user sessions have the agent"
                                        : "programs started from here have the agent");
        else
                doctor_add(d, "injection", OFF,
                           "gpuobsctl run -- PROGRAM, or copy 50-gpuobs-agent.conf to "
                           "/etc/environment.d/ for all user sessions.",
                           "programs have the agent only when they are asked to");
}

/* ---- the daemon's places ---- */

static void check_socket(struct doctor *d)
{
        char full[PATH_MAX];
        struct stat st;

        if (stat(doctor_path(d, AGENT_SOCKET, full), &st) < 0)
                doctor_add(d, "agent_socket", OFF, NULL, "there is no " AGENT_SOCKET);
        else if (!(st.st_mode & S_IWOTH))
                doctor_add(d, "agent_socket", LIMITED,
                           "chmod 666 " AGENT_SOCKET "; gpuobsd.socket sets it so.",
                           AGENT_SOCKET " is not for everybody: agents of other users cannot "
                                        "connect");
        else
                doctor_add(d, "agent_socket", OK, NULL, AGENT_SOCKET);
}

static bool is_member(gid_t wanted)
{
        gid_t groups[NGROUPS_MAX];
        int n = getgroups(NGROUPS_MAX, groups);

        for (int i = 0; i < n; i++)
                if (groups[i] == wanted)
                        return true;
        return getegid() == wanted;
}

/* The group of the machine this runs on, whatever the root. */
static void check_group(struct doctor *d)
{
        const struct group *g = getgrnam(GROUP);

        if (geteuid() == 0)
                doctor_add(d, "group", g ? OK : LIMITED,
                           g ? NULL : "systemd-sysusers, or: groupadd --system " GROUP,
                           g ? "you are root; members of " GROUP " see all processes, too"
                             : "there is no group " GROUP ": only root sees all processes");
        else if (g && is_member(g->gr_gid))
                doctor_add(d, "group", OK, NULL, "you are a member of " GROUP);
        else
                doctor_add(d, "group", OFF, "sudo usermod -aG " GROUP " $USER, then log in again.",
                           "you are not a member of " GROUP ": you see your own processes");
}

static bool has_unit(const struct doctor *d)
{
        static const char *const places[] = {"/etc", "/usr/local/lib", "/usr/lib", "/lib"};
        char path[PATH_MAX];

        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
                snprintf(path, sizeof(path), "%s/systemd/system/gpuobsd.service", places[i]);
                if (doctor_exists(d, path))
                        return true;
        }
        return false;
}

static void check_unit(struct doctor *d)
{
        if (!doctor_exists(d, "/run/systemd/system"))
                doctor_add(d, "service", OFF, NULL, "systemd does not run here");
        else if (!has_unit(d))
                doctor_add(d, "service", LIMITED,
                           "Install gpuobsd whole, then: systemctl daemon-reload",
                           "systemd knows no gpuobsd.service");
        else if (!doctor_glob(d, "/etc/systemd/system/*.wants/gpuobsd.*", NULL, NULL))
                doctor_add(d, "service", LIMITED, "systemctl enable --now gpuobsd",
                           "gpuobsd.service is installed and not enabled");
        else
                doctor_add(d, "service", OK, NULL, "gpuobsd.service is enabled");
}

/* "database = PATH" of the settings; what the command line of the daemon says is not known here. */
static void database_path(const struct doctor *d, char path[PATH_MAX])
{
        char text[16384], *rest = text, *line, value[PATH_MAX];

        snprintf(path, PATH_MAX, DATABASE);
        if (doctor_read(d, SETTINGS, text, sizeof(text)) < 0)
                return;
        while ((line = strsep(&rest, "\n")))
                if (sscanf(line, " database = %4095s", value) == 1 && value[0] == '/')
                        snprintf(path, PATH_MAX, "%s", value);
}

static void check_space(struct doctor *d)
{
        char path[PATH_MAX], full[2 * PATH_MAX];
        unsigned long long available;
        struct statvfs fs;

        database_path(d, path);
        *strrchr(path, '/') = '\0';
        snprintf(full, sizeof(full), "%s%s/", d->root, path);
        if (statvfs(full, &fs) < 0) {
                doctor_add(d, "database_directory", errno == ENOENT ? OFF : LIMITED,
                           errno == ENOENT ? NULL : "Mount it, and let root write there.",
                           errno == ENOENT ? "%s is not there yet: the service makes it"
                                           : "%s cannot be looked at",
                           path);
                return;
        }
        available = (unsigned long long)fs.f_bavail * fs.f_frsize;
        doctor_add(d, "database_directory", available < FREE_BYTES_SCANT ? LIMITED : OK,
                   available < FREE_BYTES_SCANT
                           ? "Make room, or lower retention_bytes in gpuobsd.conf."
                           : NULL,
                   "%s has %llu MiB left", path, available >> 20);
}

void doctor_check_install(struct doctor *d)
{
        check_agent(d);
        check_injection(d);
        check_unit(d);
        check_socket(d);
        check_group(d);
        check_space(d);
}
