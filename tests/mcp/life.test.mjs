// Progress, cancellation, many requests at once, and the ends of the connection.
// SPDX-License-Identifier: Apache-2.0
import { test } from 'node:test'
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { execFileSync } from 'node:child_process'
import { FORGE, place, connect, raw, until, modernMeta } from './lib.mjs'

const SLEEP = { command: ['sleep', '300'], memory: '32M', cpus: 0.1, wait_seconds: 600 }
const one = (p) => p.runs()[0]
const isRunning = (p) => one(p)?.status === 'running'

for (const mode of ['modern', 'sdk'])
    test(`progress: state, time and memory while the run goes (${mode})`, async (t) => {
        const p = place(t)
        const client = await connect(t, p, [], mode)
        const seen = []
        const done = await client.result('run_analysis', { code: 'import time; x = bytearray(20 << 20); time.sleep(4)' },
            { timeout: 120000, onprogress: (progress) => seen.push(progress) })
        assert.equal(done.status, 'succeeded')
        assert.ok(seen.length >= 1, 'there was no progress')
        assert.ok(seen.some((s) => /^The run is running, memory [0-9.]+ [KM]iB of 2\.00 GiB\. \d+ s since the request\.$/.test(s.message)), JSON.stringify(seen))
        for (let i = 1; i < seen.length; i++) assert.ok(seen[i].progress > seen[i - 1].progress)
    })

test('progress of a pipeline, which a cancelled request ends', async (t) => {
    const p = place(t)
    mkdirSync(p.in('pipe'))
    writeFileSync(p.in('pipe/pipeline.yaml'), 'name: slow\nsteps:\n  one: {run: "echo > a", outputs: [a]}\n  two: {inputs: {a: one/a}, run: "sleep 300", outputs: []}\n')
    const client = await connect(t, p, ['--pipeline', 'pipe'])
    const stop = new AbortController()
    const seen = []
    const call = client.say('run_pipeline', { pipeline: 'pipe', wait_seconds: 600 }, { timeout: 120000, signal: stop.signal, onprogress: (s) => seen.push(s.message) })
    call.catch(() => {})
    await until(() => seen.some((s) => /1 tasks are done/.test(s)), 'progress')
    assert.match(await client.refusal('run_pipeline', { pipeline: 'pipe' }), /is running already/)
    stop.abort()
    await assert.rejects(call)
    await until(() => p.runs().some((r) => r.status === 'cancelled'), 'the end of the step')
    assert.equal((await client.result('list_pipelines')).pipelines.length, 1)
    await until(async () => !(await client.result('list_pipelines')).pipelines[0].is_running, 'the end of the pipeline')
})

for (const mode of ['modern', 'legacy', 'sdk'])
    test(`a cancelled request ends its run, and is not answered (${mode})`, async (t) => {
        const p = place(t)
        const client = await connect(t, p, [], mode)
        const stop = new AbortController()
        const call = client.say('run_analysis', SLEEP, { timeout: 120000, signal: stop.signal })
        call.catch(() => {})
        await until(() => isRunning(p), 'a running run')
        stop.abort()
        await assert.rejects(call)
        await until(() => one(p).status === 'cancelled', 'the end of the run')
        // The connection goes on.
        assert.equal((await client.result('list_runs')).runs[0].status, 'cancelled')
    })

test('a request that is cancelled at once leaves no run behind', async (t) => {
    const p = place(t)
    const s = raw(t, p)
    await s.handshake()
    for (let id = 1; id <= 20; id++) {
        s.call(id, 'run_analysis', SLEEP)
        s.send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: id } })
    }
    s.send({ jsonrpc: '2.0', id: 'end', method: 'ping' })
    assert.equal((await s.next()).id, 'end')
    await until(() => p.runs().every((r) => r.status === 'cancelled') && p.runs().length <= 20, 'the end of the runs')
    s.call(21, 'list_runs', { open: true })
    assert.deepEqual((await s.next()).result.structuredContent.runs, [])
    assert.equal(s.lines.length, 0)
})

