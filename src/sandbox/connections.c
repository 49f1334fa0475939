/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The eBPF programs that count the connections of a run, written as instructions, because a compiler for them
 * is too much to ask of a host. All of them fill a key on their stack and add one to its number in the map.
 */
#include "sandbox/connections.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"

/* Newer than the headers we may be built with; the numbers do not change. */
#define ATTACH_UNIX_CONNECT ((enum bpf_attach_type)49)
#define ATTACH_UNIX_SENDMSG ((enum bpf_attach_type)50)

#define MAP_ENTRIES 4096
#define CODE_MAX    128

enum kind {
	KIND_CONNECT = 1,
	KIND_CONNECT_UDP,
	KIND_SEND,     /* a datagram without a connection */
	KIND_UNIX,     /* connections and datagrams to UNIX sockets */
	KIND_INCOMING, /* somebody connects to the run */
	KIND_SESSION,  /* a PostgreSQL server is ready for a query */
};

/* IPv4 addresses are mapped ones. Ports as in a packet. */
struct key {
	uint8_t address[16];
	uint16_t port, local_port;
	uint32_t kind;
};
_Static_assert(sizeof(struct key) == 24, "the programs have its offsets");

static long sys_bpf(enum bpf_cmd cmd, union bpf_attr *attr)
{
	return syscall(SYS_bpf, cmd, attr, sizeof(*attr));
}

/* ---- writing a program ---- */

struct code {
	struct bpf_insn v[CODE_MAX];
	size_t n;
	/* Jumps to the end of the program, and to the place where the key is counted. */
	size_t to_end[32], n_end, to_count[8], n_count;
	int map, lost;
};

/* The stack: where things are, below the frame pointer. */
enum { S_KEY = -24, S_ONE = -32, S_ZERO = -40, S_IP = -80, S_TCP = -104, S_TAIL = -112 };

static void emit(struct code *c, uint8_t op, uint8_t dst, uint8_t src, int off,
		 int32_t imm)
{
	if (c->n < CODE_MAX)
		c->v[c->n++] = (struct bpf_insn){ .code = op,
						  .dst_reg = dst & 0xf,
						  .src_reg = src & 0xf,
						  .off = (int16_t)off,
						  .imm = imm };
}

static void move(struct code *c, uint8_t dst, uint8_t src)
{
	emit(c, BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0);
}
static void set(struct code *c, uint8_t dst, int32_t value)
{
	emit(c, BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, value);
}
static void add(struct code *c, uint8_t dst, int32_t value)
{
	emit(c, BPF_ALU64 | BPF_ADD | BPF_K, dst, 0, 0, value);
}
/* dst = *(size *)(src + off) */
static void load(struct code *c, uint8_t size, uint8_t dst, uint8_t src, int off)
{
	emit(c, BPF_LDX | BPF_MEM | size, dst, src, off, 0);
}
/* A value on the stack. */
static void put(struct code *c, uint8_t size, int off, uint8_t src)
{
	emit(c, BPF_STX | BPF_MEM | size, BPF_REG_10, src, off, 0);
}
static void put_value(struct code *c, uint8_t size, int off, int32_t value)
{
	emit(c, BPF_ST | BPF_MEM | size, BPF_REG_10, 0, off, value);
}
static void call(struct code *c, int32_t helper)
{
	emit(c, BPF_JMP | BPF_CALL, 0, 0, 0, helper);
}
static void address_of(struct code *c, uint8_t dst, int off)
{
	move(c, dst, BPF_REG_10);
	add(c, dst, off);
}
static void take_map(struct code *c, uint8_t dst, int fd)
{
	emit(c, BPF_LD | BPF_IMM | BPF_DW, dst, BPF_PSEUDO_MAP_FD, 0, fd);
	emit(c, 0, 0, 0, 0, 0); /* the second half of the value */
}

