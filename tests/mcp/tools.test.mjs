// Every tool, with real runs.
// SPDX-License-Identifier: Apache-2.0
import { test } from 'node:test'
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { place, connect } from './lib.mjs'

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

test('run_analysis: code in three languages, or a command', async (t) => {
    const p = place(t)
    const client = await connect(t, p)
    const python = await client.result('run_analysis', { code: 'import sys\nprint("ä", end="")\nprint("warned", file=sys.stderr)', name: 'first' })
    assert.equal(python.stdout, 'ä')
    assert.equal(python.stderr, 'warned\n')
    assert.equal(python.analysis_id, 'first')
    const bash = await client.result('run_analysis', { code: 'x=(1 2 3)\necho "${#x[@]} \\n \'q\' $1"', language: 'bash' })
    assert.equal(bash.stdout, "3 \\n 'q' \n")
    const r = await client.result('run_analysis', { code: 'x <- c(1, 2)\nx\ncat("a b\\tc \'é\' \\"q\\"\\n")\nf <- function(n) {\n  n + 1\n}\nprint(f(1))', language: 'R' })
    assert.equal(r.stdout, "[1] 1 2\na b\tc 'é' \"q\"\n[1] 2\n", r.stderr)
    const bad = await client.result('run_analysis', { code: 'stop("no")', language: 'R' })
    assert.equal(bad.status, 'failed')
    const command = await client.result('run_analysis', { command: ['printf', '%s|', 'a b', '$HOME', '--help', '; id'] })
    assert.equal(command.stdout, 'a b|$HOME|--help|; id|')
    // A run that fails is a result, not an error of the tool.
    const failed = await client.result('run_analysis', { code: 'raise SystemExit(3)' })
    assert.equal(failed.status, 'failed')
    assert.equal(failed.exit_code, 3)
    assert.match(failed.summary, /3/)
    // The record has the code, and the run can be repeated without any file.
    assert.equal(p.record(failed.run_id).command[2], 'raise SystemExit(3)')
})

test('run_analysis: the verdict of a run without memory says what to change', async (t) => {
    const p = place(t)
    const client = await connect(t, p)
    const done = await client.result('run_analysis', { code: 'x = []\nwhile True: x.append(bytearray(1 << 20))', memory: '64M' })
    assert.equal(done.status, 'killed')
    assert.equal(done.reason, 'memory')
    assert.equal(done.limits.memory_bytes, 64 << 20)
    // The record is for people, who type options.
    const notes = p.record(done.run_id).completion_notes
    assert.match(notes, /^Killed: memory 64\.00 MiB of 64\.00 MiB.*Retry with --memory 128M\.$/)
    assert.equal(done.summary, notes.replace('--memory', 'memory'))
    assert.equal(done.completion_notes, done.summary)
    assert.equal((await client.result('list_runs', { limit: 1 })).runs[0].completion_notes, done.summary)
    const capped = await connect(t, p, ['--max-memory', '100M'])
    assert.match((await capped.result('show_run', { run: done.run_id })).summary,
        /\. memory 128M would be above the 100\.00 MiB that were fixed for this server \(--max-memory\): make it need less\.$/)
    const printed = await client.result('run_analysis', { command: ['sh', '-c', 'yes'], timeout: '20s', name: 'yes' })
    assert.match(printed.summary, /^Killed: more than .*No argument of a tool changes this limit \(output-limit\), or print less\.$/)
    const more = await client.result('rerun', { run: done.run_id, memory: '96M' })
    assert.equal(more.limits.memory_bytes, 96 << 20)
    assert.equal(more.rerun_of, done.run_id)
    assert.equal(more.reason, 'memory')
})

test('run_analysis: runtime, inputs, outputs, variables and limits', async (t) => {
    const p = place(t)
    const client = await connect(t, p, ['--allow-input', 'data'])
    const code = `import os
open("out.txt", "w").write(open("data/x.csv").read() + os.environ["WHO"])
open("other.txt", "w").write("x")
print(os.environ.get("SECRET_OF_THE_HOST"))`
    const done = await client.result('run_analysis', { code, runtime: 'plain', inputs: ['data/x.csv'], outputs: ['out.txt'],
        env: { WHO: 'me' }, memory: 268435456, cpus: 0.5, timeout: '30s', disk: '10M' })
    assert.equal(done.status, 'succeeded', done.summary)
    assert.equal(done.stdout, 'None\n')
    assert.equal(done.runtime.name, 'plain')
    assert.deepEqual(done.outputs.map((o) => o.path), ['out.txt'])
    const limits = p.record(done.run_id).limits
    assert.deepEqual([limits.memory_bytes, limits.cpus, limits.wall_seconds, limits.disk_bytes], [268435456, 0.5, 30, 10 << 20])
    const read = await client.result('read_output', { run: done.run_id, path: 'out.txt' })
    assert.equal(read.text, 'a,b\n1,2\nme')
    // With nothing asked for again, it is the same.
    const again = await client.result('rerun', { run: done.run_id, wait_seconds: 60 })
    assert.equal(again.status, 'succeeded', again.summary)
    assert.equal(p.record(again.run_id).limits.memory_bytes, 268435456)
})

