/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stubs for the functions of libm that SQLite's archive refers to, for the mathematical
 * functions of SQL. Every start of the program would map and bind that library, which takes a
 * hundredth of the shortest run. None of our statements calls these functions.
 */
#include <stdlib.h>

/* Hidden: libraries that are loaded later use libm's functions. */
#define HIDDEN __attribute__((visibility("hidden")))
#define NEVER1(name)                                                                     \
	HIDDEN double name(double x);                                                    \
	double name(double x)                                                            \
	{                                                                                \
		(void)x;                                                                 \
		abort();                                                                 \
	}
#define NEVER2(name)                                                                     \
	HIDDEN double name(double x, double y);                                          \
	double name(double x, double y)                                                  \
	{                                                                                \
		(void)x;                                                                 \
		(void)y;                                                                 \
		abort();                                                                 \
	}

NEVER1(acos)
NEVER1(acosh)
NEVER1(asin)
NEVER1(asinh)
NEVER1(atan)
NEVER2(atan2)
NEVER1(atanh)
NEVER1(ceil)
NEVER1(cos)
NEVER1(cosh)
NEVER1(exp)
NEVER1(floor)
NEVER2(fmod)
NEVER1(log)
NEVER1(log10)
NEVER1(log2)
NEVER2(pow)
NEVER1(sin)
NEVER1(sinh)
NEVER1(sqrt)
NEVER1(tan)
NEVER1(tanh)
NEVER1(trunc)