/* A jump whose target is not known yet; op with BPF_K compares with value. */
static size_t jump(struct code *c, uint8_t op, uint8_t dst, int32_t value)
{
	emit(c, BPF_JMP | op, dst, 0, 0, value);
	return c->n - 1;
}
static void land(struct code *c, size_t at)
{
	if (at < CODE_MAX)
		c->v[at].off = (int16_t)(c->n - at - 1);
}
static void end_if(struct code *c, uint8_t op, uint8_t dst, int32_t value)
{
	if (c->n_end < FORGE_ARRAY_SIZE(c->to_end))
		c->to_end[c->n_end++] = jump(c, op, dst, value);
}
static void count_if(struct code *c, uint8_t op, uint8_t dst, int32_t value)
{
	if (c->n_count < FORGE_ARRAY_SIZE(c->to_count))
		c->to_count[c->n_count++] = jump(c, op, dst, value);
}

#define IF(op)	   ((op) | BPF_K)
#define ALWAYS	   BPF_JA
#define ATOMIC_ADD (BPF_STX | BPF_XADD | BPF_DW)

/* Adds one to the number in the map whose key is on the stack, as long as there is such a key. */
static size_t add_one(struct code *c, int map, int key)
{
	take_map(c, BPF_REG_1, map);
	address_of(c, BPF_REG_2, key);
	call(c, BPF_FUNC_map_lookup_elem);
	size_t none = jump(c, IF(BPF_JEQ), BPF_REG_0, 0);
	set(c, BPF_REG_1, 1);
	emit(c, ATOMIC_ADD, BPF_REG_0, BPF_REG_1, 0, 0);
	end_if(c, ALWAYS, 0, 0);
	return none;
}

