// The live JavaScript interpreter of a context, for node. Its protocol is the one of
// repl.py: frames of JSON on a socket at descriptor 3, standard streams that the agent
// reads. Every run is a script of its own in one global scope; what it declares at its
// top level is a global variable, so that a later run may declare it again.
(function (require, dynamicImport) {
"use strict";
const fs = require("fs"), vm = require("vm"), net = require("net"), util = require("util"), path = require("path");
const nodeModule = require("module"), crypto = require("crypto");

const MAX_RESULT = 8 << 20, MAX_TEXT = 1 << 20, MAX_VALUE = 64 << 10;
const SOCKET = 3;
try { fs.closeSync(4); } catch {}

const state = { id: 0, cell: 0, interrupt: null };

// ---- the socket --------------------------------------------------------------

const nap = new Int32Array(new SharedArrayBuffer(4));

function send(message) {
  const body = Buffer.from(JSON.stringify(message));
  const head = Buffer.alloc(4);
  head.writeUInt32BE(body.length);
  let data = Buffer.concat([head, body]);
  while (data.length > 0) {
    try {
      data = data.subarray(fs.writeSync(SOCKET, data));
    } catch (error) {
      if (error.code === "EAGAIN") Atomics.wait(nap, 0, 0, 1);
      else if (error.code !== "EINTR") process.reallyExit(0); // the agent is gone
    }
  }
}

const emit = (data, main) => send({ op: "result", ...pack(data, main) });

// ---- results -----------------------------------------------------------------

const DISPLAY = Symbol.for("Jupyter.display");
const METHODS = {
  _toHtml: "text/html", _toMd: "text/markdown", _toSvg: "image/svg+xml", _toPng: "image/png", _toJpeg: "image/jpeg",
  _repr_html_: "text/html", _repr_markdown_: "text/markdown", _repr_svg_: "image/svg+xml", _repr_png_: "image/png",
};

function inspect(value) {
  try {
    return util.inspect(value, { depth: 4, maxArrayLength: 200, maxStringLength: 100000 });
  } catch (error) {
    return `<value that cannot be shown: ${error}>`;
  }
}

// bundle returns the representations of a value: MIME type to text or bytes.
async function bundle(value) {
  const data = { "text/plain": inspect(value) };
  if (value === null || typeof value !== "object" && typeof value !== "function") return data;
  if (typeof value[DISPLAY] === "function") return { ...data, ...await value[DISPLAY]() };
  for (const [name, mime] of Object.entries(METHODS)) {
    if (typeof value[name] === "function") data[mime] = await value[name]();
  }
  if (value instanceof Uint8Array) {
    if (value[0] === 0x89 && value[1] === 0x50 && value[2] === 0x4e && value[3] === 0x47) data["image/png"] = value;
    else if (value[0] === 0xff && value[1] === 0xd8 && value[2] === 0xff) data["image/jpeg"] = value;
  } else if (Array.isArray(value) || [Object.prototype, null].includes(Object.getPrototypeOf(value))) {
    try {
      const text = JSON.stringify(value);
      if (text !== undefined) data["application/json"] = text;
    } catch {} // a cycle, or a BigInt
  }
  return data;
}

function pack(data, main) {
  const packed = {};
  let room = MAX_RESULT, dropped = 0;
  for (let [mime, value] of Object.entries(data)) {
    if (value === undefined || value === null) continue;
    if (value instanceof Uint8Array) value = Buffer.from(value).toString("base64");
    else if (typeof value !== "string") value = JSON.stringify(value) ?? String(value);
    const size = Buffer.byteLength(value);
    if (size > room) {
      dropped += size;
      continue;
    }
    room -= size;
    packed[mime] = value.toWellFormed ? value.toWellFormed() : value;
  }
  return { data: packed, main, dropped };
}

globalThis.display = async (...values) => {
  for (const value of values) emit(await bundle(value), false);
};

// ---- rewriting a cell ----------------------------------------------------------

const WORD = /[\p{ID_Start}$_#][\p{ID_Continue}$\u200c\u200d]*/uy;
const NUMBER = /(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*\.?[\d_]*(?:[eE][+-]?\d+)?|\.\d[\d_]*(?:[eE][+-]?\d+)?)n?/y;
const SPACE = /[\s\ufeff]+/y;
const REGEX = /\/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\/[a-z]*/y;
// After these words an expression begins.
const BEFORE = new Set(("return typeof instanceof in of new delete void throw case do else yield await").split(" "));
const BLOCKS = new Set(("if for while function class try switch do with else catch finally async").split(" "));
const STATEMENTS = new Set([...BLOCKS, ..."var let const return throw break continue debugger import export".split(" ")]);

// tokens cuts code as far as rewriting needs it: each token has its kind, its place, how deep
// in brackets it is, and whether a line ends before it.
function tokens(code) {
  const found = [], open = [];
  let at = 0, line = false;
  const match = (re) => { re.lastIndex = at; const m = re.exec(code); return m && m[0]; };
  const push = (kind, text, depth = open.length) => {
    found.push({ kind, text, start: at, end: at + text.length, depth, line });
    at += text.length;
    line = false;
  };
  const operand = () => {
    const t = found[found.length - 1];
    if (!t) return false;
    if (t.kind === "word") return !BEFORE.has(t.text);
    return t.kind === "value" || [")", "]", "}"].includes(t.text);
  };
  const template = () => { // from a ` or the } of a ${} to the next ` or ${
    let end = at + 1;
    while (end < code.length && code[end] !== "`" && !(code[end] === "$" && code[end + 1] === "{")) end += code[end] === "\\" ? 2 : 1;
    const whole = code[end] === "`" || end >= code.length;
    push("value", code.slice(at, end + (whole ? 1 : 2)));
    if (!whole) open.push("${");
  };
  while (at < code.length) {
    const c = code[at];
    let text;
    if ((text = match(SPACE))) {
      line ||= /[\n\r\u2028\u2029]/.test(text);
      at += text.length;
    } else if (code.startsWith("//", at) || code.startsWith("#!", at) && at === 0) {
      const end = code.indexOf("\n", at);
      at = end < 0 ? code.length : end;
    } else if (code.startsWith("/*", at)) {
      const end = code.indexOf("*/", at + 2);
      line ||= code.slice(at, end).includes("\n");
      at = end < 0 ? code.length : end + 2;
    } else if (c === "`") {
      template();
    } else if (c === "'" || c === '"') {
      let end = at + 1;
      while (end < code.length && code[end] !== c && code[end] !== "\n") end += code[end] === "\\" ? 2 : 1;
      push("value", code.slice(at, end + 1));
    } else if (c === "/" && !operand() && (text = match(REGEX))) {
      push("value", text);
    } else if ((text = match(NUMBER))) {
      push("value", text);
    } else if ((text = match(WORD))) {
      push("word", text);
    } else if ("([{".includes(c)) {
      push("open", c);
      open.push(c);
    } else if (c === "}" && open[open.length - 1] === "${") {
      open.pop();
      template();
    } else if (")]}".includes(c)) {
      open.pop();
      push("close", c);
    } else {
      const two = code.startsWith("=>", at) || code.startsWith("++", at) || code.startsWith("--", at) ? code.substr(at, 2) : c;
      push("sign", two);
    }
  }
  return found;
}

// statements groups the tokens at depth 0 into statements: where each begins.
function statements(found) {
  const starts = [];
  let first = null, previous = null;
  for (const [n, t] of found.entries()) {
    if (t.depth > 0) {
      previous = t;
      continue;
    }
    const over = previous === null || previous.text === ";" && previous.depth === 0 ||
      t.line && endsOperand(previous) && beginsStatement(t) ||
      first && BLOCKS.has(first.text) && previous.text === "}" && previous.depth === 0 &&
        !["else", "catch", "finally", ";", ",", ")", "."].includes(t.text) && !(first.text === "do" && t.text === "while") &&
        blockEnds(found, starts[starts.length - 1]);
    if (over) {
      starts.push(n);
      first = t;
    }
    previous = t;
  }
  return starts;
}

const endsOperand = (t) => t.kind === "value" || t.kind === "close" || t.kind === "word" && !BEFORE.has(t.text) || ["++", "--"].includes(t.text);
const beginsStatement = (t) => t.kind === "word" && !["in", "instanceof", "of", "else", "catch", "finally", "while"].includes(t.text) ||
  t.kind === "value" && t.text[0] !== "`" && t.text[0] !== "}" || t.text === "{" || ["++", "--"].includes(t.text);

// blockEnds says that the last token of a statement closes the block of it: "async" may also begin an arrow.
function blockEnds(found, from) {
  return found[from].text !== "async" || found[from + 1]?.text === "function";
}

// rewrite makes top-level declarations of a cell global. With async it becomes the body of
// an asynchronous function that returns the value of the last expression.
function rewrite(code, async) {
  const found = tokens(code), starts = statements(found), edits = [], hoisted = [];
  const edit = (start, end, text) => edits.push({ start, end, text });
  // A script cannot import by itself.
  found.forEach((t, n) => {
    if (t.text === "import" && t.kind === "word" && found[n + 1]?.text === "(" && found[n - 1]?.text !== ".") edit(t.start, t.end, "__import");
  });
  for (const [index, from] of starts.entries()) {
    const first = found[from], next = found[from + 1];
    const last = found[(starts[index + 1] ?? found.length) - 1];
    const word = first.kind === "word" ? first.text : "";
    const declares = ["const", "var"].includes(word) ||
      word === "let" && next && (next.kind === "word" && !["in", "instanceof", "of"].includes(next.text) || ["[", "{"].includes(next.text));
    if (declares) {
      edit(first.start, first.end, async ? ";0," : "var");
      if (async || word === "let") bare(found, from + 1, last, edit);
    } else if (word === "class" && next) {
      edit(first.start, first.start, (async ? ";" : "var ") + next.text + "=");
      edit(last.end, last.end, ";");
    } else if (async && (word === "function" || word === "async" && next?.text === "function")) {
      const name = found.slice(from).find((t) => t.kind === "word" && !["async", "function"].includes(t.text));
      if (name) hoisted.push(name.text);
    } else if (word === "import" && next && !["(", "."].includes(next.text)) {
      edit(first.start, last.end, importing(code.slice(first.start, last.end)));
    } else if (async && index === starts.length - 1 && !STATEMENTS.has(word) && first.text !== ";") {
      const end = last.text === ";" ? last.start : last.end;
      edit(first.start, first.start, ";return (");
      edit(end, end, "\n)");
    }
  }
  edits.sort((a, b) => a.start - b.start);
  let out = "", at = 0;
  for (const e of edits) {
    out += code.slice(at, e.start) + e.text;
    at = e.end;
  }
  out += code.slice(at);
  if (!async) return out;
  return `(async () => {0;${hoisted.map((name) => `globalThis.${name}=${name};`).join("")}${out}\n})()`;
}

// bare gives undefined to names that are declared without a value.
function bare(found, n, last, edit) {
  for (;;) {
    const name = found[n], after = found[n + 1];
    if (name?.kind !== "word") return;
    const ends = name === last || after.text === ";";
    if (!ends && after.text !== ",") return;
    edit(name.end, name.end, "=undefined");
    if (ends) return;
    n += 2;
  }
}

// importing turns a declaration into an expression of import().
function importing(text) {
  const m = /^import\s+(?:([^'"]*?)\s*from\s*)?(['"][^'"]+['"])\s*(?:(?:with|assert)\s*(\{[^}]*\}))?\s*;?\s*$/s.exec(text);
  if (!m) return text;
  const load = `await __import(${m[2]}${m[3] ? `,{with:${m[3]}}` : ""})`;
  const clause = m[1];
  if (!clause) return `;${load};`;
  const parts = [];
  const names = /\{([^}]*)\}/s.exec(clause), all = /\*\s*as\s+([\w$]+)/.exec(clause), main = /^([\w$]+)/.exec(clause);
  if (main) parts.push(`default:${main[1]}`);
  if (names) parts.push(names[1].replace(/([\w$]+)\s+as\s+([\w$]+)/g, "$1:$2"));
  return ";" + (all ? `0,${all[1]}=${load};` : "") + (parts.length ? `0,{${parts.join(",")}}=${load};` : "");
}

function compile(code, name) {
  const options = { filename: name };
  const attempt = (text) => { try { return new vm.Script(text, options); } catch { return null; } };
  const needsAsync = tokens(code).some((t) => t.kind === "word" && t.text === "await") || /^\s*import\s+[^(.]/m.test(code) && !attempt(code);
  if (needsAsync) {
    const script = attempt(rewrite(code, true)) ?? attempt(rewrite(code, false));
    if (script) return script;
    return new vm.Script(`(async () => {${code}\n})()`, options); // which says what is wrong
  }
  if (/^\s*\{/.test(code) && !/;\s*$/.test(code)) {
    const script = attempt(`(${code}\n)`); // an object, not a block
    if (script) return script;
  }
  return attempt(rewrite(code, false)) ?? new vm.Script(code, options);
}

async function importFrom(specifier, options) {
  if (/^\.{0,2}\//.test(specifier)) specifier = require("url").pathToFileURL(path.resolve(specifier)).href;
  else if (!/^[a-z]+:/.test(specifier) && !nodeModule.builtinModules.includes(specifier)) {
    // A package, as the directory of the run finds it, or a global one.
    try {
      specifier = require("url").pathToFileURL(here().resolve(specifier)).href;
    } catch {} // import says what is missing
  }
  return dynamicImport(specifier, options);
}

// here is require as seen from the current directory.
function here() {
  const from = nodeModule.createRequire(path.join(process.cwd(), "[run]"));
  const resolve = (name, options) => {
    try {
      return from.resolve(name, options);
    } catch (error) {
      try {
        return nodeModule.createRequire("/usr/local/lib/node_modules/[global]").resolve(name, options);
      } catch {
        throw error;
      }
    }
  };
  const load = (name) => from(resolve(name));
  return Object.assign(load, { resolve, cache: from.cache });
}

// ---- calls -------------------------------------------------------------------

function describe(error) {
  const isError = error instanceof Error || util.types.isNativeError(error);
  const name = String(isError ? error.name ?? error.constructor?.name ?? "Error" : "Error");
  const value = String(isError ? error.message : inspect(error)).slice(0, MAX_VALUE);
  let stack = isError && typeof error.stack === "string" ? error.stack : `${name}: ${value}`;
  // What the engine and this file were doing is of no interest.
  stack = stack.split("\n").filter((line) => !/^\s+at .*(ramet:repl\.js|node:(vm|internal|net|events)\b|\[eval\])/.test(line)).join("\n");
  return { name, value, traceback: stack.slice(0, MAX_TEXT) };
}

class Interrupted extends Error {
  constructor() {
    super("the code was interrupted");
    this.name = "Interrupted";
    this.stack = `${this.name}: ${this.message}`;
  }
}

// scope gives a call its environment and directory, and returns what takes them back.
function scope(env, cwd) {
  const saved = {};
  let back = null;
  if (cwd) {
    try { back = process.cwd(); } catch {}
    process.chdir(cwd);
    cwd = process.cwd();
  }
  for (const [key, value] of Object.entries(env ?? {})) {
    saved[key] = process.env[key];
    process.env[key] = value;
  }
  return () => {
    for (const [key, value] of Object.entries(saved)) {
      if (process.env[key] !== env[key]) continue;
      if (value === undefined) delete process.env[key];
      else process.env[key] = value;
    }
    try {
      if (back !== null && process.cwd() === cwd) process.chdir(back);
    } catch {}
  };
}

async function evaluate(message) {
  let code = message.code ?? "";
  if (message.strip) code = nodeModule.stripTypeScriptTypes(code, { mode: "strip" });
  const name = `<cell ${++state.cell}>`;
  const script = compile(code, name);
  let value = script.runInThisContext({ breakOnSigint: true, displayErrors: false });
  if (util.types.isPromise(value)) {
    const interrupt = new Promise((_, reject) => { state.interrupt = reject; });
    value = await Promise.race([value, interrupt]);
  }
  if (value === undefined) return null;
  globalThis._ = value;
  return pack(await bundle(value), true);
}

async function call(message) {
  const reply = { op: "done", id: message.id, code: 0 };
  let leave = () => {};
  try {
    if (message.strip && !nodeModule.stripTypeScriptTypes) {
      throw new Error(`TypeScript cannot be run: Node.js ${process.version} cannot strip its types; run javascript`);
    }
    try {
      leave = scope(message.env, message.cwd);
    } catch (error) {
      throw new Error(error.code === "ENOENT" || error.code === "ENOTDIR" ? `there is no directory ${message.cwd}` : String(error.message));
    }
  } catch (error) {
    send({ ...reply, code: 1, start_failed: error.message });
    return;
  }
  try {
    const result = await evaluate(message);
    if (result !== null) reply.result = result;
  } catch (error) {
    if (error?.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED") error = new Interrupted();
    reply.code = error instanceof Interrupted ? 130 : 1;
    reply.interrupted = error instanceof Interrupted;
    try {
      reply.error = describe(error);
    } catch {
      reply.error = { name: "Error", value: "<unprintable>", traceback: "Error: <unprintable>" };
    }
    try { fs.writeSync(2, reply.error.traceback + "\n"); } catch {} // the error itself carries it too
  }
  state.interrupt = null;
  leave();
  send(reply);
}

// ---- random numbers ----------------------------------------------------------

// The engine's generator cannot be seeded, so a copy of this machine would draw the same
// numbers. These come from the kernel, some at a time, and are dropped in a copy.
const pool = new Float64Array(256);
let left = 0;

function random() {
  if (left === 0) {
    const raw = new Uint32Array(pool.length * 2);
    fs.readSync(urandom, raw);
    for (let n = 0; n < pool.length; n++) {
      pool[n] = ((raw[2 * n] >>> 5) * 67108864 + (raw[2 * n + 1] >>> 6)) / 9007199254740992;
    }
    left = pool.length;
  }
  return pool[--left];
}
const urandom = fs.openSync("/dev/urandom", "r");
Object.defineProperty(Math, "random", { value: random, writable: true, configurable: true });

// OpenSSL's generator would go on alike in copies too, and cannot be told to begin anew.
function fill(view) {
  const bytes = ArrayBuffer.isView(view) ? Buffer.from(view.buffer, view.byteOffset, view.byteLength) : Buffer.from(view);
  for (let at = 0; at < bytes.length;) at += fs.readSync(urandom, bytes, at, Math.min(bytes.length - at, 1 << 20), null);
  return view;
}

function randomFillSync(view, offset = 0, size = undefined) {
  const width = view.BYTES_PER_ELEMENT ?? 1, length = view.byteLength ?? view.length;
  const from = offset * width, to = size === undefined ? length : from + size * width;
  if (!(from >= 0 && to >= from && to <= length)) throw new RangeError("offset or size is out of range");
  fill(ArrayBuffer.isView(view) ? Buffer.from(view.buffer, view.byteOffset + from, to - from) : Buffer.from(view, from, to - from));
  return view;
}

function randomBytes(size, callback) {
  if (!Number.isInteger(size) || size < 0 || size > 2 ** 31 - 1) return original.randomBytes(size, callback); // which refuses it
  const bytes = fill(Buffer.alloc(size));
  if (callback === undefined) return bytes;
  process.nextTick(callback, null, bytes);
}

function randomUUID() {
  const b = fill(Buffer.alloc(16));
  b[6] = b[6] & 0x0f | 0x40;
  b[8] = b[8] & 0x3f | 0x80;
  return b.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

function getRandomValues(view) {
  if (!ArrayBuffer.isView(view) || view.byteLength > 65536) return original.getRandomValues(view); // which refuses it
  return fill(view);
}

const original = { randomBytes: crypto.randomBytes, getRandomValues: crypto.webcrypto.getRandomValues.bind(crypto.webcrypto) };

function randomFill(view, ...more) {
  const callback = more.pop();
  randomFillSync(view, ...more);
  process.nextTick(callback, null, view);
}

function replace(object, values) {
  for (const [name, value] of Object.entries(values)) {
    Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
  }
}
replace(crypto, { randomFill, randomFillSync, randomBytes, randomUUID, pseudoRandomBytes: randomBytes, prng: randomBytes, rng: randomBytes });
replace(crypto.webcrypto, { randomUUID, getRandomValues }); // which crypto.getRandomValues asks
nodeModule.syncBuiltinESMExports();

// ---- start -------------------------------------------------------------------

const queue = [];
let busy = false;

async function work() {
  if (busy) return;
  busy = true;
  for (let message; (message = queue.shift());) {
    switch (message.op) {
      case "run":
        await call(message);
        break;
      case "env":
        for (const key of message.unset ?? []) delete process.env[key];
        Object.assign(process.env, message.set ?? {});
        break;
    }
  }
  busy = false;
}

function listen() {
  let inbox = Buffer.alloc(0);
  const socket = new net.Socket({ fd: SOCKET, readable: true, writable: false });
  socket.on("data", (data) => {
    inbox = inbox.length ? Buffer.concat([inbox, data]) : data;
    while (inbox.length >= 4 && inbox.length >= 4 + inbox.readUInt32BE(0)) {
      const end = 4 + inbox.readUInt32BE(0);
      const message = JSON.parse(inbox.toString("utf8", 4, end));
      inbox = inbox.subarray(end);
      if (message.op === "reseed" || message.op === "entropy") left = 0; // also while a call waits
      else queue.push(message);
    }
    work();
  });
  socket.on("end", () => process.reallyExit(0)); // the agent is gone
  socket.on("error", () => process.reallyExit(0));
}

process.on("SIGINT", () => { state.interrupt?.(new Interrupted()); });
const complain = (error) => {
  try { fs.writeSync(2, `Uncaught ${describe(error).traceback}\n`); } catch {}
};
process.on("uncaughtException", complain);
process.on("unhandledRejection", complain);
process.argv.length = 1;
const load = (name) => here()(name);
Object.assign(load, { resolve: (name, options) => here().resolve(name, options), cache: require.cache });
Object.defineProperty(globalThis, "__import", { value: importFrom });
globalThis.require = load;
globalThis.module = { exports: {} };
globalThis.exports = globalThis.module.exports;
listen();
send({ op: "ready", version: process.versions.node });
})
