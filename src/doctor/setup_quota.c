/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forge setup, "workdir-quota": a file system for workdirs on which the kernel enforces disk
 * limits. It is XFS in an image file, mounted with project quotas.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "doctor/setup_rows.h"

#define QUOTA_DIR "/var/lib/forge-work"
#define CONFIG	  "/etc/forge/forge.yaml"
#define WORK_INIT "/etc/init.d/forge-workdirs"

static const char *quota_dir(const struct forge_setup_host *host)
{
	return host->req->quota_dir ? host->req->quota_dir : QUOTA_DIR;
}

/*
 * The name of the unit must be that of its mount point, with "-" for "/" and other special
 * characters escaped.
 */
static char *mount_unit(const char *dir)
{
	char name[PATH_MAX];
	size_t n = 0;

	for (const char *p = dir + 1; *p && n + 5 < sizeof(name); p++)
		if (*p == '/')
			name[n++] = '-';
		else if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				"0123456789:_.",
				*p))
			name[n++] = *p;
		else
			n += (size_t)snprintf(name + n, sizeof(name) - n, "\\x%02x",
					      (unsigned char)*p);
	name[n] = '\0';
	return forge_asprintf("/etc/systemd/system/%s.mount", name);
}

static int plan_mount(struct forge_setup_host *host, struct forge_setup_step *step,
		      const char *dir)
{
	if (!forge_setup_has_systemd(host))
		return forge_setup_add_file(
			step, WORK_INIT, 0755,
			forge_asprintf(
				"#!/bin/sh\n" FORGE_SETUP_HEADER "### BEGIN INIT INFO\n"
				"# Provides:          forge-workdirs\n"
				"# Required-Start:    $local_fs\n"
				"# Required-Stop:\n"
				"# Default-Start:     2 3 4 5\n"
				"# Default-Stop:\n"
				"# Short-Description: workdirs of forge, with quotas\n"
				"### END INIT INFO\n"
				"[ \"$1\" != start ] || mountpoint -q '%s' ||\n"
				"    exec mount -o loop,prjquota,nosuid,nodev "
				"'%s.img' '%s'\n",
				dir, dir, dir));
	forge_auto_free char *unit = mount_unit(dir);
	return unit ? forge_setup_add_file(
			      step, unit, 0644,
			      forge_asprintf(FORGE_SETUP_HEADER
					     "[Unit]\nDescription=workdirs of forge, "
					     "with quotas\n[Mount]\nWhat=%s.img\n"
					     "Where=%s\nType=xfs\n"
					     "Options=loop,prjquota,nosuid,nodev\n"
					     "[Install]\nWantedBy=local-fs.target\n",
					     dir, dir))
		    : -ENOMEM;
}

int forge_setup_plan_quota(struct forge_setup_host *host, struct forge_setup_step *step,
			   struct forge_error *err)
{
	const char *dir = quota_dir(host);

	if (host->req->quota_bytes == 0) {
		forge_setup_say(step, FORGE_SETUP_UNNEEDED,
				"not asked for; --workdir-quota SIZE makes a place whose "
				"disk limits "
				"the kernel keeps");
		return 0;
	}
	if (dir[0] != '/' || strchr(dir, '\'') || strchr(dir, '\n'))
		return forge_fail(
			err, EINVAL,
			"--workdir-dir: an absolute path without quotes is wanted");
	if (host->req->quota_bytes < 320ULL << 20)
		return forge_fail(err, EINVAL, "--workdir-quota: XFS needs 320M or more");
	if (!*host->root && access("/dev/loop-control", F_OK) < 0) {
		forge_setup_say(step, FORGE_SETUP_CANNOT,
				"there are no loop devices here (/dev/loop-control): "
				"mount a file "
				"system with prjquota yourself and name it in workdir "
				"(forge.yaml)");
		return 0;
	}
	forge_setup_say(step, FORGE_SETUP_PENDING,
			"%s.img, an XFS file system of %" PRIu64
			" MiB with project quotas, mounted on "
			"%s; workdirs are made there",
			dir, host->req->quota_bytes >> 20, dir);
	int rc = plan_mount(host, step, dir);
	if (rc == 0)
		rc = forge_setup_add_file(
			step, CONFIG, 0644,
			forge_asprintf(FORGE_SETUP_HEADER "workdir: \"%s/{id}\"\n", dir));
	return rc < 0 ? forge_fail_errno(err, -rc, "plan") : 0;
}