/* Counts the key and lets the call or packet pass. */
static void finish(struct code *c)
{
	for (size_t i = 0; i < c->n_count; i++)
		land(c, c->to_count[i]);
	land(c, add_one(c, c->map, S_KEY));
	put_value(c, BPF_DW, S_ONE, 1);
	take_map(c, BPF_REG_1, c->map);
	address_of(c, BPF_REG_2, S_KEY);
	address_of(c, BPF_REG_3, S_ONE);
	set(c, BPF_REG_4, BPF_NOEXIST);
	call(c, BPF_FUNC_map_update_elem);
	end_if(c, IF(BPF_JEQ), BPF_REG_0, 0);
	/* Another CPU may have added the same key just now. Otherwise the map is full. */
	land(c, add_one(c, c->map, S_KEY));
	put_value(c, BPF_W, S_ZERO, 0);
	land(c, add_one(c, c->lost, S_ZERO));
	for (size_t i = 0; i < c->n_end; i++)
		land(c, c->to_end[i]);
	set(c, BPF_REG_0, 1);
	emit(c, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

#define KEY(field) (S_KEY + (int)offsetof(struct key, field))

static void clear_key(struct code *c, enum kind kind)
{
	put_value(c, BPF_DW, S_KEY, 0);
	put_value(c, BPF_DW, S_KEY + 8, 0);
	put_value(c, BPF_W, KEY(port), 0);
	put_value(c, BPF_W, KEY(kind), (int32_t)kind);
}

static void map_v4(struct code *c)
{
	put_value(c, BPF_W, S_KEY + 8, (int32_t)htonl(0xffff));
}

/* ---- the programs ---- */

#define SOCK(field) ((int)offsetof(struct bpf_sock_addr, field))

static void write_call_program(struct code *c, enum bpf_attach_type type)
{
	bool is_unix = type == ATTACH_UNIX_CONNECT || type == ATTACH_UNIX_SENDMSG;
	bool is_v4 = type == BPF_CGROUP_INET4_CONNECT || type == BPF_CGROUP_UDP4_SENDMSG;
	bool is_connect =
		type == BPF_CGROUP_INET4_CONNECT || type == BPF_CGROUP_INET6_CONNECT;

	clear_key(c, is_unix ? KIND_UNIX : is_connect ? KIND_CONNECT_UDP : KIND_SEND);
	if (is_unix) {
		finish(c);
		return;
	}
	move(c, BPF_REG_6, BPF_REG_1);
	if (is_connect) {
		load(c, BPF_W, BPF_REG_1, BPF_REG_6, SOCK(type));
		size_t other = jump(c, IF(BPF_JNE), BPF_REG_1, SOCK_STREAM);
		put_value(c, BPF_W, KEY(kind), KIND_CONNECT);
		land(c, other);
	}
	if (is_v4) {
		map_v4(c);
		load(c, BPF_W, BPF_REG_1, BPF_REG_6, SOCK(user_ip4));
		put(c, BPF_W, S_KEY + 12, BPF_REG_1);
	}
	for (int i = 0; i < 16 && !is_v4; i += 4) {
		load(c, BPF_W, BPF_REG_1, BPF_REG_6, SOCK(user_ip6) + i);
		put(c, BPF_W, S_KEY + i, BPF_REG_1);
	}
	load(c, BPF_W, BPF_REG_1, BPF_REG_6, SOCK(user_port));
	put(c, BPF_H, KEY(port), BPF_REG_1);
	finish(c);
}

#define PACKET(field) ((int)offsetof(struct __sk_buff, field))

/* Copies size bytes of the packet, from the offset in a register on, to the stack. */
static void read_packet(struct code *c, uint8_t offset, int to, int32_t size)
{
	move(c, BPF_REG_1, BPF_REG_6);
	move(c, BPF_REG_2, offset);
	address_of(c, BPF_REG_3, to);
	set(c, BPF_REG_4, size);
	call(c, BPF_FUNC_skb_load_bytes);
	end_if(c, IF(BPF_JNE), BPF_REG_0, 0);
}

/* r8: the offset of the TCP header. The address of the sender is in the key. */
static void write_ip_headers(struct code *c)
{
	load(c, BPF_W, BPF_REG_7, BPF_REG_6, PACKET(protocol));
	set(c, BPF_REG_9, 0);
	size_t not_v4 = jump(c, IF(BPF_JNE), BPF_REG_7, htons(ETH_P_IP));
	read_packet(c, BPF_REG_9, S_IP, 20);
	load(c, BPF_B, BPF_REG_1, BPF_REG_10, S_IP + 9);
	end_if(c, IF(BPF_JNE), BPF_REG_1, IPPROTO_TCP);
	load(c, BPF_B, BPF_REG_8, BPF_REG_10, S_IP);
	emit(c, BPF_ALU64 | BPF_AND | BPF_K, BPF_REG_8, 0, 0, 0xf);
	emit(c, BPF_ALU64 | BPF_LSH | BPF_K, BPF_REG_8, 0, 0, 2);
	map_v4(c);
	load(c, BPF_W, BPF_REG_1, BPF_REG_10, S_IP + 12);
	put(c, BPF_W, S_KEY + 12, BPF_REG_1);
	size_t is_done = jump(c, ALWAYS, 0, 0);
	land(c, not_v4);
	end_if(c, IF(BPF_JNE), BPF_REG_7, htons(ETH_P_IPV6));
	read_packet(c, BPF_REG_9, S_IP, 40);
	load(c, BPF_B, BPF_REG_1, BPF_REG_10, S_IP + 6);
	end_if(c, IF(BPF_JNE), BPF_REG_1, IPPROTO_TCP);
	set(c, BPF_REG_8, 40);
	for (int i = 0; i < 16; i += 4) {
		load(c, BPF_W, BPF_REG_1, BPF_REG_10, S_IP + 8 + i);
		put(c, BPF_W, S_KEY + i, BPF_REG_1);
	}
	land(c, is_done);
}

/*
 * Packets that the run receives. A first packet of a connection: another program connects to it. A packet whose last
 * message is "ReadyForQuery": a server has let the run in. The server sends it at the end of its start, and
 * waits for the client then.
 */
static void write_packet_program(struct code *c)
{
	const uint8_t tail[] = { 'Z', 0, 0, 0, 5, 'I' };
	int32_t first;

	memcpy(&first, tail, sizeof(first));
	clear_key(c, KIND_INCOMING);
	move(c, BPF_REG_6, BPF_REG_1);
	write_ip_headers(c);
	read_packet(c, BPF_REG_8, S_TCP, 20);
	load(c, BPF_B, BPF_REG_1, BPF_REG_10, S_TCP + 13);
	emit(c, BPF_ALU64 | BPF_AND | BPF_K, BPF_REG_1, 0, 0, 0x12); /* SYN, ACK */
	count_if(c, IF(BPF_JEQ), BPF_REG_1, 0x02);
	/* Are there six bytes behind the TCP header? */
	load(c, BPF_B, BPF_REG_1, BPF_REG_10, S_TCP + 12);
	emit(c, BPF_ALU64 | BPF_RSH | BPF_K, BPF_REG_1, 0, 0, 4);
	emit(c, BPF_ALU64 | BPF_LSH | BPF_K, BPF_REG_1, 0, 0, 2);
	emit(c, BPF_ALU64 | BPF_ADD | BPF_X, BPF_REG_8, BPF_REG_1, 0, 0);
	load(c, BPF_W, BPF_REG_9, BPF_REG_6, PACKET(len));
	add(c, BPF_REG_9, -(int32_t)sizeof(tail));
	if (c->n_end < FORGE_ARRAY_SIZE(c->to_end)) {
		emit(c, BPF_JMP | BPF_JSGT | BPF_X, BPF_REG_8, BPF_REG_9, 0, 0);
		c->to_end[c->n_end++] = c->n - 1;
	}
	read_packet(c, BPF_REG_9, S_TAIL, sizeof(tail));
	load(c, BPF_W, BPF_REG_1, BPF_REG_10, S_TAIL);
	end_if(c, IF(BPF_JNE), BPF_REG_1, first);
	load(c, BPF_B, BPF_REG_1, BPF_REG_10, S_TAIL + 4);
	end_if(c, IF(BPF_JNE), BPF_REG_1, tail[4]);
	load(c, BPF_B, BPF_REG_1, BPF_REG_10, S_TAIL + 5);
	end_if(c, IF(BPF_JNE), BPF_REG_1, tail[5]);
	load(c, BPF_W, BPF_REG_1, BPF_REG_10, S_TCP); /* both ports */
	put(c, BPF_W, KEY(port), BPF_REG_1);
	put_value(c, BPF_W, KEY(kind), KIND_SESSION);
	finish(c);
}

/* ---- loading ---- */

static int make_map(enum bpf_map_type type, uint32_t key_size, uint32_t n)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr)); /* the kernel refuses what it does not know */
	attr.map_type = type;
	attr.key_size = key_size;
	attr.value_size = sizeof(uint64_t);
	attr.max_entries = n;
	long fd = sys_bpf(BPF_MAP_CREATE, &attr);
	return fd < 0 ? -errno : (int)fd;
}

