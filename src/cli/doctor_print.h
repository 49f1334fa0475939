/* SPDX-License-Identifier: Apache-2.0 */
/* The report of forge doctor and of forge executor check, for people or as JSON. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "doctor/doctor.h"

FORGE_MUST_CHECK int forge_doctor_print(const struct forge_doctor_report *r, bool is_json,
					struct forge_error *err);