test('run_analysis returns after its time, and the run goes on', async (t) => {
    const p = place(t)
    const client = await connect(t, p)
    const begun = Date.now()
    const open = await client.result('run_analysis', { code: 'import time\nprint("here", flush=True)\ntime.sleep(4)', wait_seconds: 1 })
    assert.ok(Date.now() - begun < 30000)
    assert.equal(open.status, 'running')
    assert.match(open.summary, /^The run is running/)
    const now = await client.result('show_run', { run: open.run_id })
    assert.equal(now.run_id, open.run_id)
    const done = await client.result('wait_run', { run: open.run_id })
    assert.equal(done.status, 'succeeded')
    assert.equal(done.stdout, 'here\n')
    assert.equal((await client.result('show_run', { run: 'last', full: true })).record.forge_version.length > 0, true)
})

test('submit_analysis, wait_run with no time, kill_run', async (t) => {
    const p = place(t)
    const client = await connect(t, p)
    const { run_id } = await client.result('submit_analysis', { command: ['sleep', '300'] })
    const open = await client.result('wait_run', { run: run_id, wait_seconds: 0 })
    assert.ok(['preparing', 'running', 'queued'].includes(open.status))
    const killed = await client.result('kill_run', { run: run_id, now: true })
    assert.equal(killed.status, 'cancelled')
    assert.equal(p.record(run_id).status, 'cancelled')
})

test('list_runs: filters and pages', async (t) => {
    const p = place(t)
    const client = await connect(t, p)
    for (const n of [1, 2, 3]) await client.result('run_analysis', { command: [n === 2 ? 'false' : 'true'], name: `list-${n}` })
    const first = await client.result('list_runs', { limit: 2 })
    assert.deepEqual(first.runs.map((r) => r.analysis_id), ['list-3', 'list-2'])
    const rest = await client.result('list_runs', { limit: 2, after: first.next })
    assert.deepEqual(rest.runs.map((r) => r.analysis_id), ['list-1'])
    assert.equal(rest.next, null)
    assert.deepEqual((await client.result('list_runs', { status: 'failed' })).runs.map((r) => r.analysis_id), ['list-2'])
    assert.equal((await client.result('list_runs', { analysis: 'list-*' })).runs.length, 3)
    assert.equal((await client.result('list_runs', { open: true })).runs.length, 0)
})

test('read_log: ranges by bytes, from both ends, of any bytes', async (t) => {
    const p = place(t)
    const client = await connect(t, p)
    const { run_id } = await client.result('run_analysis', { code: 'import sys\nsys.stdout.buffer.write(b"0123456789" + "äöü".encode() + b"\\xff\\xfe.")\nprint("e" * 100, file=sys.stderr)' })
    const part = await client.result('read_log', { run: run_id, offset: 2, length: 3 })
    assert.deepEqual([part.text, part.offset, part.next_offset, part.total], ['234', 2, 5, 19])
    // A character is never cut at the end.
    const cut = await client.result('read_log', { run: run_id, offset: 5, length: 6 })
    assert.deepEqual([cut.text, cut.next_offset], ['56789', 10])
    const end = await client.result('read_log', { run: run_id, offset: -3 })
    assert.deepEqual([end.text, end.offset, end.next_offset], ['\ufffd\ufffd.', 16, 19])
    assert.equal((await client.result('read_log', { run: run_id, offset: 1000 })).text, '')
    assert.equal((await client.result('read_log', { run: run_id, stream: 'stderr' })).text, 'e'.repeat(100) + '\n')
    assert.match((await client.result('read_log', { run: run_id, stream: 'events' })).text, /"event"/)
})

test('read_log and the result of a run with much output', async (t) => {
    const p = place(t)
    const client = await connect(t, p)
    const done = await client.result('run_analysis', { code: 'import sys\nfor i in range(300000): sys.stdout.write("%09d\\n" % i)' })
    assert.equal(done.stdout.length, 8192)
    assert.ok(done.stdout.endsWith('000299999\n'))
    assert.equal(done.stdout_is_cut, true)
    const part = await client.result('read_log', { run: done.run_id, offset: 1234560, length: 10 })
    assert.equal(part.text, '000123456\n')
    assert.equal(part.total, 3000000)
})