static int load_program(const struct code *c, enum bpf_attach_type type)
{
	static const char license[] =
		"Apache-2.0"; /* none of the helpers asks for another */
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = type == BPF_CGROUP_INET_INGRESS ? BPF_PROG_TYPE_CGROUP_SKB
							 : BPF_PROG_TYPE_CGROUP_SOCK_ADDR;
	attr.expected_attach_type = type;
	attr.insns = (uintptr_t)c->v;
	attr.insn_cnt = (uint32_t)c->n;
	attr.license = (uintptr_t)license;
	long fd = sys_bpf(BPF_PROG_LOAD, &attr);
	return fd < 0 ? -errno : (int)fd;
}

/* The group holds the program from then on. */
static int attach(const struct forge_connections *m, int cgroup,
		  enum bpf_attach_type type)
{
	struct code c = { .map = m->map, .lost = m->lost };
	union bpf_attr attr;

	if (type == BPF_CGROUP_INET_INGRESS)
		write_packet_program(&c);
	else
		write_call_program(&c, type);
	forge_auto_close int prog = load_program(&c, type);
	if (prog < 0)
		return prog;
	memset(&attr, 0, sizeof(attr));
	attr.target_fd = (uint32_t)cgroup;
	attr.attach_bpf_fd = (uint32_t)prog;
	attr.attach_type = type;
	/* Programs of the groups above go on. */
	attr.attach_flags = BPF_F_ALLOW_MULTI;
	return sys_bpf(BPF_PROG_ATTACH, &attr) < 0 ? -errno : 0;
}

int forge_connections_watch(struct forge_connections *c, const struct forge_cgroup *cg,
			    struct forge_error *err)
{
	static const enum bpf_attach_type types[] = {
		BPF_CGROUP_INET_INGRESS,  BPF_CGROUP_INET4_CONNECT,
		BPF_CGROUP_INET6_CONNECT, BPF_CGROUP_UDP4_SENDMSG,
		BPF_CGROUP_UDP6_SENDMSG,
	};
	struct forge_connections made = FORGE_CONNECTIONS_INIT;
	int rc;

