/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that no code here may call; the build includes this into every file (-include). */
#pragma once

#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#undef strcpy
#undef strcat
#undef strncpy
#undef strncat
#undef strtok
#undef sprintf
#undef vsprintf
#undef alloca
#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf strtok gmtime localtime
#pragma GCC poison ctime asctime alloca system popen mktemp tmpnam tempnam
