// What the person who started the server fixed, and what no request can widen.
// SPDX-License-Identifier: Apache-2.0
import { test } from 'node:test'
import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, renameSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs'
import { place, connect, FORGE } from './lib.mjs'

const LIMITS = ['--max-memory', '256M', '--max-cpus', '0.5', '--max-time', '20s', '--max-disk', '5M']

test('a request above a cap is refused with a sentence that names it, and nothing runs', async (t) => {
    const p = place(t)
    const client = await connect(t, p, LIMITS)
    const above = [
        ['memory', '257M', /^memory 257\.00 MiB is above --max-memory 256\.00 MiB of this server\nhint: Ask for at most 256\.00 MiB/],
        ['memory', 268435457, /--max-memory/],
        ['memory', 'unlimited', /memory unlimited is above --max-memory/],
        ['cpus', 1, /cpus 1 is above --max-cpus 0\.5/],
        ['timeout', '21s', /timeout 21 s is above --max-time 20 s/],
        ['timeout', 'unlimited', /--max-time/],
        ['disk', '6M', /disk 6\.00 MiB is above --max-disk 5\.00 MiB/],
    ]
    for (const tool of ['run_analysis', 'submit_analysis'])
        for (const [limit, value, expected] of above)
            assert.match(await client.refusal(tool, { code: 'print(1)', [limit]: value }), expected)
    assert.equal(p.runs().length, 0)
})

test('without a request the cap is the limit where the default is higher', async (t) => {
    const p = place(t)
    const client = await connect(t, p, LIMITS)
    const done = await client.result('run_analysis', { code: 'print(1)' })
    const { memory_bytes, cpus, wall_seconds, disk_bytes } = p.record(done.run_id).limits
    assert.deepEqual([memory_bytes, cpus, wall_seconds, disk_bytes], [256 << 20, 0.5, 20, 5 << 20])
    const less = await client.result('run_analysis', { code: 'print(1)', memory: '128M' })
    assert.equal(p.record(less.run_id).limits.memory_bytes, 128 << 20)
    assert.equal(p.record(less.run_id).limits.cpus, 0.5)
})

