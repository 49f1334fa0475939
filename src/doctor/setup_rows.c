/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of `forge setup`, one row each; the contract is in setup_rows.h. */
#include "doctor/setup_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

void forge_setup_say(struct forge_setup_step *step, enum forge_setup_state state,
		     const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(step->result->text, sizeof(step->result->text), fmt, ap);
	va_end(ap);
	step->result->state = state;
}

bool forge_setup_has_systemd(const struct forge_setup_host *host)
{
	return forge_setup_exists(host, "/run/systemd/system") ||
	       (*host->root && forge_setup_exists(host, "/lib/systemd/systemd"));
}

/* ---- sysctl: one row for each value that a host may have wrong */

enum sysctl_rule {
	NOT_ZERO, /* only 0 is wrong; any other value was chosen */
	IS,
};

static const struct {
	const char *name;
	enum sysctl_rule rule;
	unsigned long value;
	bool for_users; /* root does not need it */
} sysctls[] = {
	{ "user.max_user_namespaces", NOT_ZERO, 15000, false },
	{ "user.max_mnt_namespaces", NOT_ZERO, 15000, false },
	{ "user.max_pid_namespaces", NOT_ZERO, 15000, false },
	{ "user.max_net_namespaces", NOT_ZERO, 15000, false },
	{ "user.max_ipc_namespaces", NOT_ZERO, 15000, false },
	{ "user.max_uts_namespaces", NOT_ZERO, 15000, false },
	{ "user.max_cgroup_namespaces", NOT_ZERO, 15000, false },
	{ "kernel.unprivileged_userns_clone", IS, 1, true },
};

#define SYSCTL_FILE "/etc/sysctl.d/60-forge.conf"

/* The file of a sysctl. NULL when out of memory. */
static char *sysctl_path(const char *name)
{
	char *path = forge_asprintf("/proc/sys/%s", name);

	for (char *p = path; p && (p = strchr(p, '.')); p++)
		*p = '/';
	return path;
}

static bool is_wrong(const struct forge_setup_host *host, size_t i)
{
	forge_auto_free char *path = sysctl_path(sysctls[i].name);
	forge_auto_free char *now = path ? forge_setup_read(host, path) : NULL;

	if (!now || (sysctls[i].for_users && host->users.n == 0))
		return false;
	unsigned long value = strtoul(now, NULL, 10);
	return sysctls[i].rule == NOT_ZERO ? value == 0 : value != sysctls[i].value;
}

/* Is it wrong now, or right only because an earlier setup changed it? */
static bool is_wanted(const struct forge_setup_host *host, const char *written, size_t i)
{
	forge_auto_free char *line = forge_asprintf("\n%s = ", sysctls[i].name);

	return is_wrong(host, i) || (written && line && strstr(written, line));
}

static int plan_sysctl(struct forge_setup_host *host, struct forge_setup_step *step,
		       struct forge_error *err)
{
	forge_auto_free char *written = forge_setup_read(host, SYSCTL_FILE);
	char text[2048] = FORGE_SETUP_HEADER, names[384] = "";
	size_t n = strlen(text), m = 0;

	(void)err;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(sysctls); i++) {
		if (!is_wanted(host, written, i))
			continue;
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s = %lu\n",
				      sysctls[i].name, sysctls[i].value);
		m += (size_t)snprintf(names + m, sizeof(names) - m, "%s%s=%lu",
				      m ? ", " : "", sysctls[i].name, sysctls[i].value);
	}
	if (m == 0) {
		forge_setup_say(step, FORGE_SETUP_UNNEEDED, "no sysctl needs a change");
		return 0;
	}
	forge_setup_say(step, FORGE_SETUP_PENDING, "set %s, now and at boot", names);
	return forge_setup_add_file(step, SYSCTL_FILE, 0644, strdup(text));
}

static bool is_sysctl_live(struct forge_setup_host *host, struct forge_setup_step *step)
{
	(void)step;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(sysctls); i++)
		if (is_wrong(host, i))
			return false;
	return true;
}

static int set_sysctl(const char *name, const char *value, char *before, size_t size)
{
	forge_auto_free char *path = sysctl_path(name);
	ssize_t n = path ? 0 : -ENOMEM;

	if (n == 0 && before)
		n = forge_read_at(AT_FDCWD, path, before, size);
	return n < 0 ? (int)n : forge_write_at(AT_FDCWD, path, value);
}

static int apply_sysctl(struct forge_setup_host *host, struct forge_setup_step *step,
			struct forge_error *err)
{
	step->live = json_object();
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(sysctls); i++) {
		char before[32], value[32];
		if (!is_wrong(host, i))
			continue;
		(void)snprintf(value, sizeof(value), "%lu", sysctls[i].value);
		int rc = set_sysctl(sysctls[i].name, value, before, sizeof(before));
		if (rc < 0)
			return forge_fail_errno(err, -rc, "set %s", sysctls[i].name);
		before[strcspn(before, "\n")] = '\0';
		(void)json_object_set_new(step->live, sysctls[i].name,
					  json_string(before));
	}
	return 0;
}

