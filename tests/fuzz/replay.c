/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over the files of the directories it is given, whole and cut short.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "fuzz.h"

#define MAX_BYTES (2u << 20)

/* An exact copy, so that a sanitizer sees the first byte read too far. */
static void run_copy(const uint8_t *data, size_t size)
{
	forge_auto_free uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	if (size > 0)
		memcpy(copy, data, size);
	(void)LLVMFuzzerTestOneInput(copy, size); /* always 0 */
}

static int replay_file(const char *path)
{
	forge_auto_file FILE *f = fopen(path, "re");
	forge_auto_free uint8_t *data = malloc(MAX_BYTES);

	if (!f || !data) {
		perror(path);
		return -1;
	}
	size_t size = fread(data, 1, MAX_BYTES, f);
	/* Every way to be cut short is a test of its own, as long as that is quick. */
	for (size_t cut = 0; size <= 2048 && cut < size; cut++)
		run_copy(data, cut);
	run_copy(data, size);
	return 0;
}

/* Returns how many files there were. */
static int replay_dir(const char *dir)
{
	forge_auto_dir DIR *d = opendir(dir);
	struct dirent *e;
	int n = 0;

	if (!d) {
		perror(dir);
		return -1;
	}
	while ((e = readdir(d))) {
		char path[4096];

		if (e->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (replay_file(path) < 0)
			return -1;
		n++;
	}
	return n;
}

int main(int argc, char **argv)
{
	int total = 0;

	for (int i = 1; i < argc; i++) {
		int n = replay_dir(argv[i]);
		if (n < 0)
			return EXIT_FAILURE;
		total += n;
	}
	printf("%d files\n", total);
	/* An empty corpus would test nothing and look like success. */
	return total > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