test('outputs: an image as an image, text as text, bytes as base64, all checked', async (t) => {
    const p = place(t)
    const client = await connect(t, p)
    const code = `import base64
open("plot.png", "wb").write(base64.b64decode("${PNG}"))
open("t.csv", "w").write("n\\n" + "é" * 10)
open("b.bin", "wb").write(bytes(range(256)))
open("false.png", "w").write("<script>")
open("empty", "w")`
    const done = await client.result('run_analysis', { code })
    const list = await client.result('list_outputs', { run: done.run_id })
    assert.deepEqual(list.outputs.map((o) => o.path).sort(), ['b.bin', 'empty', 'false.png', 'plot.png', 't.csv'])
    const page = await client.result('list_outputs', { run: done.run_id, offset: 3, limit: 1 })
    assert.deepEqual([page.outputs.length, page.output_count, page.outputs[0].path], [1, 5, list.outputs[3].path])
    const image = await client.say('read_output', { run: done.run_id, path: 'plot.png' })
    assert.deepEqual(image.content[1], { type: 'image', data: PNG, mimeType: 'image/png' })
    assert.equal(image.structuredContent.size, Buffer.from(PNG, 'base64').length)
    const text = await client.result('read_output', { run: done.run_id, path: 't.csv', offset: 2, length: 5 })
    assert.deepEqual([text.text, text.next_offset, text.kind], ['éé', 6, 'text'])
    const bytes = await client.say('read_output', { run: done.run_id, path: 'b.bin' })
    assert.deepEqual([...Buffer.from(bytes.content[1].resource.blob, 'base64')], [...Array(256).keys()])
    // What a file is called says nothing about what it is.
    assert.equal((await client.result('read_output', { run: done.run_id, path: 'false.png' })).kind, 'text')
    assert.equal((await client.result('read_output', { run: done.run_id, path: 'empty' })).text, '')
    assert.match(await client.refusal('read_output', { run: done.run_id, path: '../../etc/passwd' }), /has no output/)
    // Another content under the name of the digest is not handed on.
    const stored = image.structuredContent.stored_at
    execFileSync('chmod', ['u+w', stored])
    writeFileSync(stored, 'other')
    assert.match(await client.refusal('read_output', { run: done.run_id, path: 'plot.png' }), /damaged/)
})

test('a large image is sent in moments', async (t) => {
    const p = place(t)
    const client = await connect(t, p)
    const done = await client.result('run_analysis', { code: `import base64, os\nopen("big.png", "wb").write(base64.b64decode("${PNG}") + os.urandom(7 << 20))\nopen("bigger.png", "wb").write(base64.b64decode("${PNG}") + os.urandom(9 << 20))` })
    const begun = Date.now()
    const image = await client.say('read_output', { run: done.run_id, path: 'big.png' })
    assert.equal(image.content[1].data.length, Math.ceil((Buffer.from(PNG, 'base64').length + (7 << 20)) / 3) * 4)
    t.diagnostic(`${Date.now() - begun} ms`)
    const bigger = await client.say('read_output', { run: done.run_id, path: 'bigger.png' })
    assert.equal(bigger.content[1].type, 'text')
    assert.match(bigger.structuredContent.summary, /Too many bytes/)
    assert.match(bigger.structuredContent.stored_at, /objects/)
})

test('runtimes: what there is, and what one has', async (t) => {
    const p = place(t)
    const client = await connect(t, p)
    const { runtimes } = await client.result('list_runtimes')
    assert.deepEqual(runtimes.map((r) => r.name).sort(), ['other', 'plain'])
    const plain = await client.result('show_runtime', { name: 'plain', package: 'python3' })
    assert.ok(plain.packages.length > 0)
    assert.ok(plain.packages.every((one) => one.name.includes('python3')))
    assert.match(await client.refusal('show_runtime', { name: 'no-such' }), /no-such/)
    assert.match(await client.refusal('show_runtime', { name: '/usr' }), /not a name/)
})

