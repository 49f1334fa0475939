// Revisions, messages and their errors.
// SPDX-License-Identifier: Apache-2.0
import { test } from 'node:test'
import assert from 'node:assert/strict'
import { SUPPORTED_PROTOCOL_VERSIONS } from '@modelcontextprotocol/sdk/types.js'
import { readFileSync, writeFileSync } from 'node:fs'
import { place, connect, raw, modernMeta, until } from './lib.mjs'

for (const mode of ['modern', 'auto', 'legacy', 'sdk']) {
    test(`a ${mode} client connects, lists the tools and runs an analysis`, async (t) => {
        const client = await connect(t, place(t), [], mode)
        const { tools } = await client.listTools()
        assert.equal(tools[0].name, 'run_analysis')
        const done = await client.result('run_analysis', { code: 'print(6 * 7)' })
        assert.equal(done.stdout, '42\n')
        assert.equal(done.status, 'succeeded')
        assert.equal(done.summary, done.completion_notes)
        assert.equal((await client.listResourceTemplates()).resourceTemplates.length, 3)
        const read = await client.readResource({ uri: `forge://runs/${done.run_id}/stdout` })
        assert.equal(read.contents[0].text, '42\n')
        const record = await client.readResource({ uri: `forge://runs/${done.run_id}/record` })
        assert.equal(JSON.parse(record.contents[0].text).command[2], 'print(6 * 7)')
    })
}

test('the client finds the newest revision', async (t) => {
    const p = place(t)
    assert.equal((await connect(t, p, [], 'auto')).getNegotiatedProtocolVersion(), '2026-07-28')
    assert.equal((await connect(t, p, [], 'legacy')).getNegotiatedProtocolVersion(), '2025-11-25')
})

test('every revision that the SDK knows is negotiated, and an unknown one becomes the newest', async (t) => {
    const p = place(t)
    for (const version of SUPPORTED_PROTOCOL_VERSIONS)
        assert.equal((await raw(t, p).handshake(version)).result.protocolVersion, version)
    assert.equal((await raw(t, p).handshake('1999-01-01')).result.protocolVersion, SUPPORTED_PROTOCOL_VERSIONS[0])
})

test('a modern request stands alone: with its version and capabilities, without a handshake', async (t) => {
    const s = raw(t, place(t))
    s.send({ jsonrpc: '2.0', id: 1, method: 'server/discover', params: { _meta: modernMeta } })
    const { result } = await s.next()
    assert.equal(result.resultType, 'complete')
    assert.deepEqual(result.supportedVersions, ['2026-07-28', ...SUPPORTED_PROTOCOL_VERSIONS])
    s.send({ jsonrpc: '2.0', id: 2, method: 'tools/list', params: { _meta: modernMeta } })
    const list = (await s.next()).result
    assert.ok(list.ttlMs >= 0)
    assert.equal(list.cacheScope, 'private')
    assert.equal(list._meta['io.modelcontextprotocol/serverInfo'].name, 'forge')
    s.send({ jsonrpc: '2.0', id: 3, method: 'tools/list', params: { _meta: { ...modernMeta, 'io.modelcontextprotocol/protocolVersion': '2099-01-01' } } })
    const refused = (await s.next()).error
    assert.equal(refused.code, -32022)
    assert.equal(refused.data.requested, '2099-01-01')
    assert.ok(refused.data.supported.includes('2026-07-28'))
    s.send({ jsonrpc: '2.0', id: 4, method: 'tools/list', params: { _meta: { 'io.modelcontextprotocol/protocolVersion': '2026-07-28' } } })
    assert.equal((await s.next()).error.code, -32602)
    s.send({ jsonrpc: '2.0', id: 5, method: 'ping', params: { _meta: modernMeta } })
    assert.equal((await s.next()).error.code, -32601)
    s.send({ jsonrpc: '2.0', id: 6, method: 'tools/list' })
    assert.equal((await s.next()).error.code, -32600)
})

