/* SPDX-License-Identifier: Apache-2.0 */
/* Conda without conda: packages, digests, locks. */
#include "conda-scratch.h"

#include "runtime/conda.h"
#include "runtime/conda_config.h"

/* ---- packages ---- */

static void make_env(const char *name, const char *numpy_build)
{
	char path[256], text[1024];

	(void)snprintf(path, sizeof(path), "%s/conda-meta/history", name);
	put(path, "");
	(void)snprintf(path, sizeof(path), "%s/conda-meta/numpy-1.26.4.json", name);
	(void)snprintf(
		text, sizeof(text),
		"{\"name\": \"numpy\", \"version\": \"1.26.4\", \"build\": \"%s\", "
		"\"url\": "
		"\"https://me:secret@h.example/t/to-ken/c/linux-64/"
		"numpy-1.26.4-%s.conda\", "
		"\"md5\": \"aaaa\", \"sha256\": \"bbbb\", \"subdir\": \"linux-64\", "
		"\"files\": [\"lib/x-info.h\", \"lib/python3.11/site-packages/"
		"numpy-1.26.4.dist-info/METADATA\"], "
		"\"depends\": [\"python >=3.9,<3.13\", \"libblas >=3\"]}",
		numpy_build, numpy_build);
	put(path, text);
	(void)snprintf(path, sizeof(path), "%s/conda-meta/python-3.11.json", name);
	put(path,
	    "{\"name\": \"python\", \"version\": \"3.11\", \"build\": \"0\", \"url\": "
	    "\"https://h.example/c/linux-64/python-3.11-0.conda\", \"md5\": \"cccc\", "
	    "\"subdir\": \"linux-64\", \"depends\": []}");
	(void)snprintf(path, sizeof(path), "%s/conda-meta/libblas-3.json", name);
	put(path,
	    "{\"name\": \"libblas\", \"version\": \"3\", \"build\": \"0\", \"fn\": "
	    "\"libblas-3-0.conda\", \"depends\": [\"numpy\"]}"); /* a circle, no URL */
	(void)snprintf(path, sizeof(path),
		       "%s/lib/python3.11/site-packages/numpy-1.26.4.dist-info/INSTALLER",
		       name);
	put(path, "conda\n");
	(void)snprintf(path, sizeof(path),
		       "%s/lib/python3.11/site-packages/tqdm-4.66.dist-info/METADATA",
		       name);
	put(path, "Metadata-Version: 2.1\nName: tqdm\nVersion: 4.66\n\nName: not this\n");
	(void)snprintf(path, sizeof(path),
		       "%s/lib/python3.11/site-packages/tqdm-4.66.dist-info/RECORD",
		       name);
	put(path, "tqdm/__init__.py,sha256=abc,12\n");
}

static void digest_of(const char *name, char digest[FORGE_DIGEST_MAX])
{
	struct forge_packages p = { .v = NULL };
	struct forge_error err = FORGE_ERROR_INIT;

	assert_int_equal(forge_conda_packages(below(name), &p, &err), 0);
	assert_int_equal(p.n, 4); /* three of conda's, one of pip's; numpy is conda's */
	forge_packages_digest(&p, digest);
	forge_packages_done(&p);
}

/* A package that only says that conda installed it is one that conda knows nothing of. */
static void the_installer_is_not_believed(void **state)
{
	struct forge_packages p = { .v = NULL };
	struct forge_error err = FORGE_ERROR_INIT;

	(void)state;
	make_env("one", "py_0");
	put("one/lib/python3.11/site-packages/evil-1.dist-info/INSTALLER", "conda\n");
	put("one/lib/python3.11/site-packages/evil-1.dist-info/METADATA",
	    "Name: evil\nVersion: 1\n");
	assert_int_equal(forge_conda_packages(below("one"), &p, &err), 0);
	assert_int_equal(p.n, 5);
	forge_packages_done(&p);
}

static void the_digest_is_of_the_content(void **state)
{
	char a[FORGE_DIGEST_MAX], b[FORGE_DIGEST_MAX];

	(void)state;
	make_env("one", "py_0");
	make_env("two", "py_0");
	digest_of("one", a);
	digest_of("two", b);
	assert_string_equal(a, b); /* in another place */
	make_env("two", "py_1");
	digest_of("two", b);
	assert_string_not_equal(a, b); /* another build */
	make_env("two", "py_0");
	put("two/lib/python3.11/site-packages/tqdm-4.66.dist-info/RECORD", "changed\n");
	digest_of("two", b);
	assert_string_not_equal(a, b); /* pip installed something else */
}