	if (cg->v2_fd < 0)
		return forge_fail(err, EOPNOTSUPP,
				  "the run has no control group on a unified hierarchy");
	rc = made.map = make_map(BPF_MAP_TYPE_HASH, sizeof(struct key), MAP_ENTRIES);
	if (rc >= 0)
		rc = made.lost = make_map(BPF_MAP_TYPE_ARRAY, sizeof(uint32_t), 1);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(types) && rc >= 0; i++)
		rc = attach(&made, cg->v2_fd, types[i]);
	if (rc < 0) {
		forge_connections_done(&made);
		return forge_fail_errno(err, -rc, "eBPF programs cannot be attached");
	}
	/* Linux 6.7 */
	made.has_unix = attach(&made, cg->v2_fd, ATTACH_UNIX_CONNECT) == 0 &&
			attach(&made, cg->v2_fd, ATTACH_UNIX_SENDMSG) == 0;
	*c = made;
	return 0;
}

void forge_connections_done(struct forge_connections *c)
{
	if (c->map >= 0)
		close(c->map);
	if (c->lost >= 0)
		close(c->lost);
	*c = FORGE_CONNECTIONS_INIT;
}

/* ---- reading ---- */

static int lookup(enum bpf_cmd cmd, int map, const void *key, void *value)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.map_fd = (uint32_t)map;
	attr.key = (uintptr_t)key;
	attr.value = (uintptr_t)value; /* or the next key */
	return sys_bpf(cmd, &attr) < 0 ? -errno : 0;
}

static json_t *address_json(const struct key *key)
{
	char text[INET6_ADDRSTRLEN] = "";
	struct in6_addr a;

	memcpy(&a, key->address, sizeof(a));
	if (IN6_IS_ADDR_V4MAPPED(&a))
		(void)inet_ntop(AF_INET, key->address + 12, text, sizeof(text));
	else
		(void)inet_ntop(AF_INET6, &a, text, sizeof(text));
	return json_string(text);
}

static void note(const struct key *key, uint64_t n, json_t *made, json_t *sessions,
		 uint64_t *incoming, uint64_t *unix_sockets)
{
	switch ((enum kind)key->kind) {
	case KIND_CONNECT:
	case KIND_CONNECT_UDP:
	case KIND_SEND:
		json_array_append_new(made, json_pack("{s:o, s:i, s:b, s:I}", "address",
						      address_json(key), "port",
						      ntohs(key->port), "udp",
						      key->kind != KIND_CONNECT, "count",
						      (json_int_t)n));
		break;
	case KIND_UNIX:
		*unix_sockets += n;
		break;
	case KIND_INCOMING:
		*incoming += n;
		break;
	case KIND_SESSION:
		json_array_append_new(sessions, json_pack("{s:o, s:i, s:i}", "address",
							  address_json(key), "port",
							  ntohs(key->port), "local_port",
							  ntohs(key->local_port)));
		break;
	}
}

int forge_connections_read(const struct forge_connections *c, json_t **ret,
			   struct forge_error *err)
{
	forge_auto_json json_t *made = json_array();
	forge_auto_json json_t *sessions = json_array();
	uint64_t lost = 0, incoming = 0, unix_sockets = 0, n = 0;
	struct key key, next;
	int rc = lookup(BPF_MAP_LOOKUP_ELEM, c->lost, &(uint32_t){ 0 }, &lost);
	bool is_first = true;

	while (rc == 0) {
		/* The values are read from a map that nothing adds to any more. */
		rc = lookup(BPF_MAP_GET_NEXT_KEY, c->map, is_first ? NULL : &key, &next);
		if (rc == 0)
			rc = lookup(BPF_MAP_LOOKUP_ELEM, c->map, &next, &n);
		if (rc == 0)
			note(&next, n, made, sessions, &incoming, &unix_sockets);
		key = next;
		is_first = false;
	}
	if (rc != -ENOENT)
		return forge_fail_errno(err, -rc, "read the connections of the run");
	*ret = json_pack("{s:b, s:O, s:O, s:I, s:o}", "complete", lost == 0, "made", made,
			 "sessions", sessions, "incoming", (json_int_t)incoming, "unix",
			 c->has_unix ? json_integer((json_int_t)unix_sockets)
				     : json_null());
	return *ret ? 0 : forge_fail(err, ENOMEM, "out of memory");
}
