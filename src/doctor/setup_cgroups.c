/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forge setup, "delegation": cgroups for ordinary users. With systemd, the users' managers get
 * the controllers; without it, a generated script makes a group for each user.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "doctor/setup_rows.h"
#include "sandbox/cgroup.h"

/* User names become part of paths and of a script. */
#define NAME_CHARACTERS                                                                  \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

/* The field with that number, from 0, in the line of name in /etc/passwd; -1: none. */
static long user_field(const struct forge_setup_host *host, const char *name, int field)
{
	forge_auto_free char *text = forge_setup_read(host, "/etc/passwd");
	size_t len = strlen(name);

	for (char *line = text, *next; line && *line; line = next) {
		next = line + strcspn(line, "\n");
		next += *next == '\n';
		if (strncmp(line, name, len) != 0 || line[len] != ':')
			continue;
		for (; field > 0 && line; field--) {
			line = strchr(line, ':');
			line += line != NULL;
		}
		return line ? strtol(line, NULL, 10) : -1;
	}
	return -1;
}

/* Every user must exist, and must not be root. */
static int check_users(struct forge_setup_host *host, struct forge_error *err)
{
	forge_strv_foreach (name, &host->users) {
		if (name[strspn(name, NAME_CHARACTERS)] || !*name)
			return forge_fail(err, EINVAL, "--user: '%s' is no name", name);
		long uid = user_field(host, name, 2);
		if (uid < 0)
			return forge_fail(err, ENOENT,
					  "--user: no user '%s' in %s/etc/passwd", name,
					  host->root);
		if (uid == 0)
			return forge_fail(
				err, EINVAL,
				"--user: root needs no rights; name ordinary users");
	}
	return 0;
}

#define DROP_IN	    "/etc/systemd/system/user@.service.d/forge.conf"
#define LINGER	    "/var/lib/systemd/linger"
#define INIT_SCRIPT "/etc/init.d/forge-cgroups"
#define PAM_PROFILE "/usr/share/pam-configs/forge"

static int plan_systemd(struct forge_setup_host *host, struct forge_setup_step *step)
{
	int rc = forge_setup_add_file(
		step, DROP_IN, 0644,
		strdup(FORGE_SETUP_HEADER "[Service]\nDelegate=cpu memory pids io\n"));

	forge_strv_foreach (name, &host->users) {
		forge_auto_free char *path = forge_asprintf(LINGER "/%s", name);
		/*
		 * A linger file that exists already was a deliberate choice of the user or an
		 * administrator.
		 */
		if (rc == 0)
			rc = path ? forge_setup_add_file(step, path, 0644, strdup(""))
				  : -ENOMEM;
	}
	forge_setup_say(step, FORGE_SETUP_PENDING,
			"user managers get the controllers cpu, memory, pids and io, and "
			"those of "
			"the "
			"named users run without a session (linger)");
	return rc;
}

/*
 * Without systemd no program starts a user's processes in a group of their own: a script makes
 * the groups at boot, and PAM runs it to move each session of these users into its group.
 */