test('what is no request gets the error of JSON-RPC, and the next request an answer', async (t) => {
    const s = raw(t, place(t))
    await s.handshake()
    const wrong = [
        ['{"jsonrpc":"2.0","id":1,', -32700, undefined],
        ['nonsense', -32700, undefined],
        ['42', -32600, undefined],
        ['[]', -32600, undefined],
        ['{"jsonrpc":"1.0","id":2,"method":"ping"}', -32600, 2],
        ['{"jsonrpc":"2.0","id":3}', -32600, 3],
        ['{"jsonrpc":"2.0","id":4,"method":7}', -32600, 4],
        ['{"jsonrpc":"2.0","id":5,"method":"ping","params":[]}', -32600, 5],
        ['{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, undefined],
        ['{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, undefined],
        ['{"jsonrpc":"2.0","id":6,"method":"no/such"}', -32601, 6],
        ['{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"no_such"}}', -32602, 7],
        ['{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"list_runs","arguments":[]}}', -32602, 8],
        ['{"jsonrpc":"2.0","id":9,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}', -32602, 9],
        ['{"jsonrpc":"2.0","id":10,"method":"resources/read","params":{"uri":"forge://runs/../../stdout"}}', -32602, 10],
        ['{"jsonrpc":"2.0","id":11,"method":"resources/read","params":{}}', -32602, 11],
    ]
    for (const [line, code, id] of wrong) {
        s.write(line + '\n')
        const answer = await s.next()
        assert.equal(answer.error?.code, code, line)
        assert.equal(answer.id, id, line)
    }
    // Neither a notification nor an answer is answered.
    s.write('\n \t\n{"jsonrpc":"2.0","method":"notifications/nothing"}\n{"jsonrpc":"2.0","id":1,"result":{}}\n')
    s.send({ jsonrpc: '2.0', id: 'last', method: 'ping' })
    assert.deepEqual(await s.next(), { jsonrpc: '2.0', id: 'last', result: {} })
})

test('a line of more than 16 MiB is refused once, whatever is in it', async (t) => {
    const s = raw(t, place(t))
    await s.handshake()
    s.write('{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + 'y'.repeat(40 << 20) + '"}}\n')
    assert.equal((await s.next()).error.code, -32700)
    s.write('{"jsonrpc":"2.0","id":2,"method":"ping","params":{"x":"' + 'y'.repeat(15 << 20) + '"}}\n')
    assert.equal((await s.next()).id, 2)
    assert.equal(s.lines.length, 0)
})

test('a line without an end needs no memory without an end', async (t) => {
    const s = raw(t, place(t))
    await s.handshake()
    const highest = () => Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${s.child.pid}/status`, 'utf8'))[1]) / 1024
    const before = highest()
    for (let i = 0; i < 300; i++) s.write('y'.repeat(1 << 20))
    s.write('\n')
    s.send({ jsonrpc: '2.0', id: 1, method: 'ping' })
    assert.equal((await s.next()).error.code, -32700)
    assert.equal((await s.next()).id, 1)
    assert.ok(highest() - before < 150, `${highest() - before} MiB`)
})

test('lists of messages are for the revisions that have them', async (t) => {
    const p = place(t)
    const ping = (id) => ({ jsonrpc: '2.0', id, method: 'ping' })
    const old = raw(t, p)
    await old.handshake('2025-03-26')
    old.send([ping(1), { jsonrpc: '2.0', method: 'notifications/x' }, 7,
        { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'run_analysis', arguments: { code: 'print(1)' } } }])
    const answers = await old.next()
    assert.equal(answers.length, 3)
    assert.deepEqual(answers.map((a) => a.id).sort(), [1, 2, null].sort())
    assert.equal(answers.find((a) => a.id === 2).result.structuredContent.stdout, '1\n')
    old.send([{ jsonrpc: '2.0', method: 'notifications/x' }])
    old.send(ping(3))
    assert.equal((await old.next()).id, 3)
    const late = raw(t, p)
    await late.handshake('2025-06-18')
    late.send([ping(1)])
    assert.equal((await late.next()).error.code, -32600)
})

test('what was asked before the end of the input is answered', async (t) => {
    const s = raw(t, place(t))
    s.write(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25' } }) + '\n')
    s.call(2, 'list_runs')
    s.call(3, 'submit_analysis', { code: 'print(1)' })
    s.end()
    const ids = [(await s.next()).id, (await s.next()).id, (await s.next()).id]
    assert.deepEqual(ids.sort(), [1, 2, 3])
    await until(() => s.closed)
    assert.equal(s.status, 0)
    assert.equal(s.errors, '')
})

test('two requests with one id are not mixed up', async (t) => {
    const s = raw(t, place(t))
    await s.handshake()
    s.call(1, 'run_analysis', { code: 'import time; time.sleep(1); print("first")' })
    s.call(1, 'run_analysis', { code: 'print("second")' })
    assert.equal((await s.next()).error.code, -32600)
    assert.equal((await s.next()).result.structuredContent.stdout, 'first\n')
})

test('schemas: each tool has both, annotations, and results that match', async (t) => {
    const p = place(t)
    writeFileSync(p.in('pipeline.yaml'), 'name: p\nsteps:\n  a: {run: "echo 1 > o", outputs: [o]}\n')
    const client = await connect(t, p, ['--pipeline', p.in('pipeline.yaml')])
    const { tools } = await client.listTools()
    assert.deepEqual(tools.map((tool) => tool.name), ['run_analysis', 'submit_analysis', 'show_run', 'wait_run', 'list_runs', 'read_log',
        'list_outputs', 'read_output', 'kill_run', 'rerun', 'list_runtimes', 'show_runtime', 'list_pipelines', 'run_pipeline', 'pipeline_status', 'host_status'])
    for (const tool of tools) {
        assert.equal(tool.inputSchema.type, 'object')
        assert.equal(tool.inputSchema.additionalProperties, false)
        assert.equal(tool.outputSchema.required[0], 'summary')
        assert.equal(typeof tool.annotations.readOnlyHint, 'boolean')
    }
    const named = (name) => tools.find((tool) => tool.name === name).annotations
    assert.equal(named('kill_run').destructiveHint, true)
    assert.equal(named('run_analysis').readOnlyHint, false)
    assert.equal(named('show_run').readOnlyHint, true)
})
