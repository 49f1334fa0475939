/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks each promise in a throw-away sandbox. */
#include "run/doctor.h"

#include <errno.h>
#include <stdlib.h>

int forge_doctor(const struct forge_config *cfg, struct forge_doctor_report *ret,
		 struct forge_error *err)
{
	(void)cfg;
	(void)ret;
	return forge_fail(err, ENOSYS, "not yet");
}

void forge_doctor_report_done(struct forge_doctor_report *r)
{
	free(r->checks);
	r->checks = NULL;
	r->n = 0;
}