test('a script cannot ask for more than a cap either', async (t) => {
    const p = place(t)
    writeFileSync(p.in('data/big.py'), '# forge: memory=1G\nprint(1)\n')
    writeFileSync(p.in('data/net.py'), '# forge: network=host\nprint(1)\n')
    const client = await connect(t, p, [...LIMITS, '--allow-input', 'data'])
    assert.match(await client.refusal('run_analysis', { command: ['data/big.py'] }), /the script's memory 1\.00 GiB is above --max-memory/)
    // What is asked for by the request goes before the script.
    const done = await client.result('run_analysis', { command: ['data/big.py'], memory: '64M' })
    assert.equal(p.record(done.run_id).limits.memory_bytes, 64 << 20)
    const net = await client.say('run_analysis', { command: ['data/net.py'] })
    if (!net.isError) assert.equal(p.record(net.structuredContent.run_id).network, 'none')
})

test('rerun keeps to the caps, and repeats only what this server could have started', async (t) => {
    const p = place(t)
    writeFileSync(p.in('secret.txt'), 'secret')
    p.forge('run', '--memory', '512M', '--id', 'big', 'true')
    p.forge('run', '--memory', '64M', '-i', 'secret.txt', '--id', 'reads', 'cat', 'secret.txt')
    p.forge('run', '--memory', '64M', '--env', 'SECRET_OF_THE_HOST', '--id', 'env', 'env')
    p.forge('run', '--memory', '64M', '--network', 'host', '--id', 'net', 'true')
    p.forge('run', '--memory', '64M', '--executor', 'local', '--id', 'there', 'true')
    mkdirSync(p.in('elsewhere'))
    execFileSync(FORGE, ['run', '--memory', '64M', '--id', 'away', 'true'], { cwd: p.in('elsewhere'), env: p.env, stdio: 'ignore' })
    const before = p.runs().length
    const client = await connect(t, p, ['--max-memory', '256M'])
    assert.match(await client.refusal('rerun', { run: 'big' }), /the run's memory 512\.00 MiB is above --max-memory/)
    assert.match(await client.refusal('rerun', { run: 'big', memory: '1G' }), /above --max-memory/)
    assert.match(await client.refusal('rerun', { run: 'reads' }), /input secret\.txt is not below a directory of --allow-input/)
    assert.match(await client.refusal('rerun', { run: 'env' }), /SECRET_OF_THE_HOST/)
    assert.match(await client.refusal('rerun', { run: 'net' }), /network is not allowed/)
    assert.match(await client.refusal('rerun', { run: 'there' }), /executor local/)
    assert.match(await client.refusal('rerun', { run: 'away' }), /elsewhere/)
    assert.equal(p.runs().length, before)
    const small = await client.result('rerun', { run: 'big', memory: '64M' })
    assert.equal(p.record(small.run_id).limits.memory_bytes, 64 << 20)
})

test('inputs: none without --allow-input, and only what is below it', async (t) => {
    const p = place(t)
    writeFileSync(p.in('secret.txt'), 'secret')
    writeFileSync(p.in('secret.sh'), 'echo secret')
    symlinkSync(p.in('secret.txt'), p.in('data/link'))
    symlinkSync('/', p.in('data/root'))
    symlinkSync(p.in('data'), p.in('way'))
    mkdirSync(p.in('data2'))
    const none = await connect(t, p)
    const some = await connect(t, p, ['--allow-input', 'way'])
    const refused = /is not below a directory of --allow-input/
    assert.match(await none.refusal('run_analysis', { code: 'x', inputs: ['data/x.csv'] }), /This server allows no inputs/)
    for (const input of ['secret.txt', p.in('secret.txt'), 'data/link', 'data/root', 'data/root/etc/shadow', 'data/../secret.txt', 'data2', '/', '.', 'data/..', '/etc/no-such-file'])
        assert.match(await some.refusal('run_analysis', { code: 'x', inputs: [input] }), refused, input)
    // A file of the host as the program is an input as well.
    for (const program of [p.in('secret.sh'), './secret.sh', '/etc/passwd', 'data/link', 'data/root/etc/passwd'])
        assert.match(await some.refusal('run_analysis', { command: [program] }), refused, program)
    assert.match(await some.refusal('run_analysis', { command: ['secret.sh'] }), /not below/)
    assert.equal(p.runs().length, 0)
    for (const input of ['data', 'data/x.csv', p.in('data/x.csv'), 'way/x.csv'])
        assert.equal((await some.result('run_analysis', { code: `print(open("${p.in('data/x.csv')}").read(), end="")`, inputs: [input] })).stdout, 'a,b\n1,2\n', input)
    // What is only read by the code and is no input is not there.
    const other = await some.result('run_analysis', { code: `open("${p.in('secret.txt')}")` })
    assert.match(other.stderr, /No such file/)
})

test('a link that changes after it was checked does not lead out', async (t) => {
    const p = place(t)
    writeFileSync(p.in('secret.txt'), 'secret\n')
    writeFileSync(p.in('data/real'), 'public\n')
    const client = await connect(t, p, ['--allow-input', 'data', '--max-memory', '256M'])
    // Another process moves the link to and fro as fast as it can.
    const flip = `for (;;) { for (const to of ['${p.in('data/real')}', '${p.in('secret.txt')}']) {
        try { require('fs').symlinkSync(to, '${p.in('data/tmp')}'); require('fs').renameSync('${p.in('data/tmp')}', '${p.in('data/flip')}') } catch {} } }`
    symlinkSync(p.in('data/real'), p.in('data/flip'))
    const { spawn } = await import('node:child_process')
    const flipper = spawn('node', ['-e', flip], { stdio: 'ignore' })
    try {
        let ran = 0, refused = 0
        for (let i = 0; i < 40; i++) {
            const result = await client.say('run_analysis', { command: ['cat', 'data/flip'], inputs: ['data/flip'] })
            if (result.isError) { refused++; continue }
            ran++
            assert.doesNotMatch(result.structuredContent.stdout, /secret/)
            for (const input of p.record(result.structuredContent.run_id).inputs) assert.equal(input.path, p.in('data/real'))
        }
        t.diagnostic(`${ran} ran, ${refused} were refused`)
        assert.ok(refused > 0)
    } finally {
        flipper.kill('SIGKILL')
    }
})

test('runtimes: only those of --runtime, and one of them always', async (t) => {
    const p = place(t)
    const one = await connect(t, p, ['--runtime', 'plain'])
    assert.deepEqual((await one.result('list_runtimes')).runtimes.map((r) => r.name), ['plain'])
    assert.match(await one.refusal('run_analysis', { code: 'x', runtime: 'other' }), /runtime other is not one of this server's\nhint: It has: plain/)
    assert.match(await one.refusal('show_runtime', { name: 'other' }), /not one of this server's/)
    assert.equal((await one.result('run_analysis', { code: 'print(1)' })).runtime.name, 'plain')
    const two = await connect(t, p, ['--runtime', 'plain', '--runtime', 'other'])
    assert.match(await two.refusal('run_analysis', { code: 'x' }), /runtime is needed here: one of plain, other/)
})

test('the network only with --allow-network', async (t) => {
    const p = place(t)
    const client = await connect(t, p)
    assert.match(await client.refusal('run_analysis', { code: 'x', network: 'host' }), /network is not allowed on this server/)
    const open = await connect(t, p, ['--allow-network'])
    const done = await open.result('run_analysis', { code: 'print(1)', network: 'host' })
    assert.equal(p.record(done.run_id).network, 'host')
    assert.equal(p.record((await open.result('run_analysis', { code: 'print(1)' })).run_id).network, 'none')
})

test('read-only: nothing that starts or ends a run is there, listed or not', async (t) => {
    const p = place(t)
    p.forge('run', '--id', 'mine', 'echo', 'hello')
    writeFileSync(p.in('pipeline.yaml'), 'name: p\nsteps:\n  a: {run: "echo 1 > o", outputs: [o]}\n')
    const client = await connect(t, p, ['--read-only', '--pipeline', p.dir])
    const names = (await client.listTools()).tools.map((tool) => tool.name)
    assert.deepEqual(names, ['show_run', 'wait_run', 'list_runs', 'read_log', 'list_outputs', 'read_output', 'list_runtimes',
        'show_runtime', 'list_pipelines', 'pipeline_status', 'host_status'])
    for (const name of ['run_analysis', 'submit_analysis', 'kill_run', 'rerun', 'run_pipeline'])
        await assert.rejects(client.callTool({ name, arguments: { run: 'mine', code: 'print(1)' } }), /unknown tool/)
    assert.equal((await client.result('read_log', { run: 'mine' })).text, 'hello\n')
    assert.equal(p.runs().length, 1)
})

test('--max-runs: no more at once, and a place is free when a run is over', async (t) => {
    const p = place(t)
    const client = await connect(t, p, ['--max-runs', '2'])
    const sleep = { command: ['sleep', '300'], memory: '32M', cpus: 0.1 }
    const started = []
    for (let i = 0; i < 2; i++) started.push((await client.result('submit_analysis', sleep)).run_id)
    assert.match(await client.refusal('submit_analysis', sleep), /2 runs of this server are not over, and it may have 2 at once \(--max-runs\)/)
    assert.match(await client.refusal('run_analysis', { code: 'print(1)' }), /--max-runs/)
    // Ended by somebody else.
    p.forge('kill', '--now', started[0])
    assert.equal((await client.result('run_analysis', { code: 'print(1)' })).stdout, '1\n')
    const both = await Promise.all([client.say('submit_analysis', sleep), client.say('submit_analysis', sleep)])
    assert.equal(both.filter((result) => result.isError).length, 1)
    // A request that was refused for another reason gives its place back.
    p.forge('kill', '--now', '--force', '*')
    for (let i = 0; i < 4; i++) await client.refusal('run_analysis', { code: 'x', runtime: 'no-such' })
    assert.equal((await client.result('run_analysis', { code: 'print(2)' })).stdout, '2\n')
})

test('what would lead out of all that is no argument', async (t) => {
    const p = place(t)
    const client = await connect(t, p)
    for (const name of ['config', 'store', 'keep', 'copy', 'executor', 'profile', 'env_file', 'post_process', 'priority'])
        assert.match(await client.refusal('run_analysis', { code: 'x', [name]: 'x' }), new RegExp(`no argument '${name}'`))
    // Words that look like options are words of the command.
    const done = await client.result('run_analysis', { command: ['echo', '--keep', '--copy=/tmp'] })
    assert.equal(done.stdout, '--keep --copy=/tmp\n')
    const option = await client.say('run_analysis', { command: ['--keep', 'true'] })
    if (!option.isError) assert.notEqual(option.structuredContent.status, 'succeeded')
    const env = await client.result('run_analysis', { command: ['env'], env: { LD_PRELOAD: '/x.so', A: 'b=c' } })
    assert.match(env.stdout, /^A=b=c$/m)
    assert.doesNotMatch(env.stdout, /do-not-show/)
})

test('options that are wrong are refused before anything is served', async (t) => {
    const p = place(t)
    writeFileSync(p.in('broken.yaml'), 'version: 1\nnonsense: 2\n')
    writeFileSync(p.in('small.yaml'), 'version: 1\nhost: {max: {memory: 64M, timeout: 1m}}\n')
    writeFileSync(p.in('cycle.yaml'), 'name: c\nsteps:\n  a: {inputs: {x: b/o}, run: "cp $x o", outputs: [o]}\n  b: {inputs: {x: a/o}, run: "cp $x o", outputs: [o]}\n')
    writeFileSync(p.in('absent.yaml'), 'name: c\nsteps:\n  a: {inputs: {x: no-such.csv}, run: "cp $x o", outputs: [o]}\n')
    const wrong = [
        [['--max-runs', '0'], /--max-runs: 0 is not a number from 1/],
        [['--runtime', 'nope'], /--runtime: unknown runtime 'nope' \(have: .*plain/],
        [['--runtime', 'plain', '--runtime', 'plan'], /unknown runtime 'plan'/],
        [['--max-memory', '900T'], /--max-memory: memory 900\.00 TiB is more than all analyses on this host may have together/],
        [['--max-cpus', '90000'], /--max-cpus: 90000 CPUs are more than all analyses/],
        [['--config', 'small.yaml', '--max-memory', '65M'], /--max-memory: 65\.00 MiB is more than this host allows: 64\.00 MiB \(host\.max\.memory\)/],
        [['--config', 'small.yaml', '--max-time', '2m'], /host\.max\.timeout/],
        [['--pipeline', 'cycle.yaml'], /cycle\.yaml:3:3: --pipeline: steps that wait for each other/],
        [['--pipeline', 'absent.yaml'], /absent\.yaml:3:.*--pipeline: .*no-such\.csv/],
        [['--pipeline', 'broken.yaml'], /broken\.yaml:1:.*--pipeline: /],
        [['--max-memory', 'much'], /--max-memory/],
        [['--allow-input', 'no-such'], /--allow-input no-such/],
        [['--allow-input', 'forge.yaml'], /not a directory/],
        [['--runtime', '/usr'], /--runtime/],
        [['--pipeline', 'no-such'], /--pipeline no-such/],
        [['--executor', 'no-such'], /no-such/],
        [['--config', 'broken.yaml'], /nonsense/],
        [['word'], /unexpected argument/],
    ]
    for (const [options, expected] of wrong) {
        const done = spawnSync(FORGE, ['mcp', ...options], { cwd: p.dir, env: p.env, encoding: 'utf8', input: '' })
        assert.equal(done.status, 2, options.join(' '))
        assert.match(done.stderr, expected)
        assert.equal(done.stdout, '')
    }
    // What can be met is not refused: a cap of none, one as high as the host's, files that a parameter names.
    writeFileSync(p.in('later.yaml'), 'name: l\nparams: {reads: no-such.csv}\nsteps:\n  a: {inputs: {x: $reads}, run: "cp $x o", outputs: [o]}\n')
    for (const options of [['--max-memory', 'unlimited'], ['--config', 'small.yaml', '--max-memory', '64M', '--max-time', '1m'], ['--max-runs', '1'],
        ['--pipeline', 'later.yaml']]) {
        const done = spawnSync(FORGE, ['mcp', ...options], { cwd: p.dir, env: p.env, encoding: 'utf8', input: '' })
        assert.equal(done.status, 0, options.join(' ') + done.stderr)
    }
})

test('a directory that was moved after the start is not what was allowed', async (t) => {
    const p = place(t)
    symlinkSync(p.in('data'), p.in('way'))
    writeFileSync(p.in('secret.txt'), 'secret')
    const client = await connect(t, p, ['--allow-input', 'way'])
    // A modern client is connected before the server has said anything.
    await client.listTools()
    unlinkSync(p.in('way'))
    symlinkSync(p.dir, p.in('way'))
    assert.match(await client.refusal('run_analysis', { code: 'x', inputs: ['way/secret.txt'] }), /not below/)
    renameSync(p.in('data'), p.in('was'))
    assert.match(await client.refusal('run_analysis', { code: 'x', inputs: ['data/x.csv'] }), /No such file|not below/)
})
