/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lets User-Mode Linux 6.1 run on processors with AMX. It writes the floating point state of its
 * processes with a buffer of fixed size, and the host's kernel refuses any but its own size, which
 * AMX makes larger. Preloaded by linux-uml: what is behind UML's part is written as it was read.
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

#define NT_X86_XSTATE 0x202

typedef long ptrace_fn(unsigned request, pid_t pid, void *addr, void *data);

long ptrace(enum __ptrace_request request, ...)
{
	static ptrace_fn *next;
	static char whole[65536] __attribute__((aligned(64)));
	va_list ap;

	va_start(ap, request);
	pid_t pid = va_arg(ap, pid_t);
	void *addr = va_arg(ap, void *);
	void *data = va_arg(ap, void *);
	va_end(ap);
	if (!next)
		next = (ptrace_fn *)dlsym(RTLD_NEXT, "ptrace");
	if (request == PTRACE_SETREGSET && (long)addr == NT_X86_XSTATE) {
		const struct iovec *part = data;
		struct iovec all = { whole, sizeof(whole) };
		if (next(PTRACE_GETREGSET, pid, addr, &all) == 0 &&
		    all.iov_len > part->iov_len) {
			memcpy(whole, part->iov_base, part->iov_len);
			return next(PTRACE_SETREGSET, pid, addr, &all);
		}
	}
	return next(request, pid, addr, data);
}