/* %s: the users, separated by blanks. */
#define INIT_TEXT                                                                        \
	"#!/bin/sh\n" FORGE_SETUP_HEADER "### BEGIN INIT INFO\n"                         \
	"# Provides:          forge-cgroups\n"                                           \
	"# Required-Start:    $local_fs mountkernfs\n"                                   \
	"# Required-Stop:\n"                                                             \
	"# Default-Start:     2 3 4 5\n"                                                 \
	"# Default-Stop:\n"                                                              \
	"# Short-Description: cgroups for the users of forge\n"                          \
	"### END INIT INFO\n"                                                            \
	"# start: makes a group for each user. enter [USER [PID...]]: moves processes, " \
	"without\n"                                                                      \
	"# words the caller of this script (pam_exec), into the user's group.\n"         \
	"users='%s'\n"                                                                   \
	"top=/sys/fs/cgroup\n"                                                           \
	"PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"                                           \
	"\n"                                                                             \
	"# The directories in which a user has a group: the one hierarchy, or each of "  \
	"v1.\n"                                                                          \
	"trees() {\n"                                                                    \
	"    if [ -e \"$top/cgroup.controllers\" ]; then\n"                              \
	"        echo \"$top\"\n"                                                        \
	"    else\n"                                                                     \
	"        for name in memory pids cpu cpuacct blkio unified; do\n"                \
	"            [ ! -d \"$top/$name\" ] || echo \"$top/$name\"\n"                   \
	"        done\n"                                                                 \
	"    fi\n"                                                                       \
	"}\n"                                                                            \
	"make() {\n"                                                                     \
	"    for tree in $(trees); do\n"                                                 \
	"        if [ \"$tree\" = \"$top\" ]; then\n"                                    \
	"            echo '+cpu +memory +pids' >\"$tree/cgroup.subtree_control\"\n"      \
	"            echo '+io' >\"$tree/cgroup.subtree_control\" 2>/dev/null\n"         \
	"        fi\n"                                                                   \
	"        mkdir -p \"$tree/forge-user-$1\"\n"                                     \
	"        for file in . cgroup.procs cgroup.threads cgroup.subtree_control "      \
	"tasks; do\n"                                                                    \
	"            [ ! -e \"$tree/forge-user-$1/$file\" ] || chown \"$1\" "            \
	"\"$tree/forge-user-$1/$file\"\n"                                                \
	"        done\n"                                                                 \
	"    done\n"                                                                     \
	"}\n"                                                                            \
	"unmake() {\n"                                                                   \
	"    for tree in $(trees); do\n"                                                 \
	"        for group in \"$tree/forge-user-$1/forge-supervisors\" "                \
	"\"$tree/forge-user-$1\"; do\n"                                                  \
	"            [ ! -d \"$group\" ] || rmdir \"$group\" 2>/dev/null\n"              \
	"        done\n"                                                                 \
	"    done\n"                                                                     \
	"}\n"                                                                            \
	"enter() {\n"                                                                    \
	"    user=$1\n"                                                                  \
	"    shift\n"                                                                    \
	"    for tree in $(trees); do\n"                                                 \
	"        group=$tree/forge-user-$user\n"                                         \
	"        # Once forge has run there, processes live in a leaf of it.\n"          \
	"        [ ! -d \"$group/forge-supervisors\" ] || "                              \
	"group=$group/forge-supervisors\n"                                               \
	"        for pid; do\n"                                                          \
	"            echo \"$pid\" >\"$group/cgroup.procs\" 2>/dev/null || true\n"       \
	"        done\n"                                                                 \
	"    done\n"                                                                     \
	"}\n"                                                                            \
	"case $1 in\n"                                                                   \
	"start)\n"                                                                       \
	"    for user in $users; do make \"$user\"; done\n"                              \
	"    ;;\n"                                                                       \
	"enter)\n"                                                                       \
	"    user=${2:-${PAM_USER:-}}\n"                                                 \
	"    case \" $users \" in *\" $user \"*) ;; *) exit 0 ;; esac\n"                 \
	"    [ $# -gt 2 ] || set -- enter \"$user\" \"$PPID\"\n"                         \
	"    shift 2\n"                                                                  \
	"    enter \"$user\" \"$@\"\n"                                                   \
	"    ;;\n"                                                                       \
	"stop)\n"                                                                        \
	"    # A group with processes in it stays.\n"                                    \
	"    for user in $users; do unmake \"$user\"; done\n"                            \
	"    ;;\n"                                                                       \
	"restart | force-reload | status) ;;\n"                                          \
	"*)\n"                                                                           \
	"    echo \"usage: $0 start | enter [USER [PID...]]\" >&2\n"                     \
	"    exit 2\n"                                                                   \
	"    ;;\n"                                                                       \
	"esac\n"                                                                         \
	"exit 0\n"

