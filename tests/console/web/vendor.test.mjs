// Code of others: as published but for the one change that VENDOR.md names, and only what is reached. Own files: their form.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const SDK = fileURLToPath(new URL("../../../src/waystation/console/web/sdk", import.meta.url));
const VENDOR = join(SDK, "vendor");
const { files } = JSON.parse(readFileSync(join(VENDOR, "CHECKSUMS.json"), "utf8"));
const sha256 = (text) => createHash("sha256").update(text).digest("hex");
const own = readdirSync(SDK, { recursive: true }).filter((name) => name.endsWith(".js") && !name.startsWith("vendor/"));

function imports(file) {
  const code = readFileSync(file, "utf8").replace(/\/\*[\s\S]*?\*\//g, "");
  return [...code.matchAll(/(?:\bfrom\s+|\bimport\(|^import\s+)["']([^"']+)["']/gm)].map(([, name]) => name);
}

test("vendored files are as recorded, and as published once the change is undone", () => {
  for (const [name, { sha256: here, upstream_sha256: published }] of Object.entries(files)) {
    const text = readFileSync(join(VENDOR, name), "utf8");
    assert.equal(sha256(text), here, name);
    assert.equal(sha256(text.replaceAll(/from '(?:\.\.\/)+hashes\//g, "from '@noble/hashes/")), published, name);
  }
});

test("every vendored module is recorded, named in VENDOR.md by package, and its licence is there", () => {
  const found = readdirSync(VENDOR, { recursive: true }).filter((name) => name.endsWith(".js"));
  assert.deepEqual(found.sort(), Object.keys(files).sort());
  const about = readFileSync(join(VENDOR, "VENDOR.md"), "utf8");
  for (const name of ["curves", "hashes", "ciphers"]) {
    assert.match(about, new RegExp(`@noble/${name} \\| \\d+\\.\\d+\\.\\d+ \\| MIT`));
    assert.match(readFileSync(join(VENDOR, "noble", name, "LICENSE"), "utf8"), /MIT License/);
  }
});

test("every import is a relative path to a file that is there, and every vendored file is reached", () => {
  const reached = new Set();
  const visit = (file) => {
    if (reached.has(file)) return;
    reached.add(file);
    for (const name of imports(file)) {
      assert.match(name, /^\.{1,2}\//, `${relative(SDK, file)} imports ${name}`);
      assert.ok(existsSync(join(dirname(file), name)), `${relative(SDK, file)} imports ${name}`);
      visit(join(dirname(file), name));
    }
  };
  visit(join(SDK, "merk.js"));
  assert.deepEqual([...reached].filter((file) => file.startsWith(VENDOR)).map((file) => relative(VENDOR, file)).sort(), Object.keys(files).sort());
  assert.deepEqual([...reached].filter((file) => !file.startsWith(VENDOR)).map((file) => relative(SDK, file)).sort(), own.sort());
});

test("only the vendored cryptography reaches vendored files, and only by an import at need", () => {
  const users = own.filter((name) => imports(join(SDK, name)).some((target) => /^\.{1,2}\/vendor\//.test(target)));
  assert.deepEqual(users, ["crypto/vendored.js"]);
  assert.match(readFileSync(join(SDK, "crypto/choice.js"), "utf8"), /await import\("\.\/vendored\.js"\)/);
});

test("own files are checked by types, short, and free of what a strict CSP forbids", () => {
  for (const name of own) {
    const text = readFileSync(join(SDK, name), "utf8");
    assert.match(text, /^\/\/ @ts-check\n\/\*\*/, name);
    assert.ok(text.split("\n").length <= 500, name);
    assert.doesNotMatch(text.replace(/\/\*[\s\S]*?\*\//g, ""), /\beval\(|new Function|innerHTML|@ts-(?:ignore|nocheck)|console\./, name);
  }
});