test('cancelling wait_run ends the waiting, not the run; an unknown id does nothing', async (t) => {
    const p = place(t)
    const s = raw(t, p)
    await s.handshake()
    s.call(1, 'submit_analysis', SLEEP_SUBMIT)
    const { run_id } = (await s.next()).result.structuredContent
    s.call(2, 'wait_run', { run: run_id, wait_seconds: 600 })
    s.send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 2 } })
    s.send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'no such' } })
    s.send({ jsonrpc: '2.0', method: 'notifications/cancelled' })
    s.call(3, 'show_run', { run: run_id })
    const shown = (await s.next())
    assert.equal(shown.id, 3)
    assert.ok(['queued', 'preparing', 'running'].includes(shown.result.structuredContent.status))
})
const SLEEP_SUBMIT = { command: ['sleep', '300'], memory: '32M', cpus: 0.1 }

test('20 calls at once: a long one holds up no other', async (t) => {
    const p = place(t)
    const client = await connect(t, p)
    const stop = new AbortController()
    const long = client.say('run_analysis', SLEEP, { timeout: 600000, signal: stop.signal })
    long.catch(() => {})
    await until(() => isRunning(p), 'a running run')
    const calls = []
    for (let i = 0; i < 20; i++) calls.push(client.result('run_analysis', { code: `print(${i})`, memory: '64M', cpus: 0.1, wait_seconds: 600 }))
    for (const [i, done] of (await Promise.all(calls)).entries()) assert.equal(done.stdout, `${i}\n`, JSON.stringify(done))
    assert.equal((await client.result('host_status')).running.length, 1)
    stop.abort()
    await until(() => p.runs().every((r) => r.status !== 'running'), 'the end of the run')
})

test('more than 128 requests at once are refused, and the others are answered', async (t) => {
    const p = place(t)
    const s = raw(t, p)
    await s.handshake()
    s.call('run', 'submit_analysis', SLEEP_SUBMIT)
    const { run_id } = (await s.next()).result.structuredContent
    for (let id = 0; id < 140; id++) s.call(id, 'wait_run', { run: run_id, wait_seconds: 600 })
    for (let i = 0; i < 12; i++) assert.equal((await s.next()).error.code, -32603)
    p.forge('kill', '--now', run_id)
    for (let i = 0; i < 128; i++) assert.equal((await s.next(120)).result.structuredContent.status, 'cancelled')
})

test('at the end of the input a run that was waited for is ended, a submitted one goes on', async (t) => {
    const p = place(t)
    const s = raw(t, p)
    await s.handshake()
    s.call(1, 'submit_analysis', SLEEP_SUBMIT)
    const { run_id } = (await s.next()).result.structuredContent
    s.call(2, 'run_analysis', SLEEP)
    await until(() => p.runs().filter((r) => r.status === 'running').length === 2, 'two running runs')
    s.end()
    await until(() => s.closed, 'the end of the server')
    assert.equal(s.status, 0)
    assert.equal(p.record(run_id).status, 'running')
    assert.deepEqual(p.runs().filter((r) => r.run_id !== run_id).map((r) => r.status), ['cancelled'])
    p.forge('kill', '--now', run_id)
})

for (const how of ['SIGTERM', 'SIGINT', 'a closed output', 'the client of the protocol'])
    test(`${how} ends the server and the run that is waited for`, async (t) => {
        const p = place(t)
        if (how.startsWith('the')) {
            const client = await connect(t, p)
            client.say('run_analysis', SLEEP).catch(() => {})
            await until(() => isRunning(p), 'a running run')
            await client.close()
        } else {
            const s = raw(t, p)
            await s.handshake()
            s.call(1, 'run_analysis', SLEEP, { progressToken: 'p' })
            await until(() => isRunning(p), 'a running run')
            if (how.startsWith('SIG')) s.child.kill(how)
            else s.child.stdout.destroy()
            await until(() => s.closed, 'the end of the server')
            assert.equal(s.signal, null)
            assert.equal(s.errors, '')
        }
        await until(() => one(p).status === 'cancelled', 'the end of the run')
    })

