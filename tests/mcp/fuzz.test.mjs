// Bytes and messages that nobody would send on purpose: the server neither ends nor starts what it should not.
// SPDX-License-Identifier: Apache-2.0
import { test } from 'node:test'
import assert from 'node:assert/strict'
import { place, raw, until, modernMeta } from './lib.mjs'

const ROUNDS = Number(process.env.MCP_FUZZ_ROUNDS ?? 1500)
const SEED = Number(process.env.MCP_FUZZ_SEED ?? Date.now() % 1000000)

// A generator of numbers that can be repeated by its seed.
function generator(seed) {
    let a = seed | 0
    return (n) => {
        a = (a + 0x6d2b79f5) | 0
        let x = Math.imul(a ^ (a >>> 15), 1 | a)
        x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x
        return ((x ^ (x >>> 14)) >>> 0) % n
    }
}

const values = [null, true, false, 0, -1, 1.5, 1e300, 9007199254740993, '', 'a', '\u0000', '\ud83d\ude00', '../..', '-', '--help', '*', 'last', 'x'.repeat(5000), [], [[]], {}, { a: {} },
    '2026-07-28', '9'.repeat(400), ['x', 1], { '': '' }]
const names = ['jsonrpc', 'id', 'method', 'params', 'name', 'arguments', '_meta', 'run', 'code', 'command', 'memory', 'env', 'inputs', 'stream', 'offset', 'length', 'path', 'wait_seconds',
    'progressToken', 'requestId', 'uri', 'io.modelcontextprotocol/protocolVersion', 'toString', '__proto__']
const methods = ['initialize', 'ping', 'tools/list', 'tools/call', 'resources/read', 'resources/list', 'resources/templates/list', 'server/discover', 'notifications/cancelled', 'notifications/initialized', 'x']
// None of them starts a run with a program.
const tools = ['show_run', 'wait_run', 'list_runs', 'read_log', 'list_outputs', 'read_output', 'kill_run', 'rerun', 'show_runtime', 'host_status', 'run_analysis', 'x']

// A copy: a message changes what is in it.
const any = (pick) => structuredClone(values[pick(values.length)])

function message(pick) {
    const args = {}
    for (let i = pick(4); i > 0; i--) args[names[pick(names.length)]] = any(pick)
    // Each run that a mutation may start ends at once.
    if (pick(2)) args.command = ['true']
    const m = { jsonrpc: '2.0', id: pick(1000), method: methods[pick(methods.length)],
        params: { name: tools[pick(tools.length)], arguments: args, uri: `forge://runs/${JSON.stringify(any(pick))}/stdout`, protocolVersion: '2025-03-26', requestId: pick(1000) } }
    if (pick(2)) m.params._meta = { ...modernMeta }
    // A change anywhere.
    for (let i = pick(3); i > 0; i--) {
        let at = m
        while (pick(2) && at.params && typeof at.params === 'object') at = at.params
        at[names[pick(names.length)]] = any(pick)
    }
    if (typeof m.params?.arguments === 'object' && m.params.arguments && 'wait_seconds' in m.params.arguments) m.params.arguments.wait_seconds = 0
    return pick(10) === 0 ? [m, any(pick)] : m
}

function bytes(pick, text) {
    const data = Buffer.from(text)
    for (let i = pick(6); i > 0 && data.length; i--) data[pick(data.length)] = pick(256)
    return pick(4) === 0 ? data.subarray(0, pick(data.length + 1)) : data
}

test(`${ROUNDS} messages with changes, seed ${SEED}`, { timeout: 400000 }, async (t) => {
    const p = place(t)
    const pick = generator(SEED)
    const s = raw(t, p, ['--max-runs', '4', '--max-memory', '64M'])
    for (let i = 0; i < ROUNDS; i++) {
        const text = JSON.stringify(message(pick))
        s.write(pick(3) === 0 ? bytes(pick, text) : text)
        s.write(pick(50) === 0 ? '' : '\n')
        if (pick(100) === 0) s.write(Buffer.from(Array.from({ length: pick(3000) }, () => pick(256))))
        // It keeps up: what it has to do is bounded.
        if (i % 100 === 99) {
            s.write('\n')
            s.send({ jsonrpc: '2.0', id: `round ${i}`, method: 'server/discover', params: { _meta: modernMeta } })
            await until(() => s.lines.some((line) => line.includes(`"round ${i}"`)) || s.closed, `the answer after ${i} messages`, 120)
            assert.ok(!s.closed, `the server ended with ${s.status} ${s.signal} after ${i} messages, seed ${SEED}: ${s.errors}`)
            for (const line of s.lines.splice(0)) {
                const answer = JSON.parse(line)
                for (const one of Array.isArray(answer) ? answer : [answer]) {
                    assert.equal(one.jsonrpc, '2.0')
                    assert.ok(one.result || one.error?.message || one.method === 'notifications/progress', line)
                }
            }
        }
    }
    s.end()
    await until(() => s.closed, 'the end of the server', 120)
    assert.equal(s.status, 0, `${s.signal} seed ${SEED}: ${s.errors}`)
    assert.equal(s.errors, '')
    for (const run of p.runs()) {
        assert.equal(run.status === 'queued' || run.status === 'running', false, JSON.stringify(run))
        assert.ok(p.record(run.run_id).limits.memory_bytes <= 64 << 20)
    }
})

test('only bytes', async (t) => {
    const pick = generator(SEED)
    const s = raw(t, place(t))
    for (let i = 0; i < 200; i++) s.write(Buffer.from(Array.from({ length: 4096 }, () => pick(256))))
    s.write('\n')
    s.send({ jsonrpc: '2.0', id: 'last', method: 'ping' })
    await until(() => s.lines.some((line) => line.includes('"last"')) || s.closed, 'an answer')
    assert.ok(!s.closed, s.errors)
    s.write('[' .repeat(1 << 20) + '\n')
    s.write('{"a":'.repeat(1 << 18) + '\n')
    s.send({ jsonrpc: '2.0', id: 'really', method: 'ping' })
    await until(() => s.lines.some((line) => line.includes('"really"')) || s.closed, 'an answer')
    s.end()
    await until(() => s.closed)
    assert.equal(s.status, 0, s.errors)
})