static void damaged_metadata_is_told(void **state)
{
	struct forge_packages p = { .v = NULL };
	struct forge_error err = FORGE_ERROR_INIT;

	(void)state;
	make_env("one", "py_0");
	put("one/conda-meta/python-3.11.json", "{\"name\": \"pyth");
	assert_int_equal(forge_conda_packages(below("one"), &p, &err), -EUCLEAN);
	assert_non_null(strstr(err.msg, "python-3.11.json"));
	forge_packages_done(&p);
}

static void the_lock_is_condas(void **state)
{
	struct forge_error err = FORGE_ERROR_INIT;
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	(void)state;
	make_env("one", "py_0");
	assert_int_equal(forge_conda_lock(below("one"), out, &err), 0);
	fclose(out);
	const char *explicit = strstr(text, "@EXPLICIT\n");
	assert_non_null(explicit);
	assert_non_null(strstr(text, "# platform: linux-64\n"));
	assert_null(strstr(text, "secret"));
	assert_null(strstr(text, "to-ken"));
	const char *python = strstr(
		explicit, "https://h.example/c/linux-64/python-3.11-0.conda#cccc\n");
	const char *numpy = strstr(
		explicit, "https://h.example/c/linux-64/numpy-1.26.4-py_0.conda#aaaa\n");
	assert_non_null(python);
	assert_non_null(numpy);
	assert_true(python < numpy); /* what it needs comes first */
	assert_non_null(strstr(explicit, "# no URL for: libblas-3-0.conda\n"));
	assert_non_null(strstr(explicit, "# pip: tqdm==4.66 sha256:"));
	free(text);
}

static void environments_are_found(void **state)
{
	forge_auto_strv struct forge_strv pairs = { 0 };
	struct forge_error err = FORGE_ERROR_INIT;
	char *prefix = NULL, *root = NULL, text[512];
	bool has_named = false, has_listed = false;

	(void)state;
	put("home/miniconda3/condabin/conda", "");
	put("home/miniconda3/conda-meta/history", "");
	put("home/miniconda3/envs/ml/conda-meta/history", "");
	put("home/miniconda3/envs/junk/file", "");
	put("home/elsewhere/conda-meta/history", "");
	put("mine/x/conda-meta/history", "");
	(void)snprintf(text, sizeof(text), "%s\n/stale/path\n", below("home/elsewhere"));
	put("home/.conda/environments.txt", text);
	(void)snprintf(text, sizeof(text), "envs_dirs:\n  - %s\n", below("mine"));
	put("home/.condarc", text);
	assert_int_equal(setenv("HOME", below("home"), 1), 0);
	assert_int_equal(unsetenv("CONDA_EXE"), 0);
	assert_int_equal(forge_conda_discover(&pairs, &err), 0);
	for (size_t i = 0; i + 1 < pairs.n; i += 2) {
		has_named |= strcmp(pairs.v[i], "ml") == 0;
		has_listed |= strcmp(pairs.v[i + 1], below("home/elsewhere")) == 0 &&
			      !*pairs.v[i];
		assert_string_not_equal(pairs.v[i], "junk");
	}
	assert_true(has_named);
	assert_true(has_listed);
	assert_int_equal(pairs.n, 8); /* base, ml, x, elsewhere */
	assert_int_equal(forge_conda_resolve("ml", &prefix, &root, &err), 0);
	assert_string_equal(prefix, below("home/miniconda3/envs/ml"));
	assert_string_equal(root, below("home/miniconda3"));
	free(prefix);
	free(root);
	assert_int_equal(forge_conda_resolve("base", &prefix, &root, &err), 0);
	assert_string_equal(prefix, below("home/miniconda3"));
	free(prefix);
	free(root);
	assert_int_equal(forge_conda_resolve("nope", &prefix, &root, &err), -ENOENT);
	assert_int_equal(forge_conda_resolve(below("home/miniconda3/envs/junk"), &prefix,
					     &root, &err),
			 -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_digest_is_of_the_content),
		TEST(the_installer_is_not_believed),
		TEST(damaged_metadata_is_told),
		TEST(the_lock_is_condas),
		TEST(environments_are_found),
	};

	return cmocka_run_group_tests_name("conda-packages", tests, NULL, NULL);
}
