// The SDK's files: every one is ours, reached from an entry, and in the form that a strict CSP demands.

import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const SDK = fileURLToPath(new URL("../../../src/waystation/console/web/sdk", import.meta.url));
const own = readdirSync(SDK, { recursive: true }).filter((name) => name.endsWith(".js"));

function imports(file) {
  const code = readFileSync(file, "utf8").replace(/\/\*[\s\S]*?\*\//g, "");
  return [...code.matchAll(/(?:\bfrom\s+|\bimport\(|^import\s+)["']([^"']+)["']/gm)].map(([, name]) => name);
}

test("every import is a relative path to a file that is there, every file is reached, and only node.js needs Node.js", () => {
  const reached = new Set();
  const visit = (file) => {
    if (reached.has(file)) return;
    reached.add(file);
    for (const name of imports(file)) {
      if (relative(SDK, file) === "node.js" && name.startsWith("node:")) continue;
      assert.match(name, /^\.{1,2}\//, `${relative(SDK, file)} imports ${name}`);
      assert.ok(existsSync(join(dirname(file), name)), `${relative(SDK, file)} imports ${name}`);
      visit(join(dirname(file), name));
    }
  };
  visit(join(SDK, "merk.js"));
  assert.ok(!reached.has(join(SDK, "node.js")), "pages load no module of Node.js");
  visit(join(SDK, "node.js"));
  assert.deepEqual([...reached].map((file) => relative(SDK, file)).sort(), own.sort());
});

test("files are checked by types, short, and free of what a strict CSP forbids", () => {
  for (const name of own) {
    const text = readFileSync(join(SDK, name), "utf8");
    assert.match(text, /^\/\/ @ts-check\n\/\*\*/, name);
    assert.ok(text.split("\n").length <= 500, name);
    assert.doesNotMatch(text.replace(/\/\*[\s\S]*?\*\//g, ""), /\beval\(|new Function|innerHTML|@ts-(?:ignore|nocheck)|console\./, name);
  }
});

test("Math.random serves waiting times alone", () => {
  const drawing = own.filter((name) => /\brandom\(\)|Math\.random/.test(readFileSync(join(SDK, name), "utf8").replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, "")));
  assert.deepEqual(drawing.sort(), ["backoff.js", "environment.js"]);
});