static int retract_sysctl(struct forge_setup_host *host, const json_t *live,
			  struct forge_error *err)
{
	const char *name;
	json_t *before;

	(void)host;
	json_object_foreach((json_t *)live, name, before)
	{
		int rc = set_sysctl(name, json_string_value(before), NULL, 0);
		if (rc < 0)
			return forge_fail_errno(err, -rc, "set %s back", name);
	}
	return 0;
}

/* ---- AppArmor: hosts that keep user namespaces from programs without a profile */

#define PROFILE "/etc/apparmor.d/forge"

static int plan_apparmor(struct forge_setup_host *host, struct forge_setup_step *step,
			 struct forge_error *err)
{
	forge_auto_free char *restricts = forge_setup_read(
		host, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (host->users.n == 0 || !restricts || *restricts != '1') {
		forge_setup_say(
			step, FORGE_SETUP_UNNEEDED,
			"AppArmor does not keep user namespaces from ordinary users%s",
			host->users.n ? "" : " (none was named)");
		return 0;
	}
	if (n < 0)
		return forge_fail_errno(err, errno, "read /proc/self/exe");
	self[n] = '\0';
	forge_setup_say(step, FORGE_SETUP_PENDING,
			"a profile that allows %s user namespaces", self);
	return forge_setup_add_file(step, PROFILE, 0644,
				    forge_asprintf(FORGE_SETUP_HEADER
						   "abi <abi/4.0>,\n"
						   "include <tunables/global>\n\n"
						   "profile forge \"%s\" "
						   "flags=(unconfined) {\n"
						   "  userns,\n}\n",
						   self));
}

static int apply_apparmor(struct forge_setup_host *host, struct forge_setup_step *step,
			  struct forge_error *err)
{
	int rc = forge_setup_run(
		(const char *[]){ "apparmor_parser", "-r", PROFILE, NULL });

	(void)host;
	if (rc == -ENOENT)
		forge_setup_say(step, FORGE_SETUP_PENDING,
				"the profile is written; apparmor_parser is not "
				"installed, so it is "
				"loaded at the next boot");
	else if (rc != 0)
		return forge_fail(err, EIO,
				  "apparmor_parser -r " PROFILE " ended with status %d",
				  rc);
	return 0;
}

static int retract_apparmor(struct forge_setup_host *host, const json_t *live,
			    struct forge_error *err)
{
	(void)host;
	(void)live;
	(void)err;
	/* A failure is fine: the profile may not be loaded. */
	(void)forge_setup_run((const char *[]){ "apparmor_parser", "-R", PROFILE, NULL });
	return 0;
}

/* ---- user ids: root's runs need ids that no account has */

/* Does [first, first + count) overlap a line "name:start:count" or contain an account's id? */
static bool find_taken(const struct forge_setup_host *host, const char *path,
		       bool is_ranges, char *who, size_t size)
{
	forge_auto_free char *text = forge_setup_read(host, path);
	uint64_t first = host->cfg->uid_base, last = first + host->cfg->uid_count - 1;

	for (char *line = text, *next; line && *line; line = next) {
		char name[64];
		unsigned long start, count = 1;
		next = line + strcspn(line, "\n");
		next += *next == '\n';
		int n = is_ranges ? sscanf(line, "%63[^:]:%lu:%lu", name, &start, &count)
				  : sscanf(line, "%63[^:]:%*[^:]:%lu", name, &start);
		if (n < (is_ranges ? 3 : 2) || count == 0 || start > last ||
		    start + count - 1 < first)
			continue;
		(void)snprintf(who, size, "%s in %s (%lu%s)", name, path, start,
			       is_ranges ? " and above" : "");
		return true;
	}
	return false;
}

static int plan_uids(struct forge_setup_host *host, struct forge_setup_step *step,
		     struct forge_error *err)
{
	const uint32_t first = host->cfg->uid_base;
	char who[160];

	(void)err;
	if (find_taken(host, "/etc/passwd", false, who, sizeof(who)) ||
	    find_taken(host, "/etc/subuid", true, who, sizeof(who)) ||
	    find_taken(host, "/etc/subgid", true, who, sizeof(who)))
		forge_setup_say(
			step, FORGE_SETUP_CANNOT,
			"the user ids of root's runs, %u to %u, are taken by %s: set "
			"sandbox.uid_base in /etc/forge/forge.yaml to a free range",
			first, first + host->cfg->uid_count - 1, who);
	else
		forge_setup_say(
			step, FORGE_SETUP_UNNEEDED,
			"the user ids of root's runs, %u to %u, belong to no account",
			first, first + host->cfg->uid_count - 1);
	return 0;
}

const struct forge_setup_row forge_setup_rows[] = {
	{ .name = "sysctl",
	  .plan = plan_sysctl,
	  .is_live = is_sysctl_live,
	  .apply = apply_sysctl,
	  .retract = retract_sysctl },
	{ .name = "apparmor",
	  .plan = plan_apparmor,
	  .apply = apply_apparmor,
	  .retract = retract_apparmor },
	FORGE_SETUP_DELEGATION,
	{ .name = "uids", .plan = plan_uids },
	FORGE_SETUP_QUOTA,
	{ .name = NULL },
};