test('a server that is killed leaves runs that another one follows', async (t) => {
    const p = place(t)
    const s = raw(t, p)
    await s.handshake()
    s.call(1, 'run_analysis', { ...SLEEP, command: ['sh', '-c', 'sleep 2; echo done'] })
    await until(() => isRunning(p), 'a running run')
    const waiters = () => readdirSync('/proc').filter((pid) => {
        try { return /\0wait\0.*\0--timeout=600s/.test(readFileSync(`/proc/${pid}/cmdline`, 'utf8')) } catch { return false }
    })
    await until(() => waiters().length, 'a process that waits')
    s.child.kill('SIGKILL')
    await until(() => s.closed)
    await until(() => !waiters().length, 'its end')
    const client = await connect(t, p)
    const done = await client.result('wait_run', { run: 'last' })
    assert.equal(done.stdout, 'done\n')
})

test('a client that does not read holds up nothing but itself', async (t) => {
    const p = place(t)
    const s = raw(t, p)
    await s.handshake()
    s.child.stdout.pause()
    for (let id = 0; id < 300; id++) s.send({ jsonrpc: '2.0', id, method: 'tools/list' })
    s.call('run', 'submit_analysis', { command: ['true'] })
    await until(() => p.runs().length === 1, 'the run of the last request')
    s.child.stdout.resume()
    await until(() => s.lines.length >= 301, 'all answers')
    assert.equal(s.lines.map((line) => JSON.parse(line)).filter((m) => m.result).length, 301)
})

test('over pipes, as a shell makes them, and into a file', async (t) => {
    const p = place(t)
    const lines = [{ jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25' } },
        { jsonrpc: '2.0', id: 2, method: 'tools/list' }, { jsonrpc: '2.0', id: 3, method: 'tools/call', params: { name: 'submit_analysis', arguments: { code: 'print(1)' } } }]
    writeFileSync(p.in('asked'), lines.map((line) => JSON.stringify(line) + '\n').join(''))
    const sh = (command) => execFileSync('sh', ['-c', command], { cwd: p.dir, env: { ...p.env, FORGE }, encoding: 'utf8' })
    for (const answers of [sh('cat asked | "$FORGE" mcp | cat'), sh('"$FORGE" mcp <asked >answers; cat answers')])
        assert.deepEqual(answers.trim().split('\n').map((line) => JSON.parse(line).id), [1, 2, 3])
    sh('"$FORGE" mcp <asked >/dev/full')
})

test('the server waits without using the processor', async (t) => {
    const p = place(t)
    const client = await connect(t, p)
    const stop = new AbortController()
    client.say('run_analysis', SLEEP, { timeout: 600000, signal: stop.signal, onprogress: () => {} }).catch(() => {})
    await until(() => isRunning(p), 'a running run')
    const ticks = () => { const f = readFileSync(`/proc/${client.pid}/stat`, 'utf8').split(') ')[1].split(' '); return Number(f[11]) + Number(f[12]) }
    const before = ticks(), begun = Date.now()
    await until(() => Date.now() - begun > 3000)
    assert.ok(ticks() - before < 30, `${ticks() - before} ticks in 3 s`)
    stop.abort()
    await until(() => one(p).status === 'cancelled', 'the end of the run')
})

test('a modern client may have many requests without any order', async (t) => {
    const s = raw(t, place(t))
    for (let id = 0; id < 10; id++)
        s.call(id, 'run_analysis', { code: `print(${id})`, memory: '64M' }, modernMeta)
    const answers = []
    for (let i = 0; i < 10; i++) answers.push(await s.next(120))
    for (const answer of answers) {
        assert.equal(answer.result.structuredContent.stdout, `${answer.id}\n`)
        assert.equal(answer.result.resultType, 'complete')
    }
})