static const char pam_profile[] = "Name: cgroups for the users of forge\n"
				  "Default: yes\n"
				  "Priority: 0\n"
				  "Session-Type: Additional\n"
				  "Session:\n"
				  "\toptional\tpam_exec.so quiet " INIT_SCRIPT " enter\n";

static char *joined_users(const struct forge_setup_host *host)
{
	char *all = strdup("");

	forge_strv_foreach (name, &host->users) {
		char *more =
			all ? forge_asprintf("%s%s%s", all, *all ? " " : "", name) : NULL;
		free(all);
		all = more;
	}
	return all;
}

static int plan_init(struct forge_setup_host *host, struct forge_setup_step *step)
{
	forge_auto_free char *users = joined_users(host);
	int rc = users ? forge_setup_add_file(step, INIT_SCRIPT, 0755,
					      forge_asprintf(INIT_TEXT, users))
		       : -ENOMEM;

	/* Not possible in an image with a read-only /usr. */
	forge_auto_free char *profiles = forge_setup_path(host, "/usr/share/pam-configs");
	bool has_pam = profiles && access(profiles, W_OK) == 0;
	if (rc == 0 && has_pam)
		rc = forge_setup_add_file(step, PAM_PROFILE, 0644, strdup(pam_profile));
	forge_setup_say(step, FORGE_SETUP_PENDING,
			"cgroups for %s, now with the processes they have, and at boot "
			"by " INIT_SCRIPT "; %s",
			users ? users : "",
			has_pam ? "PAM moves their sessions there"
				: "have your login run it: " INIT_SCRIPT
				  " enter USER PID");
	return rc;
}

int forge_setup_plan_delegation(struct forge_setup_host *host,
				struct forge_setup_step *step, struct forge_error *err)
{
	int rc = check_users(host, err);

	if (rc < 0)
		return rc;
	if (host->users.n == 0) {
		forge_setup_say(step, FORGE_SETUP_UNNEEDED,
				"root needs none; name ordinary users with --user");
		return 0;
	}
	rc = forge_setup_has_systemd(host) ? plan_systemd(host, step)
					   : plan_init(host, step);
	return rc < 0 ? forge_fail_errno(err, -rc, "plan") : 0;
}

/* Does the user have a group with the controllers that limits need? */
static bool has_group(struct forge_setup_host *host, const char *name)
{
	long uid = user_field(host, name, 2);
	forge_auto_free char *unit = forge_asprintf(
		"/sys/fs/cgroup/user.slice/user-%ld.slice/user@%ld.service/"
		"cgroup.controllers",
		uid, uid);
	forge_auto_free char *group =
		forge_asprintf("/sys/fs/cgroup/forge-user-%s/cgroup.controllers", name);
	forge_auto_free char *v1 =
		forge_asprintf("/sys/fs/cgroup/memory/forge-user-%s/cgroup.procs", name);

	if (!unit || !group || !v1)
		return false;
	if (!forge_setup_has_systemd(host) && forge_setup_exists(host, v1))
		return true;
	forge_auto_free char *have =
		forge_setup_read(host, forge_setup_has_systemd(host) ? unit : group);
	return have && strstr(have, "memory") && strstr(have, "pids") &&
	       strstr(have, "cpu");
}

bool forge_setup_is_delegation_live(struct forge_setup_host *host,
				    struct forge_setup_step *step)
{
	(void)step;
	forge_strv_foreach (name, &host->users)
		if (!has_group(host, name))
			return false;
	return true;
}

static int apply_systemd(struct forge_setup_host *host, struct forge_setup_step *step,
			 struct forge_error *err)
{
	int rc = forge_setup_run((const char *[]){ "systemctl", "daemon-reload", NULL });