test('pipelines: run, status, again', async (t) => {
    const p = place(t)
    mkdirSync(p.in('pipe'))
    writeFileSync(p.in('pipe/pipeline.yaml'), `name: two
params: {word: hello}
steps:
  one: {run: 'echo "$word" > a', params: [word], outputs: [a]}
  two: {inputs: {a: one/a}, run: 'cat $a > b', outputs: [b]}
`)
    const client = await connect(t, p, ['--pipeline', 'pipe'])
    assert.deepEqual((await client.result('list_pipelines')).pipelines, [{ pipeline: 'pipe', is_running: false }])
    assert.match((await client.result('pipeline_status', { pipeline: 'pipe' })).summary, /^0 of 2/)
    const done = await client.result('run_pipeline', { pipeline: 'pipe' })
    assert.equal(done.state, 'succeeded')
    assert.equal(done.events.filter((event) => event.event === 'done').length, 2)
    assert.match((await client.result('pipeline_status', { pipeline: 'pipe' })).summary, /^2 of 2/)
    const other = await client.result('run_pipeline', { pipeline: 'pipe', params: { word: 'bye' } })
    assert.equal(other.events.filter((event) => event.event === 'done').length, 2)
    for (const [word, shown] of [[1, '1'], [-0.5, '-0.5'], [true, 'true'], [0.1, '0.1'], [1e21, '1e21'], ['01', '01']]) {
        await client.result('run_pipeline', { pipeline: 'pipe', params: { word } })
        assert.match((await client.result('pipeline_status', { pipeline: 'pipe', params: { word: shown } })).summary, /^2 of 2/, shown)
    }
    for (const word of [null, [1], { a: 1 }])
        assert.match(await client.refusal('run_pipeline', { pipeline: 'pipe', params: { word } }), /params: 'word' is not a string, a number, true or false/)
    assert.match(await client.refusal('run_pipeline', { pipeline: '/etc' }), /is no pipeline of this server/)
    assert.match(await client.refusal('run_pipeline', { pipeline: 'pipe', params: { word: '../x' } }), /'\.\.'/)
    assert.match(await client.refusal('run_pipeline', { pipeline: 'pipe', params: { word: '/etc/passwd' } }), /--allow-input/)
})

test('host_status: the budget, what runs and what waits', async (t) => {
    const p = place(t)
    const client = await connect(t, p)
    assert.match((await client.result('host_status')).summary, /^0 running, 0 queued/)
    const { run_id } = await client.result('submit_analysis', { command: ['sleep', '300'] })
    const found = []
    while (!found.length) found.push(...(await client.result('host_status')).running)
    assert.equal(found[0].run_id, run_id)
    const status = await client.result('host_status')
    assert.ok(status.budget.memory > 0)
    await client.result('kill_run', { run: run_id, now: true })
})

test('arguments that the schema does not allow are refused with a sentence', async (t) => {
    const client = await connect(t, place(t))
    const wrong = [
        ['run_analysis', {}, /code or command is needed/],
        ['run_analysis', { code: 'x', command: ['x'] }, /exclude each other/],
        ['run_analysis', { code: '' }, /code is empty/],
        ['run_analysis', { command: [] }, /command has 0 words/],
        ['run_analysis', { command: ['x'], language: 'R' }, /language belongs to code/],
        ['run_analysis', { code: 'x', language: 'perl' }, /language is not one of/],
        ['run_analysis', { code: 'x', memry: '1G' }, /no argument 'memry' \(did you mean memory\?\)/],
        ['run_analysis', { code: 'x', limits: { memory: '1G' } }, /no argument 'limits'\nhint: It has code, language, command, .*memory, cpus, timeout, disk, .*wait_seconds$/],
        ['host_status', { x: 1 }, /no argument 'x'\nhint: It has none/],
        ['run_analysis', { code: 'x', memory: 'much' }, /memory: 'much'/],
        ['run_analysis', { code: 'x', memory: {} }, /neither a string nor a number/],
        ['run_analysis', { code: 'x', wait_seconds: -1 }, /whole number from 0/],
        ['run_analysis', { code: 'x', env: { 'A B': 'c' } }, /env/],
        ['run_analysis', { code: 'x', env: ['HOME'] }, /not an object/],
        ['run_analysis', { code: 'x', name: 'a/b' }, /a\/b/],
        ['run_analysis', { code: 'x', outputs: ['../x'] }, /\.\.\/x/],
        ['run_analysis', { code: '#'.repeat(200000) }, /has 200000 bytes; at most 122880/],
        ['run_analysis', { code: 'x', runtime: 'no-such' }, /no-such/],
        ['run_analysis', { code: 'x', runtime: '/usr' }, /not a name/],
        ['show_run', {}, /show_run needs run/],
        ['show_run', { run: 7 }, /names no run/],
        ['show_run', { run: '*' }, /names no run/],
        ['show_run', { run: '--help' }, /names no run/],
        ['show_run', { run: 'nothing-here' }, /no run 'nothing-here'/],
        ['read_log', { run: 'last', length: 1e9 }, /whole number/],
    ]
    for (const [tool, args, expected] of wrong) assert.match(await client.refusal(tool, args), expected)
})

test('the largest code that is allowed runs', async (t) => {
    const client = await connect(t, place(t))
    const code = 'print(7)\n#' + 'x'.repeat(122880 - 10)
    assert.equal((await client.result('run_analysis', { code })).stdout, '7\n')
})

test('a hint of forge comes with its sentence', async (t) => {
    const p = place(t)
    const client = await connect(t, p)
    const text = await client.refusal('submit_analysis', { code: 'x', memory: '900T' })
    assert.match(text, /memory/)
    assert.doesNotMatch(text, /^forge:/)
})