static bool is_mounted(const char *dir)
{
	forge_auto_free char *above = forge_asprintf("%s/..", dir);
	struct stat st, up;

	return above && stat(dir, &st) == 0 && stat(above, &up) == 0 &&
	       st.st_dev != up.st_dev;
}

bool forge_setup_is_quota_live(struct forge_setup_host *host,
			       struct forge_setup_step *step)
{
	(void)step;
	return is_mounted(quota_dir(host));
}

static int make_image(const char *image, uint64_t bytes, struct forge_error *err)
{
	forge_auto_close int fd =
		open(image, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0 && errno == EEXIST)
		return 0;
	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		return forge_fail_errno(err, errno, "make %s", image);
	int rc = forge_setup_run((const char *[]){ "mkfs.xfs", "-q", image, NULL });
	if (rc == 0)
		return 0;
	(void)unlink(image);
	return rc == -ENOENT
		       ? forge_fail(err, ENOENT, "mkfs.xfs is not installed (xfsprogs)")
		       : forge_fail(err, EIO, "mkfs.xfs ended with status %d", rc);
}

int forge_setup_apply_quota(struct forge_setup_host *host, struct forge_setup_step *step,
			    struct forge_error *err)
{
	const char *dir = quota_dir(host);
	forge_auto_free char *image = forge_asprintf("%s.img", dir);
	int rc = image ? forge_mkdirs(dir, 0755) : -ENOMEM;

	if (rc < 0)
		return forge_fail_errno(err, -rc, "make %s", dir);
	rc = make_image(image, host->req->quota_bytes, err);
	if (rc < 0)
		return rc;
	step->live = json_pack("{s:s}", "dir", dir);
	if (!is_mounted(dir)) {
		rc = forge_setup_run((const char *[]){
			"mount", "-o", "loop,prjquota,nosuid,nodev", image, dir, NULL });
		if (rc != 0)
			return forge_fail(err, EIO, "mount %s ended with status %d",
					  image, rc);
	}
	/* Every user may have a workdir there, as in /tmp. */
	if (chmod(dir, 01777) < 0)
		return forge_fail_errno(err, errno, "chmod %s", dir);
	if (forge_setup_has_systemd(host)) {
		forge_auto_free char *unit = mount_unit(dir);
		(void)forge_setup_run(
			(const char *[]){ "systemctl", "daemon-reload", NULL });
		rc = unit ? forge_setup_run((const char *[]){
				    "systemctl", "enable", strrchr(unit, '/') + 1, NULL })
			  : -ENOMEM;
		return rc == 0 ? 0
			       : forge_fail(err, EIO, "systemctl enable: status %d", rc);
	}
	if (access("/usr/sbin/update-rc.d", X_OK) == 0)
		(void)forge_setup_run((const char *[]){ "update-rc.d", "forge-workdirs",
							"defaults", NULL });
	return 0;
}

/* Fails with the name of an entry if the directory is not empty. */
static int check_empty(const char *dir, struct forge_error *err)
{
	forge_auto_dir DIR *d = opendir(dir);

	for (struct dirent *e; d && (e = readdir(d));)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			return forge_fail(err, ENOTEMPTY,
					  "%s has workdirs in it (%s) and is left", dir,
					  e->d_name);
	return d ? 0 : forge_fail_errno(err, errno, "open %s", dir);
}

/* Workdirs that a user has kept are not deleted. */
int forge_setup_retract_quota(struct forge_setup_host *host, const json_t *live,
			      struct forge_error *err)
{
	const char *dir = forge_json_string(live, "dir");
	forge_auto_free char *image = dir ? forge_asprintf("%s.img", dir) : NULL;

	if (!image)
		return 0;
	if (is_mounted(dir)) {
		int rc = check_empty(dir, err);
		if (rc < 0)
			return rc;
		rc = forge_setup_run((const char *[]){ "umount", dir, NULL });
		if (rc != 0)
			return forge_fail(err, EBUSY, "umount %s ended with status %d",
					  dir, rc);
	}
	if (forge_setup_has_systemd(host)) {
		forge_auto_free char *unit = mount_unit(dir);
		if (unit)
			(void)forge_setup_run((const char *[]){
				"systemctl", "disable", strrchr(unit, '/') + 1, NULL });
	} else if (access("/usr/sbin/update-rc.d", X_OK) == 0) {
		(void)forge_setup_run((const char *[]){
			"update-rc.d", "-f", "forge-workdirs", "remove", NULL });
	}
	(void)unlink(image);
	(void)rmdir(dir);
	return 0;
}