	if (rc != 0)
		return forge_fail(err, EIO, "systemctl daemon-reload: status %d", rc);
	forge_strv_foreach (name, &host->users) {
		char unit[48];
		(void)snprintf(unit, sizeof(unit), "user@%ld.service",
			       user_field(host, name, 2));
		rc = forge_setup_run(
			(const char *[]){ "systemctl", "start", unit, NULL });
		if (rc != 0)
			return forge_fail(err, EIO, "systemctl start %s: status %d", unit,
					  rc);
		/* Restarting it would end the user's running programs. */
		if (!has_group(host, name))
			forge_setup_say(
				step, FORGE_SETUP_PENDING,
				"written; %s gets its controllers when it starts next: "
				"systemctl restart %s",
				unit, unit);
	}
	return 0;
}

/* Moves the processes that the user has now, so that no new login is needed. */
static void enter_now(long uid, const char *name)
{
	forge_auto_dir DIR *proc = opendir("/proc");

	for (struct dirent *e; proc && (e = readdir(proc));) {
		struct stat st;
		if (e->d_name[0] < '1' || e->d_name[0] > '9' ||
		    fstatat(dirfd(proc), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    (long)st.st_uid != uid)
			continue;
		(void)forge_setup_run(
			(const char *[]){ INIT_SCRIPT, "enter", name, e->d_name, NULL });
	}
}

static int apply_init(struct forge_setup_host *host, struct forge_setup_step *step,
		      struct forge_error *err)
{
	const struct forge_cgroup_own *own;
	const struct forge_cgroup_place *place;

	(void)step;
	/* The root group of a container must be empty before it can give out controllers. */
	if (forge_cgroup_own(&own) == 0 && forge_cgroup_place(own, &place) == 0 &&
	    forge_cgroup_place_prepare(place, err) < 0)
		return -err->code;
	int rc = forge_setup_run((const char *[]){ INIT_SCRIPT, "start", NULL });
	if (rc != 0)
		return forge_fail(err, EIO, INIT_SCRIPT " start ended with status %d",
				  rc);
	/* Each runs only where it is installed; without them the text tells what to do at boot. */
	if (access("/usr/sbin/update-rc.d", X_OK) == 0)
		(void)forge_setup_run((const char *[]){ "update-rc.d", "forge-cgroups",
							"defaults", NULL });
	if (access("/usr/sbin/pam-auth-update", X_OK) == 0)
		(void)forge_setup_run(
			(const char *[]){ "pam-auth-update", "--package", NULL });
	forge_strv_foreach (name, &host->users)
		enter_now(user_field(host, name, 2), name);
	return 0;
}

int forge_setup_apply_delegation(struct forge_setup_host *host,
				 struct forge_setup_step *step, struct forge_error *err)
{
	return forge_setup_has_systemd(host) ? apply_systemd(host, step, err)
					     : apply_init(host, step, err);
}

int forge_setup_retract_delegation(struct forge_setup_host *host, const json_t *live,
				   struct forge_error *err)
{
	(void)live;
	(void)err;
	/* Groups stay until their processes are gone; so do user managers. */
	if (!forge_setup_has_systemd(host) && access(INIT_SCRIPT, X_OK) == 0)
		(void)forge_setup_run((const char *[]){ INIT_SCRIPT, "stop", NULL });
	if (!forge_setup_has_systemd(host) &&
	    access("/usr/sbin/pam-auth-update", X_OK) == 0)
		(void)forge_setup_run((const char *[]){ "pam-auth-update", "--package",
							"--remove", "forge", NULL });
	return 0;
}

void forge_setup_settle_delegation(struct forge_setup_host *host)
{
	if (forge_setup_has_systemd(host))
		(void)forge_setup_run(
			(const char *[]){ "systemctl", "daemon-reload", NULL });
	else if (access("/usr/sbin/update-rc.d", X_OK) == 0)
		(void)forge_setup_run((const char *[]){ "update-rc.d", "forge-cgroups",
							"remove", NULL });
}
