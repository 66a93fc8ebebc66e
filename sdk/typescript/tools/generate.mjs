// Makes src/api.gen.ts (the types of every call, by openapi-typescript) and
// src/models.gen.ts (the answers' objects in camelCase, with times as Date) of
// api/openapi.yaml.

import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import openapiTS, { astToString } from 'openapi-typescript'
import ts from 'typescript'

const at = (path) => fileURLToPath(new URL(path, import.meta.url))
const head = '// Made of api/openapi.yaml by "make generate-sdk-typescript". Do not edit.\n\n'
const ast = await openapiTS(new URL('../../../api/openapi.yaml', import.meta.url))
const api = head + astToString(ast)

// What a program sees, and under which name. Lists and requests have no model: calls take and give what is in them.
const models = {
  Sandbox: 'SandboxInfo', EgressPolicy: 'EgressPolicy', Checkpoint: 'Checkpoint', Space: 'Space', Snapshot: 'Snapshot', Lineage: 'Lineage',
  Diff: 'Diff', Process: 'ProcessInfo', FileInfo: 'FileInfo', Extracted: 'Extracted', Metrics: 'Metrics', HostMetrics: 'HostMetrics',
  SandboxEvent: 'SandboxEvent', Info: 'ServerInfo', Capacity: 'Capacity', PoolCounters: 'PoolCounters', Pool: 'Pool', Usage: 'Usage',
  SandboxUsage: 'SandboxUsage', TemplateUsage: 'TemplateUsage', Template: 'Template', Key: 'Key', KeyCreated: 'KeyCreated', Project: 'Project',
  Context: 'Context', PtySize: 'PtySize',
}

const camel = (s) => s.replace(/_([a-z0-9])/g, (_, c) => c.toUpperCase())
const file = ts.createSourceFile('api.gen.ts', api, ts.ScriptTarget.Latest, true)
const components = file.statements.find((s) => ts.isInterfaceDeclaration(s) && s.name.text === 'components')
const schemas = components.members.find((m) => m.name?.getText() === 'schemas').type
// The names of all properties, which docs mention; other words with underscores are values.
const names = new Set()
const collect = (node) => {
  if (ts.isPropertySignature(node)) names.add(node.name.getText().replace(/^"|"$/g, ''))
  ts.forEachChild(node, collect)
}
collect(schemas)
const opaque = new Set()
const dates = new Set()

/** typeOf returns the text of a type in a model. */
function typeOf(node, owner, indent) {
  const text = node.getText()
  if (ts.isTypeLiteralNode(node)) {
    if (node.members.some(ts.isIndexSignatureDeclaration)) {
      opaque.add(owner)
      return text.replace(/\s+/g, ' ')
    }
    return '{\n' + membersOf(node, indent + '    ') + indent + '}'
  }
  if (ts.isArrayTypeNode(node)) return typeOf(node.elementType, owner, indent) + '[]'
  if (ts.isParenthesizedTypeNode(node)) return '(' + typeOf(node.type, owner, indent) + ')'
  if (ts.isIntersectionTypeNode(node)) return node.types.map((t) => typeOf(t, owner, indent)).join(' & ')
  const ref = text.match(/^components\["schemas"\]\["(\w+)"\]$/)
  if (ref) {
    if (!models[ref[1]]) throw new Error(`schema ${ref[1]} has no model; name one in generate.mjs`)
    return models[ref[1]]
  }
  return text
}

function membersOf(node, indent) {
  let out = ''
  for (const m of node.members) {
    const name = m.name.getText().replace(/^"|"$/g, '')
    const doc = ts.getJSDocCommentsAndTags(m).filter(ts.isJSDoc).map((d) => d.getText()).join('\n')
    let type = typeOf(m.type, name, indent)
    if (/Format: date-time/.test(doc)) {
      dates.add(name)
      type = 'Date'
    }
    const notes = doc.replace(/^\/\*\*|\*\/$/g, '').split('\n').map((l) => l.replace(/^\s*\* ?/, '').trim())
      .map((l) => l.replace(/^@description /, '')).filter((l) => l && !/^Format: /.test(l))
      .map((l) => l.replace(/`([a-z]+(?:_[a-z0-9]+)+)`/g, (all, w) => (names.has(w) ? '`' + camel(w) + '`' : all)))
    if (notes.length === 1) out += `${indent}/** ${notes[0]} */\n`
    else if (notes.length) out += `${indent}/**\n${notes.map((l) => `${indent} * ${l}\n`).join('')}${indent} */\n`
    out += `${indent}${camel(name)}${m.questionToken ? '?' : ''}: ${type}\n`
  }
  return out
}

let text = head
for (const member of schemas.members) {
  const name = models[member.name.getText()]
  if (!name) continue
  const doc = ts.getJSDocCommentsAndTags(member).filter(ts.isJSDoc).map((d) => d.getText().replace(/@description /, '').replace(/\n\s+\*/g, '\n *')).join('\n')
  if (doc) text += doc + '\n'
  const type = member.type
  if (ts.isTypeLiteralNode(type)) text += `export interface ${name} {\n${membersOf(type, '    ')}}\n\n`
  else text += `export type ${name} = ${typeOf(type, name, '')}\n\n`
}
const list = (s) => JSON.stringify([...s].sort())
text += `/** @internal Objects under these names have keys of their own. */\nexport const opaque: ReadonlySet<string> = new Set(${list(opaque)})\n\n`
text += `/** @internal These are times. */\nexport const dates: ReadonlySet<string> = new Set(${list(dates)})\n`

for (const [name, content] of [['api.gen.ts', api], ['models.gen.ts', text]]) {
  const path = at(`../src/${name}`)
  if (!process.argv.includes('--check')) writeFileSync(path, content)
  else if (readFileSync(path, 'utf8') !== content) {
    console.error(`${name} is not what api/openapi.yaml says: run 'make generate-sdk-typescript'`)
    process.exitCode = 1
  }
}
