// What the tests share: a place for one test, clients, and forge itself.
// SPDX-License-Identifier: Apache-2.0
import { execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync, chmodSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { Client as OldClient } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport as OldTransport } from '@modelcontextprotocol/sdk/client/stdio.js'

export const FORGE = process.env.FORGE

// A directory with a configuration and a FORGE_HOME of its own; removed after the test.
export function place(t) {
    const dir = mkdtempSync('/tmp/forge-mcp-test-')
    chmodSync(dir, 0o755)
    const p = { dir, home: join(dir, 'home'), in: (name) => join(dir, name) }
    writeFileSync(p.in('forge.yaml'), `version: 1
runtimes:
  plain: {kind: system, commands: [python3, sh]}
  other: {kind: system, commands: [sh]}
`)
    p.env = { PATH: process.env.PATH, HOME: dir, FORGE_HOME: p.home, FORGE_CONFIG: p.in('forge.yaml'),
        FORGE_DATADIR: p.in('no-data'), ASAN_OPTIONS: process.env.ASAN_OPTIONS ?? '', UBSAN_OPTIONS: process.env.UBSAN_OPTIONS ?? '',
        SECRET_OF_THE_HOST: 'do-not-show' }
    mkdirSync(p.in('data'))
    writeFileSync(p.in('data/x.csv'), 'a,b\n1,2\n')
    t.after(() => {
        try { p.forge('kill', '--force', '--now', '*') } catch { /* there is none */ }
        rmSync(dir, { recursive: true, force: true })
    })
    p.forge = (...args) => execFileSync(FORGE, args, { cwd: dir, env: p.env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], maxBuffer: 1 << 28 })
    p.record = (run) => JSON.parse(p.forge('show', '--json', run))
    p.runs = () => p.forge('ps', '--all', '--json').split('\n').filter(Boolean).map((line) => JSON.parse(line))
    return p
}

// Waits until a condition holds; a busy machine gets its time.
export async function until(condition, what = 'the condition', seconds = 60) {
    const end = Date.now() + seconds * 1000
    for (;;) {
        const value = await condition()
        if (value) return value
        if (Date.now() > end) throw new Error(`${what} did not hold in ${seconds} s`)
        await new Promise((resolve) => setTimeout(resolve, 30))
    }
}

const info = { name: 'forge-tests', version: '1' }
const modes = {
    modern: () => new Client(info, { versionNegotiation: { mode: { pin: '2026-07-28' } } }),
    auto: () => new Client(info, { versionNegotiation: { mode: 'auto' } }),
    legacy: () => new Client(info, { versionNegotiation: { mode: 'legacy' } }),
    sdk: () => new OldClient(info),
}

// A client of the protocol and the server that it started. client.say(tool, args, options) calls a tool.
export async function connect(t, p, options = [], mode = 'modern') {
    const Transport = mode === 'sdk' ? OldTransport : StdioClientTransport
    const transport = new Transport({ command: FORGE, args: ['mcp', ...options], env: p.env, cwd: p.dir, stderr: 'pipe' })
    const client = modes[mode]()
    client.errors = ''
    transport.stderr?.on('data', (data) => { client.errors += data })
    await client.connect(transport)
    t.after(() => client.close())
    client.pid = transport.pid
    client.say = (name, args = {}, options = { timeout: 120000 }) => mode === 'sdk'
        ? client.callTool({ name, arguments: args }, undefined, options)
        : client.callTool({ name, arguments: args }, options)
    // The sentence of a tool that refuses.
    client.refusal = async (name, args) => {
        const result = await client.say(name, args)
        if (!result.isError) throw new Error(`${name} was not refused: ${JSON.stringify(result.content)}`)
        return result.content[0].text
    }
    // The structured result of a tool that does not.
    client.result = async (name, args, options) => {
        const result = await client.say(name, args, options)
        if (result.isError) throw new Error(`${name}: ${result.content[0].text}`)
        if (result.content[0].text !== result.structuredContent.summary) throw new Error('the summary is not first')
        return result.structuredContent
    }
    return client
}

// The server without a client: lines in, lines out.
export function raw(t, p, options = []) {
    const child = spawn(FORGE, ['mcp', ...options], { cwd: p.dir, env: p.env, stdio: ['pipe', 'pipe', 'pipe'] })
    const s = { child, lines: [], errors: '', status: undefined, signal: undefined }
    let rest = ''
    child.stdout.on('data', (data) => {
        const parts = (rest + data).split('\n')
        rest = parts.pop()
        s.lines.push(...parts)
    })
    child.stderr.on('data', (data) => { s.errors += data })
    child.stdin.on('error', () => {})
    child.on('close', (status, signal) => { s.status = status; s.signal = signal; s.closed = true })
    s.write = (text) => child.stdin.write(text)
    s.send = (message) => s.write(JSON.stringify(message) + '\n')
    s.end = () => child.stdin.end()
    s.next = async (seconds) => {
        await until(() => s.lines.length || s.closed, 'a line', seconds)
        if (!s.lines.length) throw new Error(`the server ended: ${s.status} ${s.signal} ${s.errors}`)
        return JSON.parse(s.lines.shift())
    }
    s.handshake = async (version = '2025-11-25') => {
        s.send({ jsonrpc: '2.0', id: 'hello', method: 'initialize', params: { protocolVersion: version, capabilities: {}, clientInfo: info } })
        const answer = await s.next()
        s.send({ jsonrpc: '2.0', method: 'notifications/initialized' })
        return answer
    }
    s.call = (id, name, args = {}, meta) => s.send({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args, ...(meta ? { _meta: meta } : {}) } })
    t.after(async () => {
        if (!s.closed) child.kill('SIGTERM')
        await until(() => s.closed, 'the end of the server', 40)
    })
    return s
}

export const modernMeta = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientCapabilities': {} }
